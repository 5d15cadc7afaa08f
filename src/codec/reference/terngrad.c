/* SPDX-License-Identifier: Apache-2.0
 *
 * terngrad: every element becomes -s, 0 or +s, at random so that the mean is the element; s is the largest magnitude.
 *
 * Source: Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning", NeurIPS 2017,
 * arXiv 1705.07878, equations 2 to 5, and clipping to 2.5 standard deviations, equation 9.
 *   deviation: every message has its own s. Section 3.2 of the paper shares the largest s of all ranks, which needs a
 *   round of its own and is worth it only where integers are summed on the way.
 *
 * Properties (test_quantisers.c): without clipping unbiased with variance |x| (s - |x|) for every element
 * (terngrad_has_the_mean_and_variance_of_the_paper); that variance can exceed |x|^2, so the preset turns error feedback
 * off; 1.6 bits per element; class SUM; random by the key of the call.
 */
#include <math.h>

#include "codec/quantiser.h"

typedef struct terngrad_options {
    double clip;
} terngrad_options;

static const taciti_option OPTIONS[] = {TACITI_OPTION("clip", REAL, offsetof(terngrad_options, clip), "2.5", .min = 0,
                                                      .max = 1e6, .unit = "standard deviations",
                                                      .help = "larger magnitudes are clipped before; 0: none is")};

static const taciti_option_table TABLE = {.section = "terngrad",
                                          .help = "three levels by stochastic rounding (TernGrad)",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

static taciti_quantiser_shape shape(const void *options) {
    (void)options;
    return (taciti_quantiser_shape){.block = 0, .parameters = 1, .codes = 3};
}

static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    const double clip = ((const terngrad_options *)call->options)->clip;
    const taciti_block_sums m = taciti_block_sums_of(block->x, block->n);
    const double mean = m.sum / (double)block->n;
    const double limit = clip * sqrt(fmax(m.squares / (double)block->n - mean * mean, 0));
    parameters[0] = clip > 0 && limit > 0 && limit < (double)m.largest ? (float)limit : m.largest;
}

static void quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                     uint8_t *codes) {
    const double s = (double)parameters[0];
    for (size_t i = 0; i < part->n; i++) {
        const double u = taciti_rng_u32(call->key, (uint32_t)(part->first + i)) * 0x1p-32;
        const int sent = u * s < fabs((double)part->x[i]);
        codes[i] = (uint8_t)(part->x[i] < 0 ? 1 - sent : 1 + sent);
    }
}

static bool legal(const void *options, const float *parameters) {
    (void)options;
    return parameters[0] >= 0;
}

static void restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    (void)options;
    const float values[] = {-parameters[0], 0, parameters[0]};
    for (size_t i = 0; i < n; i++) y[i] = values[codes[i]];
}

static const taciti_quantiser QUANTISER = {
    .shape = shape, .measure = measure, .quantise = quantise, .legal = legal, .restore = restore};

extern const taciti_codec taciti_codec_terngrad;
const taciti_codec taciti_codec_terngrad = {
    TACITI_QUANTISER(QUANTISER),
    .name = "terngrad",
    .reference = true,
    .help = "rounds every element at random to minus the largest magnitude, zero or the largest magnitude; unbiased",
    .source = "TernGrad (arXiv 1705.07878), one scale per message",
    .preset = "compress.feedback=0",
    .no_feedback = true,
    .options = &TABLE,
    .options_size = sizeof(terngrad_options),
};
