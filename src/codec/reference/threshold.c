/* SPDX-License-Identifier: Apache-2.0
 *
 * threshold: sends the elements whose magnitude reaches a threshold: that of its option.
 *
 * Source: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing" (Interspeech 2015): a fixed
 * threshold, error feedback.
 *   deviation: Strom sends the sign and +-threshold; here values are sent as they are
 *
 * Properties (test_selection.c): what is sent is exactly {i : |x_i| >= threshold}, and what is not finite; the number
 * of elements follows from the data, so that it may be 0 or all; class GATHER; deterministic.
 *
 * Wire layout: composed.c.
 */
#include "codec/largest.h"
#include "codec/selector.h"

typedef struct threshold_options {
    taciti_composed_options composed; /* without keys */
    double magnitude;
} threshold_options;

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("magnitude", REAL, offsetof(threshold_options, magnitude), "1e-3", .min = 1e-30, .max = 1e30,
                  .help = "an element is sent from this magnitude on"),
};

static const taciti_option_table TABLE = {.section = "threshold",
                                          .help = "the elements that reach a fixed magnitude",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

static void select_above(const taciti_codec_call *call, const float *x, size_t n, void *scratch,
                         taciti_selection *out) {
    const threshold_options *options = call->options;
    (void)scratch;
    taciti_select_by_threshold(x, n, taciti_magnitude_bits(options->magnitude), out);
}

static const taciti_selector SELECTOR = {.select = select_above};

extern const taciti_codec taciti_codec_threshold;
const taciti_codec taciti_codec_threshold = {
    TACITI_COMPOSED(SELECTOR),
    .name = "threshold",
    .reference = true,
    .help = "sends the elements that reach a fixed magnitude, however many they are",
    .source = "Strom 2015 (Interspeech)",
    .options = &TABLE,
    .options_size = sizeof(threshold_options),
    .keyless = true,
};
