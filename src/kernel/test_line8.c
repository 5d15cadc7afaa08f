/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of 16 floats in 17 bytes: the definition written again in double, the error bound, bytes that survive another
 * round, and every set against the scalar one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/kernel.h"
#include "kernel/test_sets.h"

enum { LINE = TACITI_LINE8_N, BYTES = TACITI_LINE8_BYTES, LINES = 40, N = LINES * LINE, GUARD = 8, DRAWS = 3000 };

/* Lines by turns: of one scale, of a heavy tail, of any finite bits, denormals, one spike, zeros, the largest numbers,
 * and magnitudes about 127 times a power of two, where the scale changes. */
static float number(uint64_t key, size_t i) {
    const uint64_t draw = taciti_rng_u64(key, i);
    const double unit = taciti_rng_unit(key + 1, i) * 2 - 1;
    const uint32_t bits = (uint32_t)draw;
    switch (i / LINE % 8) {
    case 0: return (float)unit;
    case 1: return (float)ldexp(unit, (int)(draw % 60) - 30);
    case 2: return isfinite(from_bits(bits)) ? from_bits(bits) : 1;
    case 3: return from_bits(bits & 0x80ffffffu);
    case 4: return i % LINE == (key & 15) ? (float)unit : 0;
    case 5: return 0;
    case 6: return (float)(unit * (double)FLT_MAX);
    default: return from_bits(0x42fdfffeu + (bits & 3u) - 0x00800000u * (bits >> 3 & 1u));
    }
}

/* The smallest scale of 2^-126 .. 2^121 with which 127 reaches the largest magnitude; 0: of zeros. */
static double scale_of(const float *line) {
    double max = 0, scale = 0x1p-126;
    for (int i = 0; i < LINE; i++) max = fmax(max, fabs((double)line[i]));
    while (127 * scale < max && scale < 0x1p121) scale *= 2;
    return max > 0 ? scale : 0;
}

static void is_its_definition(const float *line, const uint8_t *bytes, const float *decoded) {
    const double scale = scale_of(line);
    int exponent = 0;
    (void)frexp(scale, &exponent); /* scale = 0.5 * 2^exponent */
    assert_int_equal(bytes[0], scale > 0 ? exponent - 1 + 127 : 0);
    for (int i = 0; i < LINE; i++) {
        const double q = scale > 0 ? nearbyint((double)line[i] / scale) : 0;
        const double limited = fmax(fmin(q, 127), -127);
        assert_int_equal((int8_t)bytes[1 + i], (int)limited);
        assert_true((double)decoded[i] == limited * scale);
    }
}

static void a_line_is_its_definition(void **state) {
    (void)state;
    float x[N], decoded[N];
    uint8_t bytes[LINES * BYTES];
    FOR_SETS(k) for (uint64_t draw = 0; draw < DRAWS; draw += 10) {
        for (size_t i = 0; i < N; i++) x[i] = number(draw, i);
        k->line8_encode(bytes, x, N);
        k->line8_decode(decoded, bytes, N);
        for (size_t l = 0; l < LINES; l++) is_its_definition(x + l * LINE, bytes + l * BYTES, decoded + l * LINE);
    }
}

/* The header's bound, but for the numbers that are limited, and that a second round changes nothing. */
static void numbers_change_little_and_only_once(void **state) {
    (void)state;
    float x[N], decoded[N];
    uint8_t bytes[LINES * BYTES], again[LINES * BYTES];
    const taciti_kernels *k = taciti_kernels_get();
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        for (size_t i = 0; i < N; i++) x[i] = number(draw, i);
        k->line8_encode(bytes, x, N);
        k->line8_decode(decoded, bytes, N);
        for (size_t i = 0; i < N; i++) {
            double max = 0;
            for (size_t j = i / LINE * LINE; j < (i / LINE + 1) * LINE; j++) max = fmax(max, fabs((double)x[j]));
            const double bound = fmax(max / 127, 0x1p-127);
            assert_true(fabs((double)x[i] - (double)decoded[i]) <= bound);
        }
        k->line8_encode(again, decoded, N);
        assert_memory_equal(bytes, again, sizeof bytes);
    }
}

static void what_is_not_finite_makes_its_line_nan(void **state) {
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[3 * LINE], decoded[3 * LINE];
    uint8_t bytes[3 * BYTES];
    FOR_SETS(k) for (size_t b = 0; b < 3; b++) for (size_t at = 0; at < LINE; at++) {
        for (size_t i = 0; i < 3 * LINE; i++) x[i] = (float)i - 20;
        x[LINE + at] = bad[b];
        k->line8_encode(bytes, x, 3 * LINE);
        k->line8_decode(decoded, bytes, 3 * LINE);
        for (size_t i = 0; i < 3 * LINE; i++)
            assert_true(i / LINE == 1 ? isnan(decoded[i]) : decoded[i] == x[i]); /* small integers are exact */
    }
}

static void zeros_are_zero_bytes(void **state) {
    (void)state;
    float x[LINE] = {0}, decoded[LINE];
    uint8_t bytes[BYTES], none[BYTES] = {0};
    x[3] = -0.0F;
    FOR_SETS(k) {
        memset(bytes, 7, sizeof bytes);
        k->line8_encode(bytes, x, LINE);
        assert_memory_equal(bytes, none, sizeof bytes);
        k->line8_decode(decoded, none, LINE);
        for (int i = 0; i < LINE; i++) assert_true(decoded[i] == 0 && !signbit(decoded[i]));
    }
}

/* Any length, wherever arrays begin; nothing behind is written. A short last line is filled up with zeros. */
static void sets_agree_on_any_length(void **state) {
    (void)state;
    float x[N] = {0}, expected[N + GUARD], decoded[N + GUARD];
    uint8_t bytes[LINES * BYTES + 2 * GUARD], scalar[LINES * BYTES + GUARD];
    FOR_SETS(k) for (size_t n = 0; n < N; n++) {
        uint8_t *at = bytes + n % GUARD;
        const size_t count = taciti_line8_bytes(n);
        assert_int_equal(count, (n + LINE - 1) / LINE * BYTES);
        for (size_t i = 0; i < N; i++) x[i] = i < n ? number(n, i) : 0;
        memset(bytes, 0x55, sizeof bytes);
        k->line8_encode(at, x, n);
        assert_int_equal(at[count], 0x55);
        taciti_kernels_named("scalar")->line8_encode(scalar, x, (n + LINE - 1) / LINE * LINE);
        assert_memory_equal(at, scalar, count);
        decoded[n] = 5;
        k->line8_decode(decoded, at, n);
        assert_true(decoded[n] == 5);
        taciti_kernels_named("scalar")->line8_decode(expected, scalar, n);
        assert_memory_equal(decoded, expected, n * sizeof *decoded);
    }
}

/* NaN, Inf and numbers of any size side by side in a line, next to lines without; then bytes that no encoder writes. */
static void sets_agree_on_any_bits(void **state) {
    (void)state;
    float x[N], decoded[N], expected[N];
    uint8_t bytes[LINES * BYTES], scalar[LINES * BYTES];
    const taciti_kernels *definition = taciti_kernels_named("scalar");
    FOR_SETS(k) for (uint64_t draw = 0; draw < DRAWS / 10; draw++) {
        for (size_t i = 0; i < N; i++)
            x[i] = i / LINE % 2 == 0 ? from_bits((uint32_t)taciti_rng_u64(draw, i)) : number(draw, i);
        definition->line8_encode(scalar, x, N);
        k->line8_encode(bytes, x, N);
        assert_memory_equal(bytes, scalar, sizeof bytes);
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)taciti_rng_u64(draw, N + i);
        definition->line8_decode(expected, bytes, N);
        k->line8_decode(decoded, bytes, N);
        assert_memory_equal(decoded, expected, sizeof decoded);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_its_definition),
        cmocka_unit_test(numbers_change_little_and_only_once),
        cmocka_unit_test(what_is_not_finite_makes_its_line_nan),
        cmocka_unit_test(zeros_are_zero_bytes),
        cmocka_unit_test(sets_agree_on_any_length),
        cmocka_unit_test(sets_agree_on_any_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
