/* SPDX-License-Identifier: Apache-2.0
 *
 * What controllers are shown, and what becomes of what they decide: trials select as the factor that is tried would
 * send; time is the number of steps that were taken; all ranks follow rank 0; residuals keep their decay and find other
 * ranks; and what a controller's state belongs to.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "exchange/test_layout.h"
#include "strategy/compression_state.h"

enum { MAX_RANKS = 5, MAX_STEPS = 64, LAYERS = 9, N_ARRAYS = 5 };
#define TWO_PI 6.283185307179586

/* Widths of 41, 100 and 200, and biases. */
static const size_t SIZES[LAYERS] = {41 * 41, 10, 100 * 41, 100, 41 * 200, 41, 200 * 41, 100 * 100, 10};

/* ---- a controller that does what it is told and notes what it is shown ------------------------------------------- */

typedef struct script_options {
    double factor[2], trial[2]; /* of even and odd steps */
    int64_t period;
    bool histogram;
    double bucket; /* factor of every bucket; 0: none */
} script_options;

typedef struct script_state {
    int64_t begun, shown;
    taciti_adapt_facts facts[MAX_STEPS];
} script_state;

static size_t script_state_bytes(const void *options, size_t buckets) {
    (void)options;
    (void)buckets;
    return sizeof(script_state);
}

static void follow(const script_options *o, int64_t step, size_t buckets, taciti_decision *decision, double *factors) {
    const double before = decision->factor;
    *decision =
        (taciti_decision){.factor = o->factor[step % 2], .trial = o->trial[step % 2], .histogram = o->histogram};
    if (before != decision->factor) taciti_decision_explain(decision, "as it is told");
    for (size_t b = 0; b < buckets; b++) factors[b] = o->bucket;
}

static void script_start(const void *options, const taciti_adapt_start *start, void *state, taciti_decision *decision,
                         double *factors) {
    ((script_state *)state)->begun++;
    follow(options, 0, start->buckets, decision, factors);
}

static void script_decide(const void *options, const taciti_adapt_facts *facts, void *state, taciti_decision *decision,
                          double *factors) {
    script_state *s = state;
    s->facts[s->shown++ % MAX_STEPS] = *facts;
    follow(options, facts->step + 1, facts->buckets, decision, factors);
}

static int64_t script_period(const void *options) { return ((const script_options *)options)->period; }

static const taciti_controller SCRIPT = {.name = "script",
                                         .options_size = sizeof(script_options),
                                         .per_bucket = true,
                                         .observes = true,
                                         .period = script_period,
                                         .state_bytes = script_state_bytes,
                                         .start = script_start,
                                         .decide = script_decide};

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

typedef struct bench {
    taciti_comm *comm;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_optim *optim;
    taciti_optim_options optim_options;
    taciti_exchange_options exchange;
    float *g;
    taciti_compression *c;
    taciti_step_report report;
} bench;

static void open_bench(taciti_comm *comm, const taciti_compression_setup *setup, size_t bucket_bytes, bench *b) {
    *b = (bench){.comm = comm,
                 .optim_options = {.name = TACITI_OPTIM_SGD, .lr = .1},
                 .exchange = {.bucket_bytes = (int64_t)bucket_bytes, .overlap = true}};
    test_layout(SIZES, LAYERS, bucket_bytes, &b->layout);
    CHECK(taciti_pool_create(1, 0, &b->pool) == TACIT_OK);
    CHECK(taciti_optim_create(&b->optim_options, &b->layout, b->pool, &b->optim) == TACIT_OK);
    b->g = taciti_calloc(b->layout.n, sizeof *b->g);
    CHECK(b->g != NULL);
    const taciti_strategy_context context = {.comm = comm,
                                             .layout = &b->layout,
                                             .pool = b->pool,
                                             .optim = b->optim,
                                             .optim_options = &b->optim_options,
                                             .exchange_options = &b->exchange,
                                             .compression = *setup,
                                             .gradients = b->g};
    CHECK(taciti_compression_create(&context, &b->c) == TACIT_OK);
}

static void close_bench(bench *b) {
    taciti_compression_destroy(b->c);
    taciti_optim_destroy(b->optim);
    taciti_pool_destroy(b->pool);
    taciti_free(b->g);
    taciti_layout_destroy(&b->layout);
}

static void exchange_all(bench *b) {
    for (size_t k = 0; k < b->layout.bucket_count; k++) CHECK(taciti_compression_begin(b->c, b->g, k) == TACIT_OK);
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        CHECK(taciti_exchange_wait(taciti_compression_exchange(b->c), k) == TACIT_OK);
}

static void settle(bench *b, bool taken) {
    b->report = (taciti_step_report){.wait_ns = 0};
    CHECK(taciti_compression_settle(b->c, taken, .1, 3, &b->report) == TACIT_OK);
}

static const script_state *noted(const bench *b) { return (const script_state *)(const void *)b->c->state; }

static const taciti_adapt_facts *last(const bench *b) { return &noted(b)->facts[(noted(b)->shown - 1) % MAX_STEPS]; }

static double normal(uint64_t key, uint64_t i) {
    const double u = taciti_rng_unit(key, 2 * i) + 0x1p-40, v = taciti_rng_unit(key, 2 * i + 1);
    return sqrt(-2 * log(fmin(u, 1))) * cos(TWO_PI * v);
}

/* Layers whose scales are log-normal; the same in every step. */
static void fill_layers(bench *b, double sigma) {
    const uint64_t key = taciti_rng_key(11, (uint64_t)taciti_comm_rank(b->comm));
    memset(b->g, 0, b->layout.n * sizeof *b->g);
    for (size_t t = 0; t < b->layout.tensor_count; t++) {
        const taciti_tensor *tensor = &b->layout.tensors[t];
        const double scale = exp(sigma * normal(5, t));
        for (size_t i = 0; i < tensor->n; i++)
            b->g[tensor->offset + i] = (float)(scale * normal(key, tensor->offset + i));
    }
}

static void fill_integers(bench *b, int64_t step) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(3, (uint64_t)taciti_comm_rank(b->comm)), (uint64_t)step);
    memset(b->g, 0, b->layout.n * sizeof *b->g);
    for (size_t t = 0; t < b->layout.tensor_count; t++)
        for (size_t i = 0; i < b->layout.tensors[t].n; i++)
            b->g[b->layout.tensors[t].offset + i] =
                (float)taciti_rng_below(key, b->layout.tensors[t].offset + i, 9) - 4;
}

static void run_ranks(int ranks, test_rank *rank, void *context) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(ranks, &options, rank, context);
}

/* ---- trials ------------------------------------------------------------------------------------------------------ */

typedef struct scoring {
    const char *codec;
    double sigma;
    taciti_compress_scope scope;
    script_options script;
    double sent, trial[2]; /* gains in the last even step that sent, and of the trials of even and odd steps */
} scoring;

static double gain_of(const taciti_codec_tally *tally) { return tally->squares_out / tally->squares_in; }

static void score(taciti_comm *comm, void *context) {
    enum { STEPS = 30 };
    scoring *t = context;
    const taciti_compress_options options = {.factor = 10, .decay = 1, .scope = (int)t->scope, .start = 1};
    const taciti_compression_setup setup = {.codec = taciti_codec_find(t->codec),
                                            .options = &options,
                                            .controller = &SCRIPT,
                                            .controller_options = &t->script};
    bench b;
    open_bench(comm, &setup, 9000, &b);
    for (int64_t step = 0; step < STEPS; step++) {
        fill_layers(&b, t->sigma);
        exchange_all(&b);
        settle(&b, true);
        if (taciti_comm_rank(comm) > 0) continue;
        const taciti_adapt_tally *seen = &last(&b)->model;
        if (step % 2 == 0) t->sent = gain_of(&seen->sent);
        CHECK((t->script.trial[step % 2] > 0) == (seen->trial.n > 0));
        if (seen->trial.n > 0) t->trial[step % 2] = gain_of(&seen->trial);
    }
    close_bench(&b);
}

static scoring scored(int ranks, const scoring *with) {
    scoring t = *with;
    run_ranks(ranks, score, &t);
    return t;
}

static void expect_gain(const scoring *t, const char *what, double gain, double sent) {
    static const double TOLERANCE = 0.01; /* of a threshold that has converged: one element in a hundred */
    if (!(fabs(gain / sent - 1) < TOLERANCE))
        fail_msg("%s, sigma %g, %s: gain of the trial %.4f, of what is sent %.4f", t->codec, t->sigma, what, gain,
                 sent);
}

/* The gain of a trial is the gain of that factor when it is sent: beside another factor, smaller or larger, and in
 * dense steps, which try two factors in turns. */
static void a_trial_scores_what_would_be_sent(void **state) {
    (void)state;
    static const double SIGMAS[] = {0, .5, 1, 1.5};
    static const char *const CODECS[] = {"topk", "topk", "topk", "sketch"};
    for (int i = 0; i < 4; i++)
        for (int ranks = 3; ranks <= 5; ranks += 2) {
            const scoring base = {.codec = CODECS[i], .sigma = SIGMAS[i]};
            scoring t = base;
            t.script = (script_options){.factor = {10, 10}, .trial = {100, 100}};
            const scoring low = scored(ranks, &t);
            t.script = (script_options){.factor = {100, 100}, .trial = {10, 10}};
            const scoring high = scored(ranks, &t);
            t.script = (script_options){.factor = {1, 1}, .trial = {10, 100}};
            const scoring dense = scored(ranks, &t);
            t.script = (script_options){.factor = {10, 10}, .trial = {100, 100}};
            t.scope = TACITI_SCOPE_BUCKET;
            const scoring pieces = scored(ranks, &t);
            expect_gain(&t, "larger than what is sent", low.trial[0], high.sent);
            expect_gain(&t, "smaller than what is sent", high.trial[0], low.sent);
            expect_gain(&t, "dense, first", dense.trial[0], low.sent);
            expect_gain(&t, "dense, second", dense.trial[1], high.sent);
            if (SIGMAS[i] > 0) assert_true(pieces.trial[0] < .95 * low.trial[0]);
        }
}

/* When the factor that was tried is sent, its threshold is known at once, and the other way round. */
static void what_was_tried_is_sent_with_its_threshold(void **state) {
    (void)state;
    scoring t = {.codec = "topk", .sigma = 1, .script = {.factor = {10, 10}, .trial = {100, 100}}};
    const scoring low = scored(3, &t);
    t.script = (script_options){.factor = {10, 100}, .trial = {100, 10}};
    const scoring turns = scored(3, &t);
    expect_gain(&t, "sent in turns", turns.sent, low.sent);
    expect_gain(&t, "tried in turns", turns.trial[0], low.trial[0]);
    expect_gain(&t, "tried in turns", turns.trial[1], low.sent);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

enum { PERIOD = 5, TAKEN = 22 };

typedef struct watching {
    int skipped; /* a step that is not taken before this one; -1: none */
    const char *controller;
    const void *options;
    int64_t period;
    taciti_decision decisions[TAKEN];
    double factors[TAKEN], squares[TAKEN];
} watching;

/* Ranks begin alike and steps have the same gradients; only the skipped one is put in between. */
static void watch(taciti_comm *comm, void *context) {
    watching *t = context;
    const taciti_compress_options options = {.factor = 10, .decay = 1, .feedback = true, .start = 1};
    const script_options script = {.factor = {10, 10}, .period = PERIOD};
    const bool scripted = t->controller == NULL;
    const taciti_compression_setup setup = {.codec = taciti_codec_find("topk"),
                                            .options = &options,
                                            .controller = scripted ? &SCRIPT : taciti_controller_find(t->controller),
                                            .controller_options = scripted ? (const void *)&script : t->options};
    bench b;
    open_bench(comm, &setup, 9000, &b);
    CHECK(taciti_compression_start(b.c, 0, false) == TACIT_OK);
    for (int step = 0; step < TAKEN; step++)
        for (int again = step == t->skipped; again >= 0; again--) {
            fill_integers(&b, step / 7); /* changes now and then */
            exchange_all(&b);
            settle(&b, again == 0);
            if (again > 0 || taciti_comm_rank(comm) > 0) continue;
            t->decisions[step] = b.c->decision;
            t->factors[step] = b.c->factors[0];
            if (scripted) t->squares[step] = last(&b)->model.squares_period;
        }
    close_bench(&b);
}

static void same_decisions(const watching *base) {
    watching whole = *base;
    whole.skipped = -1;
    run_ranks(3, watch, &whole);
    int changes = 0;
    for (int at = 1; at < TAKEN; at++)
        changes += whole.decisions[at].factor != whole.decisions[at - 1].factor ||
                   whole.decisions[at].trial != whole.decisions[at - 1].trial;
    assert_true(changes > 0 || base->controller == NULL);
    for (int skipped = 3; skipped < 11; skipped++) { /* beginnings and ends of periods are among them */
        watching with = *base;
        with.skipped = skipped;
        run_ranks(3, watch, &with);
        for (int at = 0; at < TAKEN; at++) {
            assert_true(with.decisions[at].factor == whole.decisions[at].factor);
            assert_true(with.decisions[at].trial == whole.decisions[at].trial);
            assert_true(with.factors[at] == whole.factors[at] && with.squares[at] == whole.squares[at]);
        }
    }
}

/* A skipped step shifts every decision by one step, and changes none. */
static void time_is_steps_that_were_taken(void **state) {
    (void)state;
    static const struct {
        double low, high, threshold, fall;
        int64_t epoch, every;
    } accordion = {2, 8, .2, .5, PERIOD, 1};
    static const struct {
        double floor, ceiling, epsilon, omega, weight;
        int64_t window;
        int policy, form, average;
    } gravac = {2, 1000, .01, 0, 0, 6, 1, 0, 0};
    assert_int_equal(sizeof accordion, taciti_controller_find("accordion")->options_size);
    assert_int_equal(sizeof gravac, taciti_controller_find("gravac")->options_size);
    same_decisions(&(watching){.controller = NULL});
    same_decisions(&(watching){.controller = "accordion", .options = &accordion});
    same_decisions(&(watching){.controller = "gravac", .options = &gravac});
}

/* |sum over a period|^2 at its last step alone, and every period begins with nothing. */
static void a_period_is_summed_up(void **state) {
    (void)state;
    watching t = {.skipped = -1};
    run_ranks(3, watch, &t);
    for (int at = 0; at < TAKEN; at++) assert_true((t.squares[at] > 0) == (at % PERIOD == PERIOD - 1));
    assert_true(t.squares[4] < 4 * t.squares[9] && t.squares[9] < 4 * t.squares[4]);
    assert_true(t.squares[14] < 4 * t.squares[4] && t.squares[19] < 4 * t.squares[4]);
}

/* ---- facts and decisions ----------------------------------------------------------------------------------------- */

static taciti_compress_options g_options = {.factor = 10, .decay = .5, .feedback = true, .start = 1};

static taciti_compression_setup scripted(const script_options *script) {
    return (taciti_compression_setup){
        .codec = taciti_codec_find("topk"), .options = &g_options, .controller = &SCRIPT, .controller_options = script};
}

/* With compress.decay d the residual r enters the next step as d r. */
static void look_at_facts(taciti_comm *comm, void *context) {
    (void)context;
    const script_options script = {.factor = {10, 10}, .period = 50, .histogram = true};
    const taciti_compression_setup setup = scripted(&script);
    double kept_back = 0;
    bench b;
    open_bench(comm, &setup, 9000, &b);
    for (int64_t step = 0; step < 4; step++) {
        fill_integers(&b, step);
        const int64_t begin_ns = taciti_now_ns();
        exchange_all(&b);
        while (taciti_now_ns() < begin_ns + 4000000) continue;
        settle(&b, true);
        double longest = (double)(taciti_now_ns() - begin_ns) * 1e-9;
        CHECK(taciti_comm_allreduce_f64(comm, &longest, 1, TACITI_OP_MAX) == TACIT_OK);
        const taciti_adapt_facts *facts = last(&b);
        const taciti_codec_tally *sent = &facts->model.sent;
        CHECK(facts->model.squares_total == 9); /* of a sum whose norm is 3 */
        CHECK(facts->step == step && facts->lanes == taciti_comm_size(comm));
        CHECK(fabs(facts->model.squares_residual - .25 * kept_back) <= 1e-9 * sent->squares_in);
        CHECK(step == 0 || facts->seconds.step >= .004); /* the mean of all ranks, not their sum */
        CHECK(facts->seconds.step < .004 * taciti_comm_size(comm) || facts->seconds.step < 1.5 * longest);
        kept_back = sent->squares_in - sent->squares_out;
        CHECK(kept_back > 0);
    }
    close_bench(&b);
}

static void facts_are_those_of_the_step(void **state) {
    (void)state;
    run_ranks(5, look_at_facts, NULL);
}

static void disagree(taciti_comm *comm, void *context) {
    (void)context;
    const int rank = taciti_comm_rank(comm);
    const script_options script = {
        .factor = {10 + rank, 10 + rank}, .trial = {40 + rank, 40 + rank}, .period = 50, .bucket = 20 + rank};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    fill_integers(&b, 0);
    exchange_all(&b);
    settle(&b, true);
    CHECK(b.c->decision.factor == 10 && b.c->decision.trial == 40);
    for (size_t k = 0; k < b.layout.bucket_count; k++) CHECK(b.c->factors[k] == 20);
    close_bench(&b);
}

static void all_ranks_follow_rank_0(void **state) {
    (void)state;
    run_ranks(3, disagree, NULL);
}

static void be_alone(taciti_comm *comm, void *context) {
    (void)context;
    char event[512];
    const script_options script = {.factor = {10, 20}, .trial = {40, 40}, .period = 5};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    CHECK(taciti_compression_start(b.c, 0, false) == TACIT_OK);
    for (int64_t step = 0; step < 3; step++) {
        fill_integers(&b, step);
        CHECK(taciti_compression_is_dense(b.c));
        exchange_all(&b);
        settle(&b, true);
        CHECK(b.report.factor == 1 && b.report.gain == 1 && b.report.kept == 1 && b.report.bytes == 0);
        CHECK(!taciti_compression_event(b.c, event, sizeof event) && noted(&b)->shown == 0);
    }
    close_bench(&b);
}

static void one_rank_is_dense(void **state) {
    (void)state;
    run_ranks(1, be_alone, NULL);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* What `to` lists becomes what `from` lists, as a checkpoint of the same ranks does it. */
static void restore(const bench *from, bench *to) {
    taciti_state a = {.count = 0}, b = {.count = 0};
    taciti_compression_state(from->c, &a);
    taciti_compression_state(to->c, &b);
    for (size_t i = 0; i < b.count; i++) {
        const taciti_state_entry *entry = taciti_state_find(&a, b.entries[i].name);
        if (entry == NULL || entry->n != b.entries[i].n) continue;
        const size_t each = entry->kind == TACITI_STATE_ARRAY     ? sizeof(float)
                            : entry->kind == TACITI_STATE_NUMBERS ? sizeof(double)
                                                                  : 1;
        memcpy(b.entries[i].data, entry->data, entry->kind == TACITI_STATE_COUNT ? sizeof(int64_t) : entry->n * each);
    }
}

static void take_steps(bench *b, int64_t from, int64_t to) {
    for (int64_t step = from; step < to; step++) {
        fill_integers(b, step);
        exchange_all(b);
        settle(b, true);
    }
}

enum { OTHER_NOTHING, OTHER_CODEC, OTHER_CODEC_OPTIONS, OTHER_BUCKETS, OTHER_OPTIONS, NO_IDENTITY, OTHERS };

static void go_on(taciti_comm *comm, void *context) {
    const int other = *(const int *)context;
    script_options script = {.factor = {10, 100}, .trial = {100, 10}, .period = PERIOD}, changed = script;
    changed.trial[1] = 50;
    taciti_compression_setup setup = scripted(&script);
    bench a, b;
    open_bench(comm, &setup, 9000, &a);
    CHECK(taciti_compression_start(a.c, 0, false) == TACIT_OK);
    take_steps(&a, 0, 7);
    if (other == OTHER_CODEC) setup.codec = taciti_codec_find("sketch");
    if (other == OTHER_OPTIONS) setup.controller_options = &changed;
    open_bench(comm, &setup, other == OTHER_BUCKETS ? 12000 : 9000, &b);
    if (other == NO_IDENTITY) memset(a.c->saved_identity, 0, sizeof a.c->saved_identity);
    restore(&a, &b);
    if (other == OTHER_CODEC_OPTIONS) b.c->saved_identity[2] ^= 1;
    CHECK(taciti_compression_start(b.c, 7, true) == TACIT_OK);
    CHECK(noted(&b)->begun == 1 && noted(&b)->shown == (other == OTHER_NOTHING ? 7 : 0));
    CHECK(b.c->taken == noted(&b)->shown && b.c->step == 7);
    for (size_t i = 0; i < b.layout.n && other != OTHER_NOTHING; i++) CHECK(b.c->period_sum[i] == 0);
    if (other == OTHER_NOTHING) {
        take_steps(&a, 7, 15);
        take_steps(&b, 7, 15);
        CHECK(memcmp(a.g, b.g, a.layout.n * sizeof *a.g) == 0);
        CHECK(memcmp(a.c->tried, b.c->tried, sizeof a.c->tried) == 0 && a.c->tried[0].threshold.value > 0);
        CHECK(memcmp(a.c->thresholds, b.c->thresholds, sizeof a.c->thresholds) == 0);
        CHECK(last(&a)->model.squares_period == last(&b)->model.squares_period && last(&a)->model.squares_period > 0);
    }
    close_bench(&a);
    close_bench(&b);
}

/* The same run goes on bit for bit; another one does not take over what the controller has learnt, and says why. */
static void a_controller_goes_on_with_its_own_state(void **state) {
    (void)state;
    static const char *const SAYS[OTHERS] = {"begins anew",       "has another codec",   "other options of the codec",
                                             "has other buckets", "other options of it", "no state of it"};
    for (int other = 0; other < OTHERS; other++) {
        test_log_keep();
        run_ranks(3, go_on, &other);
        const int lines = test_log_count(SAYS[other]), all = test_log_count("begins anew");
        test_log_drop();
        if (lines != (other != OTHER_NOTHING) || all != lines) fail_msg("case %d: %d of %d lines", other, lines, all);
    }
}

/* The state of three ranks, on five. */
static void move_ranks(taciti_comm *comm, void *context) {
    uint64_t *saved = context;
    const script_options script = {.factor = {10, 10}, .period = 50};
    const taciti_compression_setup setup = scripted(&script);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    const bool first = saved[0] == 0;
    if (!first) memcpy(b.c->saved_identity, saved, sizeof b.c->saved_identity);
    CHECK(taciti_compression_start(b.c, first ? 0 : 7, false) == TACIT_OK);
    CHECK(noted(&b)->begun == 1);
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    if (first && taciti_comm_rank(comm) == 0) memcpy(saved, b.c->saved_identity, sizeof b.c->saved_identity);
    close_bench(&b);
}

static void another_number_of_ranks_begins_anew(void **state) {
    (void)state;
    uint64_t saved[TACITI_IDENTITY_PARTS] = {0};
    run_ranks(3, move_ranks, saved);
    test_log_keep();
    run_ranks(5, move_ranks, saved);
    const int lines = test_log_count("another number of ranks");
    test_log_drop();
    assert_int_equal(lines, 1);
}

/* ---- residuals --------------------------------------------------------------------------------------------------- */

static float left(int rank, size_t i) { return (float)((int)(i % 5) + rank); }

/* Residuals that lie where another number of ranks has left them arrive in the next step, whole. */
static void bring_residuals(taciti_comm *comm, void *context) {
    (void)context;
    const script_options script = {.factor = {1, 1}, .period = 50};
    const taciti_compress_options whole = {.factor = 10, .decay = 1, .feedback = true, .start = 1};
    taciti_compression_setup setup = scripted(&script);
    setup.options = &whole;
    const int ranks = taciti_comm_size(comm);
    bench b;
    open_bench(comm, &setup, 9000, &b);
    float *residual = taciti_exchange_residual(taciti_compression_exchange(b.c), TACITI_RESIDUAL_CONTRIBUTION);
    CHECK(residual != NULL);
    for (size_t i = 0; i < b.layout.n; i++)
        residual[i] = test_is_gap(&b.layout, i) ? 0 : left(taciti_comm_rank(comm), i);
    CHECK(taciti_compression_start(b.c, 4, false) == TACIT_OK);
    exchange_all(&b);
    for (size_t i = 0; i < b.layout.n; i++) {
        float sum = 0;
        for (int r = 0; r < ranks; r++) sum += left(r, i);
        CHECK(test_is_gap(&b.layout, i) || b.g[i] == sum);
    }
    close_bench(&b);
}

static void residuals_of_other_ranks_arrive(void **state) {
    (void)state;
    run_ranks(3, bring_residuals, NULL);
    run_ranks(5, bring_residuals, NULL);
}

/* What a codec remembers of positions, and estimates, belong to the ranks and places that made them. */
static void forget(taciti_comm *comm, void *context) {
    const int estimates = *(const int *)context;
    taciti_compress_options options = {.factor = 10, .decay = 1, .start = 1, .estimate = estimates > 0};
    const taciti_compression_setup setup = {.codec = taciti_codec_find(estimates ? "topk" : "sidco"),
                                            .options = &options};
    for (int moved = 0; moved < 3; moved++) {
        bench b;
        size_t bytes = 0, kept = 0;
        open_bench(comm, &setup, 9000, &b);
        taciti_exchange *exchange = taciti_compression_exchange(b.c);
        unsigned char *memory = taciti_exchange_codec_state(exchange, &bytes);
        if (estimates) {
            memory = (unsigned char *)taciti_exchange_residual(exchange, TACITI_RESIDUAL_CONTRIBUTION);
            bytes = b.layout.n * sizeof(float);
        }
        CHECK(memory != NULL && bytes > 0);
        memset(memory, 1, bytes);
        if (moved == 2) b.c->saved_placement++;
        CHECK(taciti_compression_start(b.c, 4, moved != 1) == TACIT_OK);
        for (size_t i = 0; i < bytes; i++) kept += memory[i] == 1;
        CHECK(kept == (moved == 0 ? bytes : 0));
        close_bench(&b);
    }
}

static void positions_are_forgotten(void **state) {
    (void)state;
    for (int estimates = 0; estimates < 2; estimates++) run_ranks(3, forget, &estimates);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trial_scores_what_would_be_sent),
        cmocka_unit_test(what_was_tried_is_sent_with_its_threshold),
        cmocka_unit_test(time_is_steps_that_were_taken),
        cmocka_unit_test(a_period_is_summed_up),
        cmocka_unit_test(facts_are_those_of_the_step),
        cmocka_unit_test(all_ranks_follow_rank_0),
        cmocka_unit_test(one_rank_is_dense),
        cmocka_unit_test(a_controller_goes_on_with_its_own_state),
        cmocka_unit_test(another_number_of_ranks_begins_anew),
        cmocka_unit_test(residuals_of_other_ranks_arrive),
        cmocka_unit_test(positions_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
