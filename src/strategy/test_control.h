/* SPDX-License-Identifier: Apache-2.0
 *
 * For test_compression_control.c and test_compression_resume.c, included once in each: a controller that follows a
 * script, and a rank that compresses with it. They include <cmocka.h> first.
 */
#ifndef TACITI_STRATEGY_TEST_CONTROL_H
#define TACITI_STRATEGY_TEST_CONTROL_H

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "exchange/test_layout.h"
#include "strategy/compression_state.h"

enum { MAX_STEPS = 64, LAYERS = 9, PERIOD = 5 };
#define TWO_PI 6.283185307179586

/* Widths of 41, 100 and 200, and biases. */
static const size_t SIZES[LAYERS] = {41 * 41, 10, 100 * 41, 100, 41 * 200, 41, 200 * 41, 100 * 100, 10};

/* ---- a controller that does what it is told and notes what it is shown ------------------------------------------- */

typedef struct script_options {
    double factor[2], trial[2]; /* of even and odd steps */
    int64_t period;
    double bucket; /* factor of every bucket; 0: none */
} script_options;

typedef struct script_state {
    int64_t begun, shown;
    taciti_adapt_facts facts[MAX_STEPS];
} script_state;

static inline size_t script_state_bytes(size_t buckets) {
    (void)buckets;
    return sizeof(script_state);
}

static inline void follow(const script_options *o, int64_t step, size_t buckets, taciti_decision *decision,
                          double *factors) {
    const double before = decision->factor;
    *decision = (taciti_decision){.factor = o->factor[step % 2], .trial = o->trial[step % 2]};
    if (before != decision->factor) taciti_decision_explain(decision, "as it is told");
    for (size_t b = 0; b < buckets; b++) factors[b] = o->bucket;
}

static inline void script_start(const void *options, const taciti_adapt_start *start, void *state,
                                taciti_decision *decision, double *factors) {
    ((script_state *)state)->begun++;
    follow(options, 0, start->buckets, decision, factors);
}

static inline void script_decide(const void *options, const taciti_adapt_facts *facts, void *state,
                                 taciti_decision *decision, double *factors) {
    script_state *s = state;
    s->facts[s->shown++ % MAX_STEPS] = *facts;
    follow(options, facts->step + 1, facts->buckets, decision, factors);
}

static inline int64_t script_period(const void *options) { return ((const script_options *)options)->period; }

static const taciti_option SCRIPT_OPTIONS[] = {
    TACITI_OPTION("trial", REAL, offsetof(script_options, trial[1]), "0", .help = "of odd steps"),
};
static const taciti_option_table SCRIPT_TABLE = {.section = "script", .options = SCRIPT_OPTIONS, .count = 1};

static const taciti_controller SCRIPT = {.name = "script",
                                         .options = &SCRIPT_TABLE,
                                         .options_size = sizeof(script_options),
                                         .per_bucket = true,
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

static taciti_exchange_options g_exchange = {.overlap = true};
static int64_t g_total_steps; /* of the run; 0: unknown */

static inline void open_bench(taciti_comm *comm, const taciti_compression_setup *setup, size_t bucket_bytes, bench *b) {
    *b = (bench){.comm = comm, .optim_options = {.name = TACITI_OPTIM_SGD, .lr = .1}, .exchange = g_exchange};
    b->exchange.bucket_bytes = (int64_t)bucket_bytes;
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
                                             .total_steps = g_total_steps,
                                             .gradients = b->g};
    CHECK(taciti_compression_create(&context, &b->c) == TACIT_OK);
}

static inline void close_bench(bench *b) {
    taciti_compression_destroy(b->c);
    taciti_optim_destroy(b->optim);
    taciti_pool_destroy(b->pool);
    taciti_free(b->g);
    taciti_layout_destroy(&b->layout);
}

static inline void exchange_all(bench *b) {
    for (size_t k = 0; k < b->layout.bucket_count; k++) CHECK(taciti_compression_begin(b->c, b->g, k) == TACIT_OK);
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        CHECK(taciti_exchange_wait(taciti_compression_exchange(b->c), k) == TACIT_OK);
}

static inline void settle(bench *b, bool taken) {
    b->report = (taciti_step_report){.wait_ns = 0};
    CHECK(taciti_compression_settle(b->c, taken, .1, 3, &b->report) == TACIT_OK);
}

static const script_state *noted(const bench *b) { return (const script_state *)(const void *)b->c->state; }

static const taciti_adapt_facts *last(const bench *b) { return &noted(b)->facts[(noted(b)->shown - 1) % MAX_STEPS]; }

static inline double normal(uint64_t key, uint64_t i) {
    const double u = taciti_rng_unit(key, 2 * i) + 0x1p-40, v = taciti_rng_unit(key, 2 * i + 1);
    return sqrt(-2 * log(fmin(u, 1))) * cos(TWO_PI * v);
}

/* Layers whose scales are log-normal; the same in every step. */
static inline void fill_layers(bench *b, double sigma) {
    const uint64_t key = taciti_rng_key(11, (uint64_t)taciti_comm_rank(b->comm));
    memset(b->g, 0, b->layout.n * sizeof *b->g);
    for (size_t t = 0; t < b->layout.tensor_count; t++) {
        const taciti_tensor *tensor = &b->layout.tensors[t];
        const double scale = exp(sigma * normal(5, t));
        for (size_t i = 0; i < tensor->n; i++)
            b->g[tensor->offset + i] = (float)(scale * normal(key, tensor->offset + i));
    }
}

static inline void fill_integers(bench *b, int64_t step) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(3, (uint64_t)taciti_comm_rank(b->comm)), (uint64_t)step);
    memset(b->g, 0, b->layout.n * sizeof *b->g);
    for (size_t t = 0; t < b->layout.tensor_count; t++)
        for (size_t i = 0; i < b->layout.tensors[t].n; i++)
            b->g[b->layout.tensors[t].offset + i] =
                (float)taciti_rng_below(key, b->layout.tensors[t].offset + i, 9) - 4;
}

static inline void run_ranks(int ranks, test_rank *rank, void *context) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(ranks, &options, rank, context);
}

/* ---- a script on topk -------------------------------------------------------------------------------------------- */

static taciti_compress_options g_options = {.factor = 10, .feedback = .5, .start = 1};

static inline taciti_compression_setup scripted(const script_options *script) {
    return (taciti_compression_setup){.sums.codec = taciti_codec_find("topk"),
                                      .options = &g_options,
                                      .controller = &SCRIPT,
                                      .controller_options = script};
}

#endif
