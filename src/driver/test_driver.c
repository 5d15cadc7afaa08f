/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of a tiny network with every strategy, and the order of calls with one that only takes notes.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/test_engine.h"
#include "driver/driver.h"
#include "settings/settings.h"

enum { MAX_RANKS = 6, MAX_STEPS = 9, TENSORS = 5, MAX_PAIRS = 12 };
static const size_t SIZES[TENSORS] = {700, 17, 2100, 1, 351};

/* How the caller drives a step. */
typedef enum way { WHOLE, PIECES, OWN_OPTIMIZER } way;

/* A task for several ranks, and its outcome. */
typedef struct trial {
    int ranks, steps;
    way way;
    const char *pairs[MAX_PAIRS];                     /* key, value, ...; NULL ends */
    bool shuffled;                                    /* every rank reports its tensors in an order of its own */
    size_t unreported;                                /* number of tensors at the end that are not reported at all */
    int bad_rank, bad_step;                           /* whose gradient is not finite; -1: none */
    int leaving_rank;                                 /* who leaves step bad_step after its second tensor; -1: none */
    float *parameters[MAX_RANKS], *before[MAX_RANKS]; /* before: step bad_step */
    taciti_driver_record records[MAX_RANKS][MAX_STEPS];
    bool asked[MAX_RANKS]; /* whether it wants to leave */
    tacit_status created;
    size_t n;
} trial;

/* One rank's network. */
typedef struct tiny {
    trial *t;
    int rank, ranks;
    int64_t step;
    size_t reported;
    taciti_layout layout;
    float *parameters, *gradients;
    taciti_bf16 *copy16;
} tiny;

static const taciti_layout *layout_of(const void *self) { return &((const tiny *)self)->layout; }

static taciti_network_arrays arrays_of(void *self) {
    const tiny *n = self;
    return (taciti_network_arrays){.parameters = n->parameters, .gradients = n->gradients, .copy16 = n->copy16};
}

/* Computes the gradient of a tensor from the values of the copy, as the network would. */
static void compute_tensor(const tiny *n, size_t tensor) {
    const taciti_tensor *t = &n->layout.tensors[tensor];
    for (size_t i = t->offset; i < t->offset + t->n; i++) {
        float x = 0;
        taciti_kernels_get()->bf16_decode(&x, &n->copy16[i], 1);
        n->gradients[i] = (float)(sin(3 * (double)x + n->rank + 0.1 * (double)n->step + 0.01 * (double)i) / n->ranks);
    }
    if (n->rank == n->t->bad_rank && n->step == n->t->bad_step) n->gradients[t->offset] = INFINITY;
}

static size_t tensor_at(const tiny *n, size_t place) {
    return n->t->shuffled ? (place * 3 + (size_t)n->rank + (size_t)n->step) % TENSORS : place;
}

static tacit_status run_step(void *self, int64_t step, const taciti_network_hooks *hooks, taciti_trace *trace,
                             double *loss) {
    tiny *n = self;
    (void)trace;
    n->step = step;
    for (n->reported = 0; n->reported < TENSORS; n->reported++) {
        const size_t tensor = tensor_at(n, n->reported);
        if (hooks->leave != NULL && hooks->leave(hooks->context)) return TACIT_PENDING;
        compute_tensor(n, tensor);
        if (hooks->ready != NULL && n->reported < TENSORS - n->t->unreported) hooks->ready(hooks->context, tensor);
    }
    *loss = 2 + n->rank;
    return TACIT_OK;
}

static void refresh(void *self) {
    const tiny *n = self;
    taciti_kernels_get()->bf16_encode(n->copy16, n->parameters, n->layout.n);
}

static const taciti_network_verbs VERBS = {
    .layout = layout_of, .arrays = arrays_of, .step = run_step, .refresh = refresh};

static void create_tiny(trial *t, int rank, tiny *n) {
    *n = (tiny){.t = t, .rank = rank, .ranks = t->ranks};
    CHECK(taciti_layout_create(TENSORS, &n->layout) == TACIT_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        const char name[2] = {(char)('a' + (int)i), 0};
        if (i > 0) taciti_layout_next_unit(&n->layout);
        CHECK(taciti_layout_append(&n->layout, name, 1, &SIZES[i], i != 1) == TACIT_OK);
    }
    CHECK(taciti_layout_seal(&n->layout, 2048) == TACIT_OK);
    n->parameters = taciti_calloc(n->layout.n, sizeof *n->parameters);
    n->gradients = taciti_calloc(n->layout.n, sizeof *n->gradients);
    n->copy16 = taciti_calloc(n->layout.n, sizeof *n->copy16);
    CHECK(n->parameters != NULL && n->gradients != NULL && n->copy16 != NULL);
    for (size_t i = 0; i < TENSORS; i++)
        for (size_t e = 0; e < SIZES[i]; e++)
            n->parameters[n->layout.tensors[i].offset + e] = (float)taciti_rng_unit(5 + i, e);
    refresh(n);
}

/* The rank keeps its parameters. */
static void destroy_tiny(tiny *n) {
    taciti_free(n->gradients);
    taciti_free(n->copy16);
    taciti_layout_destroy(&n->layout);
}

static bool wants_to_leave(void *caller) {
    const tiny *n = caller;
    n->t->asked[n->rank] = true;
    return n->rank == n->t->leaving_rank && n->step == n->t->bad_step && n->reported == 2;
}

static double learning_rate(int64_t step) { return 0.05 / (double)(step + 1); }

/* An optimizer of the caller's that happens to be one of ours. */
static tacit_status step_with(taciti_driver *driver, taciti_optim *own, tiny *n, int64_t step,
                              taciti_driver_record *out) {
    taciti_driver_begin(driver, step);
    TACITI_TRY(taciti_driver_compute(driver));
    TACITI_TRY(taciti_driver_settle(driver, learning_rate(step), out));
    if (!out->report.skipped) taciti_optim_update(own, n->parameters, n->gradients, NULL, learning_rate(step), 1);
    return taciti_driver_stepped(driver, out);
}

static tacit_status step_in_pieces(taciti_driver *driver, tiny *n, int64_t step, taciti_driver_record *out) {
    taciti_driver_begin(driver, step);
    n->step = step;
    for (size_t i = 0; i < TENSORS; i++) compute_tensor(n, i);
    for (size_t i = 0; i + n->t->unreported < TENSORS; i++) TACITI_TRY(taciti_driver_ready(driver, tensor_at(n, i)));
    return taciti_driver_finish(driver, learning_rate(step), out);
}

static void run_steps(trial *t, taciti_driver *driver, taciti_optim *own, tiny *n) {
    const size_t bytes = n->layout.n * sizeof(float);
    CHECK(taciti_driver_start(driver, 0, false) == TACIT_OK);
    for (int64_t step = 0; step < t->steps; step++) {
        taciti_driver_record *record = &t->records[n->rank][step];
        if (step == t->bad_step) memcpy(t->before[n->rank], n->parameters, bytes);
        const tacit_status status = t->way == OWN_OPTIMIZER ? step_with(driver, own, n, step, record)
                                    : t->way == PIECES      ? step_in_pieces(driver, n, step, record)
                                                       : taciti_driver_step(driver, step, learning_rate(step), record);
        CHECK(status == TACIT_OK);
        if (step == t->bad_step && t->records[n->rank][step].report.skipped && n->rank == t->leaving_rank)
            CHECK(memcmp(t->before[n->rank], n->parameters, bytes) == 0);
    }
}

static void train(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    taciti_settings settings;
    tiny n;
    taciti_pool *pool = NULL;
    taciti_optim *own = NULL;
    taciti_driver *driver = NULL;
    taciti_trace trace;
    CHECK(taciti_settings_init(&settings, NULL, 0) == TACIT_OK);
    for (size_t i = 0; t->pairs[i] != NULL; i += 2)
        CHECK(taciti_config_set(&settings.config, t->pairs[i], t->pairs[i + 1], "test") == TACIT_OK);
    create_tiny(t, rank, &n);
    t->before[rank] = taciti_calloc(n.layout.n, sizeof(float));
    CHECK(taciti_pool_create(1, 0, &pool) == TACIT_OK && taciti_trace_create(0, &trace) == TACIT_OK);
    CHECK(taciti_optim_create(&settings.optim, &n.layout, pool, &own) == TACIT_OK && t->before[rank] != NULL);
    const taciti_reader reader = t->way == OWN_OPTIMIZER ? TACITI_READER_OWN_OPTIMIZER : TACITI_READER_LIBRARY;
    taciti_driver_setup setup = {.strategy = taciti_settings_strategy(&settings),
                                 .context = taciti_settings_context(&settings),
                                 .network = {&VERBS, &n},
                                 .leave = wants_to_leave,
                                 .caller = &n};
    setup.context.comm = comm;
    setup.context.pool = pool;
    setup.context.trace = &trace;
    setup.context.own_optimizer = t->way == OWN_OPTIMIZER;
    tacit_status created = taciti_settings_check(&settings, taciti_comm_hosts(comm), reader);
    if (created == TACIT_OK) created = taciti_driver_create(&setup, &driver);
    if (created == TACIT_OK) run_steps(t, driver, own, &n);
    taciti_driver_destroy(driver);
    t->parameters[rank] = n.parameters;
    if (rank == 0) t->created = created;
    if (rank == 0) t->n = n.layout.n;
    taciti_optim_destroy(own);
    taciti_pool_destroy(pool);
    taciti_trace_destroy(&trace);
    destroy_tiny(&n);
    taciti_settings_destroy(&settings);
}

static trial trial_of(int ranks, way how, const char *const *pairs) {
    trial t = {.ranks = ranks, .steps = MAX_STEPS, .way = how, .bad_rank = -1, .bad_step = -1, .leaving_rank = -1};
    for (size_t i = 0; pairs[i] != NULL; i++) t.pairs[i] = pairs[i];
    return t;
}

static void play(trial *t) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(t->ranks, &options, train, t);
}

static void forget(trial *t) {
    for (int r = 0; r < t->ranks; r++) {
        taciti_free(t->parameters[r]);
        taciti_free(t->before[r]);
    }
}

static void assert_same(const trial *a, const trial *b) {
    assert_int_equal(a->created, TACIT_OK);
    assert_int_equal(b->created, TACIT_OK);
    for (int r = 0; r < a->ranks; r++) {
        assert_memory_equal(a->parameters[r], b->parameters[r], a->n * sizeof(float));
        for (int s = 0; s < a->steps; s++) {
            const taciti_step_report *x = &a->records[r][s].report, *y = &b->records[r][s].report;
            assert_int_equal(x->skipped, y->skipped);
            assert_memory_equal(&x->grad_norm, &y->grad_norm, sizeof x->grad_norm);
            assert_true(fabs(x->moved - y->moved) <= 1e-13 * x->moved); /* sums of other parts */
        }
    }
}

/* ---- both ways to end a step ------------------------------------------------------------------------------------- */

#define ADAM "optim.name", "accum-adamw", "optim.accum", "2", "optim.clip", "0.5"
static const char *const CASES[][MAX_PAIRS] = {
    {"strategy", "dp", ADAM},
    {"strategy", "dp", ADAM, "exchange.overlap", "false"},
    {"strategy", "localsgd", ADAM, "localsgd.every", "2"},
    {"strategy", "localsgd", "optim.clip", "0", "localsgd.every", "3", "localsgd.outer_momentum", "0.9"},
    {"strategy", "gossip", ADAM},
    {"strategy", "gossip", ADAM, "exchange.overlap", "false"},
    {"strategy", "gossip", ADAM, "gossip.order", "atc"},
    {"strategy", "gossip", "gossip.every", "2", "gossip.topology", "ring"},
    {"strategy", "gossip", "gossip.delay", "1", "gossip.gamma", "0.5", "gossip.topology", "ring"},
    {"strategy", "gossip", "gossip.tracker", "true", "gossip.order", "atc", "gossip.topology", "ring"},
    {"strategy", "gossip", "gossip.tracker", "true", "gossip.topology", "ring"},
};

/* With the same update, and with a gradient on one rank that is not finite. 3 ranks: scaling by them rounds. */
static void settle_and_stepped_are_finish_to_the_bit(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int bad = -1; bad < 1; bad++) {
                trial whole = trial_of(ranks, WHOLE, CASES[c]), own = trial_of(ranks, OWN_OPTIMIZER, CASES[c]);
                whole.bad_rank = own.bad_rank = bad;
                whole.bad_step = own.bad_step = 4;
                play(&whole);
                play(&own);
                assert_same(&whole, &own);
                assert_int_equal(own.records[0][4].report.skipped, bad == 0);
                forget(&whole);
                forget(&own);
            }
}

/* Ranks may report tensors in orders of their own, or not at all; the loss is the network's. */
static void the_order_of_tensors_does_not_matter(void **state) {
    (void)state;
    trial ordered = trial_of(4, WHOLE, CASES[0]), shuffled = ordered;
    shuffled.shuffled = true;
    shuffled.unreported = 2;
    play(&ordered);
    play(&shuffled);
    trial pieces = shuffled;
    pieces.way = PIECES;
    play(&pieces);
    assert_same(&ordered, &shuffled);
    assert_same(&ordered, &pieces);
    for (int r = 0; r < 4; r++) assert_true(fabs(ordered.records[r][3].loss - 2 - r) <= 0);
    assert_true(isnan(pieces.records[0][3].loss));
    forget(&ordered);
    forget(&shuffled);
    forget(&pieces);
}

/* Rows that do not all sum to 1: weights of push-sum, which enter the learning rate. */
static void an_own_optimizer_is_refused_with_push_sum(void **state) {
    (void)state;
    char path[] = "/tmp/tacit-driver-XXXXXX";
    const int file = mkstemp(path);
    FILE *out = file < 0 ? NULL : fdopen(file, "w");
    assert_non_null(out);
    assert_true(fputs(".5,0,.25,.5\n.5,.5,0,0\n0,.5,.25,0\n0,0,.5,.5\n", out) >= 0 && fclose(out) == 0);
    const char *const pairs[] = {"strategy", "gossip", "gossip.topology", "file", "gossip.file", path, NULL};
    trial ours = trial_of(4, WHOLE, pairs), own = trial_of(4, OWN_OPTIMIZER, pairs);
    play(&ours);
    test_log_keep();
    play(&own);
    const int told = test_log_count("needs push-sum");
    test_log_drop();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ours.created, TACIT_OK);
    assert_int_equal(own.created, TACIT_E_CONFIG);
    assert_true(told > 0);
    forget(&ours);
    forget(&own);
}

/* ---- a step that is left ----------------------------------------------------------------------------------------- */

/* All ranks skip it, nothing is changed, and the next one is as ever. */
static void a_step_that_is_left_is_skipped_by_all(void **state) {
    (void)state;
    trial t = trial_of(4, WHOLE, CASES[0]);
    t.bad_step = 3;
    t.leaving_rank = 2;
    play(&t);
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < t.steps; s++) {
            assert_int_equal(t.records[r][s].abandoned, r == 2 && s == 3);
            assert_int_equal(t.records[r][s].report.skipped, s == 3);
        }
    for (int r = 1; r < 4; r++) assert_memory_equal(t.parameters[r], t.parameters[0], t.n * sizeof(float));
    assert_true(t.asked[0] && t.asked[2]);
    forget(&t);
}

/* Others have mixed with what it makes. */
static void replicas_that_differ_are_never_asked_to_leave(void **state) {
    (void)state;
    trial t = trial_of(2, WHOLE, CASES[4]);
    t.bad_step = 3;
    t.leaving_rank = 1;
    play(&t);
    assert_false(t.asked[0] || t.asked[1] || t.records[1][3].abandoned || t.records[1][3].report.skipped);
    forget(&t);
}

/* ---- the order of calls ------------------------------------------------------------------------------------------ */

/* A strategy that takes notes. One rank, no threads. */
static char g_calls[512];
static tacit_status g_ready_status; /* of bucket 1 */

static void note(const char *call) {
    const size_t at = strlen(g_calls);
    (void)snprintf(g_calls + at, sizeof g_calls - at, "%s ", call);
}

static void note_number(const char *call, size_t number) {
    char text[32];
    (void)snprintf(text, sizeof text, "%s%zu", call, number);
    note(text);
}

static tacit_status note_create(const taciti_strategy_context *context, void **out) {
    note("create");
    CHECK(context->parameters != NULL && context->optim != NULL && context->layout != NULL);
    *out = g_calls;
    return TACIT_OK;
}

static tacit_status note_start(void *self, int64_t step, bool restored) {
    (void)self, (void)restored;
    note_number("start ", (size_t)step);
    return TACIT_OK;
}

static tacit_status note_ready(void *self, size_t bucket) {
    (void)self;
    note_number("b", bucket);
    return bucket == 1 ? g_ready_status : TACIT_OK;
}

static tacit_status note_finish(void *self, double lr, taciti_step_report *out) {
    (void)self, (void)lr;
    note("finish");
    *out = (taciti_step_report){.grad_norm = 3};
    return TACIT_OK;
}

static tacit_status note_settle(void *self, double lr, taciti_step_report *out) {
    (void)self, (void)lr;
    note("settle");
    *out = (taciti_step_report){.moved = 3};
    return TACIT_OK;
}

static tacit_status note_stepped(void *self, taciti_step_report *out) {
    (void)self;
    note("stepped");
    out->moved += 1;
    return TACIT_OK;
}

static tacit_status note_need(void *self, size_t unit) {
    (void)self;
    note_number("+", unit);
    return TACIT_OK;
}

static void note_release(void *self, size_t unit) {
    (void)self;
    note_number("-", unit);
}

static tacit_status note_average(void *self, double *distance) {
    (void)self;
    note("average");
    *distance = 7;
    return TACIT_OK;
}

static void note_revert(void *self) {
    (void)self;
    note("revert");
}

static void note_destroy(void *self) {
    (void)self;
    note("destroy");
}

static const taciti_strategy NOTES = {
    .create = note_create,
    .start = note_start,
    .ready = note_ready,
    .finish = note_finish,
    .settle = note_settle,
    .stepped = note_stepped,
    .destroy = note_destroy,
    .units = &(const taciti_unit_verbs){.need = note_need, .release = note_release},
    .replicas = &(const taciti_replica_verbs){.average = note_average, .revert = note_revert}};

/* One rank with that strategy. */
typedef struct stage {
    trial trial;
    tiny network;
    taciti_pool *pool;
    taciti_trace trace;
    taciti_driver *driver;
    taciti_exchange_options exchange;
    taciti_optim_options optim;
    tacit_status failed_with;
} stage;

static void note_failed(void *caller, tacit_status status) {
    note("failed");
    ((stage *)caller)->failed_with = status;
}

static void open_stage(stage *s, taciti_comm *comm, bool own_optimizer) {
    *s = (stage){.trial = {.ranks = 1, .bad_rank = -1, .bad_step = -1, .leaving_rank = -1}};
    g_calls[0] = '\0';
    g_ready_status = TACIT_OK;
    create_tiny(&s->trial, 0, &s->network);
    CHECK(taciti_pool_create(1, 0, &s->pool) == TACIT_OK && taciti_trace_create(0, &s->trace) == TACIT_OK);
    const taciti_driver_setup setup = {.strategy = &NOTES,
                                       .context = {.comm = comm,
                                                   .pool = s->pool,
                                                   .optim_options = &s->optim,
                                                   .exchange_options = &s->exchange,
                                                   .trace = &s->trace,
                                                   .own_optimizer = own_optimizer},
                                       .network = {&VERBS, &s->network},
                                       .failed = note_failed,
                                       .caller = s};
    CHECK(taciti_driver_create(&setup, &s->driver) == TACIT_OK);
}

static void close_stage(stage *s) {
    taciti_driver_destroy(s->driver);
    taciti_pool_destroy(s->pool);
    taciti_trace_destroy(&s->trace);
    taciti_free(s->network.parameters);
    destroy_tiny(&s->network);
}

static void check_calls(const char *calls) {
    if (strcmp(g_calls, calls) != 0) (void)fprintf(stderr, "calls: %s\nnot:   %s\n", g_calls, calls);
    CHECK(strcmp(g_calls, calls) == 0);
    g_calls[0] = '\0';
}

/* Seven buckets: two of tensor a, the second ends with b; four of c; one of the rest of c, d and e. */
static void call_in_order(taciti_comm *comm, void *context) {
    stage s;
    taciti_driver_record record;
    double distance = 0;
    (void)context;
    open_stage(&s, comm, false);
    CHECK(taciti_driver_start(s.driver, 5, false) == TACIT_OK);
    CHECK(taciti_driver_step(s.driver, 5, 0.1, &record) == TACIT_OK);
    check_calls("create start 5 b0 b1 b2 b3 b4 b5 b6 finish ");
    CHECK(record.report.grad_norm >= 3 && record.report.grad_norm <= 3 && record.compute_s >= 0);
    taciti_trace_count(&s.trace, TACITI_SPAN_WAIT, 5000 * TACITI_NS_PER_S); /* as between two steps */
    taciti_driver_begin(s.driver, 6);
    CHECK(taciti_driver_ready(s.driver, 4) == TACIT_OK);
    CHECK(taciti_driver_ready(s.driver, 1) == TACIT_OK);
    check_calls("");
    CHECK(taciti_driver_ready(s.driver, 0) == TACIT_OK);
    check_calls("b0 b1 ");
    const taciti_network_hooks *hooks = taciti_driver_hooks(s.driver);
    CHECK(hooks->ready != NULL && hooks->need(hooks->units, 2) == TACIT_OK);
    taciti_trace_count(&s.trace, TACITI_SPAN_WAIT, 1000 * TACITI_NS_PER_S); /* as if that gather had lasted so long */
    hooks->release(hooks->units, 2);
    CHECK(taciti_driver_finish(s.driver, 0.1, &record) == TACIT_OK);
    check_calls("+2 -2 b2 b3 b4 b5 b6 finish ");
    CHECK(record.compute_s < -900 && record.compute_s > -1100); /* that wait, and no other, is no computation */
    CHECK(taciti_driver_average(s.driver, &distance) == TACIT_OK && distance > 6);
    CHECK(taciti_driver_average(s.driver, &distance) == TACIT_OK && distance > 6);
    taciti_driver_revert(s.driver);
    taciti_driver_revert(s.driver);
    check_calls("average revert ");
    close_stage(&s);
    check_calls("destroy ");
}

/* The first error of a bucket ends what the step hands on, and the step; whoever is to know is told once. */
static void fail_in_ready(taciti_comm *comm, void *context) {
    stage s;
    taciti_driver_record record;
    (void)context;
    open_stage(&s, comm, false);
    g_calls[0] = '\0';
    g_ready_status = TACIT_E_MEMORY;
    CHECK(taciti_driver_step(s.driver, 0, 0.1, &record) == TACIT_E_MEMORY);
    check_calls("b0 b1 failed ");
    CHECK(s.failed_with == TACIT_E_MEMORY);
    taciti_driver_begin(s.driver, 1);
    CHECK(taciti_driver_ready(s.driver, 0) == TACIT_OK);
    CHECK(taciti_driver_ready(s.driver, 1) == TACIT_E_MEMORY);
    CHECK(taciti_driver_finish(s.driver, 0.1, &record) == TACIT_E_MEMORY);
    check_calls("b0 b1 failed ");
    close_stage(&s);
}

static void misuse(taciti_comm *comm, void *context) {
    stage s;
    taciti_driver_record record;
    (void)context;
    open_stage(&s, comm, false);
    CHECK(taciti_driver_ready(s.driver, 0) == TACIT_E_USAGE);
    CHECK(taciti_driver_finish(s.driver, 0.1, &record) == TACIT_E_USAGE);
    taciti_driver_begin(s.driver, 0);
    CHECK(taciti_driver_ready(s.driver, TENSORS) == TACIT_E_USAGE);
    CHECK(taciti_driver_ready(s.driver, 3) == TACIT_OK);
    CHECK(taciti_driver_ready(s.driver, 3) == TACIT_E_USAGE);
    CHECK(taciti_driver_settle(s.driver, 0.1, &record) == TACIT_E_USAGE);
    CHECK(taciti_driver_stepped(s.driver, &record) == TACIT_E_USAGE);
    CHECK(taciti_driver_finish(s.driver, 0.1, &record) == TACIT_OK);
    close_stage(&s);
    open_stage(&s, comm, true);
    taciti_driver_begin(s.driver, 0);
    CHECK(taciti_driver_finish(s.driver, 0.1, &record) == TACIT_E_USAGE);
    CHECK(taciti_driver_stepped(s.driver, &record) == TACIT_E_USAGE);
    CHECK(taciti_driver_settle(s.driver, 0.1, &record) == TACIT_OK);
    CHECK(taciti_driver_settle(s.driver, 0.1, &record) == TACIT_E_USAGE);
    CHECK(taciti_driver_stepped(s.driver, &record) == TACIT_OK && record.report.moved > 3.5);
    CHECK(taciti_driver_stepped(s.driver, &record) == TACIT_E_USAGE);
    CHECK(taciti_optim_state_count(taciti_driver_optim(s.driver)) == 0);
    check_calls("create b0 b1 b2 b3 b4 b5 b6 settle stepped ");
    close_stage(&s);
}

static void calls_come_in_order_and_others_are_refused(void **state) {
    test_rank *const ranks[] = {call_in_order, fail_in_ready, misuse};
    const taciti_comm_options options = test_comm_options(false);
    (void)state;
    test_log_keep();
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) test_world_run(1, &options, ranks[i], NULL);
    test_log_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settle_and_stepped_are_finish_to_the_bit),
        cmocka_unit_test(the_order_of_tensors_does_not_matter),
        cmocka_unit_test(an_own_optimizer_is_refused_with_push_sum),
        cmocka_unit_test(a_step_that_is_left_is_skipped_by_all),
        cmocka_unit_test(replicas_that_differ_are_never_asked_to_leave),
        cmocka_unit_test(calls_come_in_order_and_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
