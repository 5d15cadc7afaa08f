/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings that are read back, what is built in, and the log of a communicator.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/test_ranks.h"
#include "base/clock.h"

/* The text is that of this refusal, not of an earlier one. */
static void refused(tacit_status got, tacit_status want, const char *text) {
    assert_int_equal(got, want);
    if (strstr(tacit_error_text(), text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, tacit_error_text());
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static void values_are_read_back(void **state) {
    static const char *const VALUES[][2] = {
        {"strategy", "gossip"},        {"optim.lr", "0.01"},   {"exchange.bucket", "1048576"},
        {"exchange.overlap", "false"}, {"comm.meet", "a b:1"}, {"optim.name", "accum-adam"},
    };
    tacit_settings *settings = NULL;
    char text[TACIT_VALUE_BYTES], setting[TACIT_VALUE_BYTES];
    (void)state;
    assert_int_equal(tacit_settings_create(&settings), TACIT_OK);
    assert_int_equal(tacit_settings_get(settings, "strategy", text, sizeof text), TACIT_OK);
    assert_string_equal(text, "dp");
    for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
        (void)snprintf(setting, sizeof setting, "%s=%s", VALUES[i][0], VALUES[i][1]);
        assert_int_equal(tacit_settings_set(settings, setting), TACIT_OK);
        assert_int_equal(tacit_settings_get(settings, VALUES[i][0], text, strlen(VALUES[i][1]) + 1), TACIT_OK);
        assert_string_equal(text, VALUES[i][1]);
    }
    (void)strcpy(text, "as it was");
    refused(tacit_settings_get(settings, "optim.lrr", text, sizeof text), TACIT_E_CONFIG, "did you mean \"optim.lr\"?");
    refused(tacit_settings_get(settings, "model.layers", text, sizeof text), TACIT_E_CONFIG, "unknown key");
    refused(tacit_settings_get(settings, "strategy", text, 6), TACIT_E_USAGE, "needs 7 bytes, room is for 6");
    refused(tacit_settings_get(settings, "strategy", NULL, 6), TACIT_E_USAGE, "text is NULL");
    refused(tacit_settings_get(settings, NULL, text, 6), TACIT_E_USAGE, "key is NULL");
    refused(tacit_settings_get(NULL, "strategy", text, 6), TACIT_E_USAGE, "tacit_settings is NULL");
    assert_string_equal(text, "as it was");
    tacit_settings_destroy(settings);
}

/* Every key that is listed can be read, and its value be set again; every name can be chosen. */
static void every_key_is_listed(void **state) {
    tacit_settings *settings = NULL;
    const char *key = NULL, *help = NULL;
    char text[TACIT_VALUE_BYTES], setting[2 * TACIT_VALUE_BYTES];
    size_t count = 0;
    (void)state;
    assert_int_equal(tacit_settings_create(&settings), TACIT_OK);
    for (; tacit_list(TACIT_LIST_OPTIONS, count, &key, &help); count++) {
        assert_true(help[0] != '\0');
        assert_int_equal(tacit_settings_get(settings, key, text, sizeof text), TACIT_OK);
        (void)snprintf(setting, sizeof setting, "%s=%s", key, text);
        assert_int_equal(tacit_settings_set(settings, setting), TACIT_OK);
    }
    assert_in_range(count, 60, 1000);
    tacit_settings_destroy(settings);
}

/* Each member of the list is a value of the key. Returns their number. */
static size_t choose_all(tacit_list_kind kind, const char *key, const char *wanted) {
    tacit_settings *settings = NULL;
    const char *name = NULL, *help = NULL;
    char setting[TACIT_VALUE_BYTES];
    size_t count = 0;
    bool there = false;
    assert_int_equal(tacit_settings_create(&settings), TACIT_OK);
    for (; tacit_list(kind, count, &name, &help); count++) {
        (void)snprintf(setting, sizeof setting, "%s=%s", key, name);
        assert_int_equal(tacit_settings_set(settings, setting), TACIT_OK);
        there = there || strcmp(name, wanted) == 0;
        assert_true(help[0] != '\0');
    }
    assert_true(there);
    tacit_settings_destroy(settings);
    return count;
}

static void members_are_listed(void **state) {
    const char *name = "as it was";
    (void)state;
    assert_int_equal(choose_all(TACIT_LIST_STRATEGIES, "strategy", "localsgd"), 5);
    assert_int_equal(choose_all(TACIT_LIST_OPTIMIZERS, "optim.name", "accum-adam"), 5);
    assert_in_range(choose_all(TACIT_LIST_CODECS, "compress.codec", "topk"), 5, 100);
    assert_in_range(choose_all(TACIT_LIST_CONTROLLERS, "adapt.policy", "gravac"), 3, 100);
    assert_true(tacit_list(TACIT_LIST_CODECS, 0, NULL, NULL));
    assert_false(tacit_list(TACIT_LIST_CODECS, SIZE_MAX, &name, NULL));
    assert_false(tacit_list((tacit_list_kind)99, 0, &name, NULL));
    assert_string_equal(name, "as it was");
}

/* ---- logs of communicators --------------------------------------------------------------------------------------- */

enum { LOG_BYTES = 4096 };
typedef struct log {
    char text[LOG_BYTES];
    int lines;
} log;

static void keep_line(void *context, tacit_log_level level, const char *line) {
    log *l = context;
    (void)level;
    (void)strncat(l->text, line, LOG_BYTES - strlen(l->text) - 1);
    l->lines++;
}

static tacit_layout *create_layout(void) {
    tacit_layout *layout = NULL;
    OK(tacit_layout_create(&layout));
    OK(tacit_layout_add(layout, "out", 1, (const size_t[]){3}, 0));
    return layout;
}

/* The new lines of the log are these, no other log has any. */
static void expect_line(log *logs, int which, const char *text) {
    for (int i = 0; i < 3; i++) {
        assert_int_equal(logs[i].lines, i == which);
        if (i == which && strstr(logs[i].text, text) == NULL) fail_msg("\"%s\" is not in \"%s\"", text, logs[i].text);
        memset(&logs[i], 0, sizeof logs[i]);
    }
}

static void lines_of_a_communicator(void **state) {
    static log logs[3]; /* of all; of a; of b */
    tacit_settings *settings = NULL;
    tacit_comm *a = NULL, *b = NULL;
    tacit_job *job = NULL;
    tacit_layout *layout = create_layout();
    (void)state;
    assert_int_equal(tacit_settings_create(&settings), TACIT_OK);
    assert_int_equal(tacit_settings_set(settings, "gossip.every=2"), TACIT_OK); /* nothing will read it */
    assert_int_equal(tacit_open_self(NULL, &a), TACIT_OK);
    assert_int_equal(tacit_open_self(NULL, &b), TACIT_OK);
    assert_int_equal(tacit_log_to(keep_line, &logs[0], TACIT_LOG_WARN), TACIT_OK);
    assert_int_equal(tacit_comm_log_to(a, keep_line, &logs[1], TACIT_LOG_WARN), TACIT_OK);
    assert_int_equal(tacit_comm_log_to(b, keep_line, &logs[2], TACIT_LOG_ERROR), TACIT_OK);

    assert_int_equal(tacit_job_open(a, settings, layout, NULL, &job), TACIT_OK);
    expect_line(logs, 1, "gossip.every");
    assert_int_equal(tacit_job_finish(job, NULL), TACIT_E_USAGE);
    expect_line(logs, 1, "tacit_job_finish");
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    assert_int_equal(tacit_job_open(b, settings, layout, NULL, &job), TACIT_OK);
    expect_line(logs, -1, ""); /* b's are errors alone */
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    assert_int_equal(tacit_job_ready(job, 1), TACIT_E_USAGE);
    expect_line(logs, 2, "tensor 1 of a layout of 1");
    assert_int_equal(tacit_settings_set(settings, "optim.lr=x"), TACIT_E_CONFIG); /* of no communicator */
    expect_line(logs, 0, "optim.lr");
    assert_int_equal(tacit_job_ready(job, 1), TACIT_E_USAGE);
    expect_line(logs, 2, "tensor 1");
    assert_int_equal(tacit_job_ready(NULL, 1), TACIT_E_USAGE);
    expect_line(logs, 0, "tacit_job is NULL");
    assert_int_equal(tacit_job_ready(job, 1), TACIT_E_USAGE);
    expect_line(logs, 2, "tensor 1");
    assert_int_equal(tacit_layout_create(NULL), TACIT_E_USAGE);
    expect_line(logs, 0, "out is NULL");
    assert_int_equal(tacit_close(b), TACIT_E_USAGE);
    expect_line(logs, 2, "1 jobs or channels are open");

    refused(tacit_comm_log_to(b, keep_line, NULL, (tacit_log_level)9), TACIT_E_USAGE,
            "tacit_comm_log_to: 9 is no level");
    expect_line(logs, 2, "9 is no level");
    assert_int_equal(tacit_comm_log_to(b, keep_line, &logs[1], TACIT_LOG_WARN), TACIT_OK); /* in place of the other */
    assert_int_equal(tacit_job_ready(job, 1), TACIT_E_USAGE);
    expect_line(logs, 1, "tensor 1");
    assert_int_equal(tacit_comm_log_to(b, NULL, NULL, TACIT_LOG_WARN), TACIT_OK);
    assert_int_equal(tacit_job_ready(job, 1), TACIT_E_USAGE);
    expect_line(logs, 0, "tensor 1");
    assert_int_equal(tacit_comm_log_to(NULL, NULL, NULL, TACIT_LOG_WARN), TACIT_E_USAGE);
    expect_line(logs, 0, "tacit_comm is NULL");

    assert_int_equal(tacit_job_close(job), TACIT_OK);
    assert_int_equal(tacit_close(b), TACIT_OK);
    assert_int_equal(tacit_close(a), TACIT_OK);
    assert_int_equal(tacit_log_to(NULL, NULL, TACIT_LOG_WARN), TACIT_OK);
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
}

/* Rank 1 ends without a word. The thread of rank 0 notices it while no function runs, and logs where its communicator
 * does. */
static void lose_a_rank(int rank, int ranks, void *context) {
    static log all, mine;
    tacit_comm *comm = test_ranks_open(context, NULL, rank, ranks), *other = NULL;
    if (rank == 1) _exit(0);
    OK(tacit_log_to(keep_line, &all, TACIT_LOG_WARN));
    OK(tacit_comm_log_to(comm, keep_line, &mine, TACIT_LOG_ERROR));
    OK(tacit_open_self(NULL, &other));
    for (int i = 0; i < 2000 && tacit_close(other) == TACIT_OK; i++) { /* this thread is busy with something else */
        taciti_sleep_ns(TACITI_NS_PER_MS);
        OK(tacit_open_self(NULL, &other));
        OK(tacit_comm_log_to(comm, keep_line, &mine, TACIT_LOG_ERROR)); /* waits for a line on its way */
        if (mine.lines > 0) break;
    }
    CHECK(mine.lines == 1 && strstr(mine.text, "rank 1") != NULL);
    CHECK(all.lines == 0);
    CHECK(tacit_close(comm) == TACIT_E_PEER);
    OK(tacit_close(other));
}

static void threads_log_to_their_communicator(void **state) {
    (void)state;
    test_ranks_run(2, -1, lose_a_rank, test_store_create());
}

/* A line that a rank held back, to compare it with those of others, goes where its communicator logs. */
static void refuse_together(int rank, int ranks, void *context) {
    static log all, mine;
    tacit_comm *comm = test_ranks_open(context, NULL, rank, ranks);
    tacit_layout *layout = create_layout();
    tacit_settings *settings = NULL;
    tacit_job *job = NULL;
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, "strategy=gossip"));
    OK(tacit_settings_set(settings, rank == 0 ? "compress.codec=topk" : "compress.codec=int4"));
    OK(tacit_log_to(keep_line, &all, TACIT_LOG_WARN));
    OK(tacit_comm_log_to(comm, keep_line, &mine, TACIT_LOG_WARN));
    CHECK(tacit_job_open(comm, settings, layout, NULL, &job) == TACIT_E_CONFIG);
    CHECK(all.lines == 0 && mine.lines == 1); /* rank 1, which held it back, has other words */
    CHECK(strstr(mine.text, rank == 0 ? "topk" : "int4") != NULL);
    OK(tacit_close(comm));
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
}

static void lines_that_were_held_back(void **state) {
    (void)state;
    test_ranks_run(2, -1, refuse_together, test_store_create());
}

static void an_unknown_instruction_set_is_refused(void **state) {
    tacit_comm *comm = NULL;
    (void)state;
    assert_int_equal(setenv("TACIT_ISA", "sse", 1), 0);
    refused(tacit_open_self(NULL, &comm), TACIT_E_CONFIG, "TACIT_ISA=sse is not an instruction set");
    assert_null(comm);
    assert_int_equal(setenv("TACIT_ISA", "scalar", 1), 0);
    assert_int_equal(tacit_open_self(NULL, &comm), TACIT_OK);
    assert_int_equal(tacit_close(comm), TACIT_OK);
    assert_int_equal(unsetenv("TACIT_ISA"), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_back),
        cmocka_unit_test(every_key_is_listed),
        cmocka_unit_test(members_are_listed),
        cmocka_unit_test(lines_of_a_communicator),
        cmocka_unit_test(threads_log_to_their_communicator),
        cmocka_unit_test(lines_that_were_held_back),
        cmocka_unit_test(an_unknown_instruction_set_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
