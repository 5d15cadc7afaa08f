/* SPDX-License-Identifier: Apache-2.0
 *
 * qsgd: every element becomes one of 2 s + 1 levels between -norm and +norm of its block, chosen at random so that the
 * mean is the element.
 *
 * Source: Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NeurIPS 2017,
 * arXiv 1610.02132, section 3.1: with a = s |x| / norm, the level is floor(a) + 1 with probability a - floor(a), else
 * floor(a). s is qsgd.levels, the paper's bucket is qsgd.block.
 *   deviation: codes have fixed width, log2(2 s + 1) bits rounded up, not Elias codes, so payloads have fixed size.
 *   qsgd.norm max divides by the largest magnitude of the block (section 4 of the paper): steps are then finer.
 *
 * Properties (test_quantisers.c): unbiased (qsgd_is_unbiased); with the L2 norm, variance at most
 * min(B / s^2, sqrt(B) / s) |x|^2 (qsgd_variance_is_below_the_bound_of_the_paper), which exceeds |x|^2 for few levels
 * and long blocks: error feedback would then grow without limit, so the preset turns it off; class SUM; random by the
 * key of the call.
 */
#include <math.h>

#include "codec/quantiser.h"

typedef enum { NORM_L2, NORM_MAX } norm_kind;

typedef struct qsgd_options {
    int64_t levels, block;
    int norm;
} qsgd_options;

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("levels", INT, offsetof(qsgd_options, levels), "7", .min = 1, .max = 127,
                  .help = "levels above zero; 1, 3, 7, ... 127 fill 2, 3, 4, ... 8 bits"),
    TACITI_OPTION("block", INT, offsetof(qsgd_options, block), "512", TACITI_QUANTISER_BLOCK,
                  .help = "elements that share a norm; a multiple of 40 with one level, else of 8"),
    TACITI_OPTION("norm", ENUM, offsetof(qsgd_options, norm), "l2", .choices = "l2|max",
                  .help = "what the levels divide: the L2 norm of the paper, or the largest magnitude"),
};

static const taciti_option_table TABLE = {.section = "qsgd",
                                          .help = "stochastic quantisation to levels of a norm (QSGD)",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

static taciti_quantiser_shape shape(const void *options) {
    const qsgd_options *o = options;
    return (taciti_quantiser_shape){.block = (size_t)o->block, .parameters = 1, .codes = (unsigned)(2 * o->levels + 1)};
}

/* Rounding to float keeps the norm at or above the largest magnitude, which is a float. */
static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    const qsgd_options *o = call->options;
    const taciti_block_sums m = taciti_block_sums_of(block->x, block->n);
    const double norm = o->norm == NORM_MAX ? (double)m.largest : sqrt(m.squares);
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
    .name = "qsgd", .shape = shape, .measure = measure, .quantise = quantise, .legal = legal, .restore = restore};

TACITI_QUANTISER_FUNCTIONS(QUANTISER, )

extern const taciti_codec taciti_codec_qsgd;
const taciti_codec taciti_codec_qsgd = {
    .name = "qsgd",
    .help = "rounds every element at random to one of a few levels of its block's norm; unbiased",
    .source = "QSGD (arXiv 1610.02132), codes of fixed width",
    .preset = "compress.feedback=0",
    .no_feedback = true,
    .options = &TABLE,
    .options_size = sizeof(qsgd_options),
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .fixed_size = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
