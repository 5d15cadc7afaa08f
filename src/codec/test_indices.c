/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of all index coders: what is encoded comes back, forged bytes are refused, and no write leaves its array.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/indices.h"

enum { MAX = 4096, GUARD = 16, SLACK = 7 };

static uint32_t g_indices[MAX + GUARD], g_decoded[MAX + GUARD];
static unsigned char g_bytes[8 * MAX + 256];

static void ignore(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

static int quiet(void **state) {
    (void)state;
    taciti_log_set_sink(ignore, NULL, TACITI_LOG_ERROR);
    return 0;
}

static int loud(void **state) {
    (void)state;
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
    return 0;
}

/* Each of n elements with probability p; returns how many. */
static size_t draw(double p, size_t n, uint64_t key) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (taciti_rng_unit(key, i) < p) g_indices[k++] = (uint32_t)i;
    return k;
}

static void comes_back(const taciti_index_coder *coder, size_t k, size_t n) {
    const size_t bytes = coder->bytes(g_indices, k, n);
    assert_true(bytes <= coder->bound(k, n) && bytes + SLACK + GUARD <= sizeof g_bytes);
    memset(g_bytes, 0xa5, sizeof g_bytes);
    memset(g_decoded, 0xa5, sizeof g_decoded);
    coder->encode(g_indices, k, n, g_bytes);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(g_bytes[bytes + SLACK + i], 0xa5);
    assert_int_equal(coder->decode(g_bytes, bytes, g_decoded, k, n), TACIT_OK);
    assert_memory_equal(g_decoded, g_indices, k * sizeof *g_indices);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(g_decoded[k + i], 0xa5a5a5a5u);
    assert_int_equal(coder->decode(g_bytes, bytes + 1, g_decoded, k, n), TACIT_E_DATA);
    if (bytes > 0) assert_int_equal(coder->decode(g_bytes, bytes - 1, g_decoded, k, n), TACIT_E_DATA);
    assert_int_equal(coder->decode(g_bytes, bytes, g_decoded, n + 1, n), TACIT_E_DATA);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(g_decoded[k + i], 0xa5a5a5a5u);
}

#define EACH_CODER(coder)                                                                                              \
    for (size_t c_ = 0; taciti_index_coder_list()[c_] != NULL; c_++)                                                   \
        for (const taciti_index_coder *coder = taciti_index_coder_list()[c_]; coder != NULL; coder = NULL)

static void every_coder_is_complete_and_found_by_its_id(void **state) {
    (void)state;
    int count = 0;
    EACH_CODER(coder) {
        assert_true(coder->name != NULL && coder->help != NULL && coder->source != NULL);
        assert_ptr_equal(taciti_index_coder_at(coder->id), coder);
        count++;
    }
    assert_int_equal(count, 4);
    assert_null(taciti_index_coder_at(count));
    assert_null(taciti_index_coder_at(-1));
}

static void indices_come_back(void **state) {
    (void)state;
    const size_t sizes[] = {0, 1, 2, 7, 8, 9, 63, 64, 65, 127, 1000, MAX - 1};
    const double densities[] = {0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 1};
    EACH_CODER(coder)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t d = 0; d < sizeof densities / sizeof *densities; d++)
            comes_back(coder, draw(densities[d], sizes[s], s), sizes[s]);
}

static void the_best_coder_needs_the_fewest_bytes(void **state) {
    (void)state;
    const double densities[] = {0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 1};
    for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
        const size_t k = draw(densities[d], MAX, d);
        size_t fewest = 0;
        const taciti_index_coder *best = taciti_index_coder_best(g_indices, k, MAX, &fewest);
        assert_int_equal(best->bytes(g_indices, k, MAX), fewest);
        EACH_CODER(coder) assert_true(coder->bytes(g_indices, k, MAX) >= fewest);
    }
}

/* The numbers of ways to choose: 10 for 2 of 5; for k of a chunk of 4096 the figures of SparseLoCo's wire format. */
static void the_entropy_is_that_of_all_choices(void **state) {
    (void)state;
    assert_true(fabs(taciti_index_entropy(2, 5) - log2(10) / 2) < 1e-12);
    assert_true(fabs(taciti_index_entropy(8, 4096) - 10.09) < 0.005);
    assert_true(fabs(taciti_index_entropy(32, 4096) - 8.32) < 0.005);
    assert_true(fabs(taciti_index_entropy(64, 4096) - 7.36) < 0.005);
    assert_true(fabs(taciti_index_entropy(128, 4096) - 6.38) < 0.005);
    assert_true(taciti_index_entropy(0, 9) == 0 && taciti_index_entropy(9, 9) == 0 && taciti_index_entropy(0, 0) == 0);
}

static void raw_refuses_indices_that_do_not_ascend_below_n(void **state) {
    (void)state;
    const taciti_index_coder *raw = taciti_index_coder_at(0);
    const uint32_t good[] = {0, 5, 9}, equal[] = {0, 5, 5}, descending[] = {5, 0, 9}, high[] = {0, 5, 10};
    assert_int_equal(raw->decode(good, sizeof good, g_decoded, 3, 10), TACIT_OK);
    assert_int_equal(raw->decode(equal, sizeof equal, g_decoded, 3, 10), TACIT_E_DATA);
    assert_int_equal(raw->decode(descending, sizeof descending, g_decoded, 3, 10), TACIT_E_DATA);
    assert_int_equal(raw->decode(high, sizeof high, g_decoded, 3, 10), TACIT_E_DATA);
}

static void bitmap_refuses_another_count_and_bits_beyond_n(void **state) {
    (void)state;
    const taciti_index_coder *bitmap = taciti_index_coder_at(1);
    const unsigned char good[] = {0x21, 0x02}, beyond[] = {0x21, 0x04};
    assert_int_equal(bitmap->decode(good, 2, g_decoded, 3, 10), TACIT_OK);
    assert_int_equal(g_decoded[2], 9);
    assert_int_equal(bitmap->decode(good, 2, g_decoded, 2, 10), TACIT_E_DATA);
    assert_int_equal(bitmap->decode(good, 2, g_decoded, 4, 10), TACIT_E_DATA);
    assert_int_equal(bitmap->decode(beyond, 2, g_decoded, 3, 10), TACIT_E_DATA);
}

/* Gaps of random supports are geometric: draws them by inversion. */
static size_t draw_sparse(uint32_t *indices, double p, size_t n) {
    double at = -1;
    size_t k = 0;
    for (;; k++) {
        at += 1 + floor(log(1 - taciti_rng_unit(77, k)) / log1p(-p));
        if (at >= (double)n) return k;
        indices[k] = (uint32_t)at;
    }
}

static void random_supports_need_at_most_5_percent_more_than_their_entropy(void **state) {
    (void)state;
    enum { N = 25000000 };
    const double densities[] = {0.5, 0.4, 0.35, 0.3, 0.1, 0.03, 0.01, 0.001, 0.0001};
    uint32_t *indices = taciti_calloc(N, sizeof *indices);
    assert_non_null(indices);
    for (size_t d = 0; d < sizeof densities / sizeof *densities; d++) {
        const size_t k = draw_sparse(indices, densities[d], N);
        size_t bytes = 0;
        (void)taciti_index_coder_best(indices, k, N, &bytes);
        const double bits = (double)bytes * 8 / (double)k;
        assert_true(bits <= 1.05 * taciti_index_entropy(k, N));
        assert_true(bits >= 0.99 * taciti_index_entropy(k, N));
    }
    taciti_free(indices);
}

/* From the gaps as they are defined. */
static size_t rice_bytes_with(unsigned b, size_t k) {
    uint64_t bits = 0;
    for (size_t i = 0; i < k; i++) {
        const uint32_t gap = i == 0 ? g_indices[0] : g_indices[i] - g_indices[i - 1] - 1;
        bits += (gap >> b) + 1 + b;
    }
    return 1 + (size_t)((bits + 7) / 8);
}

static void rice_chooses_the_best_parameter(void **state) {
    (void)state;
    const taciti_index_coder *rice = taciti_index_coder_at(2);
    const size_t strides[] = {1, 2, 3, 7, 100, 1000, 1000000};
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++)
        for (size_t runs = 1; runs <= MAX; runs *= 8) { /* runs of neighbours between the strides */
            for (size_t i = 0; i < MAX; i++) g_indices[i] = (uint32_t)(i / runs * strides[s] * runs + i % runs);
            const size_t n = (size_t)g_indices[MAX - 1] + 1;
            size_t fewest = SIZE_MAX;
            for (unsigned b = 0; b < 32; b++) {
                const size_t bytes = rice_bytes_with(b, MAX);
                fewest = bytes < fewest ? bytes : fewest;
            }
            assert_int_equal(rice->bytes(g_indices, MAX, n), fewest);
            comes_back(rice, MAX, n);
        }
}

/* Single indices next to the end of the largest arrays: codes longer than a word. */
static void the_largest_indices_come_back(void **state) {
    (void)state;
    const size_t n = UINT32_MAX;
    for (int id = 0; id < 4; id++) {
        const taciti_index_coder *coder = taciti_index_coder_at(id);
        if (coder->bound(3, n) > sizeof g_bytes) continue;
        memcpy(g_indices, (const uint32_t[]){0, 1, UINT32_MAX - 1}, 3 * sizeof *g_indices);
        comes_back(coder, 3, n);
        memcpy(g_indices, (const uint32_t[]){UINT32_MAX - 3, UINT32_MAX - 2, UINT32_MAX - 1}, 3 * sizeof *g_indices);
        comes_back(coder, 3, n);
    }
}

static void codes_are_what_they_say(void **state) {
    (void)state;
    const uint32_t indices[] = {0, 5, 6, 300}; /* gaps 0 4 0 293 */
    const unsigned char varint[] = {0, 4, 0, 0xa5, 0x02};
    /* b = 6, each from the lowest bit: 1 000000, 1 001000, 1 000000, 00001 101001 */
    const unsigned char rice[] = {6, 0x81, 0x44, 0x00, 0x96};
    taciti_index_coder_at(3)->encode(indices, 4, 301, g_bytes);
    assert_int_equal(taciti_index_coder_at(3)->bytes(indices, 4, 301), sizeof varint);
    assert_memory_equal(g_bytes, varint, sizeof varint);
    taciti_index_coder_at(2)->encode(indices, 4, 301, g_bytes);
    assert_int_equal(taciti_index_coder_at(2)->bytes(indices, 4, 301), sizeof rice);
    assert_memory_equal(g_bytes, rice, sizeof rice);
}

static void refuses(const taciti_index_coder *coder, const char *bytes, size_t size, size_t k, size_t n) {
    unsigned char *copy = malloc(size + (size == 0)); /* so that a sanitizer sees a read beyond */
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    assert_int_equal(coder->decode(copy, size, g_decoded, k, n), TACIT_E_DATA);
    free(copy);
}

static void forged_codes_are_refused(void **state) {
    (void)state;
    const taciti_index_coder *rice = taciti_index_coder_at(2), *varint = taciti_index_coder_at(3);
    refuses(rice, "", 0, 0, 10);
    refuses(rice, "\x20\x01\0\0\0\0\0", 7, 1, 10);         /* parameter 32 */
    refuses(rice, "\x00\x00\x00\x00", 4, 1, 10);           /* zeros without an end */
    refuses(rice, "\x00\x00\x04", 3, 1, 10);               /* index 10 of 10 */
    refuses(rice, "\x00\x03", 2, 1, 10);                   /* a second code behind the only one */
    refuses(rice, "\x00\x01\x00", 3, 1, 10);               /* a byte left over */
    refuses(rice, "\x00\xff", 2, 9, 10);                   /* nine codes of a bit in eight bits */
    refuses(rice, "\x1f\x00\x00\x00\x00\x01", 6, 1, 10);   /* parameter 31, no lower bits */
    refuses(varint, "\x0a", 1, 1, 10);                     /* index 10 of 10 */
    refuses(varint, "\x00\x80", 2, 2, 10);                 /* does not end */
    refuses(varint, "\x00\x00", 2, 1, 10);                 /* a byte left over */
    refuses(varint, "\x80\x80\x80\x80\x80\x00", 6, 1, 10); /* six bytes */
    refuses(varint, "\xff\xff\xff\xff\x7f", 5, 1, 10);     /* 2^35 - 1 */
}

/* Whatever bytes arrive: indices that are accepted ascend below n, and nothing is written behind them. */
static void any_bytes_are_safe(void **state) {
    (void)state;
    const char *rounds = getenv("TACIT_FUZZ_ROUNDS");
    const uint64_t count = rounds != NULL ? strtoull(rounds, NULL, 10) : 200000;
    for (uint64_t round = 0; round < count; round++) {
        const uint64_t key = taciti_rng_key(3, round);
        const taciti_index_coder *coder = taciti_index_coder_at((int)taciti_rng_below(key, 0, 4));
        const size_t n = (size_t)taciti_rng_below(key, 1, 300), k = draw(taciti_rng_unit(key, 2), n, key + 1);
        size_t bytes = coder->bytes(g_indices, k, n);
        coder->encode(g_indices, k, n, g_bytes);
        for (uint64_t i = 0; bytes > 0 && i < taciti_rng_below(key, 3, 4); i++)
            g_bytes[taciti_rng_below(key, 4 + i, bytes)] ^= (unsigned char)(1u << taciti_rng_below(key, 40 + i, 8));
        if (taciti_rng_below(key, 50, 4) == 0) bytes = (size_t)taciti_rng_below(key, 51, bytes + 3);
        unsigned char *copy = malloc(bytes + (bytes == 0));
        assert_non_null(copy);
        memcpy(copy, g_bytes, bytes);
        for (size_t i = 0; i < GUARD; i++) g_decoded[k + i] = 0xa5a5a5a5u;
        if (coder->decode(copy, bytes, g_decoded, k, n) == TACIT_OK)
            for (size_t i = 0; i < k; i++) assert_true(g_decoded[i] < n && (i == 0 || g_decoded[i] > g_decoded[i - 1]));
        for (size_t i = 0; i < GUARD; i++) assert_int_equal(g_decoded[k + i], 0xa5a5a5a5u);
        free(copy);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_coder_is_complete_and_found_by_its_id),
        cmocka_unit_test(indices_come_back),
        cmocka_unit_test(the_best_coder_needs_the_fewest_bytes),
        cmocka_unit_test(the_entropy_is_that_of_all_choices),
        cmocka_unit_test(raw_refuses_indices_that_do_not_ascend_below_n),
        cmocka_unit_test(bitmap_refuses_another_count_and_bits_beyond_n),
        cmocka_unit_test(random_supports_need_at_most_5_percent_more_than_their_entropy),
        cmocka_unit_test(rice_chooses_the_best_parameter),
        cmocka_unit_test(the_largest_indices_come_back),
        cmocka_unit_test(codes_are_what_they_say),
        cmocka_unit_test(forged_codes_are_refused),
        cmocka_unit_test(any_bytes_are_safe),
    };
    return cmocka_run_group_tests(tests, quiet, loud);
}
