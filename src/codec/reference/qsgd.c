/* SPDX-License-Identifier: Apache-2.0
 *
 * qsgd: every element becomes one of 2 s + 1 levels between -norm and +norm of its block, chosen at random so that the
 * mean is the element.
 *
 * Source: Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017,
 * arXiv 1610.02132, section 3.1: with a = s |x| / norm, the level is floor(a) + 1 with probability a - floor(a), else
 * floor(a). s is qsgd.levels, the paper's bucket has 512
 * elements.
 *   deviation: codes have fixed width, log2(2 s + 1) bits rounded up, not Elias codes, so payloads have fixed size.
 *
 * Properties (test_quantisers.c): unbiased (qsgd_is_unbiased); with the L2 norm, variance at most
 * min(B / s^2, sqrt(B) / s) |x|^2 (qsgd_variance_is_below_the_bound_of_the_paper), which exceeds |x|^2 for few levels
 * and long blocks: error feedback would then grow without limit, so the preset turns it off; class SUM; random by the
 * key of the call.
 */
#include <math.h>

#include "codec/quantiser.h"
#include "kernel/kernel.h"

enum { BLOCK = 512 };

typedef struct qsgd_options {
    int64_t levels;
} qsgd_options;

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("levels", INT, offsetof(qsgd_options, levels), "7", .min = 1, .max = 127,
                  .help = "levels above zero; 1, 3, 7, ... 127 fill 2, 3, 4, ... 8 bits"),
};

static const taciti_option_table TABLE =
    TACITI_OPTION_TABLE("qsgd", "stochastic quantisation to levels of a norm (QSGD)", OPTIONS);

static taciti_quantiser_shape shape(const void *options) {
    const qsgd_options *o = options;
    return (taciti_quantiser_shape){.block = BLOCK, .parameters = 1, .codes = (unsigned)(2 * o->levels + 1)};
}

/* Rounding to float keeps the norm at or above the largest magnitude, which is a float. */
static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    const double norm = sqrt(taciti_kernels_get()->sum_squares(block->x, block->n));
    (void)call;
    parameters[0] = (float)fmin(norm, 0x1.fffffep127);
}

static void quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                     uint8_t *codes) {
    const int s = (int)((const qsgd_options *)call->options)->levels;
    const double scale = parameters[0] > 0 ? s / (double)parameters[0] : 0;
    for (size_t i = 0; i < part->n; i++) {
        const double a = fmin(fabs((double)part->x[i]) * scale, s);
        const int below = (int)a;
        const double u = taciti_rng_u32(call->key, (uint32_t)(part->first + i)) * 0x1p-32;
        const int level = below + (u < a - below);
        codes[i] = (uint8_t)(part->x[i] < 0 ? s - level : s + level);
    }
}

static bool legal(const void *options, const float *parameters) {
    (void)options;
    return parameters[0] >= 0;
}

static void restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    const int s = (int)((const qsgd_options *)options)->levels;
    for (size_t i = 0; i < n; i++) y[i] = (float)((double)parameters[0] * (codes[i] - s) / s);
}

static const taciti_quantiser QUANTISER = {
    .shape = shape, .measure = measure, .quantise = quantise, .legal = legal, .restore = restore};

extern const taciti_codec taciti_codec_qsgd;
const taciti_codec taciti_codec_qsgd = {
    TACITI_QUANTISER(QUANTISER),
    .name = "qsgd",
    .reference = true,
    .help = "rounds every element at random to one of a few levels of its block's norm; unbiased",
    .source = "QSGD (arXiv 1610.02132), codes of fixed width",
    .preset = "compress.feedback=0",
    .no_feedback = true,
    .options = &TABLE,
    .options_size = sizeof(qsgd_options),
};
