/* SPDX-License-Identifier: Apache-2.0
 *
 * A load that fails, on one rank or on all, before or after values were read, is the same error on every rank, and the
 * job is as it was: it trains like a job that has never met a checkpoint, or loads another time.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>

#include "api/test_jobs.h"
#include "ckpt/test_folder.h"

enum { RANKS = 3, STEPS = 3, WORD_BYTES = 5 };

typedef struct trial {
    test_job saved, loaded;
    const char *refusal; /* of the settings, on all ranks; NULL: rank 1 alone has no room for a blob */
    const char *folder;
} trial;

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

/* A job whose parameters are set; those of all ranks are the same. */
static tacit_job *prepare_job(tacit_comm *comm, const test_job *t, float begin) {
    tacit_job *job = open_job(comm, t);
    float *x = tacit_job_parameters(job);
    for (int i = 0; i < TENSORS; i++) *x++ = begin + (float)i;
    return job;
}

/* Gradients differ between ranks. */
static void make_step(tacit_job *job, const test_job *t, int rank, int step) {
    for (size_t i = 0; i < 10; i++) tacit_job_gradients(job)[i] = 0.01F * (float)(rank + 1) * (float)(step + 1);
    OK(tacit_job_ready(job, TACIT_ALL_TENSORS));
    OK(t->own ? tacit_job_settle(job, NULL) : tacit_job_finish(job, NULL));
    if (t->own) OK(tacit_job_stepped(job));
}

/* Trains a job that has started and returns its state. */
static unsigned char *train(tacit_job *job, const test_job *t, int rank, size_t *bytes) {
    for (int s = 0; s < STEPS; s++) make_step(job, t, rank, s);
    OK(tacit_job_state(job, NULL, 0, bytes));
    unsigned char *state = malloc(*bytes);
    CHECK(state != NULL);
    OK(tacit_job_state(job, state, *bytes, bytes));
    return state;
}

static void save_job(tacit_comm *comm, const trial *t) {
    size_t bytes = 0;
    char own[WORD_BYTES] = "1234", word[WORD_BYTES] = "word";
    const tacit_blob blobs[] = {{.size = sizeof *blobs, .name = "own", .bytes = own, .count = 4, .own = true},
                                {.size = sizeof *blobs, .name = "word", .bytes = word, .count = 4}};
    tacit_job *job = prepare_job(comm, &t->saved, 7);
    OK(tacit_job_start(job));
    free(train(job, &t->saved, tacit_rank(comm), &bytes));
    OK(tacit_job_save(job, t->folder, 1, blobs, 2));
    OK(tacit_job_close(job));
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

typedef struct room {
    bool there;
    void *memory; /* owned */
} room;

static void *make_room(void *context, size_t count) {
    room *r = context;
    if (r->there) r->memory = malloc(count);
    return r->memory;
}

/* Only the last blob fails, and only on rank 1. */
static void fail_to_load(tacit_comm *comm, tacit_job *job, const trial *t) {
    bool found = false;
    room word = {.there = t->refusal != NULL || tacit_rank(comm) != 1};
    char own[WORD_BYTES] = "----";
    tacit_blob blobs[] = {
        {.size = sizeof *blobs, .name = "own", .bytes = own, .count = 4, .own = true},
        {.size = sizeof *blobs, .name = "word", .room = make_room, .context = &word},
    };
    const tacit_status expected = t->refusal != NULL ? TACIT_E_CONFIG : TACIT_E_MEMORY;
    REFUSED(tacit_job_load(job, t->folder, blobs, 2, &found), expected,
            t->refusal != NULL ? t->refusal : "the caller has no room for the 4 bytes of blob word");
    CHECK(!found && strcmp(own, "----") == 0 && !blobs[0].loaded && blobs[1].bytes == NULL);
    free(word.memory);
}

/* Both have started or loaded; they make the same steps and are closed. */
static void expect_same(tacit_job *job, tacit_job *fresh, const test_job *t, int rank) {
    size_t bytes = 0, expected_bytes = 0;
    unsigned char *expected = train(fresh, t, rank, &expected_bytes), *state = train(job, t, rank, &bytes);
    CHECK(bytes == expected_bytes && memcmp(state, expected, bytes) == 0);
    free(expected), free(state);
    OK(tacit_job_close(fresh));
    OK(tacit_job_close(job));
}

/* A job that failed to load goes on as if it had not, and so does one that loads another time. */
static void run_trial(taciti_comm *comm, void *context) {
    const trial *t = context;
    const int rank = taciti_comm_rank(comm);
    tacit_comm seat;
    tacit_comm *c = seat_of(comm, &seat);
    bool found = false;
    save_job(c, t);
    tacit_job *fresh = prepare_job(c, &t->loaded, 1), *job = prepare_job(c, &t->loaded, 1);
    fail_to_load(c, job, t);
    OK(tacit_job_start(fresh));
    OK(tacit_job_start(job));
    expect_same(job, fresh, &t->loaded, rank);
    fresh = open_job(c, &t->saved), job = open_job(c, &t->saved);
    if (t->refusal == NULL) fail_to_load(c, job, t);
    OK(tacit_job_load(fresh, t->folder, NULL, 0, &found));
    OK(tacit_job_load(job, t->folder, NULL, 0, &found));
    expect_same(job, fresh, &t->saved, rank);
    taciti_handle_close(&seat.handle);
}

static void run_in(const test_path *folder, trial *t) {
    const taciti_comm_options options = test_comm_options(true);
    t->folder = folder->text;
    test_world_run(RANKS, &options, run_trial, t);
}

static void one_rank_fails(void **state) {
    static const test_job JOBS[] = {
        {.settings = {"strategy=dp"}},
        {.settings = {"strategy=dp", "compress.codec=topk", "compress.residual=int8"}},
        {.settings = {"strategy=dp", "compress.codec=topk", "adapt.policy=accordion"}},
        {.settings = {"strategy=gossip", "gossip.start=0"}},
        {.settings = {"strategy=gossip", "gossip.start=0", "gossip.codec=int4", "gossip.topology=base-k"}},
        {.settings = {"strategy=gossip", "gossip.start=0", "gossip.topology=exp-directed"}},
        {.settings = {"strategy=localsgd", "localsgd.every=2", "localsgd.outer_momentum=0.9"}},
        {.settings = {"strategy=shard", "shard.stage=1"}},
        {.settings = {"strategy=shard", "shard.stage=2", "compress.gather=int8"}},
        {.settings = {"strategy=shard", "shard.stage=3"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof JOBS / sizeof *JOBS; i++) {
        const test_path folder = folder_create();
        run_in(&folder, &(trial){.saved = JOBS[i], .loaded = JOBS[i]});
        folder_remove(&folder);
    }
}

/* A strategy refuses to start from values that have been read by then. */
static void all_ranks_are_refused(void **state) {
    static const char COLUMNS[] = "0.5,0.25,0.5\n0.5,0.5,0\n0,0.25,0.5\n"; /* needs push-sum */
    const test_path folder = folder_create(), matrix = path_in(folder.text, "matrix.csv");
    char file[sizeof matrix.text + 16];
    (void)state;
    file_put(matrix.text, COLUMNS, strlen(COLUMNS));
    (void)snprintf(file, sizeof file, "gossip.file=%s", matrix.text);
    run_in(&folder, &(trial){.saved = {.settings = {"strategy=localsgd", "localsgd.every=4"}},
                             .loaded = {.settings = {"strategy=localsgd", "localsgd.every=2"}},
                             .refusal = "the checkpoint is 3 steps into a period and localsgd.every is 2"});
    run_in(&folder, &(trial){.saved = {.settings = {"strategy=gossip", "gossip.start=0", "gossip.topology=file", file}},
                             .loaded = {.settings = {"strategy=gossip", "gossip.start=0"}, .own = true},
                             .refusal = "its weights are up to"});
    folder_remove(&folder);
}

/* ---- other models ------------------------------------------------------------------------------------------------ */

/* The layout of test_jobs.h but for one tensor. */
static tacit_job *open_other(tacit_comm *comm, const char *setting, const char *name, size_t columns) {
    tacit_settings *settings = NULL;
    tacit_job *job = NULL;
    tacit_layout *layout = NULL;
    OK(tacit_settings_create(&settings));
    OK(tacit_settings_set(settings, setting));
    OK(tacit_layout_create(&layout));
    OK(tacit_layout_add(layout, "head.weight", 2, SHAPES[0], TACIT_DECAY));
    OK(tacit_layout_add(layout, name, 2, (const size_t[]){41, columns}, TACIT_DECAY));
    OK(tacit_job_open(comm, settings, layout, NULL, &job));
    tacit_layout_destroy(layout);
    tacit_settings_destroy(settings);
    return job;
}

/* The files of a checkpoint hold its tensors in any order; the text is that of the model's. */
static void meet_other_models(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    tacit_comm *c = seat_of(comm, &seat);
    bool found = false;
    save_job(c, t);
    tacit_job *job = open_other(c, t->saved.settings[0], "mid", 99);
    REFUSED(tacit_job_load(job, t->folder, NULL, 0, &found), TACIT_E_DATA, ": tensor model.mid ");
    OK(tacit_job_close(job));
    job = open_other(c, t->saved.settings[0], "middle", 100);
    REFUSED(tacit_job_load(job, t->folder, NULL, 0, &found), TACIT_E_DATA, ": tensor model.middle is not in this");
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

static void a_parameter_of_another_model_is_named(void **state) {
    static const char *const STRATEGIES[] = {"strategy=gossip", "strategy=localsgd", "strategy=shard", "strategy=dp"};
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    for (size_t i = 0; i < sizeof STRATEGIES / sizeof *STRATEGIES; i++) {
        const test_path folder = folder_create();
        trial t = {.saved = {.settings = {STRATEGIES[i]}}, .folder = folder.text};
        test_world_run(RANKS, &options, meet_other_models, &t);
        folder_remove(&folder);
    }
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */

/* The newest checkpoint is damaged: its files are the caller's, and stay where they are. */
static void fall_back(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    tacit_comm *c = seat_of(comm, &seat);
    tacit_counters counters = {.size = sizeof counters};
    bool found = false;
    tacit_job *job = open_job(c, &t->loaded);
    OK(tacit_job_load(job, t->folder, NULL, 0, &found));
    OK(tacit_job_counters(job, &counters));
    CHECK(found && counters.steps == STEPS);
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

static void save_both(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    tacit_comm *c = seat_of(comm, &seat);
    save_job(c, t);
    tacit_job *job = prepare_job(c, &t->saved, 7);
    bool found = false;
    OK(tacit_job_load(job, t->folder, NULL, 0, &found));
    make_step(job, &t->saved, tacit_rank(c), STEPS);
    OK(tacit_job_save(job, t->folder, 2, NULL, 0));
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

static void a_damaged_checkpoint_stays(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    const test_path folder = folder_create(), newest = path_in(folder.text, "step_00000004");
    const test_path file = path_in(newest.text, "rank-00000.safetensors"),
                    aside = path_in(folder.text, "step_00000004.damaged");
    trial t = {.folder = folder.text};
    (void)state;
    test_world_run(2, &options, save_both, &t);
    file_put(file.text, "x", 1);
    test_world_run(2, &options, fall_back, &t);
    assert_true(file_exists(file.text) && !file_exists(aside.text));
    folder_remove(&folder);
}

/* ---- skipped steps ----------------------------------------------------------------------------------------------- */

/* Rank r leaves r of the steps out. */
static void save_skips(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    tacit_comm *c = seat_of(comm, &seat);
    tacit_job *job = prepare_job(c, &t->saved, 7);
    OK(tacit_job_start(job));
    for (int s = 0; s < STEPS; s++) {
        tacit_job_gradients(job)[10] = s < tacit_rank(c) ? (float)NAN : 0;
        make_step(job, &t->saved, tacit_rank(c), s);
    }
    OK(tacit_job_save(job, t->folder, 1, NULL, 0));
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

static void load_skips(taciti_comm *comm, void *context) {
    const trial *t = context;
    tacit_comm seat;
    tacit_counters counters = {.size = sizeof counters};
    bool found = false;
    tacit_job *job = open_job(seat_of(comm, &seat), &t->loaded);
    const bool same = t->saved.settings[0] == t->loaded.settings[0] && tacit_size(&seat) == RANKS;
    OK(tacit_job_load(job, t->folder, NULL, 0, &found));
    OK(tacit_job_counters(job, &counters));
    CHECK(found && counters.steps == STEPS && counters.skipped == (same ? tacit_rank(&seat) : 1));
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

/* Another strategy gets the mean of all ranks. */
static void every_rank_knows_its_skipped_steps(void **state) {
    static const char NONE[] = "strategy=none", DP[] = "strategy=dp";
    const taciti_comm_options options = test_comm_options(true);
    const test_path folder = folder_create();
    trial t = {.saved = {.settings = {NONE}}, .loaded = {.settings = {NONE}}, .folder = folder.text};
    (void)state;
    test_world_run(RANKS, &options, save_skips, &t);
    test_world_run(RANKS, &options, load_skips, &t);
    test_world_run(2, &options, load_skips, &t);
    t.loaded.settings[0] = DP;
    test_world_run(RANKS, &options, load_skips, &t);
    folder_remove(&folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_fails),
        cmocka_unit_test(all_ranks_are_refused),
        cmocka_unit_test(a_parameter_of_another_model_is_named),
        cmocka_unit_test(a_damaged_checkpoint_stays),
        cmocka_unit_test(every_rank_knows_its_skipped_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
