/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hosts.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/series.h"
#include "base/trace.h"

static void statuses_have_names_texts_and_exit_codes(void **state) {
    (void)state;
    assert_string_equal(tacit_status_name(TACIT_E_PEER), "E_PEER");
    assert_string_equal(tacit_status_text(TACIT_OK), "success");
    assert_int_equal(tacit_status_exit_code(TACIT_E_PEER), 5);
    assert_int_equal(tacit_status_exit_code(TACIT_E_CONFIG), 3);
}

static char g_line[64];
static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    strncpy(g_line, line, sizeof g_line - 1);
}

static void fail_logs_once_and_returns_its_status(void **state) {
    (void)state;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    assert_int_equal(taciti_fail(TACIT_E_DATA, "file %d", 7), TACIT_E_DATA);
    assert_string_equal(g_line, "file 7");
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

static void what_is_captured_reaches_no_sink(void **state) {
    (void)state;
    char reason[TACITI_REASON_BYTES];
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    g_line[0] = '\0';
    taciti_log_capture(reason);
    assert_string_equal(reason, "");
    assert_int_equal(taciti_fail(TACIT_E_CONFIG, "first"), TACIT_E_CONFIG);
    assert_int_equal(taciti_fail(TACIT_E_CONFIG, "not on %d ranks", 5), TACIT_E_CONFIG);
    taciti_log(TACITI_LOG_WARN, "a warning");
    taciti_log_capture(NULL);
    assert_string_equal(reason, "not on 5 ranks");
    assert_string_equal(g_line, "");
    taciti_log(TACITI_LOG_WARN, "later");
    assert_string_equal(g_line, "later");
    taciti_log_set_mode(TACITI_LOG_HOLD);
    taciti_log_capture(reason);
    (void)taciti_fail(TACIT_E_CONFIG, "not here");
    taciti_log_capture(NULL);
    assert_string_equal(reason, "not here");
    assert_true(taciti_log_held() == 0); /* nothing that other processes would have to say, too */
    taciti_log_set_mode(TACITI_LOG_DIRECT);
    assert_string_equal(g_line, "later");
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

static int g_lines;

static void count_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)line;
    g_lines += level == TACITI_LOG_ERROR;
}

static void lines_of_failures_wait_until_they_are_settled(void **state) {
    (void)state;
    taciti_log_set_sink(count_line, NULL, TACITI_LOG_INFO);
    g_lines = 0;
    taciti_log_set_mode(TACITI_LOG_KEEP);
    assert_true(taciti_log_held() == 0);
    (void)taciti_fail(TACIT_E_DATA, "file %d", 7);
    assert_int_equal(g_lines, 1);
    const uint64_t digest = taciti_log_held();
    taciti_log_set_mode(TACITI_LOG_HOLD);
    assert_true(digest != 0 && taciti_log_held() == 0);
    (void)taciti_fail(TACIT_E_DATA, "file %d", 7);
    assert_true(taciti_log_held() == digest);
    (void)taciti_fail(TACIT_E_PEER, "rank 3 is silent");
    assert_int_equal(g_lines, 2); /* said at once, and no part of the comparison */
    assert_true(taciti_log_held() == digest);
    taciti_log_settle(false);
    assert_int_equal(g_lines, 2);
    for (int i = 0; i < 20; i++) (void)taciti_fail(TACIT_E_DATA, "file %d", i);
    assert_true(taciti_log_held() != digest);
    taciti_log_settle(true);
    assert_int_equal(g_lines, 22); /* more than there is room for: none is lost */
    (void)taciti_fail(TACIT_E_DATA, "the last one");
    taciti_log_set_mode(TACITI_LOG_DIRECT);
    assert_int_equal(g_lines, 23);
    (void)taciti_fail(TACIT_E_DATA, "at once");
    assert_int_equal(g_lines, 24);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

static void a_machine_has_memory_and_not_more_than_there_is(void **state) {
    (void)state;
    const size_t available = taciti_available_bytes();
    assert_true(available > 0 && available < (size_t)1 << 50);
}

static void count_threads(void *context, int thread, int threads) {
    (void)thread;
    (void)threads;
    atomic_fetch_add((_Atomic int *)context, 1);
}

static void pool_runs_every_thread_every_round(void **state) {
    (void)state;
    for (int spin = 0; spin <= 50; spin += 50) {
        taciti_pool *pool = NULL;
        assert_int_equal(taciti_pool_create(3, spin, &pool), TACIT_OK);
        _Atomic int calls = 0;
        for (int i = 0; i < 200; i++) taciti_pool_run(pool, count_threads, &calls);
        assert_int_equal(calls, 600);
        taciti_pool_destroy(pool);
    }
}

static void pool_parts_tile_any_range(void **state) {
    (void)state;
    for (size_t n = 0; n < 100; n++)
        for (int threads = 1; threads < 9; threads++) {
            size_t expected = 0;
            for (int t = 0; t < threads; t++) {
                size_t begin = 0, end = 0;
                taciti_pool_part(n, 16, t, threads, &begin, &end);
                assert_int_equal(begin, expected);
                assert_true(end >= begin);
                expected = end;
            }
            assert_int_equal(expected, n);
        }
}

static void random_below_stays_below_and_covers(void **state) {
    (void)state;
    unsigned seen = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t r = taciti_rng_below(taciti_rng_key(1, 2), i, 7);
        assert_true(r < 7);
        seen |= 1u << r;
    }
    assert_int_equal(seen, 0x7f);
    assert_true(taciti_rng_below(3, 4, UINT64_C(1) << 63) < UINT64_C(1) << 63);
    double mean = 0;
    for (uint64_t i = 0; i < 100000; i++) mean += taciti_rng_unit(9, i);
    assert_true(mean / 1e5 > 0.495 && mean / 1e5 < 0.505);
}

static void allocation_refuses_overflow_and_aligns(void **state) {
    (void)state;
    assert_null(taciti_calloc(SIZE_MAX / 2, 4));
    void *block = taciti_calloc(0, 8);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % TACITI_ALIGN_BYTES, 0);
    taciti_free(block);
    taciti_pages pages = {0};
    assert_int_equal(taciti_pages_create(5u << 20, "test", &pages), TACIT_OK);
    assert_int_equal((uintptr_t)pages.base % (2u << 20), 0);
    ((char *)pages.base)[(5u << 20) - 1] = 1;
    taciti_pages_destroy(&pages);
}

enum { PAGE = 4096, PAGES = 8192 };

/* Content stays where pages are committed twice, is gone where they were dropped, and the page at the edge of what is
 * dropped stays. */
static void reserved_pages_come_and_go(void **state) {
    (void)state;
    taciti_pages pages = {0};
    assert_int_equal(taciti_pages_reserve((size_t)PAGE * PAGES, "test", &pages), TACIT_OK);
    unsigned char *x = pages.base;
    assert_int_equal(taciti_pages_commit(&pages, PAGE + 7, 5 * PAGE, "test"), TACIT_OK);
    for (size_t i = PAGE; i < 7 * PAGE; i++) assert_int_equal(x[i], 0);
    memset(x + PAGE, 9, 6 * PAGE);
    assert_int_equal(taciti_pages_commit(&pages, 3 * PAGE, 7 * PAGE, "test"), TACIT_OK);
    for (size_t i = PAGE; i < 10 * PAGE; i++) assert_int_equal(x[i], i < 7 * PAGE ? 9 : 0);
    taciti_pages_drop(&pages, 2 * PAGE + 1, 4 * PAGE); /* pages 3 to 5 */
    for (size_t i = PAGE; i < 3 * PAGE; i++) assert_int_equal(x[i], 9);
    for (size_t i = 6 * PAGE; i < 7 * PAGE; i++) assert_int_equal(x[i], 9);
    assert_int_equal(taciti_pages_commit(&pages, 3 * PAGE, 1, "test"), TACIT_OK);
    for (size_t i = 3 * PAGE; i < 4 * PAGE; i++) assert_int_equal(x[i], 0);
    assert_int_equal(taciti_pages_commit(&pages, 0, 0, "test"), TACIT_OK);
    taciti_pages_destroy(&pages);
}

/* In a process of its own: reserving is free, committing is not, and what is dropped may be committed elsewhere. */
static int use_up_a_limit(void) {
    const size_t quarter = (size_t)PAGE * PAGES / 4;
    taciti_pages pages = {0};
    if (taciti_pages_reserve(4 * quarter, "test", &pages) != TACIT_OK) return 1;
    if (taciti_data_limit_bytes() != SIZE_MAX) return 2;
    if (taciti_data_bytes() == 0 || taciti_data_bytes() >= (size_t)1 << 46) return 3;
    const struct rlimit limit = {taciti_data_bytes() + 2 * quarter + quarter / 2, RLIM_INFINITY};
    if (setrlimit(RLIMIT_DATA, &limit) != 0) return 4;
    if (taciti_data_limit_bytes() != limit.rlim_cur) return 5;
    if (taciti_pages_commit(&pages, 0, 2 * quarter, "test") != TACIT_OK) return 6;
    if (taciti_pages_commit(&pages, 2 * quarter, quarter, "test") != TACIT_E_MEMORY) return 7;
    taciti_pages_drop(&pages, 0, quarter);
    return taciti_pages_commit(&pages, 2 * quarter, quarter, "test") == TACIT_OK ? 0 : 8;
}

static void committed_pages_count_and_reserved_ones_do_not(void **state) {
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        taciti_log_set_sink(NULL, NULL, TACITI_LOG_ERROR);
        _exit(use_up_a_limit());
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void thread_time_stands_still_in_sleep_and_runs_in_work(void **state) {
    (void)state;
    const int64_t begin = taciti_now_ns(), used = taciti_thread_ns();
    taciti_sleep_ns(20 * TACITI_NS_PER_MS);
    const int64_t slept = taciti_thread_ns() - used;
    assert_true(slept >= 0 && slept < taciti_now_ns() - begin);
    const int64_t before = taciti_thread_ns();
    for (volatile int i = 0; i < 100000; i++) {
    }
    assert_true(taciti_thread_ns() > before);
}

static void a_full_trace_still_counts(void **state) {
    (void)state;
    taciti_trace trace;
    assert_int_equal(taciti_trace_create(1, &trace), TACIT_OK);
    int64_t t = taciti_now_ns();
    t = taciti_trace_add(&trace, TACITI_SPAN_FORWARD, -1, t);
    t = taciti_trace_add(&trace, TACITI_SPAN_FORWARD, -1, t - 1000);
    assert_int_equal(trace.count, 1);
    assert_int_equal(trace.dropped, 1);
    int64_t totals[TACITI_SPAN_KINDS];
    taciti_trace_take_totals(&trace, totals);
    assert_true(totals[TACITI_SPAN_FORWARD] >= 1000);
    taciti_trace_destroy(&trace);
}

/* Within some ulps of the library's, over all sizes. */
static void series_are_close_to_the_library(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 20000; i++) {
        const double u = 1 - taciti_rng_unit(11, i), x = ldexp(u, (int)(i % 400) - 200), y = -700 * u;
        assert_true(fabs(taciti_series_log(x) - log(x)) <= 4e-16 * fmax(1, fabs(log(x))));
        assert_true(fabs(taciti_series_exp(y) - exp(y)) <= 4e-13 * exp(y)); /* rounding of y / log 2 */
        assert_true(fabs(taciti_series_exp(-u) - exp(-u)) <= 4e-16);
        double cosine, sine;
        taciti_series_circle(1 - u, &cosine, &sine);
        assert_true(fabs(cosine * cosine + sine * sine - 1) <= 1e-15);
    }
    assert_true(fabs(taciti_series_log(1)) <= 0 && fabs(taciti_series_exp(0) - 1) <= 0);
    assert_true(fabs(taciti_series_exp(-1e300)) <= 0 && fabs(taciti_series_exp((double)-INFINITY)) <= 0);
}

static void the_last_host_has_what_is_left(void **state) {
    (void)state;
    taciti_hosts hosts;
    assert_int_equal(taciti_hosts_by_size(7, 3, &hosts), TACIT_OK);
    assert_int_equal(hosts.ranks, 7);
    assert_int_equal(hosts.count, 3);
    for (int r = 0; r < 7; r++) assert_int_equal(hosts.host_of[r], r / 3);
    taciti_hosts_destroy(&hosts);
    assert_null(hosts.host_of);
    assert_int_equal(taciti_hosts_by_size(6, 3, &hosts), TACIT_OK);
    assert_int_equal(hosts.count, 2);
    taciti_hosts_destroy(&hosts);
    assert_int_equal(taciti_hosts_create(5, &hosts), TACIT_OK);
    assert_int_equal(hosts.count, 1);
    taciti_hosts_destroy(&hosts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_host_has_what_is_left),
        cmocka_unit_test(series_are_close_to_the_library),
        cmocka_unit_test(statuses_have_names_texts_and_exit_codes),
        cmocka_unit_test(lines_of_failures_wait_until_they_are_settled),
        cmocka_unit_test(a_machine_has_memory_and_not_more_than_there_is),
        cmocka_unit_test(what_is_captured_reaches_no_sink),
        cmocka_unit_test(reserved_pages_come_and_go),
        cmocka_unit_test(committed_pages_count_and_reserved_ones_do_not),
        cmocka_unit_test(fail_logs_once_and_returns_its_status),
        cmocka_unit_test(pool_runs_every_thread_every_round),
        cmocka_unit_test(pool_parts_tile_any_range),
        cmocka_unit_test(random_below_stays_below_and_covers),
        cmocka_unit_test(allocation_refuses_overflow_and_aligns),
        cmocka_unit_test(thread_time_stands_still_in_sleep_and_runs_in_work),
        cmocka_unit_test(a_full_trace_still_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
