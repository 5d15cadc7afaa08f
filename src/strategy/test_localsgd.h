/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of localsgd on several ranks of one process, for its tests. Include after cmocka.h.
 */
#ifndef TACITI_STRATEGY_TEST_LOCALSGD_H
#define TACITI_STRATEGY_TEST_LOCALSGD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "strategy/localsgd.h"
#include "strategy/test_replicas.h"

enum { MAX_RANKS = 8, STEPS = 7, NOBODY = -1 };
static const int RANKS[] = {1, 2, 3, 5, 8};
enum { RANK_COUNTS = sizeof RANKS / sizeof *RANKS };

/* Dyadic: small integers, of which sums are exact. Reals: rounded everywhere. Alike: reals, the same on every rank. */
enum { DYADIC, REALS, ALIKE };

/* The settings of a run and the results of every rank. */
typedef struct trial {
    const char *strategy;
    int data, steps, threads;
    taciti_exchange_options exchange;
    taciti_localsgd_options local;
    taciti_optim_options optim;
    int bad_rank, bad_step; /* its gradient of bad_step is not finite, or, when bad is 0, all zeros */
    float bad;
    int stop_after;   /* everything is saved, destroyed, created again and restored after this step; 0: never */
    bool forget;      /* ... but for what the strategy had to say: as on another number of ranks */
    double then_lr;   /* localsgd.outer_lr from then on; 0: the same */
    bool emulated;    /* the optimizer leaves all elements alone */
    bool check_bytes; /* of every step */
    taciti_compression_setup compression;
    float constant; /* every element of every gradient; 0: as data says */
    float *parameters[MAX_RANKS];
    double distances[MAX_RANKS][STEPS]; /* consensus distance after each step */
    taciti_step_report reports[MAX_RANKS][STEPS];
    size_t n;
} trial;

static inline trial trial_of(int data, int optim_name, int64_t every) {
    return (trial){.strategy = "localsgd",
                   .data = data,
                   .steps = STEPS,
                   .threads = 1,
                   .exchange = {.bucket_bytes = 4096, .overlap = true},
                   .local = {.every = every, .outer_lr = 1},
                   .optim = {.name = optim_name, .lr = 0.0625, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
                   .bad_rank = NOBODY};
}

static inline trial diloco_of(int data, int64_t every) {
    trial t = trial_of(data, TACITI_OPTIM_SGD, every);
    t.local.outer_lr = 0.7;
    t.local.outer_momentum = 0.9;
    return t;
}

static inline float gradient(const trial *t, int rank, int step, size_t i) {
    if (t->constant > 0) return t->constant;
    const uint64_t stream = t->data == ALIKE ? 0 : (uint64_t)rank;
    const uint64_t key = taciti_rng_key(taciti_rng_key(3, stream), (uint64_t)step);
    const float integer = (float)((int)taciti_rng_below(key, i, 9) - 4);
    return t->data == DYADIC ? integer : integer / 7 + (float)(i % 11) / 97;
}

static inline float start_value(const trial *t, size_t i) {
    const float integer = (float)(i % 17) - 8;
    return t->data == DYADIC ? integer : integer / 13;
}

static const size_t SIZES[TEST_TENSORS] = {3000, 17, 900};

static inline void backward(const trial *t, const taciti_layout *layout, int rank, int step, float *g) {
    memset(g, 0, layout->n * sizeof *g);
    const bool bad = rank == t->bad_rank && step == t->bad_step;
    for (size_t a = 0; a < layout->tensor_count; a++)
        for (size_t i = layout->tensors[a].offset; i < layout->tensors[a].offset + layout->tensors[a].n; i++)
            g[i] = bad && t->bad == 0 ? 0 : gradient(t, rank, step, i);
    if (bad && t->bad != 0) g[layout->n / 2] = t->bad;
}

/* One rank's objects. */
typedef struct worker {
    trial *t;
    taciti_comm *comm;
    int rank;
    taciti_localsgd_options local;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_optim *optim;
    float *p, *g;
    taciti_bf16 *copy;
    const taciti_strategy *strategy;
    void *self;
    taciti_strategy_figures figures;
} worker;

static inline void open_worker(worker *w) {
    trial *t = w->t;
    CHECK(taciti_pool_create(t->threads, 0, &w->pool) == TACIT_OK);
    CHECK((t->emulated ? test_idle_optimizer(&w->layout, &w->optim)
                       : taciti_optim_create(&t->optim, &w->layout, w->pool, &w->optim)) == TACIT_OK);
    w->p = taciti_calloc(w->layout.n, sizeof *w->p);
    w->g = taciti_calloc(w->layout.n, sizeof *w->g);
    w->copy = taciti_calloc(w->layout.n, sizeof *w->copy);
    const taciti_strategy_context c = {.comm = w->comm,
                                       .layout = &w->layout,
                                       .pool = w->pool,
                                       .optim = w->optim,
                                       .optim_options = &t->optim,
                                       .exchange_options = &t->exchange,
                                       .compression = t->compression,
                                       .options = &w->local,
                                       .parameters = w->p,
                                       .gradients = w->g,
                                       .copy16 = w->copy};
    taciti_strategy_figures figures;
    CHECK(w->strategy->describe(&c, NULL, &figures) == TACIT_OK && figures.own_bytes < (size_t)1 << 24);
    CHECK(w->strategy->create(&c, &w->self) == TACIT_OK);
    CHECK(w->strategy->describe(&c, w->self, &w->figures) == TACIT_OK);
    CHECK(w->figures.own_bytes == figures.own_bytes && w->figures.period == figures.period);
}

static inline void close_worker(worker *w) {
    w->strategy->destroy(w->self);
    taciti_optim_destroy(w->optim);
    taciti_pool_destroy(w->pool);
    taciti_free(w->p);
    taciti_free(w->g);
    taciti_free(w->copy);
}

static inline void start(worker *w, int64_t step, bool restored) {
    taciti_kernels_get()->bf16_encode(w->copy, w->p, w->layout.n);
    if (w->strategy->start != NULL) CHECK(w->strategy->start(w->self, step, restored) == TACIT_OK);
}

static inline float *copy_of(const float *flat, size_t n) {
    float *copy = taciti_calloc(n, sizeof *copy);
    memcpy(copy, flat, n * sizeof *copy);
    return copy;
}

static inline taciti_state state_of(const worker *w) {
    taciti_state state = {.count = 0};
    w->strategy->state(w->self, &state);
    return state;
}

static inline size_t bytes_of(const taciti_state_entry *entry) {
    if (entry->kind == TACITI_STATE_COUNT) return sizeof(int64_t);
    return entry->n * (entry->kind == TACITI_STATE_ARRAY ? sizeof(float) : sizeof(double));
}

/* Saves what a checkpoint holds of this rank, creates everything again and restores it. forget: only what does not
 * belong to the strategy. */
static inline void stop_and_go_on(worker *w, int step) {
    void *saved[TACITI_STATE_MAX_ENTRIES];
    const taciti_state before = state_of(w);
    for (size_t i = 0; i < before.count; i++) {
        saved[i] = taciti_calloc(1, bytes_of(&before.entries[i]));
        memcpy(saved[i], before.entries[i].data, bytes_of(&before.entries[i]));
    }
    close_worker(w);
    if (w->t->then_lr > 0) w->local.outer_lr = w->t->then_lr;
    open_worker(w);
    const taciti_state after = state_of(w);
    CHECK(after.count == before.count);
    for (size_t i = 0; i < after.count; i++) {
        const taciti_state_entry *entry = &after.entries[i];
        CHECK(strcmp(entry->name, before.entries[i].name) == 0);
        if (!w->t->forget || entry->regroup != TACITI_STATE_RESET) memcpy(entry->data, saved[i], bytes_of(entry));
        taciti_free(saved[i]);
    }
    start(w, step, !w->t->forget);
}

/* Nothing in the steps of a rank's own, and in an outer step what the formula says a period sends. */
static inline void check_bytes(const worker *w, int step, taciti_comm_counters before) {
    const taciti_comm_counters after = taciti_comm_count(w->comm);
    const uint64_t sent = after.bytes_sent - before.bytes_sent;
    const uint64_t every = (uint64_t)w->t->local.every;
    if (((uint64_t)step + 1) % every != 0) {
        CHECK(sent == 0);
        return;
    }
    CHECK((sent + every / 2) / every == w->figures.sent_bytes);
    CHECK(test_sends_as_planned(w->comm, &w->layout, &w->t->exchange, after.away_bytes_sent - before.away_bytes_sent));
}

static inline void check_copy(const worker *w) {
    taciti_bf16 *expected = taciti_calloc(w->layout.n, sizeof *expected);
    taciti_kernels_get()->bf16_encode(expected, w->p, w->layout.n);
    CHECK(memcmp(w->copy, expected, w->layout.n * sizeof *expected) == 0);
    taciti_free(expected);
}

static inline void take_step(worker *w, int step) {
    const taciti_comm_counters before = taciti_comm_count(w->comm);
    backward(w->t, &w->layout, w->rank, step, w->g);
    for (size_t b = 0; w->strategy->ready != NULL && b < w->layout.bucket_count; b++)
        CHECK(w->strategy->ready(w->self, b) == TACIT_OK);
    CHECK(w->strategy->finish(w->self, w->t->optim.lr, &w->t->reports[w->rank][step]) == TACIT_OK);
    CHECK(w->t->reports[w->rank][step].wait_ns >= 0);
    if (w->t->check_bytes) check_bytes(w, step, before);
    check_copy(w);
}

/* The average is taken back to the bit, and copy16 follows both ways. */
static inline void look_at_the_average(worker *w, int step) {
    const size_t n = w->layout.n;
    float *own = copy_of(w->p, n);
    double *distance = &w->t->distances[w->rank][step];
    CHECK(w->strategy->replicas->average(w->self, distance) == TACIT_OK);
    check_copy(w);
    if (*distance == 0) CHECK(memcmp(w->p, own, n * sizeof *own) == 0);
    w->strategy->replicas->revert(w->self);
    CHECK(memcmp(w->p, own, n * sizeof *own) == 0);
    check_copy(w);
    taciti_free(own);
}

static inline void train(taciti_comm *comm, void *context) {
    worker w = {.t = context, .comm = comm, .rank = taciti_comm_rank(comm)};
    trial *t = w.t;
    w.strategy = taciti_strategy_find(t->strategy);
    w.local = t->local;
    test_make_layout(SIZES, TEST_TENSORS, 4096, &w.layout);
    open_worker(&w);
    for (size_t a = 0; a < w.layout.tensor_count; a++)
        for (size_t i = w.layout.tensors[a].offset; i < w.layout.tensors[a].offset + w.layout.tensors[a].n; i++)
            w.p[i] = start_value(t, i);
    start(&w, 0, false);
    for (int step = 0; step < t->steps; step++) {
        take_step(&w, step);
        if (w.strategy->replicas != NULL && !t->emulated) look_at_the_average(&w, step);
        if (t->stop_after == step + 1) stop_and_go_on(&w, step + 1);
    }
    t->parameters[w.rank] = copy_of(w.p, w.layout.n);
    if (w.rank == 0) t->n = w.layout.n;
    close_worker(&w);
    taciti_layout_destroy(&w.layout);
}

static inline void play(trial *t, int ranks) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(ranks, &options, train, t);
}

static inline void play_both(trial *a, trial *b, int ranks) { play(a, ranks), play(b, ranks); }

static inline void forget(trial *t, int ranks) {
    for (int r = 0; r < ranks; r++) taciti_free(t->parameters[r]);
}

static inline void forget_both(trial *a, trial *b, int ranks) { forget(a, ranks), forget(b, ranks); }

static inline void assert_same(const trial *a, const trial *b, int ranks) {
    assert_int_equal(a->n, b->n);
    for (int r = 0; r < ranks; r++) assert_memory_equal(a->parameters[r], b->parameters[r], a->n * sizeof(float));
}

static inline void assert_replicas_equal(const trial *t, int ranks) {
    for (int r = 1; r < ranks; r++) assert_memory_equal(t->parameters[r], t->parameters[0], t->n * sizeof(float));
}

#endif
