/* SPDX-License-Identifier: Apache-2.0
 *
 * The run folder: what an old run leaves goes aside whole, one run works in it at a time, and what a checkpoint needs
 * is known before the first step.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "ckpt/test_folder.h"
#include "comm/test_engine.h"
#include "train/trainer.h"

enum { MAX_RANKS = 2 };

static test_path g_folder, g_other;

static int set_up(void **state) {
    (void)state;
    g_folder = folder_create();
    g_other = folder_create();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    folder_remove(&g_folder);
    folder_remove(&g_other);
    return 0;
}

static void put(const char *folder, const char *name) { file_put(path_in(folder, name).text, name, strlen(name)); }

static int has(const char *folder, const char *name) { return file_exists(path_in(folder, name).text); }

/* ---- an old run -------------------------------------------------------------------------------------------------- */

static void what_is_no_run_stays(void **state) {
    (void)state;
    put(g_folder.text, "notes.txt");
    put(g_folder.text, "lock");
    assert_int_equal(taciti_set_old_run_aside(g_folder.text, false), TACIT_OK);
    assert_true(has(g_folder.text, "notes.txt") && has(g_folder.text, "lock"));
    char aside[sizeof g_folder.text + 8];
    (void)snprintf(aside, sizeof aside, "%s.old1", g_folder.text);
    assert_false(file_exists(aside));
}

/* By a link or with a slash behind it, the folders that lie there are named. */
static void old_runs_are_named_where_they_lie(void **state) {
    (void)state;
    const test_path run = path_in(g_folder.text, "run7"), link = path_in(g_other.text, "link");
    const test_path olds = path_in(g_folder.text, "run7.old*"), slash = path_in(run.text, "");
    const char *const paths[] = {run.text, slash.text, link.text, slash.text};
    char advice[sizeof olds.text + 32];
    (void)snprintf(advice, sizeof advice, "to remove them: rm -r %s", olds.text);
    assert_int_equal(mkdir(run.text, 0777), 0);
    assert_int_equal(symlink(run.text, link.text), 0);
    test_log_keep();
    for (int i = 0; i < 4; i++) {
        put(run.text, "metrics.jsonl");
        assert_int_equal(taciti_set_old_run_aside(paths[i], false), TACIT_OK);
        assert_int_equal(test_log_count(advice), i < 2 ? 0 : i - 1);
    }
    test_log_drop();
}

static void who_asked_to_resume_is_not_told_to(void **state) {
    (void)state;
    for (int resume = 0; resume < 2; resume++) {
        put(g_folder.text, "metrics.jsonl");
        test_log_keep();
        assert_int_equal(taciti_set_old_run_aside(g_folder.text, resume == 1), TACIT_OK);
        assert_int_equal(test_log_count("use --resume"), resume == 0);
        test_log_drop();
    }
}

/* The folder may hold anything else, a run even: of 5 ranks nothing is left to be taken for a log of 3. */
static void an_old_log_goes_aside_alone(void **state) {
    (void)state;
    static const char *const others[] = {"metrics.jsonl", "lock", "rank-.log", "rank-1.log.gz", "rank-1x.log"};
    const test_path log = path_in(g_folder.text, "log"), first = path_in(g_folder.text, "log.old1");
    const test_path second = path_in(g_folder.text, "log.old2"), device = path_in(log.text, "rank-7.log");
    assert_int_equal(mkdir(log.text, 0777) | symlink("/dev/full", device.text), 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) put(log.text, others[i]);
    assert_int_equal(taciti_set_old_log_aside(log.text), TACIT_OK);
    assert_false(file_exists(first.text));
    put(log.text, "rank-0.log");
    put(log.text, "rank-12.log");
    assert_int_equal(taciti_set_old_log_aside(log.text), TACIT_OK);
    assert_true(has(first.text, "rank-0.log") && has(first.text, "rank-12.log"));
    assert_false(has(log.text, "rank-0.log") || has(log.text, "rank-12.log") || has(first.text, "lock"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_true(has(log.text, others[i]));
    assert_false(file_exists(second.text));
}

static void set(taciti_train_settings *settings, const char *key, const char *value) {
    CHECK(taciti_config_set(&settings->job.config, key, value, "test") == TACIT_OK);
}

static void checkpoints_are_no_run_folder(void **state) {
    (void)state;
    const test_path run = path_in(g_folder.text, "w1"), ckpt = path_in(run.text, "ckpt");
    const test_path step = path_in(ckpt.text, "step_00000004"), file = path_in(run.text, "file");
    assert_int_equal(mkdir(run.text, 0777) | mkdir(ckpt.text, 0777) | mkdir(step.text, 0777), 0);
    assert_int_equal(taciti_check_run_folder(ckpt.text), TACIT_OK); /* a name is no checkpoint */
    put(step.text, "manifest.json");
    put(run.text, "file");
    char advice[sizeof run.text + 32];
    (void)snprintf(advice, sizeof advice, "w1: --run.dir %s --resume", run.text);
    test_log_keep();
    assert_int_equal(taciti_check_run_folder(step.text), TACIT_E_CONFIG);
    assert_int_equal(taciti_check_run_folder(ckpt.text), TACIT_E_CONFIG);
    assert_int_equal(taciti_check_run_folder(run.text), TACIT_OK);
    assert_int_equal(taciti_check_run_folder(path_in(file.text, "x").text), TACIT_E_CONFIG);
    assert_int_equal(test_log_count(advice), 2);
    assert_int_equal(test_log_count("lies in a file"), 1);
    test_log_drop();
}

static void an_old_run_takes_no_input_away(void **state) {
    (void)state;
    static const char *const KEYS[] = {"train.init", "data.train", "data.validation", "data.vocab", "run.arrivals"};
    const test_path run = path_in(g_folder.text, "inputs");
    assert_int_equal(mkdir(run.text, 0777), 0);
    put(run.text, "corpus");
    test_log_keep();
    for (int old = 0; old < 2; old++) {
        if (old == 1) put(run.text, "metrics.jsonl");
        for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
            taciti_train_settings settings;
            CHECK(taciti_train_settings_init(&settings) == TACIT_OK);
            set(&settings, "run.dir", run.text);
            set(&settings, KEYS[i], path_in(run.text, "corpus").text);
            const taciti_train_request anew = {.resume = false}, again = {.resume = true};
            assert_int_equal(taciti_check_run_inputs(&settings, &anew), old == 1 ? TACIT_E_CONFIG : TACIT_OK);
            assert_int_equal(taciti_check_run_inputs(&settings, &again), TACIT_OK);
            taciti_settings_destroy(&settings.job);
        }
    }
    assert_int_equal(test_log_count("would be moved aside whole"), 5);
    test_log_drop();
}

static void metrics_go_on_in_a_file(void **state) {
    (void)state;
    const test_path metrics = path_in(g_folder.text, "metrics.jsonl");
    const taciti_train_request again = {.resume = true};
    taciti_train_settings settings;
    CHECK(taciti_train_settings_init(&settings) == TACIT_OK);
    set(&settings, "run.dir", g_folder.text);
    assert_int_equal(taciti_check_run_inputs(&settings, &again), TACIT_OK);
    assert_int_equal(mkdir(metrics.text, 0777), 0);
    assert_int_equal(taciti_check_run_inputs(&settings, &again), TACIT_E_CONFIG);
    taciti_settings_destroy(&settings.job);
}

static void a_misspelt_run_is_found(void **state) {
    (void)state;
    static const char *const NAMES[] = {"lossi", "lossi/", "lossi//"};
    const test_path run = path_in(g_folder.text, "lossy");
    assert_int_equal(mkdir(run.text, 0777), 0);
    assert_int_equal(mkdir(path_in(run.text, "ckpt").text, 0777), 0);
    for (size_t i = 0; i < 3; i++) {
        char hint[128] = "";
        taciti_find_similar_run(path_in(g_folder.text, NAMES[i]).text, hint, sizeof hint);
        assert_non_null(strstr(hint, "\"lossy\""));
    }
}

static void an_old_run_goes_aside_whole(void **state) {
    (void)state;
    const test_path run = path_in(g_folder.text, "run");
    test_log_keep();
    for (int i = 1; i <= 3; i++) {
        char aside[32];
        (void)snprintf(aside, sizeof aside, "run.old%d", i);
        if (i == 1) assert_int_equal(mkdir(run.text, 0777), 0);
        put(run.text, "lock");
        put(run.text, "notes.txt");
        if (i == 3) /* checkpoints alone are a run as well */
            assert_int_equal(mkdir(path_in(run.text, "ckpt").text, 0777), 0);
        else
            put(run.text, "metrics.jsonl");
        assert_int_equal(taciti_set_old_run_aside(run.text, false), TACIT_OK);
        const test_path old = path_in(g_folder.text, aside);
        assert_true(has(old.text, "notes.txt") && has(old.text, i == 3 ? "ckpt" : "metrics.jsonl"));
        assert_false(has(old.text, "lock"));
        assert_true(has(run.text, "lock"));
        assert_false(has(run.text, "notes.txt") || has(run.text, "metrics.jsonl") || has(run.text, "ckpt"));
    }
    assert_int_equal(test_log_count("held an earlier run"), 3);
    test_log_drop();
}

/* Beside the target, on its disk; the link stays. */
static void behind_a_link_the_target_makes_room(void **state) {
    (void)state;
    const test_path link = path_in(g_other.text, "run"), target = path_in(g_folder.text, "target");
    assert_int_equal(mkdir(target.text, 0777), 0);
    assert_int_equal(symlink(target.text, link.text), 0);
    put(link.text, "metrics.jsonl");
    assert_int_equal(taciti_set_old_run_aside(link.text, false), TACIT_OK);
    assert_true(has(path_in(g_folder.text, "target.old1").text, "metrics.jsonl"));
    assert_false(has(g_other.text, "run.old1"));
    assert_true(has(g_other.text, "run"));
}

/* ---- a limit of memory --------------------------------------------------------------------------------------------
 */

/* A limit counts the memory that is mapped already, the coming allocations, 24 MiB, and 12 MiB of each thread. */
static void a_limit_must_allow_what_is_mapped_and_what_comes(void **state) {
    (void)state;
    taciti_train_settings settings = {.job.model = {.channels = 41, .layers = 3}};
    const taciti_trainer trainer = {.settings = &settings,
                                    .strategy = taciti_strategy_find("dp"),
                                    .threads = 5,
                                    .ranks = 3,
                                    .micro = 1,
                                    .time = 17,
                                    .layout = {.n = 1000},
                                    .memory = {.mapped = 777, .process = 4000, .total = 4000 + 123456}};
    assert_true(taciti_trainer_mapped_bytes(&trainer) == 777 + 123456 + (24 + 5 * 12) * 1048576.0);
}

/* ---- before the first step --------------------------------------------------------------------------------------- */

typedef struct trial {
    const char *strategy, *save_every;
    const char *folders[MAX_RANKS];
    size_t floats; /* the run claims that many; 0: as it is */
    bool taken;    /* another run works there */
    tacit_status claimed, checked;
} trial;

static void check_rank(taciti_comm *comm, void *context) {
    trial *t = context;
    const taciti_train_request request = {.resume = false};
    const int rank = taciti_comm_rank(comm);
    taciti_train_settings settings;
    taciti_trainer trainer;
    CHECK(taciti_train_settings_init(&settings) == TACIT_OK);
    set(&settings, "strategy", t->strategy);
    set(&settings, "run.dir", t->folders[rank]);
    set(&settings, "run.quiet", "true");
    set(&settings, "train.save_every", t->save_every);
    set(&settings, "model.layers", "1");
    set(&settings, "model.heads", "1");
    set(&settings, "model.channels", "4");
    set(&settings, "model.context", "4");
    set(&settings, "train.threads", "1");
    CHECK(taciti_trainer_prepare(&trainer, comm, &settings, &request) == TACIT_OK);
    const tacit_status claimed = taciti_trainer_claim_folder(&trainer);
    CHECK(taciti_trainer_build(&trainer) == TACIT_OK);
    const size_t floats = trainer.layout.n;
    if (t->floats > 0) trainer.layout.n = t->floats;
    const tacit_status checked = claimed == TACIT_OK ? taciti_trainer_check_folder(&trainer) : TACIT_OK;
    trainer.layout.n = floats;
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    taciti_trainer_close(&trainer);
    taciti_settings_destroy(&settings.job);
    if (rank != 0) return;
    t->claimed = claimed;
    t->checked = checked;
}

static void run(trial *t) {
    const taciti_comm_options options = test_comm_options(true);
    test_log_keep();
    test_world_run(MAX_RANKS, &options, check_rank, t);
}

static void expect(const char *strategy, const char *save_every, const char *second, size_t floats,
                   const char *message) {
    trial t = {.strategy = strategy, .save_every = save_every, .folders = {g_folder.text, second}, .floats = floats};
    run(&t);
    assert_int_equal(t.claimed, TACIT_OK);
    assert_int_equal(t.checked, message == NULL ? TACIT_OK : TACIT_E_IO);
    if (message != NULL) assert_true(test_log_count(message) > 0);
    test_log_drop();
    assert_false(has(g_folder.text, "lock"));
}

/* Model and two moments: of all ranks together with dp; with localsgd the mean of the model, and of each of two ranks
 * model, moments and anchor. An array of 2^40 floats is 4 TiB, 4194304 MiB. */
static void a_checkpoint_must_find_room(void **state) {
    (void)state;
    const size_t large = (size_t)1 << 40;
    expect("dp", "5", g_folder.text, 0, NULL);
    expect("dp", "5", g_folder.text, large, "a checkpoint needs 12582912 MiB");
    expect("localsgd", "5", g_folder.text, large, "a checkpoint needs 37748736 MiB");
    expect("shard", "5", g_folder.text, large, "a checkpoint needs 12582912 MiB");
    expect("localsgd", "-1", g_folder.text, large, NULL);
}

static void who_writes_a_part_must_see_the_folder(void **state) {
    (void)state;
    expect("dp", "5", g_other.text, 0, NULL);
    expect("localsgd", "5", g_folder.text, 0, NULL);
    expect("localsgd", "5", g_other.text, 0, "rank 1 on host");
    expect("localsgd", "-1", g_other.text, 0, NULL);
}

static void a_folder_has_one_run(void **state) {
    (void)state;
    taciti_lock lock = {.fd = -1};
    assert_int_equal(taciti_lock_take(g_folder.text, "run.dir", NULL, &lock), TACIT_OK);
    trial t = {.strategy = "dp", .save_every = "5", .folders = {g_folder.text, g_folder.text}};
    run(&t);
    test_log_drop();
    taciti_lock_release(&lock);
    assert_int_equal(t.claimed, TACIT_E_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_no_run_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_old_run_goes_aside_whole, set_up, tear_down),
        cmocka_unit_test(a_limit_must_allow_what_is_mapped_and_what_comes),
        cmocka_unit_test_setup_teardown(old_runs_are_named_where_they_lie, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_asked_to_resume_is_not_told_to, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_old_log_goes_aside_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(checkpoints_are_no_run_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_old_run_takes_no_input_away, set_up, tear_down),
        cmocka_unit_test_setup_teardown(metrics_go_on_in_a_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_misspelt_run_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(behind_a_link_the_target_makes_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_checkpoint_must_find_room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_writes_a_part_must_see_the_folder, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_folder_has_one_run, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
