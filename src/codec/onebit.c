/* SPDX-License-Identifier: Apache-2.0
 *
 * onebit: the sign of every element, and per block two values that signs stand for.
 *
 * Source: Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel Distributed Training of
 * Speech DNNs", Interspeech 2014, section 3: threshold 0, the values are the means of the elements on either side.
 *   deviation: blocks of consecutive elements instead of the columns of matrices.
 *
 * Properties (test_quantisers.c): |x - C(x)| <= |x|, so error feedback converges
 * (onebit_means_are_the_best_two_values); zero counts as positive; one bit per element and 8 bytes per block; class
 * SUM; deterministic.
 */
#include "codec/quantiser.h"

enum { BLOCK = 512 }; /* elements that share two values */

static taciti_quantiser_shape shape(const void *options) {
    (void)options;
    return (taciti_quantiser_shape){.block = BLOCK, .parameters = 2, .codes = 2};
}

static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    (void)call;
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
    .keyless = true,
};
