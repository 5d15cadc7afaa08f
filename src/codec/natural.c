/* SPDX-License-Identifier: Apache-2.0
 *
 * natural: every element becomes a power of two, one of its two neighbours, at random so that the mean is the element.
 *
 * Source: Horvath et al., "Natural Compression for Distributed Deep Learning", arXiv 1905.10988, definition 1 and
 * theorem 1.
 *   deviation: 8 bits per element, where sign and exponent of a float need 9. The 7 bits behind the sign count the 127
 *   powers of two up to the largest one that the array needs; below the smallest of them an element becomes it or zero,
 *   again at random with the element as mean.
 *
 * Properties (test_quantisers.c): unbiased below 2^127, above which there is no larger power to round to
 * (natural_is_unbiased); variance at most |x|^2 / 8 (natural_variance_is_below_an_eighth), plus less than 2^-250 of the
 * largest element's square for tiny ones; powers of two arrive exactly (natural_keeps_powers_of_two); class SUM;
 * random by the key of the call.
 */
#include <math.h>
#include <string.h>

#include "codec/quantiser.h"

enum { POWERS = 127, TOP_MAX = 127, TOP_MIN = -149, SIGN = 128, BIAS = 1023, MANTISSA_BITS = 52 };

static taciti_quantiser_shape shape(const void *options) {
    (void)options;
    return (taciti_quantiser_shape){.block = 0, .parameters = 1, .codes = 256};
}

/* The parameter is the exponent of the largest power: that of the largest magnitude, rounded up. */
static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    (void)call;
    const float largest = taciti_block_sums_of(block->x, block->n).largest;
    int exponent = TOP_MIN;
    if (largest > 0 && frexp((double)largest, &exponent) == 0.5) exponent--;
    parameters[0] = (float)(exponent > TOP_MAX ? TOP_MAX : exponent);
}

/* 0: zero; c: the power 2^(c - POWERS) of the largest. `a` is the magnitude in units of the largest power, below 2. */
static int power_of(double a, uint32_t random) {
    if (a < 0x1p-126) return random * 0x1p-32 < a * 0x1p126;
    uint64_t bits = 0;
    memcpy(&bits, &a, sizeof bits);
    const int below = (int)(bits >> MANTISSA_BITS) - BIAS + POWERS;
    const uint32_t fraction = (uint32_t)(bits >> (MANTISSA_BITS - 32)); /* of the way to the next power, times 2^32 */
    return below + (random < fraction && below < POWERS);
}

static void quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                     uint8_t *codes) {
    const double scale = ldexp(1, -(int)parameters[0]);
    for (size_t i = 0; i < part->n; i++) {
        const double x = (double)part->x[i];
        const int power = power_of(fabs(x) * scale, taciti_rng_u32(call->key, (uint32_t)(part->first + i)));
        codes[i] = (uint8_t)(power | (x < 0 ? SIGN : 0));
    }
}

static bool legal(const void *options, const float *parameters) {
    (void)options;
    return parameters[0] >= TOP_MIN && parameters[0] <= TOP_MAX && parameters[0] == floorf(parameters[0]);
}

static void restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    (void)options;
    float powers[POWERS + 1] = {0};
    for (int c = 1; c <= POWERS; c++) powers[c] = (float)ldexp(1, (int)parameters[0] - POWERS + c);
    for (size_t i = 0; i < n; i++) y[i] = codes[i] & SIGN ? -powers[codes[i] - SIGN] : powers[codes[i]];
}

static const taciti_quantiser QUANTISER = {
    .name = "natural", .shape = shape, .measure = measure, .quantise = quantise, .legal = legal, .restore = restore};

TACITI_QUANTISER_FUNCTIONS(QUANTISER, )

extern const taciti_codec taciti_codec_natural;
const taciti_codec taciti_codec_natural = {
    .name = "natural",
    .help = "rounds every element at random to a power of two: 8 bits; unbiased",
    .source = "natural compression (arXiv 1905.10988), 127 powers",
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .fixed_size = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
