/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sibling.h"
#include "base/system.h"

static const char PATH[] = "test_system.txt";

static void write_file(const char *text) {
    FILE *file = fopen(PATH, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int remove_file(void **state) {
    (void)state;
    (void)remove(PATH);
    return 0;
}

static void the_first_line_is_read_without_its_end(void **state) {
    (void)state;
    char line[16];
    write_file("performance\nsecond\n");
    assert_true(taciti_system_line(PATH, line, sizeof line));
    assert_string_equal(line, "performance");
    assert_true(taciti_system_line(PATH, line, 5)); /* cut */
    assert_string_equal(line, "perf");
    write_file("");
    assert_false(taciti_system_line(PATH, line, sizeof line));
    assert_false(taciti_system_line("no such file", line, sizeof line));
}

static void a_line_is_a_number_as_a_whole_or_not_at_all(void **state) {
    (void)state;
    double x = 0;
    write_file("2400000\n");
    assert_true(taciti_system_number(PATH, &x));
    assert_true(x >= 2400000 && x <= 2400000);
    write_file("24 MHz\n");
    assert_false(taciti_system_number(PATH, &x));
    assert_false(taciti_system_number("no such file", &x));
}

static bool is(double a, double b) { return a >= b && a <= b; }

static void an_entry_of_meminfo_is_found_by_its_whole_name(void **state) {
    (void)state;
    write_file("MemTotal:       16384 kB\nMemAvailable:    8192 kB\nSwapFree:           0 kB\n");
    assert_true(is(taciti_meminfo_bytes(PATH, "MemTotal"), 16384.0 * 1024));
    assert_true(is(taciti_meminfo_bytes(PATH, "MemAvailable"), 8192.0 * 1024));
    assert_true(is(taciti_meminfo_bytes(PATH, "Mem"), 0));
    assert_true(is(taciti_meminfo_bytes(PATH, "HugePages_Total"), 0));
    assert_true(is(taciti_meminfo_bytes("no such file", "MemTotal"), 0));
    assert_true(taciti_meminfo_bytes(TACITI_MEMINFO, "MemTotal") > 0);
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static pid_t start_sleeper(void) {
    static char variable[] = "OMPI_COMM_WORLD_RANK=3";
    char *environment[] = {variable, NULL}, nothing;
    int begun[2] = {-1, -1}; /* closed when the sleeper has its own environment */
    (void)!pipe(begun);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)fcntl(begun[1], F_SETFD, FD_CLOEXEC);
        (void)execle("/bin/sleep", "sleep", "60", (char *)NULL, environment);
        _exit(1);
    }
    (void)close(begun[1]);
    (void)!read(begun[0], &nothing, 1);
    (void)close(begun[0]);
    return pid;
}

/* Returns what a child of this launcher finds: 0 the sleeper with its rank, 1 nothing, 2 something else. */
static int look(pid_t sleeper) {
    const pid_t child = fork();
    if (child == 0) {
        pid_t pid = 0;
        int rank = -2;
        const bool found = taciti_sibling_find_stopped(&pid, &rank);
        _exit(!found ? 1 : pid == sleeper && rank == 3 ? 0 : 2);
    }
    int status = 0;
    (void)waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* The launcher's part, in a process that has no other children. */
static int launch(void) {
    int status = 0, wrong = 0;
    const pid_t sleeper = start_sleeper();
    (void)kill(sleeper, SIGSTOP);
    (void)waitpid(sleeper, &status, WUNTRACED);
    wrong |= taciti_process_is_stopped(sleeper) ? 0 : 1;
    wrong |= look(sleeper) == 0 ? 0 : 2;
    (void)kill(sleeper, SIGCONT);
    (void)waitpid(sleeper, &status, WCONTINUED);
    wrong |= taciti_process_is_stopped(sleeper) ? 4 : 0;
    (void)kill(sleeper, SIGKILL);
    (void)waitpid(sleeper, &status, 0);
    wrong |= look(sleeper) == 1 ? 0 : 8;
    return wrong;
}

static void a_stopped_sibling_is_found_with_its_rank(void **state) {
    (void)state;
    int status = 0;
    const pid_t launcher = fork();
    if (launcher == 0) _exit(launch());
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_process_that_runs_or_is_gone_is_not_stopped(void **state) {
    (void)state;
    assert_false(taciti_process_is_stopped(getpid()));
    const pid_t child = fork();
    if (child == 0) _exit(0);
    (void)waitpid(child, NULL, 0);
    assert_false(taciti_process_is_stopped(child));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_first_line_is_read_without_its_end, remove_file),
        cmocka_unit_test_teardown(a_line_is_a_number_as_a_whole_or_not_at_all, remove_file),
        cmocka_unit_test_teardown(an_entry_of_meminfo_is_found_by_its_whole_name, remove_file),
        cmocka_unit_test(a_stopped_sibling_is_found_with_its_rank),
        cmocka_unit_test(a_process_that_runs_or_is_gone_is_not_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
