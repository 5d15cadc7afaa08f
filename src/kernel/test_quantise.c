/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantisers: every set against the scalar one byte by byte, over forms, blocks, sizes, alignments and kinds of
 * numbers; then the definition. Distributions and golden values: codec/test_values.c.
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
#include "kernel/kernel.h"

enum { MAX = 9000, GUARD = 16, BYTES_MAX = 8 * MAX, LARGE = (2 << 20) + 100 };
static const char *const SETS[] = {"scalar", "avx2", "avx512"};
static const size_t SIZES[] = {0, 1, 4, 31, 32, 33, 100, 127, 128, 129, 1000, 4095, 4096, 4097, MAX - GUARD};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

static const taciti_quantisation CASES[] = {
    {TACITI_QUANTISE_INT8, 0, 128},    {TACITI_QUANTISE_INT8, 0, 32},       {TACITI_QUANTISE_INT4, 0, 128},
    {TACITI_QUANTISE_INT4, 1, 128},    {TACITI_QUANTISE_INT4, 1, 4096},     {TACITI_QUANTISE_SIGNMAG2, 0, 4096},
    {TACITI_QUANTISE_SIGNMAG2, 0, 96}, {TACITI_QUANTISE_SIGNMEAN, 0, 4096}, {TACITI_QUANTISE_SIGNMEAN, 0, 32},
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

typedef enum { NORMAL, HEAVY, TINY, HUGE_NUMBERS, ANY_BITS, ZEROS, KINDS } kind;

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float number(kind k, uint64_t key, size_t i) {
    const float u = (float)(taciti_rng_unit(key, i) * 2 - 1);
    switch (k) {
    case HEAVY: return u / (1.0f - fabsf(u) * 0.9999f);
    case TINY: return u * 1e-37f * (i % 3 == 0 ? 1e-4f : 1.0f);
    case HUGE_NUMBERS: return u * 3.4e38f;
    case ANY_BITS: return from_bits((uint32_t)taciti_rng_u64(key, i) & (i % 50 == 0 ? 0xffffffffu : 0xbfffffffu));
    case ZEROS: return i % 2 == 0 ? 0.0f : -0.0f;
    case NORMAL:
    case KINDS: break;
    }
    return u;
}

static size_t bytes_of(const taciti_quantisation *q, size_t n) {
    const size_t groups = (n + 31) / 32, blocks = (n + q->block - 1) / q->block;
    static const size_t group_bytes[] = {[TACITI_QUANTISE_INT8] = 32,
                                         [TACITI_QUANTISE_INT4] = 16,
                                         [TACITI_QUANTISE_SIGNMAG2] = 8,
                                         [TACITI_QUANTISE_SIGNMEAN] = 4};
    return 4 * blocks + groups * group_bytes[q->form];
}

typedef struct result {
    unsigned char bytes[BYTES_MAX], plain[BYTES_MAX];
    float error[MAX], decoded[MAX], sum[MAX];
    taciti_squares squares, plain_squares;
} result;

/* Runs a set on x[n]; all arrays begin `shift` floats behind a line. */
static void run(const taciti_kernels *k, const taciti_quantisation *q, const float *x, size_t n, size_t shift,
                result *out) {
    static _Alignas(64) float error[MAX + GUARD], decoded[MAX + GUARD], sum[MAX + GUARD], input[MAX + GUARD];
    memset(out, 0xa5, sizeof *out);
    memcpy(input + shift, x, n * sizeof *x);
    for (size_t i = 0; i < n + GUARD; i++) error[shift + i] = decoded[shift + i] = sum[shift + i] = 3;
    k->quantise(q, out->bytes, error + shift, input + shift, n, &out->squares);
    k->quantise(q, out->plain, NULL, input + shift, n, &out->plain_squares);
    k->dequantise(q, decoded + shift, out->bytes, n);
    k->dequantise_add(q, sum + shift, out->bytes, n);
    for (size_t i = 0; i < GUARD - shift; i++)
        assert_true(error[shift + n + i] == 3 && decoded[shift + n + i] == 3 && sum[shift + n + i] == 3);
    memcpy(out->error, error + shift, n * sizeof *error);
    memcpy(out->decoded, decoded + shift, n * sizeof *error);
    memcpy(out->sum, sum + shift, n * sizeof *error);
}

/* Payload bits of a NaN are not specified. */
static void same_floats(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0) assert_true(isnan(a[i]) && isnan(b[i]));
}

static void same_double(double a, double b) {
    if (memcmp(&a, &b, sizeof a) != 0) assert_true(isnan(a) && isnan(b));
}

/* A float is rounded by up to 2^-24 of it, so its square by 2^-23; sums of more than 2^24 are rounded, too. */
static void check_squares(const float *x, size_t n, const result *r) {
    const taciti_kernels *scalar = taciti_kernels_named("scalar");
    const double decoded = scalar->sum_squares(r->decoded, n);
    same_double(r->squares.in, scalar->sum_squares(x, n));
    same_double(r->plain_squares.in, r->squares.in);
    same_double(r->plain_squares.out, r->squares.out);
    if (isfinite(decoded)) assert_true(fabs(r->squares.out - decoded) <= 0x1p-22 * decoded);
    if (isnan(decoded)) assert_true(isnan(r->squares.out));
}

static void check_result(const taciti_quantisation *q, const float *x, size_t n, const result *r) {
    const size_t bytes = bytes_of(q, n);
    for (size_t i = 0; i < 64; i++) assert_true(r->bytes[bytes + i] == 0xa5 && r->plain[bytes + i] == 0xa5);
    assert_memory_equal(r->bytes, r->plain, bytes);
    check_squares(x, n, r);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) assert_true(!isfinite(r->decoded[i]));
        const float error = x[i] - r->decoded[i], sum = 3 + r->decoded[i];
        assert_true(r->error[i] == error || (isnan(error) && isnan(r->error[i])));
        assert_true(r->sum[i] == sum || (isnan(sum) && isnan(r->sum[i])));
    }
}

static void every_set_agrees_with_the_scalar_one(void **state) {
    (void)state;
    static float x[MAX];
    static result expected, actual;
    for (size_t c = 0; c < CASE_COUNT; c++)
        for (size_t s = 0; s < SIZE_COUNT; s++)
            for (int k = 0; k < KINDS; k++)
                for (size_t set = 0; set < 3; set++) {
                    const taciti_kernels *kernels = taciti_kernels_named(SETS[set]);
                    const size_t n = SIZES[s];
                    if (kernels == NULL) continue;
                    for (size_t i = 0; i < n; i++) x[i] = number((kind)k, 10 * c + s, i);
                    run(kernels, &CASES[c], x, n, set == 0 ? 0 : s % 4, &actual);
                    check_result(&CASES[c], x, n, &actual);
                    if (set == 0) memcpy(&expected, &actual, sizeof actual);
                    assert_memory_equal(expected.bytes, actual.bytes, bytes_of(&CASES[c], n));
                    same_floats(expected.error, actual.error, n);
                    same_floats(expected.decoded, actual.decoded, n);
                    same_floats(expected.sum, actual.sum, n);
                    same_double(expected.squares.out, actual.squares.out);
                }
}

/* Forged payloads: every content decodes, to the same on every set. */
static void every_payload_decodes_alike(void **state) {
    (void)state;
    static unsigned char bytes[BYTES_MAX];
    static float a[MAX], b[MAX];
    for (size_t c = 0; c < CASE_COUNT; c++)
        for (uint64_t round = 0; round < 20; round++) {
            const size_t n = 1 + (size_t)taciti_rng_below(7, round, 5000);
            for (size_t i = 0; i < bytes_of(&CASES[c], n); i++) bytes[i] = (unsigned char)taciti_rng_u64(round, i);
            taciti_kernels_named("scalar")->dequantise(&CASES[c], a, bytes, n);
            for (size_t set = 1; set < 3; set++) {
                if (taciti_kernels_named(SETS[set]) == NULL) continue;
                taciti_kernels_named(SETS[set])->dequantise(&CASES[c], b, bytes, n);
                same_floats(a, b, n);
            }
        }
}

/* A large array gives the same as its pieces. */
static void large_arrays_equal_their_pieces(void **state) {
    (void)state;
    enum { PIECE = 8192 };
    float *x = taciti_calloc(LARGE, sizeof *x), *error = taciti_calloc(LARGE, sizeof *error);
    float *y = taciti_calloc(LARGE, sizeof *y), *piece = taciti_calloc(PIECE, sizeof *piece);
    unsigned char *bytes = taciti_calloc(LARGE, 2), *part = taciti_calloc(PIECE, 2);
    assert_true(x != NULL && error != NULL && y != NULL && piece != NULL && bytes != NULL && part != NULL);
    for (size_t i = 0; i < LARGE; i++) x[i] = number(HEAVY, 5, i);
    for (size_t c = 0; c < CASE_COUNT; c++)
        for (size_t set = 0; set < 3; set++) {
            const taciti_kernels *k = taciti_kernels_named(SETS[set]);
            const taciti_quantisation *q = &CASES[c];
            if (k == NULL || PIECE % q->block != 0) continue;
            taciti_squares squares;
            k->quantise(q, bytes, error, x, LARGE, &squares);
            same_double(squares.in, k->sum_squares(x, LARGE));
            k->dequantise(q, y, bytes, LARGE);
            for (size_t at = 0; at < LARGE; at += PIECE) {
                const size_t n = LARGE - at < PIECE ? LARGE - at : PIECE;
                k->quantise(q, part, piece, x + at, n, NULL);
                assert_memory_equal(part, bytes + bytes_of(q, at), bytes_of(q, n));
                assert_memory_equal(piece, error + at, n * sizeof *piece);
                k->dequantise(q, piece, part, n);
                assert_memory_equal(piece, y + at, n * sizeof *piece);
            }
        }
    taciti_free(x);
    taciti_free(error);
    taciti_free(y);
    taciti_free(piece);
    taciti_free(bytes);
    taciti_free(part);
}

/* The wire: scale and codes of a block as the header says, independent of any set. */
static void layouts_are_what_they_say(void **state) {
    (void)state;
    float x[32] = {7, -7, 3.5f, 2.5f, -1};
    x[16] = 6;
    x[31] = -2;
    unsigned char out[64];
    taciti_squares squares;
    const unsigned char int8[] = {127, 129, 64, 45, 238}; /* 7 -7 3.5 2.5 -1 by 7 / 127, to even */
    const unsigned char int4[] = {0, 0, 0x80, 0x3f, 0x67, 0x09, 0x04, 0x02, 0x0f};
    for (size_t set = 0; set < 3; set++) {
        const taciti_kernels *k = taciti_kernels_named(SETS[set]);
        if (k == NULL) continue;
        k->quantise(&(taciti_quantisation){TACITI_QUANTISE_INT8, 0, 32}, out, NULL, x, 32, &squares);
        const float scale = 7.0f * (1.0f / 127.0f);
        assert_memory_equal(out, &scale, 4);
        assert_memory_equal(out + 4, int8, sizeof int8);
        assert_true(out[20] == 109 && out[35] == 220);
        k->quantise(&(taciti_quantisation){TACITI_QUANTISE_INT4, 0, 32}, out, NULL, x, 32, &squares);
        assert_memory_equal(out, int4, sizeof int4);
        assert_int_equal(out[19], 0xe0);
        assert_true(squares.in == 49 + 49 + 12.25 + 6.25 + 1 + 36 + 4);
        assert_true(squares.out == 49 + 49 + 16 + 4 + 1 + 36 + 4);
        k->quantise(&(taciti_quantisation){TACITI_QUANTISE_INT4, 0, 32}, out, NULL, x, 5, &squares);
        assert_true(squares.in == 49 + 49 + 12.25 + 6.25 + 1 && squares.out == 49 + 49 + 16 + 4 + 1);
        k->quantise(&(taciti_quantisation){TACITI_QUANTISE_SIGNMEAN, 0, 32}, out, NULL, x, 32, &squares);
        assert_memory_equal(out, ((const float[]){29.0f / 32}), 4);
        assert_memory_equal(out + 4, ((const unsigned char[]){0x12, 0, 0, 0x80}), 4);
        assert_true(squares.out == 32 * (29.0 / 32) * (29.0 / 32));
        k->quantise(&(taciti_quantisation){TACITI_QUANTISE_SIGNMAG2, 0, 32}, out, NULL, x, 32, &squares);
        assert_memory_equal(out + 4, ((const unsigned char[]){0x12, 0, 0, 0x80, 0x07, 0, 1, 0}), 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_agrees_with_the_scalar_one),
        cmocka_unit_test(every_payload_decodes_alike),
        cmocka_unit_test(large_arrays_equal_their_pieces),
        cmocka_unit_test(layouts_are_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
