/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of state in checkpoints: on as many ranks every entry comes back to the bit; on another number each by its
 * rule. Values are small integers, so sums and means are exact.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>

#include "ckpt/stage.h"
#include "ckpt/state.h"
#include "ckpt/test_folder.h"
#include "comm/test_engine.h"

enum { MAX_RANKS = 5, NUMBERS = 3, BLOB = 7 };

/* The state of one rank. */
typedef struct holder {
    float *model, *moment, *residual, *term, *shard, *window;
    double lone[NUMBERS], sums[NUMBERS], terms[NUMBERS];
    int64_t updates, drawn, total;
    char blob[BLOB], own_blob[BLOB];
    taciti_range shard_range, window_range; /* of flat arrays */
} holder;

enum { WINDOW = 5 };

typedef struct trial {
    int formers; /* ranks that saved */
    taciti_resumption resumption;
    taciti_state_regroup rule; /* of "strategy.lone" */
    bool lone_is_shared;
    tacit_status expected; /* of restoring */
} trial;

static taciti_layout g_layout;
static test_path g_folder;

static int set_up(void **state) {
    (void)state;
    const size_t wide[] = {9, 3}, cube[] = {2, 3, 2}, one[] = {1};
    g_folder = folder_create();
    assert_int_equal(taciti_layout_create(3, &g_layout), TACIT_OK);
    assert_int_equal(taciti_layout_append(&g_layout, "wte.weight", 2, wide, true), TACIT_OK);
    assert_int_equal(taciti_layout_append(&g_layout, "h.0.cube", 3, cube, true), TACIT_OK);
    assert_int_equal(taciti_layout_append(&g_layout, "ln_f.bias", 1, one, false), TACIT_OK);
    assert_int_equal(taciti_layout_seal(&g_layout, 1 << 20), TACIT_OK);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    folder_remove(&g_folder);
    taciti_layout_destroy(&g_layout);
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

enum { MODEL, MOMENT, RESIDUAL, SHARD, WINDOW_OF_OWN, LONE, SUMS, UPDATES, DRAWN, TERM };

static float value(int entry, int rank, size_t i) { return (float)(entry * 1000 + rank * 64 + (int)(i % 59)); }

/* Floats [begin, begin + n) of a flat array; padding is 0. */
static void fill(float *out, int entry, int rank, size_t begin, size_t n) {
    memset(out, 0, n * sizeof *out);
    for (size_t t = 0; t < g_layout.tensor_count; t++)
        for (size_t i = 0; i < g_layout.tensors[t].n; i++) {
            const size_t at = g_layout.tensors[t].offset + i;
            if (at >= begin && at < begin + n) out[at - begin] = value(entry, rank, at);
        }
}

static float *filled(int entry, int rank, size_t begin, size_t n) {
    float *out = taciti_calloc(n + 1, sizeof *out);
    CHECK(out != NULL);
    fill(out, entry, rank, begin, n);
    return out;
}

/* The ranks' shards cut tensors anywhere; of three ranks or more the first has an empty one. */
static holder hold(int rank, int ranks) {
    const int parts = ranks >= 3 ? ranks - 1 : ranks, part = ranks >= 3 ? rank - 1 : rank;
    holder h = {.updates = (int64_t)value(UPDATES, rank, 0), .drawn = (int64_t)value(DRAWN, rank, 0), .total = 1234};
    if (part >= 0) {
        h.shard_range.at = g_layout.n * (size_t)part / (size_t)parts;
        h.shard_range.n = g_layout.n * (size_t)(part + 1) / (size_t)parts - h.shard_range.at;
    }
    h.window_range = (taciti_range){25 + (size_t)rank, WINDOW}; /* over the end of the first tensor */
    h.model = filled(MODEL, 0, 0, g_layout.n);
    h.moment = filled(MOMENT, rank, 0, g_layout.n);
    h.residual = filled(RESIDUAL, rank, 0, g_layout.n);
    h.term = filled(TERM, rank, 0, g_layout.n);
    h.shard = filled(SHARD, 0, 0, g_layout.n);
    h.window = filled(WINDOW_OF_OWN, rank, 0, g_layout.n);
    for (size_t i = 0; i < NUMBERS; i++) {
        h.lone[i] = (double)value(LONE, rank, i) + 0.1;
        h.sums[i] = (double)value(SUMS, rank, i);
        h.terms[i] = (double)value(TERM, rank, i);
    }
    (void)snprintf(h.blob, sizeof h.blob, "shared");
    (void)snprintf(h.own_blob, sizeof h.own_blob, "own %d", rank);
    return h;
}

static void let_go(holder *h) {
    taciti_free(h->model);
    taciti_free(h->moment);
    taciti_free(h->residual);
    taciti_free(h->term);
    taciti_free(h->shard);
    taciti_free(h->window);
}

/* Nothing of it is left but where things are. */
static void forget(holder *h) {
    for (size_t i = 0; i < g_layout.n; i++)
        h->model[i] = h->moment[i] = h->residual[i] = h->term[i] = h->shard[i] = h->window[i] = -1;
    for (size_t i = 0; i < NUMBERS; i++) h->lone[i] = h->sums[i] = h->terms[i] = -1;
    h->updates = h->drawn = h->total = -1;
    memset(h->blob, '-', sizeof h->blob);
    memset(h->own_blob, '-', sizeof h->own_blob);
}

static void add(taciti_state *state, taciti_state_entry entry, const char *name, taciti_state_owner owner,
                taciti_state_regroup rule) {
    entry.name = name;
    entry.owner = owner;
    entry.regroup = rule;
    taciti_state_add(state, entry);
}

static taciti_state table(holder *h, const trial *t) {
    taciti_state s = {.count = 0};
    const taciti_state_owner shared = TACITI_STATE_SHARED, own = TACITI_STATE_OWN;
    taciti_state_add_array(&s, "model", shared, TACITI_STATE_MEAN, &g_layout, h->model);
    taciti_state_add_array(&s, "optim.m", own, TACITI_STATE_MEAN, &g_layout, h->moment);
    taciti_state_add_array(&s, "strategy.residual", own, TACITI_STATE_SUM, &g_layout, h->residual);
    taciti_state_add_array(&s, "strategy.term", own, TACITI_STATE_TERM, &g_layout, h->term);
    taciti_state_add_ranges(&s, "optim.v", shared, TACITI_STATE_RESET, &g_layout, h->shard, &h->shard_range, 1);
    taciti_state_add_ranges(&s, "strategy.window", own, TACITI_STATE_RESET, &g_layout, h->window, &h->window_range, 1);
    taciti_state_add_numbers(&s, "strategy.lone", t->lone_is_shared ? shared : own, t->rule, h->lone, NUMBERS);
    taciti_state_add_numbers(&s, "sums", own, TACITI_STATE_SUM, h->sums, NUMBERS);
    taciti_state_add_numbers(&s, "terms", own, TACITI_STATE_TERM, h->terms, NUMBERS);
    const taciti_state_entry updates = {.kind = TACITI_STATE_COUNT, .data = &h->updates};
    const taciti_state_entry drawn = {.kind = TACITI_STATE_COUNT, .data = &h->drawn};
    const taciti_state_entry total = {.kind = TACITI_STATE_COUNT, .data = &h->total};
    const taciti_state_entry blob = {.kind = TACITI_STATE_BYTES, .data = h->blob, .n = BLOB};
    const taciti_state_entry own_blob = {.kind = TACITI_STATE_BYTES, .data = h->own_blob, .n = BLOB};
    add(&s, updates, "updates", own, TACITI_STATE_MEAN);
    add(&s, drawn, "drawn", own, TACITI_STATE_SUM);
    add(&s, total, "total", shared, TACITI_STATE_RESET);
    add(&s, blob, "blob", shared, TACITI_STATE_RESET);
    add(&s, own_blob, "blob", own, TACITI_STATE_RESET);
    /* Another entry is the first for every number of ranks that saved. */
    taciti_state rotated = {.count = s.count};
    for (size_t i = 0; i < s.count; i++) rotated.entries[i] = s.entries[(i + (size_t)t->formers) % s.count];
    return rotated;
}

/* ---- saving and restoring ---------------------------------------------------------------------------------------- */

static void save_rank(taciti_comm *comm, void *context) {
    holder h = hold(taciti_comm_rank(comm), taciti_comm_size(comm));
    const taciti_state s = table(&h, context);
    json_t *meta = json_pack("{s:s}", "kind", "test");
    CHECK(taciti_ckpt_save_state(comm, g_folder.text, taciti_comm_size(comm), 9, meta, &s) == TACIT_OK);
    json_decref(meta);
    let_go(&h);
}

static void run(int ranks, test_rank *rank, trial *t) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(ranks, &options, rank, t);
}

/* The step is the number of ranks that saved it. */
static json_t *open_step(int formers, char path[TACITI_PATH_BYTES]) {
    int64_t step = -1;
    char *text = NULL;
    CHECK(taciti_stage_path(g_folder.text, formers, "", path) == TACIT_OK);
    CHECK(taciti_ckpt_check(path, &step, &text) == TACIT_OK);
    json_t *meta = json_loads(text, 0, NULL);
    CHECK(step == formers && strcmp(json_string_value(json_object_get(meta, "kind")), "test") == 0);
    taciti_free(text);
    return meta;
}

/* Element i of every tensor is expected(entry, ..., i) of the former ranks that contribute. */
static double combined(int entry, size_t i, int first, int stride, int formers, bool mean) {
    double sum = 0;
    for (int r = first; r < formers; r += stride) sum += (double)value(entry, r, i);
    return mean ? sum / formers : sum;
}

/* The same of a term of a mean over `stride` ranks. */
static double combined_term(size_t i, int first, int stride, int formers) {
    return combined(TERM, i, first, stride, formers, false) * stride / formers;
}

static void expect_combined(const float *flat, int entry, int first, int stride, int formers, bool mean) {
    for (size_t t = 0; t < g_layout.tensor_count; t++)
        for (size_t k = 0; k < g_layout.tensors[t].n; k++) {
            const size_t i = g_layout.tensors[t].offset + k;
            CHECK((double)flat[i] == combined(entry, i, first, stride, formers, mean));
        }
}

static void expect_terms(const holder *h, int rank, int ranks, int formers) {
    for (size_t t = 0; t < g_layout.tensor_count; t++)
        for (size_t k = 0; k < g_layout.tensors[t].n; k++) {
            const size_t i = g_layout.tensors[t].offset + k;
            CHECK((double)h->term[i] == combined_term(i, rank, ranks, formers));
        }
    for (size_t i = 0; i < NUMBERS; i++) CHECK(h->terms[i] == combined_term(i, rank, ranks, formers));
}

static bool holds(const float *found, int entry, int rank, size_t begin, size_t n) {
    float *expected = filled(entry, rank, begin, n);
    for (size_t i = 0; i < n; i++)
        if (expected[i] == 0) expected[i] = found[i]; /* padding is not saved */
    const bool same = memcmp(expected, found, n * sizeof *found) == 0;
    taciti_free(expected);
    return same;
}

static bool is_left(const void *data, size_t floats) {
    for (size_t i = 0; i < floats; i++)
        if (((const float *)data)[i] != -1) return false;
    return true;
}

static void expect_shared(const holder *h, const trial *t) {
    const bool mean = t->resumption == TACITI_RESUME_FROM_MEAN;
    CHECK(holds(h->model, MODEL, 0, 0, g_layout.n));
    const taciti_range part = h->shard_range;
    CHECK(mean ? is_left(h->shard, g_layout.n) : holds(h->shard + part.at, SHARD, 0, part.at, part.n));
    CHECK(h->total == (mean ? -1 : 1234));
    CHECK(strcmp(h->blob, "shared") == 0 || (mean && h->blob[0] == '-'));
}

static void expect_exact(const holder *h, int rank) {
    CHECK(holds(h->moment, MOMENT, rank, 0, g_layout.n) && holds(h->residual, RESIDUAL, rank, 0, g_layout.n));
    CHECK(holds(h->term, TERM, rank, 0, g_layout.n));
    CHECK(holds(h->window + h->window_range.at, WINDOW_OF_OWN, rank, h->window_range.at, WINDOW));
    for (size_t i = 0; i < NUMBERS; i++) {
        CHECK(h->lone[i] == (double)value(LONE, rank, i) + 0.1);
        CHECK(h->sums[i] == (double)value(SUMS, rank, i) && h->terms[i] == (double)value(TERM, rank, i));
    }
    CHECK(h->updates == (int64_t)value(UPDATES, rank, 0) && h->drawn == (int64_t)value(DRAWN, rank, 0));
    CHECK(h->own_blob[4] == '0' + rank);
}

/* The rest stays as it is. */
static void expect_regrouped(const holder *h, const trial *t, int rank, int ranks) {
    const bool sums = t->resumption == TACITI_RESUME_REGROUPED;
    expect_combined(h->moment, MOMENT, 0, 1, t->formers, true);
    CHECK(h->updates == llround(combined(UPDATES, 0, 0, 1, t->formers, true)));
    CHECK(is_left(h->window, g_layout.n) && h->lone[0] == -1 && h->own_blob[0] == '-');
    if (sums) {
        expect_combined(h->residual, RESIDUAL, rank, ranks, t->formers, false);
        expect_terms(h, rank, ranks, t->formers);
    } else {
        CHECK(is_left(h->residual, g_layout.n) && is_left(h->term, g_layout.n) && h->terms[0] == -1);
    }
    for (size_t i = 0; i < NUMBERS; i++)
        CHECK(h->sums[i] == (sums ? combined(SUMS, i, rank, ranks, t->formers, false) : -1));
    CHECK(h->drawn == (sums ? (int64_t)combined(DRAWN, 0, rank, ranks, t->formers, false) : -1));
}

static void restore_rank(taciti_comm *comm, void *context) {
    const trial *t = context;
    const int rank = taciti_comm_rank(comm), ranks = taciti_comm_size(comm);
    char path[TACITI_PATH_BYTES];
    json_t *meta = open_step(t->formers, path);
    const taciti_ckpt_origin from = {
        .path = path, .meta = meta, .rank = rank, .ranks = ranks, .resumption = t->resumption};
    holder h = hold(rank, ranks);
    forget(&h);
    const taciti_state s = table(&h, t);
    const taciti_state_entry *lacking = s.entries;
    int formers = 0;
    CHECK(taciti_ckpt_former_ranks(&from, &formers) == TACIT_OK && formers == t->formers);
    CHECK(taciti_ckpt_find_lacking(&from, &s, &lacking) == TACIT_OK && lacking == NULL);
    CHECK(taciti_ckpt_restore_state(&from, &s) == t->expected);
    if (t->expected == TACIT_OK) {
        expect_shared(&h, t);
        if (t->resumption == TACITI_RESUME_EXACTLY)
            expect_exact(&h, rank);
        else
            expect_regrouped(&h, t, rank, ranks);
    } else {
        CHECK(is_left(h.model, g_layout.n) && h.total == -1);
    }
    json_decref(meta);
    let_go(&h);
}

static void on_as_many_ranks_everything_comes_back(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        trial t = {.formers = ranks, .resumption = TACITI_RESUME_EXACTLY, .rule = TACITI_STATE_RESET};
        run(ranks, save_rank, &t);
        run(ranks, restore_rank, &t);
    }
}

static void on_other_ranks_every_entry_goes_by_its_rule(void **state) {
    (void)state;
    for (int formers = 1; formers <= 4; formers *= 2) { /* means of three are not exact */
        trial t = {.formers = formers, .rule = TACITI_STATE_RESET};
        run(formers, save_rank, &t);
        for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
            t.resumption = TACITI_RESUME_REGROUPED;
            run(ranks, restore_rank, &t);
            t.resumption = TACITI_RESUME_FROM_MEAN;
            run(ranks, restore_rank, &t);
        }
    }
}

/* ---- one rank, without a communicator ---------------------------------------------------------------------------- */

static tacit_status save_alone(const taciti_state *s, int64_t step, const char *meta_text) {
    json_t *meta = json_loads(meta_text, 0, NULL);
    const tacit_status status = taciti_ckpt_save_state(NULL, g_folder.text, step, 9, meta, s);
    json_decref(meta);
    return status;
}

static tacit_status restore_alone(const taciti_state *s, int64_t step, const char *meta_text,
                                  const taciti_state_entry **lacking) {
    char path[TACITI_PATH_BYTES];
    int64_t found = -1;
    char *text = NULL;
    assert_int_equal(taciti_stage_path(g_folder.text, step, "", path), TACIT_OK);
    assert_int_equal(taciti_ckpt_check(path, &found, &text), TACIT_OK);
    json_t *meta = json_loads(meta_text == NULL ? text : meta_text, 0, NULL);
    const taciti_ckpt_origin from = {.path = path, .meta = meta, .ranks = 1};
    assert_int_equal(taciti_ckpt_find_lacking(&from, s, lacking), TACIT_OK);
    const tacit_status status = taciti_ckpt_restore_state(&from, s);
    json_decref(meta);
    taciti_free(text);
    return status;
}

/* The arrays of ranks are there, and the list of these ranks is not. */
static void ranks_that_nobody_lists_are_refused(void **state) {
    (void)state;
    const trial t = {.formers = 1};
    holder h = hold(0, 1);
    const taciti_state s = table(&h, &t);
    char path[TACITI_PATH_BYTES];
    assert_int_equal(save_alone(&s, 21, "{\"kind\": \"test\"}"), TACIT_OK);
    forget(&h);
    test_log_keep();
    json_t *meta = open_step(21, path);
    assert_int_equal(json_object_del(meta, "replicas"), 0);
    const taciti_ckpt_origin from = {.path = path, .meta = meta, .ranks = 1, .resumption = TACITI_RESUME_REGROUPED};
    assert_int_equal(taciti_ckpt_restore_state(&from, &s), TACIT_E_DATA);
    assert_int_equal(test_log_count("optim.m is of several ranks, and \"replicas\", which lists them, is missing"), 1);
    assert_true(is_left(h.model, g_layout.n));
    json_decref(meta);
    let_go(&h);
}

static void what_is_lacking_is_named(void **state) {
    (void)state;
    const trial t = {.formers = 1};
    holder h = hold(0, 1);
    const taciti_state s = table(&h, &t);
    taciti_state more = s;
    const taciti_state_entry *lacking = NULL;
    assert_int_equal(save_alone(&s, 20, "{}"), TACIT_OK);
    assert_int_equal(restore_alone(&s, 20, NULL, &lacking), TACIT_OK);
    taciti_state_add_array(&more, "strategy.anchor", TACITI_STATE_OWN, TACITI_STATE_RESET, &g_layout, h.model);
    forget(&h);
    test_log_keep();
    assert_int_equal(restore_alone(&more, 20, NULL, &lacking), TACIT_E_DATA);
    assert_string_equal(lacking->name, "strategy.anchor");
    assert_int_equal(test_log_count("rank.00000.strategy.anchor.wte.weight is not in this checkpoint"), 1);
    assert_true(is_left(h.moment, g_layout.n)); /* nothing was overwritten */
    test_log_drop();
    let_go(&h);
}

static void damaged_numbers_are_refused(void **state) {
    (void)state;
    static const char *const metas[] = {
        "{}",
        "{\"n\": 7}",
        "{\"n\": [1, 2], \"c\": 3}",
        "{\"n\": [1, 2, 3, 4], \"c\": 3}",
        "{\"n\": [1, \"2\", 3], \"c\": 3}",
        "{\"n\": [1, 2, 3], \"c\": -3}",
        "{\"n\": [1, 2, 3], \"c\": 3.5}",
        "{\"n\": [1, 2, 3], \"c\": [3]}",
        "{\"n\": [1, 2, 3]}",
        "{\"replicas\": {}, \"n\": [1, 2, 3], \"c\": 3}",
        "{\"replicas\": [], \"n\": [1, 2, 3], \"c\": 3}",
    };
    double n[NUMBERS] = {1, (double)INFINITY, (double)NAN};
    int64_t c = INT64_MAX;
    taciti_state s = {.count = 0};
    const taciti_state_entry count = {.kind = TACITI_STATE_COUNT, .data = &c};
    const taciti_state_entry *lacking = NULL;
    taciti_state_add_numbers(&s, "n", TACITI_STATE_SHARED, TACITI_STATE_RESET, n, NUMBERS);
    add(&s, count, "c", TACITI_STATE_SHARED, TACITI_STATE_RESET);
    assert_int_equal(save_alone(&s, 30, "{}"), TACIT_OK);
    n[0] = 0;
    c = 0;
    assert_int_equal(restore_alone(&s, 30, NULL, &lacking), TACIT_OK);
    assert_true(n[0] == 1 && isnan(n[1]) && isnan(n[2]) && c == INT64_MAX);
    test_log_keep();
    for (size_t i = 0; i < sizeof metas / sizeof *metas; i++)
        assert_int_equal(restore_alone(&s, 30, metas[i], &lacking), TACIT_E_DATA);
    assert_int_equal(test_log_count("step_00000030: n is missing; give a list of 3 numbers"), 1);
    assert_int_equal(test_log_count("n is a list; give a list of 3 numbers"), 2);
    assert_int_equal(test_log_count("n[1] is \"2\"; give a number or null"), 1);
    assert_int_equal(test_log_count("c is -3; give an integer from 0 on"), 1);
    assert_int_equal(test_log_count("c is missing; give an integer from 0 on"), 1);
    test_log_drop();
    assert_int_equal(restore_alone(&s, 30, "{\"n\": [4, null, 5], \"c\": 6}", &lacking), TACIT_OK);
    assert_true(n[0] == 4 && isnan(n[1]) && n[2] == 5 && c == 6);
}

/* Numbers were one rank's in the checkpoint, and are all ranks' now: their mean. */
static void means_of_numbers_go_before_what_was_shared(void **state) {
    (void)state;
    int64_t c = 0;
    double n[2] = {0};
    taciti_state s = {.count = 0};
    const taciti_state_entry count = {.kind = TACITI_STATE_COUNT, .data = &c};
    const taciti_state_entry *lacking = NULL;
    add(&s, count, "c", TACITI_STATE_SHARED, TACITI_STATE_MEAN);
    taciti_state_add_numbers(&s, "n", TACITI_STATE_SHARED, TACITI_STATE_MEAN, n, 2);
    assert_int_equal(save_alone(&s, 40, "{}"), TACIT_OK);
    const char *const meta = "{\"replicas\": [{\"c\": 4, \"n\": [1, 2]}, {\"c\": 7, \"n\": [2, 6]}], \"c\": 4}";
    assert_int_equal(restore_alone(&s, 40, meta, &lacking), TACIT_OK);
    assert_true(c == 6 && n[0] == 1.5 && n[1] == 4); /* 5.5 is rounded away from 0 */
    const char *const large = "{\"replicas\": [{\"c\": 9223372036854775807, \"n\": [1, 2]}], \"c\": 4}";
    assert_int_equal(restore_alone(&s, 40, large, &lacking), TACIT_E_DATA);
}

static void what_no_checkpoint_can_hold_is_refused(void **state) {
    (void)state;
    static const char name[] = "a name that is longer than names of entries can be";
    const trial t = {.formers = 1};
    holder h = hold(0, 1);
    const taciti_state s = table(&h, &t);
    taciti_state bad = s;
    bad.count = TACITI_STATE_MAX_ENTRIES + 1;
    assert_int_equal(save_alone(&bad, 50, "{}"), TACIT_E_INTERNAL);
    bad = s;
    bad.entries[0].name = name;
    assert_int_equal(save_alone(&bad, 50, "{}"), TACIT_E_INTERNAL);
    for (size_t i = 0; i < s.count; i++) { /* ranges and bytes of ranks cannot be added up */
        bad = s;
        bad.entries[i].regroup = TACITI_STATE_SUM;
        const bool cannot = strcmp(bad.entries[i].name, "strategy.window") == 0 ||
                            (bad.entries[i].kind == TACITI_STATE_BYTES && bad.entries[i].owner == TACITI_STATE_OWN);
        assert_int_equal(save_alone(&bad, 50, "{}"), cannot ? TACIT_E_INTERNAL : TACIT_OK);
    }
    assert_int_equal(save_alone(&s, 50, "{\"total\": 3}"), TACIT_E_INTERNAL);
    assert_int_equal(save_alone(&s, 50, "{\"kind\": 3}"), TACIT_OK);
    let_go(&h);
}

static void the_size_of_bytes_is_found(void **state) {
    (void)state;
    const trial t = {.formers = 1};
    holder h = hold(0, 1);
    const taciti_state s = table(&h, &t);
    char path[TACITI_PATH_BYTES];
    bool held = false;
    size_t bytes = 0;
    assert_int_equal(save_alone(&s, 60, "{}"), TACIT_OK);
    assert_int_equal(taciti_stage_path(g_folder.text, 60, "", path), TACIT_OK);
    assert_int_equal(taciti_ckpt_find_bytes(path, "blob", &held, &bytes), TACIT_OK);
    assert_true(held && bytes == BLOB);
    assert_int_equal(taciti_ckpt_find_bytes(path, "model.wte.weight", &held, &bytes), TACIT_OK);
    assert_false(held);
    assert_int_equal(taciti_ckpt_find_bytes(path, "rank.00000.blob", &held, &bytes), TACIT_OK);
    assert_true(held);
    let_go(&h);
}

/* ---- lists of ranges --------------------------------------------------------------------------------------------- */

enum { MAX_RANGES = 64 };

/* Runs of `length` floats, dealt out to the ranks. */
typedef struct stripes {
    size_t length, count;
    int parts;
    taciti_range ranges[MAX_RANGES];
} stripes;

static stripes deal(int part, int parts, size_t length) {
    stripes s = {.length = length, .parts = parts};
    for (size_t at = (size_t)part * length; at < g_layout.n; at += (size_t)parts * length)
        s.ranges[s.count++] = (taciti_range){at, at + length < g_layout.n ? length : g_layout.n - at};
    return s;
}

static void mark_stripes(const stripes *s, const float *from, float *to) {
    for (size_t i = 0; i < s->count; i++)
        memcpy(to + s->ranges[i].at, from + s->ranges[i].at, s->ranges[i].n * sizeof *to);
}

static void save_stripes(taciti_comm *comm, void *context) {
    const stripes *asked = context;
    const stripes mine = deal(taciti_comm_rank(comm), taciti_comm_size(comm), asked->length);
    float *all = filled(MODEL, 0, 0, g_layout.n), *own = taciti_calloc(g_layout.n, sizeof *own);
    mark_stripes(&mine, all, own);
    taciti_state s = {.count = 0};
    taciti_state_add_ranges(&s, "model", TACITI_STATE_SHARED, TACITI_STATE_MEAN, &g_layout, own, mine.ranges,
                            mine.count);
    json_t *meta = json_pack("{s:s}", "kind", "test");
    CHECK(taciti_ckpt_save_state(comm, g_folder.text, asked->parts, 9, meta, &s) == TACIT_OK);
    json_decref(meta);
    taciti_free(all);
    taciti_free(own);
}

static void expect_stripes(int formers, int ranks, size_t length) {
    char path[TACITI_PATH_BYTES];
    json_t *meta = open_step(formers, path);
    float *all = filled(MODEL, 0, 0, g_layout.n);
    for (int rank = 0; rank < ranks; rank++) {
        const stripes mine = deal(rank, ranks, length);
        float *found = taciti_calloc(g_layout.n, sizeof *found), *expected = taciti_calloc(g_layout.n, sizeof *found);
        taciti_state s = {.count = 0};
        taciti_state_add_ranges(&s, "model", TACITI_STATE_SHARED, TACITI_STATE_MEAN, &g_layout, found, mine.ranges,
                                mine.count);
        const taciti_ckpt_origin from = {path, meta, rank, ranks, TACITI_RESUME_REGROUPED};
        assert_int_equal(taciti_ckpt_restore_state(&from, &s), TACIT_OK);
        mark_stripes(&mine, all, expected);
        assert_memory_equal(found, expected, g_layout.n * sizeof *found);
        taciti_free(found);
        taciti_free(expected);
    }
    taciti_free(all);
    json_decref(meta);
}

/* Cut anywhere, also within tensors; read in the same or other pieces by any number of ranks, or whole. */
static void ranges_of_all_ranks_are_one_whole(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    for (int formers = 1; formers <= MAX_RANKS; formers++)
        for (size_t length = 3; length <= 40; length += 9) {
            stripes asked = {.length = length, .parts = formers};
            test_world_run(formers, &options, save_stripes, &asked);
            expect_stripes(formers, 1, g_layout.n);
            for (int ranks = 1; ranks <= MAX_RANKS; ranks++) expect_stripes(formers, ranks, 3 + length / 2);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(on_as_many_ranks_everything_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(on_other_ranks_every_entry_goes_by_its_rule, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_lacking_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_that_nobody_lists_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damaged_numbers_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(means_of_numbers_go_before_what_was_shared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_no_checkpoint_can_hold_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranges_of_all_ranks_are_one_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_size_of_bytes_is_found, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
