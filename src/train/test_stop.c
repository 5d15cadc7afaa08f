/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "train/stop.h"

enum { THREADS = 3, PATIENCE_MS = 5000 };

static const int STOPPING[] = {SIGTERM, SIGINT, SIGUSR1};
enum { STOPPING_COUNT = sizeof STOPPING / sizeof *STOPPING };

static uint64_t mask_of(const char *task, const char *field) {
    char path[300], line[256];
    uint64_t mask = 0;
    (void)snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, field, strlen(field)) == 0) mask = strtoull(line + strlen(field), NULL, 16);
    (void)fclose(file);
    return mask;
}

static bool has(uint64_t mask, int signal_number) { return (mask >> (signal_number - 1) & 1) != 0; }

/* Blocked in every thread, also in those that were made after; and nobody has installed a handler. */
static void no_thread_can_run_a_handler(void **state) {
    (void)state;
    taciti_pool *pool = NULL;
    assert_int_equal(taciti_pool_create(THREADS, 0, &pool), TACIT_OK);
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    int threads = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        threads++;
        for (int i = 0; i < STOPPING_COUNT; i++) {
            assert_false(has(mask_of(entry->d_name, "SigCgt:"), STOPPING[i]));
            /* A signal that a thread waits for by sigtimedwait() shows as unblocked meanwhile; it stays in its wait. */
            char path[300], wait[64] = "";
            (void)snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
            FILE *file = fopen(path, "r");
            if (file != NULL && fgets(wait, sizeof wait, file) == NULL) wait[0] = 0;
            if (file != NULL) (void)fclose(file);
            if (strcmp(wait, "tacit signals\n") != 0) assert_true(has(mask_of(entry->d_name, "SigBlk:"), STOPPING[i]));
        }
    }
    (void)closedir(folder);
    assert_true(threads >= THREADS + 1); /* the pool's and the one that takes signals */
    taciti_pool_destroy(pool);
}

static void await_signal(int signal_number) {
    for (int i = 0; i < PATIENCE_MS && taciti_stop_signal() != signal_number; i++) taciti_sleep_ns(TACITI_NS_PER_MS);
    assert_int_equal(taciti_stop_signal(), signal_number);
}

static void count_lines(void *context, taciti_log_level level, const char *line) {
    (void)level;
    if (strstr(line, "told to stop by SIGUSR1: the run saves and ends") != NULL) ++*(int *)context;
}

static const char *g_expected;
static _Atomic int g_found;

static void find_line(void *context, taciti_log_level level, const char *line) {
    (void)context, (void)level;
    if (strcmp(line, g_expected) == 0) g_found = 1;
}

/* And the first of them, whichever it is, is logged, once. */
static void signals_are_noted(void **state) {
    (void)state;
    int lines = 0;
    taciti_log_set_sink(count_lines, &lines, TACITI_LOG_INFO);
    assert_int_equal(taciti_stop_signal(), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    await_signal(SIGUSR1);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    await_signal(SIGTERM);
    for (int i = 0; i < 20; i++) assert_int_equal(kill(getpid(), SIGUSR1), 0);
    await_signal(SIGUSR1);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO); /* waits for a line that is being written */
    assert_int_equal(lines, 1);
}

/* A program that is started later must die of SIGTERM as any other. */
static void a_child_gets_the_old_mask(void **state) {
    (void)state;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)raise(SIGTERM);
        _exit(0); /* it was blocked */
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
}

/* In a child, which has taken no signal yet. A sanitizer's runtime may not start threads in the child of a process
 * that was starting one, so this test runs before the one that listens. */
static void expect_line(bool saves, int signal_number, const char *expected) {
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        g_expected = expected;
        taciti_log_set_sink(find_line, NULL, TACITI_LOG_INFO);
        taciti_stop_block();
        if (taciti_stop_listen(saves) != TACIT_OK || kill(getpid(), signal_number) != 0) _exit(2);
        for (int i = 0; i < PATIENCE_MS && !g_found; i++) taciti_sleep_ns(TACITI_NS_PER_MS);
        _exit(g_found ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void no_line_promises_a_checkpoint_that_may_not_be(void **state) {
    (void)state;
    expect_line(true, SIGTERM, "told to stop by SIGTERM: the run saves and ends, unless a rank has failed");
    expect_line(true, SIGINT, "told to stop by SIGINT: the run saves and ends");
    expect_line(false, SIGTERM, "told to stop by SIGTERM: the run ends without a checkpoint");
}

static int listen_first(void **state) {
    (void)state;
    taciti_stop_block();
    return taciti_stop_listen(true) == TACIT_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_line_promises_a_checkpoint_that_may_not_be),
        cmocka_unit_test_setup(no_thread_can_run_a_handler, listen_first),
        cmocka_unit_test(signals_are_noted),
        cmocka_unit_test(a_child_gets_the_old_mask),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
