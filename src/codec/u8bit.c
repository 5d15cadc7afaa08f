/* SPDX-License-Identifier: Apache-2.0
 *
 * u8bit: 8 bits per element, of which the first set bit tells the power of ten and the bits behind it the digits.
 *
 * Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, arXiv 1511.04561, section 2.1.4
 * (dynamic tree quantisation): magnitudes relative to the largest of the block. Behind the sign, 6 - i zeros, a one and
 * i bits f stand for 10^(i - 6) (0.1 + 0.9 (f + 1/2) / 2^i). Code 0 is zero; the code of minus zero is the largest
 * magnitude itself, positive.
 *   deviation: blocks of u8bit.block elements have their own scale, as in "8-bit Optimizers via Block-wise
 *   Quantization", arXiv 2110.02861.
 *
 * Properties (test_grace.c): every value becomes the nearest of the 256 (u8bit_takes_the_nearest_value); relative
 * error at most 7.1 % above a tenth of the largest magnitude; class SUM; deterministic.
 */
#include <math.h>

#include "codec/quantiser.h"

enum { DIGITS = 7, VALUES = 1 << DIGITS, SIGN = VALUES };

typedef struct u8bit_options {
    int64_t block;
} u8bit_options;

static const taciti_option OPTIONS[] = {TACITI_OPTION("block", INT, offsetof(u8bit_options, block), "2048",
                                                      TACITI_QUANTISER_BLOCK, .help = "elements that share a scale")};

static const taciti_option_table TABLE = {.section = "u8bit",
                                          .help = "8-bit floats with a dynamic exponent",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

static taciti_quantiser_shape shape(const void *options) {
    return (taciti_quantiser_shape){
        .block = (size_t)((const u8bit_options *)options)->block, .parameters = 1, .codes = 256};
}

/* Magnitudes of the codes without sign, ascending, and 1 behind them. */
static void magnitudes(double values[VALUES + 1]) {
    double power = 1e-6;
    values[0] = 0;
    for (int i = 0; i < DIGITS; i++, power *= 10)
        for (int f = 0; f < 1 << i; f++) values[(1 << i) + f] = power * (0.1 + 0.9 * (f + 0.5) / (1 << i));
    values[VALUES] = 1;
}

/* The last code whose lower neighbour is not nearer. */
static int nearest(const double values[VALUES + 1], double a) {
    int code = 0;
    for (int step = VALUES / 2; step > 0; step /= 2)
        if (a > (values[code + step - 1] + values[code + step]) / 2) code += step;
    return code + (code == VALUES - 1 && a > (values[VALUES - 1] + values[VALUES]) / 2);
}

static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    (void)call;
    parameters[0] = taciti_block_sums_of(block->x, block->n).largest;
}

static void quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                     uint8_t *codes) {
    const double scale = parameters[0] > 0 ? 1 / (double)parameters[0] : 0;
    double values[VALUES + 1];
    (void)call;
    magnitudes(values);
    for (size_t i = 0; i < part->n; i++) {
        const int code = nearest(values, fabs((double)part->x[i]) * scale);
        if (part->x[i] > 0 || code == 0)
            codes[i] = (uint8_t)code; /* VALUES, the largest magnitude, is the code of minus zero */
        else
            codes[i] = (uint8_t)(SIGN + (code < VALUES ? code : VALUES - 1));
    }
}

static bool legal(const void *options, const float *parameters) {
    (void)options;
    return parameters[0] >= 0;
}

static void restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    double values[VALUES + 1];
    (void)options;
    magnitudes(values);
    for (size_t i = 0; i < n; i++) {
        const double value = codes[i] <= SIGN ? values[codes[i]] : -values[codes[i] - SIGN];
        y[i] = (float)(value * (double)parameters[0]);
    }
}

static const taciti_quantiser QUANTISER = {
    .name = "u8bit", .shape = shape, .measure = measure, .quantise = quantise, .legal = legal, .restore = restore};

TACITI_QUANTISER_FUNCTIONS(QUANTISER, )

extern const taciti_codec taciti_codec_u8bit;
const taciti_codec taciti_codec_u8bit = {
    .name = "u8bit",
    .help = "rounds every element to an 8-bit float with a dynamic exponent, relative to the block's largest",
    .source = "8-bit approximations (arXiv 1511.04561), per block",
    .options = &TABLE,
    .options_size = sizeof(u8bit_options),
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .fixed_size = true,
    .keyless = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
