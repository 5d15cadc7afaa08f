/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/ranks.h"
#include "cli/remote.h"

static char g_line[512];
static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

/* ---- the words --------------------------------------------------------------------------------------------------- */
/* Splits the line at blanks, takes the flags and joins what is left. */
static tacit_status take(const char *line, taciti_ranks *out, char left[256]) {
    static char copy[256];
    char *argv[16] = {NULL};
    int argc = 0;
    (void)snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) argv[argc++] = word;
    const tacit_status status = taciti_ranks_take(&argc, argv, out);
    left[0] = 0;
    for (int i = 0; status == TACIT_OK && i < argc; i++) {
        assert_non_null(argv[i]);
        (void)strcat(strcat(left, i > 0 ? " " : ""), argv[i]);
    }
    if (status == TACIT_OK) assert_null(argv[argc]);
    return status;
}

static void flags_are_taken_out_of_the_words(void **state) {
    taciti_ranks ranks;
    char left[256];
    (void)state;
    assert_int_equal(take("tacit train a.yaml --ranks 2 --resume --hosts=a,b:3 --ranks=4", &ranks, left), TACIT_OK);
    assert_string_equal(left, "tacit train a.yaml --resume");
    assert_int_equal(ranks.ranks, 4);
    assert_string_equal(ranks.hosts, "a,b:3");
    assert_string_equal(ranks.rsh, TACITI_RSH);
    assert_int_equal(take("tacit train --rsh my-ssh --hosts a -- --ranks", &ranks, left), TACIT_OK);
    assert_string_equal(left, "tacit train -- --ranks");
    assert_string_equal(ranks.rsh, "my-ssh");
    assert_int_equal(take("tacit train --hostsx --ranksy --rshz", &ranks, left), TACIT_OK);
    assert_string_equal(left, "tacit train --hostsx --ranksy --rshz");
    assert_true(ranks.ranks == 0 && ranks.hosts == NULL);
}

static void flags_that_lack_something_are_refused(void **state) {
    taciti_ranks ranks;
    char left[256];
    (void)state;
    assert_int_equal(take("tacit train --hosts", &ranks, left), TACIT_E_USAGE);
    assert_non_null(strstr(g_line, "--hosts needs names: --hosts a,b:2"));
    assert_int_equal(take("tacit train --rsh=", &ranks, left), TACIT_E_USAGE);
    assert_int_equal(take("tacit train --rsh ssh", &ranks, left), TACIT_E_USAGE);
    assert_non_null(strstr(g_line, "--hosts a,b"));
    assert_int_equal(take("tacit train --hosts a --ranks -1", &ranks, left), TACIT_E_CONFIG);
    assert_int_equal(take("tacit train --ranks 1025", &ranks, left), TACIT_E_CONFIG);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */
static void hosts_have_names_and_numbers(void **state) {
    taciti_remote_hosts hosts;
    (void)state;
    assert_int_equal(taciti_remote_parse("a,me@b.example:5,[fe80::1]:2,[::1],c:1", 3, &hosts), TACIT_OK);
    const struct {
        const char *name;
        int first, ranks;
    } expected[] = {{"a", 0, 3}, {"me@b.example", 3, 5}, {"fe80::1", 8, 2}, {"::1", 10, 3}, {"c", 13, 1}};
    assert_int_equal(hosts.count, 5);
    assert_int_equal(hosts.ranks, 14);
    for (int i = 0; i < hosts.count; i++) {
        assert_string_equal(hosts.at[i].name, expected[i].name);
        assert_int_equal(hosts.at[i].first, expected[i].first);
        assert_int_equal(hosts.at[i].ranks, expected[i].ranks);
    }
    taciti_remote_destroy(&hosts);
}

static void other_words_are_no_hosts(void **state) {
    static const char *const WORDS[] = {"",
                                        ",",
                                        "a,",
                                        "a,,b",
                                        ":2",
                                        "a:",
                                        "a:0",
                                        "a:-1",
                                        "a:x",
                                        "a:2x",
                                        "a:1025",
                                        "::1",
                                        "[::1",
                                        "[]",
                                        "[::1]2",
                                        "-oX",
                                        "a b",
                                        "a:+2",
                                        "a: 2",
                                        "[a]b",
                                        "a,b:99999999999",
                                        "a:1000,b:1000"};
    taciti_remote_hosts hosts;
    (void)state;
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        g_line[0] = 0;
        if (taciti_remote_parse(WORDS[i], 1, &hosts) != TACIT_E_CONFIG) fail_msg("\"%s\" is taken", WORDS[i]);
        assert_non_null(strstr(g_line, "--hosts"));
    }
    assert_int_equal(taciti_remote_parse("localhost,b", 1, &hosts), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "b cannot find rank 0"));
    assert_int_equal(taciti_remote_parse("localhost,localhost", 1, &hosts), TACIT_OK);
    taciti_remote_destroy(&hosts);
}

static void ranks_meet_at_a_port_of_the_first_host(void **state) {
    static const struct {
        taciti_remote_host host;
        const char *begin;
    } PLACES[] = {{{.name = "b"}, "b:2"}, {{.name = "me@b"}, "b:2"}, {{.name = "fe80::1"}, "[fe80::1]:2"}};
    char text[TACITI_REMOTE_MEET_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        const size_t length = strlen(PLACES[i].begin) - 1;
        assert_int_equal(taciti_remote_meet(&PLACES[i].host, text), TACIT_OK);
        assert_memory_equal(text, PLACES[i].begin, length);
        const int port = atoi(text + length);
        assert_true(port >= 20000 && port < 32000);
    }
}

/* ---- the command ------------------------------------------------------------------------------------------------- */
/* A shell that knows nothing runs it here; this program, in its role as tacit, prints what it has got. */
static void a_shell_finds_folder_variables_and_words(void **state) {
    const taciti_remote_host host = {.name = "b", .first = 3, .ranks = 2};
    char *words[] = {(char[]){"it's \"$HOME\" `x` \\ \n*"}, (char[]){""}, NULL}, line[4096], folder[PATH_MAX];
    (void)state;
    (void)setenv("TACIT_TEST_VALUE", "a 'b' $c", 1);
    (void)setenv("OTHER_VALUE", "1", 1);
    char *command = taciti_remote_command(&host, 7, words);
    assert_non_null(command);
    char *run[] = {(char[]){"/usr/bin/env"}, (char[]){"-i"}, (char[]){"/bin/sh"}, (char[]){"-c"}, command, NULL};
    int out[2];
    assert_int_equal(pipe(out), 0);
    if (fork() == 0) {
        (void)dup2(out[1], STDOUT_FILENO);
        if (chdir("/") == 0) (void)execv(run[0], run);
        _exit(1);
    }
    (void)close(out[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(out[0], line + n, sizeof line - 1 - n)) > 0;) n += (size_t)got;
    line[n] = 0;
    assert_non_null(getcwd(folder, sizeof folder));
    char expected[2 * PATH_MAX];
    (void)snprintf(expected, sizeof expected, "%s|a 'b' $c|(null)|_ranks|3|2|7|%s|%s|", folder, words[0], words[1]);
    assert_string_equal(line, expected);
    free(command);
}

static int print_what_was_got(int argc, char **argv) {
    char folder[PATH_MAX];
    const char *value = getenv("TACIT_TEST_VALUE"), *other = getenv("OTHER_VALUE");
    printf("%s|%s|%s|", getcwd(folder, sizeof folder), value == NULL ? "(null)" : value,
           other == NULL ? "(null)" : other);
    for (int i = 1; i < argc; i++) printf("%s|", argv[i]);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], TACITI_RANKS_SERVE) == 0) return print_what_was_got(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_are_taken_out_of_the_words),
        cmocka_unit_test(flags_that_lack_something_are_refused),
        cmocka_unit_test(hosts_have_names_and_numbers),
        cmocka_unit_test(other_words_are_no_hosts),
        cmocka_unit_test(ranks_meet_at_a_port_of_the_first_host),
        cmocka_unit_test(a_shell_finds_folder_variables_and_words),
    };
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
