/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface on one rank: what is refused, with which text, and that a wrong call changes nothing. The tests of
 * several ranks are in tests/mpi/library.c.
 */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/test_scene.h"
#include "ckpt/manifest.h"
#include "ckpt/test_folder.h"

static void test_settings(void **state) {
    tacit_settings *settings = ((scene *)*state)->settings;
    refused(tacit_settings_create(NULL), TACIT_E_USAGE, "out is NULL");
    refused(tacit_settings_set(NULL, "optim.lr=1"), TACIT_E_USAGE, "tacit_settings is NULL");
    refused(tacit_settings_set(settings, NULL), TACIT_E_USAGE, "key_is_value is NULL");
    refused(tacit_settings_set(settings, "optim.lr"), TACIT_E_CONFIG, "section.key=value");
    refused(tacit_settings_set(settings, "optim.lrr=1"), TACIT_E_CONFIG, "optim.lr");
    refused(tacit_settings_set(settings, "optim.lr=fast"), TACIT_E_CONFIG, "optim.lr");
    refused(tacit_settings_set(settings, "strategy=gosip"), TACIT_E_CONFIG, "gossip");
    refused(tacit_settings_set(settings, "model.layers=2"), TACIT_E_CONFIG, "model.layers");
    refused(tacit_settings_set(settings, "train.steps=2"), TACIT_E_CONFIG, "train.steps");
    refused(tacit_settings_set(settings, "=1"), TACIT_E_CONFIG, "section.key=value");
    refused(tacit_settings_file(settings, "/nonexistent.yaml"), TACIT_E_CONFIG, "/nonexistent.yaml");
    refused(tacit_settings_file(settings, NULL), TACIT_E_USAGE, "path is NULL");
    assert_int_equal(tacit_settings_set(settings, "strategy=localsgd"), TACIT_OK);
    assert_int_equal(tacit_settings_set(settings, "localsgd.every=4"), TACIT_OK);
}

static void expect_setting(const tacit_settings *settings, const char *key, const char *value) {
    char text[TACIT_VALUE_BYTES];
    assert_int_equal(tacit_settings_get(settings, key, text, sizeof text), TACIT_OK);
    assert_string_equal(text, value);
}

static void test_blanks_around_a_setting(void **state) {
    tacit_settings *settings = ((scene *)*state)->settings;
    char much[TACIT_VALUE_BYTES + 64] = "comm.meet = ";
    assert_int_equal(tacit_settings_set(settings, "optim.lr = 0.01"), TACIT_OK);
    expect_setting(settings, "optim.lr", "0.01");
    assert_int_equal(tacit_settings_set(settings, "\tstrategy=  gossip \n"), TACIT_OK);
    expect_setting(settings, "strategy", "gossip");
    assert_int_equal(tacit_settings_set(settings, "comm.meet = /tmp/a b "), TACIT_OK);
    expect_setting(settings, "comm.meet", "/tmp/a b");
    assert_int_equal(tacit_settings_set(settings, "comm.meet = "), TACIT_OK);
    expect_setting(settings, "comm.meet", "");
    refused(tacit_settings_set(settings, "  = 1"), TACIT_E_CONFIG, "section.key=value");
    refused(tacit_settings_set(settings, "optim . lr = 1"), TACIT_E_CONFIG, "optim . lr");
    memset(much + strlen(much), 'x', sizeof much - strlen(much) - 1);
    refused(tacit_settings_set(settings, much), TACIT_E_CONFIG, "comm.meet");
}

/* A mistake is named with its line and column, and the lines above it count. */
static void test_a_settings_file(void **state) {
    static const char TEXT[] = "strategy: dp\noptim:\n  warmup: 0\n  lr: 0.25\n  clipp: 1\n  lr: 0.5\n";
    const scene *s = *state;
    tacit_job *job = NULL;
    tacit_step step = {.size = sizeof step};
    const test_path folder = folder_create(), file = path_in(folder.text, "settings.yaml");
    file_put(file.text, TEXT, sizeof TEXT - 1);
    refused(tacit_settings_file(s->settings, file.text), TACIT_E_CONFIG, "settings.yaml:5:3");
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, NULL, &job), TACIT_OK);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, &step), TACIT_OK);
    assert_float_equal(step.lr, 0.25, 0);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    folder_remove(&folder);
}

/* A refusal leaves the layout as it is. */
static void refuse_tensor(tacit_layout *layout, const char *name, int dims, const size_t *shape, const char *text) {
    const size_t floats = tacit_layout_floats(layout);
    refused(tacit_layout_add(layout, name, dims, shape, 0), TACIT_E_CONFIG, text);
    assert_int_equal(tacit_layout_floats(layout), floats);
}

static void test_names(void **state) {
    tacit_layout *layout = ((scene *)*state)->layout;
    char name[1025] = "";
    memset(name, 'n', 1024);
    refuse_tensor(layout, NULL, 0, NULL, "no name");
    refuse_tensor(layout, "", 0, NULL, "no name");
    refuse_tensor(layout, "in", 0, NULL, "has this name already");
    refuse_tensor(layout, name, 0, NULL, "1 to 1023 bytes");
    refuse_tensor(layout, "a\tb", 0, NULL, "control characters");
    refuse_tensor(layout, "a\x7f", 0, NULL, "control characters");
    refuse_tensor(layout, "\xff", 0, NULL, "UTF-8");
    refuse_tensor(layout, "in[0:3/20]", 0, NULL, "no name ends like that");
    name[1023] = '\0';
    assert_int_equal(tacit_layout_add(layout, name, 0, NULL, 0), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, "\xe5\xb1\x82[0:3/]/\"w\" \\", 0, NULL, 0), TACIT_OK);
    assert_int_equal(tacit_layout_add(layout, "__metadata__", 0, NULL, 0), TACIT_OK);
}

static void test_layouts(void **state) {
    tacit_layout *layout = ((scene *)*state)->layout, *out = NULL;
    size_t offset = 7, shape[9] = {SIZE_MAX / 2, 4};
    refused(tacit_layout_create(NULL), TACIT_E_USAGE, "out is NULL");
    refused(tacit_layout_add(NULL, "a", 0, NULL, 0), TACIT_E_USAGE, "tacit_layout is NULL");
    refused(tacit_layout_add(layout, "a", 1, NULL, 0), TACIT_E_USAGE, "shape is NULL");
    refused(tacit_layout_add(layout, "a", 0, NULL, 2), TACIT_E_USAGE, "flags 2");
    refused(tacit_layout_next_unit(NULL), TACIT_E_USAGE, "tacit_layout is NULL");
    refuse_tensor(layout, "a", -1, NULL, "-1 dimensions");
    refuse_tensor(layout, "a", 2, shape, "out of range");
    refuse_tensor(layout, "a", 3, (const size_t[]){2, 0, 3}, "size 0 of dimension 1");
    assert_int_equal(tacit_layout_floats(layout), 16 + 32);
    assert_int_equal(tacit_layout_floats(NULL), 0);
    refused(tacit_layout_offset(layout, 2, &offset), TACIT_E_USAGE, "tensor 2 of a layout of 2");
    assert_int_equal(offset, 7);
    assert_int_equal(tacit_layout_offset(layout, 1, &offset), TACIT_OK);
    assert_int_equal(offset, 16);
    assert_int_equal(tacit_layout_create(&out), TACIT_OK);
    assert_int_equal(tacit_layout_floats(out), 0);
    for (size_t i = 0; i < 9; i++) shape[i] = i == 3 ? 41 : i == 8 ? 21 : 1;
    assert_int_equal(tacit_layout_add(out, "many", 9, shape, 0), TACIT_OK);
    assert_int_equal(tacit_layout_next_unit(out), TACIT_OK);
    assert_int_equal(tacit_layout_add(out, "scalar", 0, NULL, TACIT_DECAY), TACIT_OK);
    assert_int_equal(tacit_layout_floats(out), 864 + 16); /* 861 and 1, in lines of 16 floats */
    tacit_layout_destroy(out);
}

static void test_order_of_calls(void **state) {
    tacit_job *job = ((scene *)*state)->job;
    tacit_step step = {.size = sizeof step, .number = -1};
    refused(tacit_job_ready(job, 0), TACIT_E_USAGE, "before tacit_job_start()");
    refused(tacit_job_finish(job, &step), TACIT_E_USAGE, "before tacit_job_start()");
    refused(tacit_job_save(job, "x", 1, NULL, 0), TACIT_E_USAGE, "before tacit_job_start()");
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    refused(tacit_job_start(job), TACIT_E_USAGE, "between two steps");
    refused(tacit_job_finish(job, &step), TACIT_E_USAGE, "between two steps");
    refused(tacit_job_revert(job), TACIT_E_USAGE, "between two steps");
    refused(tacit_job_ready(job, 2), TACIT_E_USAGE, "tensor 2 of a layout of 2");
    assert_int_equal(tacit_job_ready(job, 1), TACIT_OK);
    refused(tacit_job_ready(job, 1), TACIT_E_USAGE, "(in)");
    refused(tacit_job_finish(job, &step), TACIT_E_USAGE, "the first is 0 (out)");
    refused(tacit_job_settle(job, &step), TACIT_E_USAGE, "without own_optimizer");
    refused(tacit_job_stepped(job), TACIT_E_USAGE, "inside of a step");
    refused(tacit_job_average(job, NULL), TACIT_E_USAGE, "inside of a step");
    assert_int_equal(step.number, -1);
    assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, &step), TACIT_OK);
    assert_int_equal(step.number, 1);
    assert_int_equal(tacit_job_average(job, NULL), TACIT_OK);
    refused(tacit_job_ready(job, 0), TACIT_E_USAGE, "between average and revert");
    assert_int_equal(tacit_job_revert(job), TACIT_OK);
}

/* A step ends with the functions that its optimizer needs, each in its own half of the step. */
static void test_order_with_an_own_optimizer(void **state) {
    tacit_job *job = open_own(*state, NULL);
    tacit_step step = {.size = sizeof step, .number = -1};
    tacit_counters counters = {.size = sizeof counters};
    assert_int_equal(tacit_job_ready(job, 0), TACIT_OK);
    refused(tacit_job_finish(job, &step), TACIT_E_USAGE, "with own_optimizer");
    refused(tacit_job_settle(job, &step), TACIT_E_USAGE, "1 of 2 tensors are not ready, the first is 1 (in)");
    assert_int_equal(step.number, -1);
    assert_int_equal(tacit_job_ready(job, 1), TACIT_OK);
    refused(tacit_job_stepped(job), TACIT_E_USAGE, "inside of a step");
    assert_int_equal(tacit_job_settle(job, &step), TACIT_OK);
    assert_int_equal(step.number, 1);
    refused(tacit_job_settle(job, &step), TACIT_E_USAGE, "between settle and stepped");
    refused(tacit_job_ready(job, 0), TACIT_E_USAGE, "between settle and stepped");
    refused(tacit_job_save(job, "unused", 1, NULL, 0), TACIT_E_USAGE, "between settle and stepped");
    assert_int_equal(tacit_job_counters(job, &counters), TACIT_OK);
    assert_int_equal(counters.steps, 0); /* the step has not ended */
    assert_int_equal(tacit_job_stepped(job), TACIT_OK);
    assert_int_equal(tacit_job_counters(job, &counters), TACIT_OK);
    assert_int_equal(counters.steps, 1);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

static void test_closed_handles(void **state) {
    scene *s = *state;
    tacit_job *job = NULL;
    refused(tacit_close(s->comm), TACIT_E_USAGE, "1 jobs or channels are open");
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, NULL, &job), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    refused(tacit_job_close(job), TACIT_E_USAGE, "closed before");
    refused(tacit_job_ready(job, 0), TACIT_E_USAGE, "closed before");
    refused(tacit_job_finish(job, NULL), TACIT_E_USAGE, "closed before");
    assert_null(tacit_job_parameters(job));
    refused(tacit_job_ready((tacit_job *)s->comm, 0), TACIT_E_USAGE, "a tacit_comm stands where a tacit_job is wanted");
    refused(tacit_job_open(NULL, s->settings, s->layout, NULL, &job), TACIT_E_USAGE, "tacit_comm is NULL");
    refused(tacit_job_open(s->comm, NULL, s->layout, NULL, &job), TACIT_E_USAGE, "tacit_settings is NULL");
    refused(tacit_job_open(s->comm, s->settings, NULL, NULL, &job), TACIT_E_USAGE, "tacit_layout is NULL");
    assert_int_equal(tacit_size(NULL), -1);
    assert_int_equal(tacit_job_close(NULL), TACIT_OK);
    assert_int_equal(tacit_close(NULL), TACIT_OK);
}

static void test_job_options(void **state) {
    const scene *s = *state;
    _Alignas(64) float mine[2][64];
    tacit_job *job = NULL;
    const tacit_job_options crooked = {.size = sizeof crooked, .parameters = mine[0] + 1};
    refused(tacit_job_open(s->comm, s->settings, s->layout, &crooked, &job), TACIT_E_USAGE, "parameters");
    refused(tacit_job_open(s->comm, s->settings, s->layout,
                           &(tacit_job_options){.size = sizeof(tacit_job_options), .threads = -1}, &job),
            TACIT_E_USAGE, "threads -1");
    refused(tacit_job_open(s->comm, s->settings, s->layout,
                           &(tacit_job_options){.size = sizeof(tacit_job_options), .steps = -1}, &job),
            TACIT_E_USAGE, "steps -1");
    refused(tacit_job_open(s->comm, s->settings, s->layout,
                           &(tacit_job_options){.size = sizeof(tacit_job_options), .gradients = mine[0] + 1}, &job),
            TACIT_E_USAGE, "gradients");
    refused(tacit_job_open(s->comm, s->settings, s->layout, NULL, NULL), TACIT_E_USAGE, "out is NULL");
    assert_null(job);
    for (size_t i = 0; i < 64; i++) mine[0][i] = mine[1][i] = 1;
    const tacit_job_options own = {.size = sizeof own, .parameters = mine[0], .gradients = mine[1]};
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &own, &job), TACIT_OK);
    assert_ptr_equal(tacit_job_gradients(job), mine[1]);
    assert_float_equal(mine[0][2], 1, 0);
    assert_float_equal(mine[0][3], 0, 0); /* padding */
    assert_float_equal(mine[0][48], 1, 0);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

/* Settings of compression are those of the program, presets included. */
static void test_compression(void **state) {
    const scene *s = *state;
    tacit_job *job = NULL;
    tacit_step step = {.size = sizeof step};
    assert_int_equal(tacit_settings_set(s->settings, "compress.codec=topk"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "compress.factor=4"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "adapt.policy=gravac"), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, NULL, &job), TACIT_OK);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, &step), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "strategy=gossip"), TACIT_OK);
    refused(tacit_job_open(s->comm, s->settings, s->layout, NULL, &job), TACIT_E_CONFIG, "does not compress");
}

/* With shard in more ranks than one: tests/mpi/library.c. */
static void test_parts(void **state) {
    const scene *s = *state;
    tacit_part part = {.size = sizeof part};
    size_t floats = 0, p = 0;
    assert_true(tacit_job_part(s->job, 0, &part));
    assert_int_equal(part.offset, 0);
    assert_int_equal(part.floats, tacit_layout_floats(s->layout));
    assert_ptr_equal(part.parameters, tacit_job_parameters(s->job));
    assert_ptr_equal(part.gradients, tacit_job_gradients(s->job));
    assert_false(tacit_job_part(s->job, 1, &part));
    assert_false(tacit_job_part(s->job, 0, NULL));
    assert_false(tacit_job_part(NULL, 0, &part));
    const tacit_job_options own = {.size = sizeof own, .own_optimizer = true};
    tacit_job *job = NULL;
    assert_int_equal(tacit_settings_set(s->settings, "strategy=shard"), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &own, &job), TACIT_OK);
    for (; tacit_job_part(job, p, &part); p++) {
        assert_int_equal(part.offset, floats);
        assert_ptr_equal(part.gradients, tacit_job_gradients(job) + part.offset);
        floats += part.floats;
    }
    assert_int_equal(floats, tacit_layout_floats(s->layout));
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

static void test_a_skipped_step(void **state) {
    tacit_job *job = ((scene *)*state)->job;
    tacit_step step = {.size = sizeof step};
    tacit_counters counters = {.size = sizeof counters};
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    tacit_job_gradients(job)[0] = NAN;
    assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, &step), TACIT_OK);
    assert_true(step.skipped);
    assert_float_equal(tacit_job_parameters(job)[0], 0, 0);
    assert_int_equal(tacit_job_counters(job, &counters), TACIT_OK);
    assert_int_equal(counters.steps, 1);
    assert_int_equal(counters.skipped, 1);
    refused(tacit_job_counters(job, NULL), TACIT_E_USAGE, "out is NULL");
    refused(tacit_job_counters(NULL, &counters), TACIT_E_USAGE, "tacit_job is NULL");
    refused(tacit_on_failure(NULL, NULL, NULL), TACIT_E_USAGE, "tacit_comm is NULL");
}

static void test_blobs(void **state) {
    tacit_job *job = ((scene *)*state)->job;
    char byte = 1;
    bool found = true;
    tacit_blob blob = {.size = sizeof blob, .name = "../x", .bytes = &byte, .count = 1};
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    refused(tacit_job_save(job, "unused", 1, &blob, 1), TACIT_E_USAGE, "../x");
    blob.name = "x";
    refused(tacit_job_save(job, "unused", 0, &blob, 1), TACIT_E_USAGE, "keep 0");
    refused(tacit_job_save(job, NULL, 1, &blob, 1), TACIT_E_USAGE, "folder is NULL");
    refused(tacit_job_save(job, "unused", 1, (tacit_blob[]){blob, blob}, 2), TACIT_E_USAGE, "twice");
    blob.name = "forty-letters-and-so-one-more-than-legal";
    refused(tacit_job_save(job, "unused", 1, &blob, 1), TACIT_E_USAGE, "1 to 39 letters");
    refused(tacit_job_save(job, "unused", 1, NULL, 1), TACIT_E_USAGE, "blobs is NULL");
    refused(tacit_job_save(job, "unused", 1, &blob, 33), TACIT_E_USAGE, "32 is the maximum");
    refused(tacit_job_load(job, "unused", NULL, 0, &found), TACIT_E_USAGE, "between two steps");
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static tacit_job *open_with(const scene *s, const char *const *settings) {
    tacit_settings *mine = NULL;
    tacit_job *job = NULL;
    assert_int_equal(tacit_settings_create(&mine), TACIT_OK);
    for (; *settings != NULL; settings++) assert_int_equal(tacit_settings_set(mine, *settings), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, mine, s->layout, NULL, &job), TACIT_OK);
    tacit_settings_destroy(mine);
    return job;
}

/* Saves after a step in which every gradient is 1. */
static void save_with(const scene *s, const char *const *settings, const char *folder) {
    tacit_job *job = open_with(s, settings);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    for (size_t i = 0; i < 3; i++) tacit_job_gradients(job)[i] = 1;
    assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
    assert_int_equal(tacit_job_finish(job, NULL), TACIT_OK);
    assert_int_equal(tacit_job_save(job, folder, 1, NULL, 0), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

static int g_remarks;

static void count_remark(void *context, tacit_log_level level, const char *line) {
    (void)context, (void)line;
    g_remarks += level != TACIT_LOG_ERROR;
}

/* A refused load says nothing of what it would have done. */
static void refuse_load(tacit_job *job, const char *folder, tacit_status status, const char *text) {
    bool found = false;
    g_remarks = 0;
    assert_int_equal(tacit_log_to(count_remark, NULL, TACIT_LOG_INFO), TACIT_OK);
    refused(tacit_job_load(job, folder, NULL, 0, &found), status, text);
    assert_int_equal(tacit_log_to(NULL, NULL, TACIT_LOG_INFO), TACIT_OK);
    assert_int_equal(g_remarks, 0);
    assert_false(found);
}

/* Bits of a run of five steps. Gradients depend on the parameters; every tensor comes by itself, the last one first. */
static void train_with(const scene *s, const char *const *settings, float out[48]) {
    tacit_job *job = open_with(s, settings);
    float *x = tacit_job_parameters(job), *g = tacit_job_gradients(job);
    for (size_t i = 0; i < 48; i++) x[i] = i < 3 || (i >= 16 && i < 36) ? (float)i / 7 - 2 : 0;
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < 48; i++) g[i] = 0.3f * x[i] + (x[i] > 0 ? 0.01f * (float)step : 0);
        for (size_t t = 2; t-- > 0;) assert_int_equal(tacit_job_ready(job, t), TACIT_OK);
        assert_int_equal(tacit_job_finish(job, NULL), TACIT_OK);
    }
    memcpy(out, x, 48 * sizeof *out);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
}

/* On one rank every stage of shard is dp, and nothing is sent that a codec could change. */
static void test_strategies_that_are_dp_on_one_rank(void **state) {
    static const char *const DP[] = {"optim.clip=0.5", NULL};
    static const char *const OTHERS[][4] = {
        {"optim.clip=0.5", "strategy=shard", "shard.stage=1", NULL},
        {"optim.clip=0.5", "strategy=shard", "shard.stage=2", NULL},
        {"optim.clip=0.5", "strategy=shard", "shard.stage=3", NULL},
        {"optim.clip=0.5", "strategy=localsgd", "localsgd.every=2", NULL},
        {"optim.clip=0.5", "compress.codec=int4", NULL, NULL},
        {"optim.clip=0.5", "compress.codec=topk", "compress.factor=7", NULL},
    };
    float dp[48], other[48];
    train_with(*state, DP, dp);
    for (size_t i = 0; i < sizeof OTHERS / sizeof *OTHERS; i++) {
        train_with(*state, OTHERS[i], other);
        if (memcmp(dp, other, sizeof dp) != 0) fail_msg("%s: other bits than dp", OTHERS[i][1]);
    }
}

/* A save that fails leaves the job as it was; a later one succeeds. */
static void test_a_save_that_fails(void **state) {
    static const char *const NONE[] = {NULL};
    const test_path folder = folder_create(), file = path_in(folder.text, "file");
    tacit_job *job = open_with(*state, NONE);
    bool found = false;
    file_put(file.text, "x", 1);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    refused(tacit_job_save(job, file.text, 1, NULL, 0), TACIT_E_IO, file.text);
    assert_int_equal(tacit_job_save(job, folder.text, 1, NULL, 0), TACIT_OK);
    assert_int_equal(tacit_job_ready(job, TACIT_ALL_TENSORS), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    job = open_with(*state, NONE);
    assert_int_equal(tacit_job_load(job, folder.text, NULL, 0, &found), TACIT_OK);
    assert_true(found);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    folder_remove(&folder);
}

/* Blobs that the checkpoint lacks stay as they are; another size and another layout are refused. */
static void test_loads(void **state) {
    static const char *const NONE[] = {NULL};
    const scene *s = *state;
    const test_path folder = folder_create();
    char word[4] = "abc", other[4] = "xyz";
    tacit_blob blobs[] = {{.size = sizeof *blobs, .name = "word", .bytes = word, .count = 4},
                          {.size = sizeof *blobs, .name = "other", .bytes = other, .count = 4}};
    bool found = true;
    tacit_job *job = open_with(s, NONE);
    assert_int_equal(tacit_job_load(job, folder.text, blobs, 2, &found), TACIT_OK);
    assert_false(found);
    assert_int_equal(tacit_job_start(job), TACIT_OK);
    assert_int_equal(tacit_job_save(job, folder.text, 1, blobs, 1), TACIT_OK);
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    memset(word, 0, sizeof word);
    job = open_with(s, NONE);
    blobs[0].count = 3;
    refused(tacit_job_load(job, folder.text, blobs, 2, &found), TACIT_E_DATA, "blob word has 4 bytes there");
    blobs[0].count = 4;
    refused(tacit_job_load(job, folder.text, blobs, 2, NULL), TACIT_E_USAGE, "found is NULL");
    assert_int_equal(tacit_job_load(job, folder.text, blobs, 2, &found), TACIT_OK);
    assert_true(found && blobs[0].loaded && !blobs[1].loaded);
    assert_string_equal(word, "abc");
    assert_string_equal(other, "xyz");
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    tacit_layout *wider = create_small_layout(5);
    assert_int_equal(tacit_job_open(s->comm, s->settings, wider, NULL, &job), TACIT_OK);
    refuse_load(job, folder.text, TACIT_E_DATA, "in");
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    tacit_layout_destroy(wider);
    folder_remove(&folder);
}

typedef struct switching {
    const char *from[3], *to[3];
    tacit_status status;
    const char *text; /* of a refusal */
} switching;

/* The comparison is the program's: what needs state that is not there is refused with both values; the rest goes on. */
static void test_other_settings(void **state) {
    static const switching CASES[] = {
        {{"optim.name=adamw"}, {"optim.name=sgd"}, TACIT_E_CONFIG, "optim.name was \"adamw\" and is \"sgd\" now"},
        {{"optim.name=sgd"}, {"optim.name=adamw"}, TACIT_E_CONFIG, "optim.name was \"sgd\" and is \"adamw\" now"},
        {{"optim.name=sgd"}, {"optim.name=adam"}, TACIT_E_CONFIG, "it holds no state \"m\" of the optimizer"},
        {{"optim.name=adamw"}, {"optim.name=accum-adamw"}, TACIT_E_CONFIG, "it holds no state \"a\" of the optimizer"},
        {{"strategy=localsgd"},
         {"strategy=localsgd", "localsgd.outer_momentum=0.9"},
         TACIT_E_CONFIG,
         "localsgd.outer_momentum was 0 and is 0.9 now"},
        {{"optim.name=adamw"}, {"optim.name=adam"}, TACIT_OK, NULL},
        {{"optim.name=sgd"}, {"optim.name=sgd", "optim.lr=0.5"}, TACIT_OK, NULL},
        {{"strategy=dp"}, {"strategy=gossip"}, TACIT_OK, NULL},
        {{"strategy=gossip"}, {"strategy=dp"}, TACIT_OK, NULL},
        {{"strategy=dp"}, {"strategy=shard"}, TACIT_OK, NULL},
    };
    const scene *s = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const switching *c = &CASES[i];
        bool found = false;
        tacit_counters counters = {.size = sizeof counters};
        const test_path folder = folder_create();
        save_with(s, c->from, folder.text);
        tacit_job *job = open_with(s, c->to);
        if (c->status == TACIT_OK)
            assert_int_equal(tacit_job_load(job, folder.text, NULL, 0, &found), TACIT_OK);
        else
            refuse_load(job, folder.text, c->status, c->text);
        assert_int_equal(tacit_job_counters(job, &counters), TACIT_OK);
        assert_int_equal(counters.steps, c->status == TACIT_OK);
        assert_int_equal(found, c->status == TACIT_OK);
        if (c->status != TACIT_OK) assert_int_equal(tacit_job_start(job), TACIT_OK); /* the job is as it was */
        if (c->status == TACIT_OK) assert_true(tacit_job_parameters(job)[0] < 0);    /* a step down from 0 */
        assert_int_equal(tacit_job_close(job), TACIT_OK);
        folder_remove(&folder);
    }
}

/* Replaces a value in the description of the checkpoint of step 1. */
static void edit_meta(const test_path *folder, const char *from, const char *to) {
    const test_path step = path_in(folder->text, "step_00000001"), file = path_in(step.text, "manifest.json");
    taciti_manifest manifest;
    char *text = NULL;
    size_t bytes = 0;
    assert_int_equal(taciti_manifest_read(step.text, &manifest), TACIT_OK);
    char *at = strstr(manifest.meta_json, from);
    assert_true(at != NULL && strlen(to) == strlen(from));
    memcpy(at, to, strlen(to));
    assert_int_equal(taciti_manifest_format(&manifest, &text, &bytes), TACIT_OK);
    file_put(file.text, text, bytes);
    taciti_free(text);
    taciti_manifest_destroy(&manifest);
}

/* Checkpoints of sgd once held its momentum under the name of adam's mean. */
static void test_the_former_name_of_momentum(void **state) {
    static const char *const ADAMW[] = {"optim.name=adamw", NULL}, *const SGD[] = {"optim.name=sgd", NULL};
    const test_path folder = folder_create();
    save_with(*state, ADAMW, folder.text);
    edit_meta(&folder, "\"adamw\"", "\"sgd\"  ");
    tacit_job *job = open_with(*state, SGD);
    refuse_load(job, folder.text, TACIT_E_CONFIG,
                "saved before the momentum of sgd was renamed; give its parameters to a new job");
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    folder_remove(&folder);
}

enum { LOG_BYTES = 1024 };
static int g_lines;

static void count_line(void *context, tacit_log_level level, const char *line) {
    assert_ptr_equal(context, &g_lines);
    assert_true(level == TACIT_LOG_ERROR && line[0] != '\0');
    g_lines++;
}

static void test_log(void **state) {
    tacit_settings *settings = ((scene *)*state)->settings;
    refused(tacit_log_to(count_line, NULL, (tacit_log_level)9), TACIT_E_USAGE, "9 is no level");
    assert_int_equal(tacit_log_to(count_line, &g_lines, TACIT_LOG_WARN), TACIT_OK);
    refused(tacit_settings_set(settings, "optim.lr=-"), TACIT_E_CONFIG, "optim.lr");
    assert_int_equal(g_lines, 1);
    assert_int_equal(tacit_log_to(NULL, NULL, TACIT_LOG_WARN), TACIT_OK);
    refused(tacit_settings_set(settings, "optim.lr=-"), TACIT_E_CONFIG, "optim.lr");
    assert_int_equal(g_lines, 1);
}

static void keep_line(void *context, tacit_log_level level, const char *line) {
    assert_true(level == TACIT_LOG_WARN);
    (void)strncat(context, line, LOG_BYTES - strlen(context) - 2);
    (void)strcat(context, "\n");
}

/* A job says what of its settings it does not read, in one line per cause. */
static void test_what_a_job_does_not_read(void **state) {
    static char log[LOG_BYTES];
    const scene *s = *state;
    tacit_job *job = NULL;
    const tacit_job_options own = {.size = sizeof own, .own_optimizer = true};
    assert_int_equal(tacit_log_to(keep_line, log, TACIT_LOG_WARN), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "compress.factor=100"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "gossip.order=atc"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "gossip.every=2"), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, NULL, &job), TACIT_OK);
    assert_string_equal(log, "gossip.order, gossip.every: nothing in this run reads them; they need --strategy gossip\n"
                             "compress.factor 100: nothing in this run reads it; it needs a compress.codec that "
                             "selects, such as --compress.codec topk\n");
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    log[0] = '\0';
    assert_int_equal(tacit_settings_set(s->settings, "optim.name=sgd"), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &own, &job), TACIT_OK);
    assert_non_null(strstr(log, "optim.name sgd: nothing in this run reads it; it needs a job without own_optimizer"));
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    log[0] = '\0';
    assert_int_equal(tacit_settings_set(s->settings, "strategy=gossip"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "optim.name=adamw"), TACIT_OK);
    assert_int_equal(tacit_settings_set(s->settings, "gossip.denoise=8"), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, NULL, &job), TACIT_OK);
    assert_null(strstr(log, "gossip.denoise"));
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    assert_int_equal(tacit_job_open(s->comm, s->settings, s->layout, &own, &job), TACIT_OK);
    assert_non_null(strstr(log, "gossip.denoise: nothing in this run reads them; they need a job without own"));
    assert_int_equal(tacit_job_close(job), TACIT_OK);
    assert_int_equal(tacit_log_to(NULL, NULL, TACIT_LOG_WARN), TACIT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_settings),
        TEST(test_blanks_around_a_setting),
        TEST(test_a_settings_file),
        TEST(test_names),
        TEST(test_layouts),
        TEST(test_order_of_calls),
        TEST(test_order_with_an_own_optimizer),
        TEST(test_closed_handles),
        TEST(test_job_options),
        TEST(test_compression),
        TEST(test_parts),
        TEST(test_a_skipped_step),
        TEST(test_blobs),
        TEST(test_strategies_that_are_dp_on_one_rank),
        TEST(test_a_save_that_fails),
        TEST(test_loads),
        TEST(test_other_settings),
        TEST(test_the_former_name_of_momentum),
        TEST(test_log),
        TEST(test_what_a_job_does_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
