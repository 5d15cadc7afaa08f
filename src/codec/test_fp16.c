/* SPDX-License-Identifier: Apache-2.0
 *
 * binary16: the kernels of every instruction set against definitions written independently here, and the codec's golden
 * bytes. The duties of every codec are in test_codec.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "codec/codec.h"
#include "kernel/kernel.h"
#include "kernel/test_sets.h"

enum { HALVES = 65536, BLOCK = 4096, GUARD = 16 };

static uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The bits of a half's value, from its fields in double. */
static uint32_t value_of(taciti_fp16 y) {
    const uint32_t sign = (uint32_t)(y & 0x8000u) << 16;
    const int exponent = (y >> 10) & 31, mantissa = y & 0x3ff;
    if (exponent == 31 && mantissa != 0) return sign | 0x7fc00000u | (uint32_t)mantissa << 13;
    const double size = exponent == 31  ? HUGE_VAL
                        : exponent == 0 ? ldexp(mantissa, -24)
                                        : ldexp(1024 + mantissa, exponent - 25);
    return sign | to_bits((float)size);
}

/* The nearest half by the rounding of double to integers: in steps of 2^-24 below 2^-14, else of 11 bits. */
static taciti_fp16 nearest(float x) {
    const taciti_fp16 sign = to_bits(x) >> 31 ? 0x8000 : 0;
    const double size = fabs((double)x);
    if (isnan(x)) return (taciti_fp16)(sign | 0x7e00 | (to_bits(x) >> 13 & 0x3ff));
    if (size >= 65520) return sign | 0x7c00;
    int exponent = -14;
    if (size >= 0x1p-14) exponent = ilogb(size);
    const int steps = (int)nearbyint(ldexp(size, 10 - exponent)); /* a carry into the exponent comes out right */
    return (taciti_fp16)(sign | ((exponent + 14) * 1024 + steps));
}

static void every_half_decodes_to_its_value(void **state) {
    (void)state;
    static taciti_fp16 y[HALVES], again[HALVES];
    static float x[HALVES], sum[HALVES];
    for (size_t i = 0; i < HALVES; i++) y[i] = (taciti_fp16)i;
    FOR_SETS(k) {
        k->fp16_decode(x, y, HALVES);
        memset(sum, 0, sizeof sum);
        k->fp16_add(sum, y, HALVES);
        k->fp16_encode(again, x, HALVES);
        for (size_t i = 0; i < HALVES; i++) {
            assert_int_equal(to_bits(x[i]), value_of(y[i]));
            assert_true(isnan(x[i]) ? isnan(sum[i]) : sum[i] == x[i]);
            assert_int_equal(again[i], isnan(x[i]) ? y[i] | 0x200 : y[i]);
        }
    }
}

static void check_block(const float *x) {
    taciti_fp16 expected[BLOCK], y[BLOCK];
    float error[BLOCK], decoded[BLOCK];
    for (size_t i = 0; i < BLOCK; i++) expected[i] = nearest(x[i]);
    FOR_SETS(k) {
        k->fp16_encode(y, x, BLOCK);
        assert_memory_equal(y, expected, sizeof y);
        memset(y, 0, sizeof y);
        k->fp16_encode_error(y, error, x, BLOCK);
        assert_memory_equal(y, expected, sizeof y);
        k->fp16_decode(decoded, y, BLOCK);
        for (size_t i = 0; i < BLOCK; i++) {
            const float left = x[i] - decoded[i];
            assert_true(isnan(left) ? isnan(error[i]) : to_bits(error[i]) == to_bits(left));
        }
    }
}

/* Every upper half of a float with the ties of all 13 bits that rounding drops, their neighbours, and others. */
static void fp16_rounds_to_nearest_even_everywhere(void **state) {
    (void)state;
    static float x[BLOCK];
    for (uint32_t upper = 0; upper < 65536; upper += 32) {
        for (uint32_t i = 0; i < BLOCK; i++) {
            const uint32_t pick = i % 128, around = (pick % 8 * 0x2000 + 0x1000 + pick / 8 - 1) & 0xffff;
            const uint32_t lower = pick < 24 ? around : (uint32_t)taciti_rng_u64(upper, i) & 0xffff;
            x[i] = from_bits((upper + i / 128) << 16 | lower);
        }
        check_block(x);
    }
}

/* The denormals and what rounds to the smallest of them, where a tie is as low as bit 24. */
static void ties_of_denormals_go_to_even(void **state) {
    (void)state;
    static float x[BLOCK];
    for (size_t i = 0; i < BLOCK; i++) {
        const float tie = (float)ldexp((double)(i % 1024) + 0.5, -24);
        x[i] = i / 1024 == 0 ? tie : i / 1024 == 1 ? nextafterf(tie, 0) : i / 1024 == 2 ? nextafterf(tie, 1) : -tie;
    }
    check_block(x);
    taciti_fp16 y[2];
    const float smallest[] = {0x1p-25f, 0x1.000002p-25f};
    FOR_SETS(k) {
        k->fp16_encode(y, smallest, 2);
        assert_true(y[0] == 0 && y[1] == 1);
    }
}

static void any_length_and_alignment_gives_the_same_bytes(void **state) {
    (void)state;
    enum { N = 600 };
    static float x[N], error[N + GUARD], acc[N + GUARD];
    static taciti_fp16 y[N + GUARD];
    for (size_t i = 0; i < N; i++) x[i] = (float)(taciti_rng_unit(3, i) * 8 - 4);
    FOR_SETS(k) for (size_t shift = 0; shift < 16; shift++) for (size_t n = 0; n + shift <= N; n += 1 + n / 40) {
        y[n] = 0x1234;
        error[n] = acc[n] = 7;
        memset(acc, 0, n * sizeof *acc);
        k->fp16_encode_error(y, error, x + shift, n);
        k->fp16_add(acc, y, n);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(y[i], nearest(x[shift + i]));
            assert_true(error[i] == x[shift + i] - acc[i] && to_bits(acc[i]) == value_of(y[i]));
        }
        assert_true(y[n] == 0x1234 && error[n] == 7 && acc[n] == 7);
    }
}

/* Golden bytes: ties to even, the largest and smallest values, overflow, and the NaN of a float. */
static void the_wire_format_is_what_it_says(void **state) {
    (void)state;
    const float x[] = {1.0f,
                       -2.5f,
                       0x1.002p0f,
                       0x1.006p0f,
                       65504.0f,
                       65519.996f,
                       -65520.0f,
                       0x1p-24f,
                       0x1p-25f,
                       -0.0f,
                       from_bits(0xffa02000u),
                       INFINITY};
    const unsigned char golden[] = {0x00, 0x3c, 0x00, 0xc1, 0x00, 0x3c, 0x02, 0x3c, 0xff, 0x7b, 0xff, 0x7b,
                                    0x00, 0xfc, 0x01, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0xff, 0x00, 0x7c};
    _Alignas(64) unsigned char payload[sizeof golden];
    size_t bytes = 0;
    const taciti_codec *codec = taciti_codec_find("fp16");
    assert_int_equal(codec->encode(codec, &(taciti_codec_call){0}, x, sizeof x / sizeof *x, payload, NULL, &bytes),
                     TACIT_OK);
    assert_int_equal(bytes, sizeof golden);
    assert_memory_equal(payload, golden, sizeof golden);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_decodes_to_its_value),
        cmocka_unit_test(fp16_rounds_to_nearest_even_everywhere),
        cmocka_unit_test(ties_of_denormals_go_to_even),
        cmocka_unit_test(any_length_and_alignment_gives_the_same_bytes),
        cmocka_unit_test(the_wire_format_is_what_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
