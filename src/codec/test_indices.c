/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of all index coders: what is encoded comes back, forged bytes are refused, and no write leaves its array.
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
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(g_decoded[n + 1 + i], 0xa5a5a5a5u);
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
    assert_true(count >= 2);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_coder_is_complete_and_found_by_its_id),
        cmocka_unit_test(indices_come_back),
        cmocka_unit_test(the_best_coder_needs_the_fewest_bytes),
        cmocka_unit_test(the_entropy_is_that_of_all_choices),
        cmocka_unit_test(raw_refuses_indices_that_do_not_ascend_below_n),
        cmocka_unit_test(bitmap_refuses_another_count_and_bits_beyond_n),
    };
    return cmocka_run_group_tests(tests, quiet, loud);
}
