/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/probe.h"

enum { THREADS = 3, LINE = 64 };

static taciti_pool *pool_of(int threads) {
    taciti_pool *pool = NULL;
    assert_int_equal(taciti_pool_create(threads, 0, &pool), TACIT_OK);
    return pool;
}

static void peaks_are_rates(void **state) {
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        taciti_pool *pool = pool_of(threads);
        const double f32 = taciti_probe_fma_flops(pool, 0.002), bf16 = taciti_probe_bf16_flops(pool, 0.002);
        assert_true(isfinite(f32) && f32 > 0);
        assert_true(isfinite(bf16) && bf16 >= 0);
        taciti_pool_destroy(pool);
    }
}

static void a_pass_counts_reads_and_writes(void **state) {
    (void)state;
    const taciti_probe_stream streams[] = {
        {NULL, 640, TACITI_PROBE_READ}, {NULL, 1280, TACITI_PROBE_UPDATE}, {NULL, 64, TACITI_PROBE_WRITE}};
    assert_int_equal(taciti_probe_pass_bytes(streams, 3), 640 + 2 * 1280 + 64);
    assert_int_equal(taciti_probe_pass_bytes(streams, 0), 0);
}

/* Whatever the sizes, a pass writes every line of the streams it writes, and no other byte. */
static void a_pass_touches_exactly_its_streams(void **state) {
    (void)state;
    enum { MAX = 300 * LINE, BLOCKS = 4 };
    unsigned char *block[BLOCKS];
    for (size_t b = 0; b < BLOCKS; b++) {
        block[b] = taciti_calloc(MAX + 2 * LINE, 1);
        assert_non_null(block[b]);
    }
    static const taciti_probe_use uses[] = {TACITI_PROBE_READ, TACITI_PROBE_UPDATE, TACITI_PROBE_WRITE,
                                            TACITI_PROBE_STORE};
    const size_t lines[] = {0, 1, 2, 17, 299};
    for (int threads = 1; threads <= THREADS; threads++) {
        taciti_pool *pool = pool_of(threads);
        for (size_t c = 0; c < 5 * 5; c++) {
            taciti_probe_stream streams[BLOCKS];
            for (size_t b = 0; b < BLOCKS; b++) {
                memset(block[b], 0xee, MAX + 2 * LINE);
                const size_t bytes = lines[(b >= 2 ? c / 5 : c) % 5] * LINE;
                streams[b] = (taciti_probe_stream){.base = block[b] + LINE, .bytes = bytes, .use = uses[b]};
            }
            assert_true(taciti_probe_pass(pool, streams, BLOCKS) >= 0);
            for (size_t b = 0; b < BLOCKS; b++)
                for (size_t line = 0; line < MAX / LINE + 2; line++) {
                    const unsigned char *at = block[b] + line * LINE;
                    const int inside = line >= 1 && line < 1 + streams[b].bytes / LINE;
                    size_t same = 0;
                    for (size_t i = 0; i < LINE; i++) same += at[i] == 0xee;
                    assert_int_equal(same, inside && b >= 2 ? 0 : LINE);
                }
        }
        taciti_pool_destroy(pool);
    }
    for (size_t b = 0; b < BLOCKS; b++) taciti_free(block[b]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_rates),
        cmocka_unit_test(a_pass_counts_reads_and_writes),
        cmocka_unit_test(a_pass_touches_exactly_its_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
