/* SPDX-License-Identifier: Apache-2.0
 *
 * The selection kernels: the scalar set against definitions written again here, every other set against the scalar one
 * byte by byte, over all small sizes, alignments, kinds of numbers and thresholds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/kernel.h"

enum { MAX = 9000, GUARD = 16, ROOM = MAX + GUARD };
static const size_t SIZES[] = {0,  1,  2,   7,    8,    9,    15,   16,   17,   31, 32,
                               33, 63, 100, 1023, 1024, 1040, 4095, 4096, 4113, MAX};
enum { SIZE_COUNT = sizeof SIZES / sizeof SIZES[0] };
static const char *const SETS[] = {"scalar", "avx2", "avx512"};
static const uint32_t THRESHOLDS[] = {0, 1, 0x00800000, 0x3f000000, 0x3f7d70a4, 0x3f7fffff, 0x7f7fffff, 0x7f800000};
enum { THRESHOLD_COUNT = sizeof THRESHOLDS / sizeof THRESHOLDS[0] };

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t magnitude(float x) { return to_bits(x) & 0x7fffffffu; }

typedef enum { ZEROS, EQUAL, UNIFORM, HEAVY, DENORMAL, ANY_BITS, KINDS } kind;

static float number(kind k, uint64_t key, size_t i) {
    const float u = (float)(taciti_rng_unit(key, i) * 2 - 1);
    switch (k) {
    case EQUAL: return i % 3 == 0 ? -0.5f : 0.5f;
    case UNIFORM: return u;
    case HEAVY: return u / (1.0f - fabsf(u) * 0.99999f);
    case DENORMAL: return u * 1e-40f;
    case ANY_BITS: return from_bits((uint32_t)taciti_rng_u64(key, i));
    case ZEROS:
    case KINDS: break;
    }
    return i % 2 ? -0.0f : 0.0f;
}

static float g_numbers[MAX + 16], *g_x;

#define FOR_ALL(n, k)                                                                                                  \
    for (size_t s_ = 0; s_ < SIZE_COUNT; s_++)                                                                         \
        for (int k_ = 0; k_ < KINDS; k_++)                                                                             \
            for (size_t n = SIZES[s_], once = 1; once; once = 0)                                                       \
                for (kind k = (kind)k_; once; once = 0)

#define FOR_SETS(k)                                                                                                    \
    for (size_t set_ = 0; set_ < 3; set_++)                                                                            \
        for (const taciti_kernels *k = taciti_kernels_named(SETS[set_]); k != NULL; k = NULL)

static void draw(size_t n, kind k) {
    g_x = g_numbers + n % 16;
    for (size_t i = 0; i < n; i++) g_x[i] = number(k, n, i);
}

/* Results of a pass, with guards. */
typedef struct result {
    uint32_t indices[ROOM];
    float values[ROOM], error[ROOM];
    taciti_select select;
} result;

static result g_expected, g_actual;

static void run(const taciti_kernels *k, result *r, size_t n, uint32_t threshold, int form) {
    memset(r, 0xa5, sizeof *r);
    r->select = (taciti_select){.threshold = threshold,
                                .half = threshold / 2,
                                .measure = form & 1,
                                .indices = r->indices,
                                .values = r->values,
                                .error = form & 2 ? r->error : NULL};
    k->select_above(&r->select, g_x, n);
}

static void same(const result *a, const result *b, size_t n) {
    const size_t count = a->select.count;
    assert_int_equal(count, b->select.count);
    assert_int_equal(a->select.near, b->select.near);
    if (!isnan(a->select.squares)) assert_memory_equal(&a->select.squares, &b->select.squares, sizeof(double));
    assert_true(isnan(a->select.squares) == isnan(b->select.squares));
    assert_memory_equal(a->indices, b->indices, count * sizeof *a->indices);
    assert_memory_equal(a->values, b->values, count * sizeof *a->values);
    assert_memory_equal(a->error, b->error, ROOM * sizeof *a->error);
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(b->indices[n + i], 0xa5a5a5a5u);
        assert_int_equal(to_bits(b->values[n + i]), 0xa5a5a5a5u);
    }
}

static void select_above_takes_what_reaches_the_threshold(void **state) {
    (void)state;
    const taciti_kernels *scalar = taciti_kernels_named("scalar");
    FOR_ALL(n, k) {
        draw(n, k);
        for (size_t t = 0; t < THRESHOLD_COUNT; t++) {
            size_t count = 0, near = 0;
            run(scalar, &g_expected, n, THRESHOLDS[t], 3);
            for (size_t i = 0; i < n; i++) {
                const bool keep = magnitude(g_x[i]) >= THRESHOLDS[t];
                near += magnitude(g_x[i]) >= THRESHOLDS[t] / 2;
                assert_int_equal(to_bits(g_expected.error[i]), keep ? 0 : to_bits(g_x[i]));
                if (!keep) continue;
                assert_int_equal(g_expected.indices[count], i);
                assert_int_equal(to_bits(g_expected.values[count]), to_bits(g_x[i]));
                count++;
            }
            const double squares = scalar->sum_squares(g_x, n);
            assert_int_equal(g_expected.select.count, count);
            assert_int_equal(g_expected.select.near, near);
            if (!isnan(squares)) assert_memory_equal(&squares, &g_expected.select.squares, sizeof squares);
            assert_true(isnan(squares) == isnan(g_expected.select.squares));
        }
    }
}

static void sets_select_the_same(void **state) {
    (void)state;
    const taciti_kernels *scalar = taciti_kernels_named("scalar");
    FOR_ALL(n, k) {
        draw(n, k);
        for (size_t t = 0; t < THRESHOLD_COUNT; t++)
            for (int form = 0; form < 4; form++) {
                run(scalar, &g_expected, n, THRESHOLDS[t], form);
                FOR_SETS(set) {
                    run(set, &g_actual, n, THRESHOLDS[t], form);
                    same(&g_expected, &g_actual, n);
                    assert_int_equal(set->count_above(g_x, n, THRESHOLDS[t]), g_expected.select.count);
                }
            }
    }
}

/* Candidates above a low threshold, of which those above a higher one stay, and some of those equal to it: the same as
 * a selection by the higher threshold, and what is rejected is back in the error. */
static void select_among_keeps_the_first_ties_and_returns_the_rest(void **state) {
    (void)state;
    const taciti_kernels *scalar = taciti_kernels_named("scalar");
    FOR_ALL(n, k) {
        draw(n, k);
        for (size_t ties = 0; ties < 40; ties += 1 + ties / 2) {
            size_t kept = 0, left = ties;
            const uint32_t threshold = n > 0 ? magnitude(g_x[n / 2]) : 1;
            run(scalar, &g_expected, n, threshold / 2, 2);
            FOR_SETS(set) {
                const size_t count = g_expected.select.count;
                memcpy(&g_actual, &g_expected, sizeof g_actual);
                memset(g_actual.indices + count, 0xa5, (ROOM - count) * sizeof *g_actual.indices);
                memset(g_actual.values + count, 0xa5, (ROOM - count) * sizeof *g_actual.values);
                kept = set->select_among(g_actual.indices, g_actual.values, g_actual.error, count, threshold, ties);
                for (size_t i = 0; i < GUARD; i++) {
                    assert_int_equal(g_actual.indices[count + i], 0xa5a5a5a5u);
                    assert_int_equal(to_bits(g_actual.values[count + i]), 0xa5a5a5a5u);
                }
                size_t at = 0;
                left = ties;
                for (size_t i = 0; i < n; i++) {
                    const uint32_t m = magnitude(g_x[i]);
                    const bool tied = m == threshold && left > 0;
                    left -= tied;
                    assert_int_equal(to_bits(g_actual.error[i]), tied || m > threshold ? 0 : to_bits(g_x[i]));
                    if (!tied && m <= threshold) continue;
                    assert_int_equal(g_actual.indices[at], i);
                    assert_int_equal(to_bits(g_actual.values[at]), to_bits(g_x[i]));
                    at++;
                }
                assert_int_equal(kept, at);
                memcpy(&g_actual, &g_expected, sizeof g_actual);
                assert_int_equal(set->select_among(g_actual.indices, g_actual.values, NULL, count, threshold, ties),
                                 kept);
                assert_memory_equal(g_actual.error, g_expected.error, sizeof g_actual.error);
            }
        }
    }
}

/* Also in place. */
static void select_band_copies_what_is_between(void **state) {
    (void)state;
    static float expected[ROOM], actual[ROOM];
    FOR_ALL(n, k) {
        draw(n, k);
        for (size_t t = 0; t + 1 < THRESHOLD_COUNT; t++)
            for (uint32_t open = 0; open < 2; open++) {
                const uint32_t low = THRESHOLDS[t], high = open ? 0x80000000u : THRESHOLDS[t + 1];
                size_t count = 0;
                for (size_t i = 0; i < n; i++)
                    if (magnitude(g_x[i]) >= low && magnitude(g_x[i]) < high) expected[count++] = g_x[i];
                FOR_SETS(set) {
                    memset(actual, 0xa5, sizeof actual);
                    assert_int_equal(set->select_band(actual, g_x, n, low, high), count);
                    assert_memory_equal(actual, expected, count * sizeof *actual);
                    for (size_t i = 0; i < GUARD; i++) assert_int_equal(to_bits(actual[n + i]), 0xa5a5a5a5u);
                    memcpy(actual, g_x, n * sizeof *actual);
                    assert_int_equal(set->select_band(actual, actual, n, low, high), count);
                    assert_memory_equal(actual, expected, count * sizeof *actual);
                }
            }
    }
}

static void histogram_counts_magnitudes(void **state) {
    (void)state;
    static uint64_t expected[TACITI_MAGNITUDE_BINS], actual[TACITI_MAGNITUDE_BINS];
    FOR_ALL(n, k) {
        draw(n, k);
        for (unsigned shift = 0; shift <= 20; shift += 10) {
            memset(expected, 0, sizeof expected);
            for (size_t i = 0; i < n; i++) expected[(magnitude(g_x[i]) >> shift) % TACITI_MAGNITUDE_BINS] += 1;
            FOR_SETS(set) {
                memset(actual, 0, sizeof actual);
                actual[5] = 3;
                set->histogram(actual, g_x, n, shift);
                actual[5] -= 3;
                assert_memory_equal(expected, actual, sizeof actual);
            }
        }
    }
}

static void gather_and_scatter_move_single_elements(void **state) {
    (void)state;
    static const uint32_t AT[] = {1, 4, 5, 99};
    FOR_SETS(set) {
        float values[4] = {0}, y[100] = {0};
        draw(100, UNIFORM);
        set->gather(values, g_x, AT, 4);
        for (size_t i = 0; i < 4; i++) assert_true(values[i] == g_x[AT[i]]);
        set->scatter(y, AT, values, 4);
        set->scatter_add(y, AT, values, 3);
        for (size_t i = 0; i < 100; i++)
            assert_true(y[i] == (i == 99 ? g_x[i] : i == 1 || i == 4 || i == 5 ? 2 * g_x[i] : 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(select_above_takes_what_reaches_the_threshold),
        cmocka_unit_test(sets_select_the_same),
        cmocka_unit_test(select_among_keeps_the_first_ties_and_returns_the_rest),
        cmocka_unit_test(select_band_copies_what_is_between),
        cmocka_unit_test(histogram_counts_magnitudes),
        cmocka_unit_test(gather_and_scatter_move_single_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
