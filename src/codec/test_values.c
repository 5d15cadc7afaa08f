/* SPDX-License-Identifier: Apache-2.0
 *
 * Value formats: contracts of all, golden values of each, errors on distributions; and the codecs made of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "codec/values.h"

enum { N = 1 << 20, SMALL = 700 };
static float *g_x, *g_y, *g_error;
static unsigned char *g_payload;

static int allocate(void **state) {
    (void)state;
    g_x = taciti_calloc(N, sizeof *g_x);
    g_y = taciti_calloc(N, sizeof *g_y);
    g_error = taciti_calloc(N, sizeof *g_error);
    g_payload = taciti_calloc(N, 2 * sizeof *g_x);
    return g_x != NULL && g_y != NULL && g_error != NULL && g_payload != NULL ? 0 : -1;
}

static int release(void **state) {
    (void)state;
    taciti_free(g_x);
    taciti_free(g_y);
    taciti_free(g_error);
    taciti_free(g_payload);
    return 0;
}

static const taciti_value_format *format(const char *name) {
    const taciti_value_format *f = taciti_value_format_find(name);
    assert_non_null(f);
    return f;
}

static void every_format_is_complete_and_found(void **state) {
    (void)state;
    const char *names[] = {"f32", "bf16", "fp16", "int8", "int4", "signmag2", "signmean"};
    for (int id = 0; id < 7; id++) {
        const taciti_value_format *f = taciti_value_format_list()[id];
        assert_int_equal(f->id, id);
        assert_string_equal(f->name, names[id]);
        assert_true(f->help != NULL && f->source != NULL);
        assert_ptr_equal(taciti_value_format_at(id), f);
        assert_ptr_equal(taciti_value_format_find(names[id]), f);
        assert_string_equal(taciti_value_format_name((size_t)id), names[id]);
    }
    assert_null(taciti_value_format_list()[7]);
    assert_null(taciti_value_format_at(7));
    assert_null(taciti_value_format_at(-1));
    assert_null(taciti_value_format_name(7));
    assert_null(taciti_value_format_find("int3"));
}

/* Sizes, and that nothing is written beyond them. */
static void bytes_are_exact_and_grow(void **state) {
    (void)state;
    const size_t bits[] = {32, 16, 16, 8, 4, 2, 1};
    for (int id = 0; id < 7; id++) {
        const taciti_value_format *f = taciti_value_format_at(id);
        for (size_t n = 0; n < SMALL; n++) {
            const size_t bytes = taciti_values_bytes(f, n);
            assert_true(bytes >= (n * bits[id] + 7) / 8 && bytes <= taciti_values_bytes(f, n + 1));
            memset(g_payload, 0xa5, bytes + 16);
            for (size_t i = 0; i < n; i++) g_x[i] = (float)i - 300;
            f->encode(f, g_x, n, g_payload, NULL, NULL);
            for (size_t i = 0; i < 16; i++) assert_int_equal(g_payload[bytes + i], 0xa5);
        }
    }
    assert_int_equal(taciti_values_bytes(&taciti_values_int8, 128 * 10 + 1), 10 * 132 + 36);
    assert_int_equal(taciti_values_bytes(&taciti_values_int4, 128 * 10), 10 * 68);
    assert_int_equal(taciti_values_bytes(&taciti_values_rotated, 128 * 10), 10 * 68);
    assert_int_equal(taciti_values_bytes(&taciti_values_signmag2, 4096 * 2), 2 * 1028);
    assert_int_equal(taciti_values_bytes(&taciti_values_signmean, 4096 * 2), 2 * 516);
}

/* Encodes x[n], decodes into g_y. */
static void around(const taciti_value_format *f, const float *x, size_t n) {
    f->encode(f, x, n, g_payload, g_error, NULL);
    f->decode(f, g_payload, g_y, n, false);
}

/* The formats of the list, then the rotated one. */
enum { ROTATED = 7 };
static const taciti_value_format *format_of(int id) {
    return id == ROTATED ? &taciti_values_rotated : taciti_value_format_at(id);
}

static void decodes_to(const char *name, const float *x, const float *expected, size_t n) {
    around(format(name), x, n);
    for (size_t i = 0; i < n; i++) {
        assert_true(g_y[i] == expected[i]);
        assert_true(g_error[i] == x[i] - expected[i]);
    }
}

static void golden_values(void **state) {
    (void)state;
    decodes_to("signmag2", (const float[]){-3, -1, 1, 2}, (const float[]){-2.5f, -1, 1, 2.5f}, 4);
    decodes_to("signmag2", (const float[]){-3, 3, 3}, (const float[]){-3, 3, 3}, 3);
    decodes_to("signmean", (const float[]){1, -2, 3, -4}, (const float[]){2.5f, -2.5f, 2.5f, -2.5f}, 4);
    decodes_to("int8", (const float[]){127, -127, 3.5f, 2.5f, -.5f}, (const float[]){127, -127, 4, 2, 0}, 5);
    decodes_to("int4", (const float[]){7, -7, 3.5f, 2.5f, -.5f}, (const float[]){7, -7, 4, 2, 0}, 5);
}

/* ---- errors on distributions --------------------------------------------------------------------------------------*/
typedef enum { GAUSS, LAPLACE, STUDENT3, SPIKY } distribution;

static double normal(uint64_t key, size_t i) {
    const double u = 1 - taciti_rng_unit(key, i), v = taciti_rng_unit(key + 1, i);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

static double draw(distribution d, size_t i) {
    const double u = taciti_rng_unit(99, i) - 0.5, g = normal(3, i);
    switch (d) {
    case LAPLACE: return -copysign(log(1 - 2 * fabs(u)), u);
    case STUDENT3: {
        const double a = normal(5, i), b = normal(7, i), c = normal(9, i);
        return g / sqrt((a * a + b * b + c * c) / 3);
    }
    case SPIKY: return i % 256 == 0 ? 50 * g : g; /* one outlier in every other block */
    case GAUSS: break;
    }
    return g;
}

static double nmse(const taciti_value_format *f, distribution d) {
    double lost = 0, energy = 0;
    for (size_t i = 0; i < N; i++) g_x[i] = (float)draw(d, i);
    around(f, g_x, N);
    for (size_t i = 0; i < N; i++) {
        const double e = (double)g_x[i] - (double)g_y[i];
        lost += e * e;
        energy += (double)g_x[i] * (double)g_x[i];
    }
    return lost / energy;
}

static void is_within_5_percent(double value, double expected) {
    if (fabs(value - expected) > 0.05 * expected) print_message("%g instead of %g\n", value, expected);
    assert_true(fabs(value - expected) <= 0.05 * expected);
}

static void formats_have_the_errors_of_the_specification(void **state) {
    (void)state;
    is_within_5_percent(nmse(&taciti_values_int4, GAUSS), .0138);
    is_within_5_percent(nmse(&taciti_values_int4, LAPLACE), .0258);
    is_within_5_percent(nmse(&taciti_values_int4, STUDENT3), .0510);
    is_within_5_percent(nmse(&taciti_values_rotated, GAUSS), .0137);
    is_within_5_percent(nmse(&taciti_values_rotated, LAPLACE), .0138);
    is_within_5_percent(nmse(&taciti_values_rotated, STUDENT3), .0134);
    is_within_5_percent(nmse(&taciti_values_signmag2, GAUSS), .118);
    is_within_5_percent(nmse(&taciti_values_signmag2, LAPLACE), .176);
    is_within_5_percent(nmse(&taciti_values_signmag2, STUDENT3), .307);
    is_within_5_percent(nmse(&taciti_values_signmean, GAUSS), 1 - 2 / 3.14159265);
    is_within_5_percent(nmse(&taciti_values_signmean, LAPLACE), .5);
    assert_true(nmse(&taciti_values_int8, GAUSS) < 5e-5);
    assert_true(nmse(&taciti_values_rotated, SPIKY) < 0.5 * nmse(&taciti_values_int4, SPIKY));
}

/* ---- edges --------------------------------------------------------------------------------------------------------*/
static void zeros_stay_zero(void **state) {
    (void)state;
    static const float zeros[300];
    for (int id = 0; id <= ROTATED; id++) {
        around(format_of(id), zeros, 300);
        for (size_t i = 0; i < 300; i++) assert_true(g_y[i] == 0 && g_error[i] == 0);
    }
}

/* Where a scale would not have an inverse, the error is the number itself: nothing is lost. */
static void denormals_are_kept_or_are_the_error(void **state) {
    (void)state;
    for (int id = 0; id < 7; id++) {
        for (size_t i = 0; i < 300; i++) g_x[i] = (float)(taciti_rng_unit(1, i) - 0.5) * 1e-40f;
        around(format_of(id), g_x, 300);
        for (size_t i = 0; i < 300; i++) {
            assert_true(fabsf(g_y[i]) <= 1.5e-40f);
            assert_true(g_error[i] + g_y[i] == g_x[i] || fabsf(g_error[i] + g_y[i] - g_x[i]) <= 1e-45f);
        }
    }
}

/* Every format: in all of a whole block and in a part of one, on every instruction set. */
static void squares_are_those_of_what_is_decoded(void **state) {
    (void)state;
    static const char *const SETS[] = {"scalar", "avx2", "avx512"};
    static const size_t SIZES[] = {0, 1, 33, 1024, 5000};
    for (int id = 0; id <= ROTATED; id++)
        for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
            const taciti_value_format *f = format_of(id);
            const size_t n = SIZES[s];
            taciti_squares first = {0}, squares = {.in = -1, .out = -1};
            for (size_t i = 0; i < n; i++) g_x[i] = (float)normal(9, i);
            for (size_t set = 0; set < 3; set++) {
                if (!taciti_kernels_switch(SETS[set])) continue;
                f->encode(f, g_x, n, g_payload, g_error, &squares);
                f->decode(f, g_payload, g_y, n, false);
                if (set == 0) first = squares;
                assert_memory_equal(&first, &squares, sizeof first);
                assert_true(squares.in == taciti_kernels_get()->sum_squares(g_x, n));
                const double out = taciti_kernels_get()->sum_squares(g_y, n);
                assert_true(fabs(squares.out - out) <= (f->id < TACITI_VALUES_INT8 ? 1e-14 : 0x1p-22) * out);
            }
        }
    assert_true(taciti_kernels_switch(NULL));
}

/* A non-finite number spoils its block, and no other. */
static void a_number_that_is_not_finite_spoils_its_block(void **state) {
    (void)state;
    const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int id = 3; id <= ROTATED; id++)
        for (size_t b = 0; b < 3; b++) {
            const size_t block = format_of(id)->quantising.block, n = 3 * block - 7;
            for (size_t i = 0; i < n; i++) g_x[i] = (float)i;
            g_x[block + 70] = bad[b];
            around(format_of(id), g_x, n);
            for (size_t i = 0; i < n; i++) assert_true((isnan(g_y[i]) != 0) == (i / block == 1));
        }
}

/* The largest floats have scales, and what overflows says so. */
static void the_largest_numbers_do_not_vanish(void **state) {
    (void)state;
    for (int id = 3; id <= ROTATED; id++) {
        for (size_t i = 0; i < 200; i++) g_x[i] = i % 2 ? 3.4e38f : -3.4e38f;
        around(format_of(id), g_x, 200);
        for (size_t i = 0; i < 200; i++) assert_true(!(fabsf(g_y[i]) < 3.3e38f));
    }
}

/* ---- codecs -------------------------------------------------------------------------------------------------------*/
/* A tally changes no byte; what it says is what happened. */
static void codecs_of_formats_tally_what_they_send(void **state) {
    (void)state;
    const char *names[] = {"int8", "int4", "signmag2", "efsign"};
    enum { COUNT = 10000 };
    for (size_t c = 0; c < 4; c++) {
        const taciti_codec *codec = taciti_codec_find(names[c]);
        assert_true(!codec->number_format && codec->fixed_size && codec->aggregation == TACITI_CODEC_SUM);
        for (size_t i = 0; i < COUNT; i++) g_x[i] = (float)normal(1, i);
        taciti_codec_tally tally = {.squares_in = 5, .n = 1, .selected = 1, .near = 1, .threshold = 3};
        taciti_codec_call call = {.tally = NULL};
        unsigned char *plain = g_payload + N;
        size_t bytes = 0, again = 0;
        assert_int_equal(codec->encode(codec, &call, g_x, COUNT, plain, g_error, &bytes), TACIT_OK);
        call.tally = &tally;
        assert_int_equal(codec->encode(codec, &call, g_x, COUNT, g_payload, g_error, &again), TACIT_OK);
        assert_int_equal(bytes, again);
        assert_memory_equal(plain, g_payload, bytes);
        assert_int_equal(codec->decode(codec, &call, g_payload, bytes, g_y, COUNT, false), TACIT_OK);
        double in = 5, out = 0;
        for (size_t i = 0; i < COUNT; i++) {
            in += (double)g_x[i] * (double)g_x[i];
            out += (double)g_y[i] * (double)g_y[i];
            assert_true(g_error[i] == g_x[i] - g_y[i]);
        }
        assert_true(fabs(tally.squares_in - in) < 1e-9 * in && fabs(tally.squares_out - out) < 0x1p-22 * out);
        assert_true(tally.n == COUNT + 1 && tally.selected == COUNT + 1 && tally.near == COUNT + 1 &&
                    tally.threshold == 3);
    }
}

/* Karimireddy et al., lemma 8: the factor is exact. Their example: |x - C(x)|^2 = 5 = (1 - 100 / 120) 30. */
static void efsign_contracts_as_its_paper_says(void **state) {
    (void)state;
    const taciti_codec *codec = taciti_codec_find("efsign");
    const taciti_codec_call call = {.tally = NULL};
    const float x[] = {1, -2, 3, -4}, expected[] = {-1.5f, .5f, .5f, -1.5f};
    float error[4];
    size_t bytes = 0;
    assert_int_equal(codec->encode(codec, &call, x, 4, g_payload, error, &bytes), TACIT_OK);
    assert_int_equal(bytes, 8);
    assert_memory_equal(error, expected, sizeof error);
    for (size_t i = 0; i < 4096; i++) g_x[i] = (float)draw(STUDENT3, i);
    assert_int_equal(codec->encode(codec, &call, g_x, 4096, g_payload, g_error, &bytes), TACIT_OK);
    double sum = 0, squares = 0, lost = 0;
    for (size_t i = 0; i < 4096; i++) {
        sum += fabs((double)g_x[i]);
        squares += (double)g_x[i] * (double)g_x[i];
        lost += (double)g_error[i] * (double)g_error[i];
    }
    assert_true(fabs(lost - (1 - sum * sum / (4096 * squares)) * squares) < 1e-5 * squares);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_is_complete_and_found),
        cmocka_unit_test(bytes_are_exact_and_grow),
        cmocka_unit_test(golden_values),
        cmocka_unit_test(formats_have_the_errors_of_the_specification),
        cmocka_unit_test(zeros_stay_zero),
        cmocka_unit_test(denormals_are_kept_or_are_the_error),
        cmocka_unit_test(a_number_that_is_not_finite_spoils_its_block),
        cmocka_unit_test(the_largest_numbers_do_not_vanish),
        cmocka_unit_test(squares_are_those_of_what_is_decoded),
        cmocka_unit_test(codecs_of_formats_tally_what_they_send),
        cmocka_unit_test(efsign_contracts_as_its_paper_says),
    };
    return cmocka_run_group_tests(tests, allocate, release);
}
