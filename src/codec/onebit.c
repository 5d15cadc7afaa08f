/* SPDX-License-Identifier: Apache-2.0
 *
 * onebit: the sign of every element, and per block two values that signs stand for.
 *
 * Source: Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
 * Speech DNNs", Interspeech 2014, section 3: threshold 0, the values are the means of the elements on either side.
 *   deviation: blocks of consecutive elements instead of the columns of matrices.
 * onebit.values rms: plus and minus the root mean square of the block, as 1-bit Adam compresses its momentum (Tang et
 * al., arXiv 2102.02888, section 4; DeepSpeed's implementation).
 *
 * Properties (test_quantisers.c): means: |x - C(x)| <= |x|, so error feedback converges
 * (onebit_means_are_the_best_two_values); rms: up to 1.38 |x| (a_spike_loses_more_than_itself_with_rms); zero counts as
 * positive; one bit per element and 8 bytes per block; class SUM; deterministic.
 */
#include <math.h>

#include "codec/quantiser.h"

typedef enum { VALUES_MEANS, VALUES_RMS } values_kind;

enum { BLOCK = 512 }; /* elements that share two values */

typedef struct onebit_options {
    int values;
} onebit_options;

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("values", ENUM, offsetof(onebit_options, values), "means", .choices = "means|rms",
                  .help = "the means of negative and of other elements (1-bit SGD), or plus and minus the root mean "
                          "square (1-bit Adam)"),
};

static const taciti_option_table TABLE =
    TACITI_OPTION_TABLE("onebit", "signs and two values per block (1-bit SGD)", OPTIONS);

static taciti_quantiser_shape shape(const void *options) {
    (void)options;
    return (taciti_quantiser_shape){.block = BLOCK, .parameters = 2, .codes = 2};
}

static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    const taciti_block_sums m = taciti_block_sums_of(block->x, block->n);
    if (((const onebit_options *)call->options)->values == VALUES_RMS) {
        parameters[1] = (float)sqrt(m.squares / (double)block->n);
        parameters[0] = -parameters[1];
        return;
    }
    double sums[2] = {0};
    size_t counts[2] = {0};
    for (size_t i = 0; i < block->n; i++) {
        const int side = block->x[i] >= 0;
        sums[side] += (double)block->x[i];
        counts[side]++;
    }
    for (int side = 0; side < 2; side++)
        parameters[side] = counts[side] > 0 ? (float)(sums[side] / (double)counts[side]) : 0;
}

/* |x - C(x)|^2 = 2 |x|^2 - 2 rms |x|_1 of a block, and |x|_1 >= |x| = rms sqrt(BLOCK), as of a single element. Means
 * lose at most |x|. */
static double max_loss(const void *options) {
    return ((const onebit_options *)options)->values == VALUES_RMS ? sqrt(2 - 2 / sqrt(BLOCK)) : 1;
}

static void quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                     uint8_t *codes) {
    (void)call;
    (void)parameters;
    for (size_t i = 0; i < part->n; i++) codes[i] = part->x[i] >= 0;
}

static bool legal(const void *options, const float *parameters) {
    (void)options;
    return parameters[0] <= 0 && parameters[1] >= 0;
}

static void restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    (void)options;
    for (size_t i = 0; i < n; i++) y[i] = parameters[codes[i]];
}

static const taciti_quantiser QUANTISER = {
    .shape = shape, .measure = measure, .quantise = quantise, .legal = legal, .restore = restore};

extern const taciti_codec taciti_codec_onebit;
const taciti_codec taciti_codec_onebit = {
    TACITI_QUANTISER(QUANTISER),
    .name = "onebit",
    .help = "sends signs, and the means of the two sides of zero per block: one bit; needs error feedback; "
            "1-bit Adam: with compress.what momentum",
    .source = "1-bit SGD (Interspeech 2014), blocks instead of columns",
    .options = &TABLE,
    .options_size = sizeof(onebit_options),
    .max_loss = max_loss,
    .keyless = true,
};
