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
#include <time.h>

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

int main(void) {
    (void)fill_integers;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trial_scores_what_would_be_sent),
        cmocka_unit_test(what_was_tried_is_sent_with_its_threshold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
