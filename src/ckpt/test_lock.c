/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/log.h"
#include "ckpt/lock.h"
#include "ckpt/test_folder.h"

static test_path g_folder;
static char g_line[1024];

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

static int set_up(void **state) {
    (void)state;
    g_folder = folder_create();
    g_line[0] = 0;
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_INFO);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    folder_remove(&g_folder);
    return 0;
}

/* A file system without locks. */
static int no_locks(int fd) {
    (void)fd;
    return ENOLCK;
}

/* A process that holds the folder until it is killed. */
static pid_t start_owner(taciti_lock_call *call) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        taciti_lock lock = {.fd = -1};
        const char taken = taciti_lock_take(g_folder.text, "run.dir", call, &lock) == TACIT_OK;
        if (write(ends[1], &taken, 1) != 1) _exit(1);
        for (;;) (void)pause();
    }
    char taken = 0;
    assert_int_equal(read(ends[0], &taken, 1), 1);
    assert_true(taken);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return child;
}

static void kill_owner(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void check_owner_dies(taciti_lock_call *call) {
    taciti_lock lock = {.fd = -1};
    char pid[32];
    const pid_t child = start_owner(call);
    (void)snprintf(pid, sizeof pid, "pid %ld", (long)child);
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", call, &lock), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, pid));
    assert_non_null(strstr(g_line, "--run.dir"));
    assert_int_equal(lock.fd, -1);
    kill_owner(child);
    assert_true(file_exists(path_in(g_folder.text, "lock").text));
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", call, &lock), TACIT_OK);
    assert_non_null(strstr(g_line, pid));
    assert_non_null(strstr(g_line, "taken over"));
    taciti_lock_release(&lock);
    assert_false(file_exists(path_in(g_folder.text, "lock").text));
}

static void a_lock_ends_with_its_process(void **state) {
    (void)state;
    check_owner_dies(NULL);
}

static void without_locks_the_text_decides(void **state) {
    (void)state;
    check_owner_dies(no_locks);
}

static void one_process_cannot_take_a_folder_twice(void **state) {
    (void)state;
    taciti_lock first = {.fd = -1}, second = {.fd = -1};
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", NULL, &first), TACIT_OK);
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", NULL, &second), TACIT_E_CONFIG);
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", no_locks, &second), TACIT_E_CONFIG);
    taciti_lock_release(&second);
    assert_true(file_exists(path_in(g_folder.text, "lock").text));
    taciti_lock_release(&first);
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", NULL, &second), TACIT_OK);
    taciti_lock_release(&second);
}

/* The text of a lock file, and whether a folder with it can be taken where the system has no locks. */
static void expect_text(const char *text, tacit_status expected) {
    const test_path path = path_in(g_folder.text, "lock");
    taciti_lock lock = {.fd = -1};
    file_put(path.text, text, strlen(text));
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", no_locks, &lock), expected);
    size_t count = 0;
    char *after = file_get(path.text, &count);
    if (expected != TACIT_OK) assert_string_equal(after, text);
    taciti_free(after);
    taciti_lock_release(&lock);
}

static void owners_that_are_gone_and_owners_that_may_live(void **state) {
    (void)state;
    char host[64] = "", text[128];
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    expect_text("elsewhere 12 345\n", TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "host elsewhere, pid 12"));
    assert_non_null(strstr(g_line, "rm "));
    expect_text("", TACIT_E_CONFIG); /* somebody is about to write it */
    expect_text("no owner at all", TACIT_E_CONFIG);
    (void)snprintf(text, sizeof text, "%s %ld 1\n", host, (long)getpid()); /* the number was given away again */
    expect_text(text, TACIT_OK);
    (void)snprintf(text, sizeof text, "%s 999999999 1\n", host);
    expect_text(text, TACIT_OK);
}

static void a_folder_made_for_nothing_goes_away(void **state) {
    (void)state;
    taciti_lock lock = {.fd = -1};
    const test_path run = path_in(g_folder.text, "run");
    assert_int_equal(taciti_lock_take(run.text, "run.dir", NULL, &lock), TACIT_OK);
    taciti_lock_release(&lock);
    assert_false(file_exists(run.text));
    assert_int_equal(taciti_lock_take(run.text, "run.dir", NULL, &lock), TACIT_OK);
    file_put(path_in(run.text, "metrics.jsonl").text, "", 0);
    taciti_lock_release(&lock);
    assert_true(file_exists(run.text));
    assert_int_equal(taciti_lock_take(run.text, "run.dir", NULL, &lock), TACIT_OK);
    assert_int_equal(unlink(path_in(run.text, "metrics.jsonl").text), 0);
    taciti_lock_release(&lock);
    assert_true(file_exists(run.text)); /* it was there before */
}

static void a_link_named_lock_is_not_written_through(void **state) {
    (void)state;
    taciti_lock lock = {.fd = -1};
    const test_path target = path_in(g_folder.text, "precious"), name = path_in(g_folder.text, "lock");
    file_put(target.text, "precious", 8);
    assert_int_equal(symlink(target.text, name.text), 0);
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", NULL, &lock), TACIT_E_IO);
    size_t count = 0;
    char *after = file_get(target.text, &count);
    assert_string_equal(after, "precious");
    taciti_free(after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lock_ends_with_its_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_locks_the_text_decides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_process_cannot_take_a_folder_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(owners_that_are_gone_and_owners_that_may_live, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_made_for_nothing_goes_away, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_link_named_lock_is_not_written_through, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
