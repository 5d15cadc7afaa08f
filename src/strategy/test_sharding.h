/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of strategy shard: runs of a network that asks for units as a transformer does, and finds in every one what
 * a run before has left there after the same step. Define _DEFAULT_SOURCE and include cmocka first.
 */
#ifndef TACITI_STRATEGY_TEST_SHARDING_H
#define TACITI_STRATEGY_TEST_SHARDING_H

#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "exchange/test_wire.h"
#include "strategy/shard.h"
#include "strategy/test_replicas.h"

enum { MAX_RANKS = 7, STEPS = 4, MAX_STEPS = 24, BAD_STEP = 2, TENSORS = 7, UNITS = 5, PAGE = 4096 };

typedef struct trial {
    int ranks, stage, gather;
    size_t passes;
    bool blocking, no_thread, whole; /* whole: ordinary arrays, and a network that does not ask for units */
    bool evaluates;                  /* a forward pass alone between the steps */
    int wire, bad_rank;              /* -1: none */
    float bad;
    taciti_optim_options optim;
    taciti_compression_setup compression;
    taciti_compress_options compress; /* of it */
    bool ends_at_rest;                /* the learning rate of the steps after the first two is 0 */
    int steps;
    const int *hosts; /* of the ranks; NULL: all on one, and dp is flat. Otherwise dp sums by hosts */
    int over;
    bool secondary;
    unsigned plain; /* bit u: the tensors of unit u are not compressed */

    /* what came of it; path: after every step, of rank 0 */
    float *parameters[MAX_RANKS], *path[MAX_STEPS];
    taciti_step_report reports[MAX_RANKS][MAX_STEPS];
    uint64_t sent[MAX_RANKS], away[MAX_RANKS];             /* in the whole run */
    uint64_t per_step[MAX_RANKS], nic_per_step[MAX_RANKS]; /* what the strategy says */
    const struct trial *expected; /* its path is what needs must find; NULL: anything; itself: no path is recorded */
    size_t n;
} trial;

/* Sizes below the number of ranks, of several pages, of one float more than a line. */
static inline void make_layout(bool units, unsigned plain, taciti_layout *out) {
    static const size_t SIZES[TENSORS] = {17, 5, 9000, 33, 7000, 1, 12000};
    static const size_t UNIT[TENSORS] = {0, 0, 1, 1, 2, 3, 4};
    CHECK(taciti_layout_create(TENSORS, out) == TACIT_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        const char name[2] = {(char)('a' + (int)i), 0};
        if (i > 0 && UNIT[i] != UNIT[i - 1]) taciti_layout_next_unit(out);
        CHECK(taciti_layout_append(out, name, 1, &SIZES[i], i % 2 == 0) == TACIT_OK);
    }
    for (size_t i = 0; i < TENSORS; i++) out->tensors[i].plain = plain >> UNIT[i] & 1;
    out->tensors[TENSORS - 1].early = true;
    CHECK((units ? taciti_layout_seal_units : taciti_layout_seal)(out, units ? 20000 : 30000) == TACIT_OK);
}

static inline float number(uint64_t a, uint64_t b, uint64_t c, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(taciti_rng_key(11, a), b), c);
    return (float)(taciti_rng_unit(key, i) - 0.5);
}

/* One rank of a run. */
typedef struct seat {
    trial *t;
    taciti_comm *comm;
    int rank, step;
    taciti_layout layout;
    taciti_pages parameter_pages, gradient_pages, copy_pages;
    float *p, *g;
    taciti_bf16 *copy;
    const taciti_strategy *strategy;
    void *self;
    taciti_readiness readiness;
} seat;

/* ---- the network ------------------------------------------------------------------------------------------------- */

static inline void full(void *context, size_t bucket) {
    const seat *s = context;
    if (s->strategy->ready != NULL) CHECK(s->strategy->ready(s->self, bucket) == TACIT_OK);
}

static inline void add_gradient(const seat *s, size_t unit, size_t pass) {
    for (size_t a = 0; a < s->layout.tensor_count; a++) {
        const taciti_tensor *t = &s->layout.tensors[a];
        for (size_t i = t->offset; t->unit == unit && i < t->offset + t->n; i++) {
            const float g = number((uint64_t)s->rank, (uint64_t)s->step, pass, i);
            s->g[i] = pass == 0 ? g : s->g[i] + g;
        }
    }
    const taciti_range r = taciti_layout_unit(&s->layout, unit);
    if (s->rank == s->t->bad_rank && s->step == BAD_STEP && unit == UNITS - 1) s->g[r.at + r.n - 20] = s->t->bad;
}

static inline void report(seat *s, size_t unit) {
    for (size_t a = 0; a < s->layout.tensor_count; a++)
        if (s->layout.tensors[a].unit == unit) taciti_readiness_mark(&s->readiness, a, full, s);
}

static inline bool asks(const seat *s) { return s->strategy->need != NULL && !s->t->whole; }

/* Resident bytes of a region. */
static inline size_t resident(const taciti_pages *pages) {
    unsigned char in_memory[64];
    size_t bytes = 0;
    const size_t count = (pages->bytes + PAGE - 1) / PAGE;
    CHECK(count <= sizeof in_memory && mincore(pages->base, count * PAGE, in_memory) == 0);
    for (size_t i = 0; i < count; i++) bytes += in_memory[i] & 1 ? PAGE : 0;
    return bytes;
}

static inline taciti_shard_options options_of(const trial *t) {
    return (taciti_shard_options){t->stage, t->gather, t->over, t->secondary};
}

/* What is predicted, up to the pages at the edges of parts and units. */
static inline void check_memory(const seat *s) {
    const taciti_shard_options options = options_of(s->t);
    const taciti_exchange_options exchange = {.scheme = TACITI_SCHEME_AUTO};
    const taciti_strategy_context c = {.comm = s->comm,
                                       .layout = &s->layout,
                                       .options = &options,
                                       .exchange_options = &exchange,
                                       .optim_options = &s->t->optim};
    const size_t edges = (2 * s->layout.bucket_count + UNITS) * PAGE;
    taciti_strategy_memory memory;
    s->strategy->memory(&c, s->t->passes, &memory);
    CHECK(resident(&s->parameter_pages) + resident(&s->gradient_pages) <=
          memory.parameters + memory.gradients + 2 * edges);
}

static inline void need(const seat *s, size_t unit) {
    if (!asks(s)) return;
    CHECK(s->strategy->need(s->self, unit) == TACIT_OK);
    const taciti_range r = taciti_layout_unit(&s->layout, unit);
    const bool compares = s->t->expected != NULL && s->t->expected != s->t && s->step > 0;
    const float *expected = compares ? s->t->expected->path[s->step - 1] : NULL;
    CHECK(expected == NULL || memcmp(s->p + r.at, expected + r.at, r.n * sizeof *expected) == 0);
    for (size_t i = r.at; i < r.at + r.n; i++) {
        taciti_bf16 rounded;
        taciti_kernels_get()->bf16_encode(&rounded, &s->p[i], 1);
        CHECK(memcmp(&s->copy[i], &rounded, sizeof rounded) == 0);
    }
    check_memory(s);
}

static inline void release(const seat *s, size_t unit) {
    if (asks(s)) s->strategy->release(s->self, unit);
}

static inline void write_unit(const seat *s, size_t unit) {
    if (asks(s)) CHECK(s->strategy->write(s->self, unit) == TACIT_OK);
}

static inline void forward(const seat *s) {
    need(s, UNITS - 1);
    for (size_t u = UNITS - 1; u-- > 0;) {
        need(s, u);
        release(s, u + 1);
    }
    need(s, UNITS - 1); /* a tied head */
}

static inline void pass(seat *s, size_t index) {
    forward(s);
    write_unit(s, UNITS - 1);
    release(s, UNITS - 1);
    for (size_t u = 0; u < UNITS; u++) {
        if (u > 0 && u < UNITS - 1) need(s, u);
        write_unit(s, u);
        if (u + 1 < UNITS) write_unit(s, u + 1);
        add_gradient(s, u, index);
        if (index + 1 == s->t->passes) report(s, u);
        if (u < UNITS - 1) release(s, u);
    }
}

static inline void evaluate(const seat *s) {
    forward(s);
    release(s, UNITS - 1);
    release(s, 0);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static inline void open_arrays(seat *s) {
    const size_t n = s->layout.n;
    tacit_status (*make)(size_t, const char *, taciti_pages *) =
        asks(s) ? taciti_pages_reserve : taciti_pages_create_small;
    CHECK(make(n * sizeof(float), "parameters", &s->parameter_pages) == TACIT_OK);
    CHECK(make(n * sizeof(float), "gradients", &s->gradient_pages) == TACIT_OK);
    CHECK(make(n * sizeof(taciti_bf16), "copy", &s->copy_pages) == TACIT_OK);
    s->p = s->parameter_pages.base;
    s->g = s->gradient_pages.base;
    s->copy = s->copy_pages.base;
}

/* The same on all ranks. */
static inline void initialise(const seat *s) {
    for (size_t u = 0; u < UNITS; u++) {
        if (asks(s)) CHECK(s->strategy->need(s->self, u) == TACIT_OK);
        for (size_t a = 0; a < TENSORS; a++) {
            const taciti_tensor *t = &s->layout.tensors[a];
            for (size_t i = t->offset; t->unit == u && i < t->offset + t->n; i++) s->p[i] = number(99, 99, 99, i);
        }
        if (asks(s)) s->strategy->release(s->self, u);
    }
}

static inline float *copy_parameters(const seat *s) {
    float *out = taciti_calloc(s->layout.n, sizeof *out);
    for (size_t u = UNITS; u-- > 0;) {
        const taciti_range r = taciti_layout_unit(&s->layout, u);
        if (asks(s)) CHECK(s->strategy->need(s->self, u) == TACIT_OK);
        memcpy(out + r.at, s->p + r.at, r.n * sizeof *out);
        release(s, u);
    }
    return out;
}

static inline void step(seat *s) {
    taciti_readiness_reset(&s->readiness);
    for (size_t p = 0; p < s->t->passes; p++) pass(s, p);
    CHECK(s->strategy->finish(s->self, s->t->ends_at_rest && s->step > 1 ? 0 : 0.01,
                              &s->t->reports[s->rank][s->step]) == TACIT_OK);
}

static inline void run_rank(taciti_comm *comm, void *context) {
    trial *t = context;
    seat s = {.t = t, .comm = comm, .rank = taciti_comm_rank(comm)};
    taciti_pool *pool = NULL;
    taciti_optim *optim = NULL;
    s.strategy = taciti_strategy_find(t->stage == 0 ? "dp" : "shard");
    make_layout(t->stage > 0, t->plain, &s.layout);
    CHECK(taciti_pool_create(1, 0, &pool) == TACIT_OK);
    CHECK((s.strategy->parts ? taciti_optim_create_parts : taciti_optim_create)(&t->optim, &s.layout, pool, &optim) ==
          TACIT_OK);
    open_arrays(&s);
    const taciti_shard_options options = options_of(t);
    const int dp_scheme = t->hosts == NULL ? TACITI_SCHEME_FLAT : TACITI_SCHEME_HOSTS;
    const taciti_exchange_options exchange = {
        .overlap = !t->blocking, .wire = test_wire(t->wire), .scheme = t->stage == 0 ? dp_scheme : TACITI_SCHEME_AUTO};
    const bool pages = asks(&s);
    const taciti_strategy_context c = {.comm = comm,
                                       .layout = &s.layout,
                                       .pool = pool,
                                       .optim = optim,
                                       .optim_options = &t->optim,
                                       .exchange_options = &exchange,
                                       .compression = t->compression,
                                       .options = &options,
                                       .parameters = s.p,
                                       .gradients = s.g,
                                       .copy16 = s.copy,
                                       .parameter_pages = pages ? &s.parameter_pages : NULL,
                                       .gradient_pages = pages ? &s.gradient_pages : NULL,
                                       .copy16_pages = pages ? &s.copy_pages : NULL,
                                       .by_units = pages};
    CHECK(s.strategy->create(&c, &s.self) == TACIT_OK);
    CHECK(taciti_readiness_create(&s.layout, &s.readiness) == TACIT_OK);
    initialise(&s);
    CHECK(s.strategy->start(s.self, 0, false) == TACIT_OK);
    for (; s.step < t->steps; s.step++) {
        step(&s);
        if (s.rank == 0 && t->expected == NULL) t->path[s.step] = copy_parameters(&s);
        if (t->expected == NULL && s.rank > 0 && asks(&s)) taciti_free(copy_parameters(&s));
        s.step++;
        if (t->evaluates) evaluate(&s);
        if (t->evaluates) evaluate(&s);
        s.step--;
    }
    t->parameters[s.rank] = copy_parameters(&s);
    if (s.rank == 0) t->n = s.layout.n;
    t->per_step[s.rank] = s.strategy->bytes_per_step(s.self);
    t->nic_per_step[s.rank] = s.strategy->nic_bytes_per_step(s.self);
    s.strategy->destroy(s.self); /* waits for what is under way */
    t->sent[s.rank] = taciti_comm_count(comm).bytes_sent;
    t->away[s.rank] = taciti_comm_count(comm).away_bytes_sent;
    taciti_readiness_destroy(&s.readiness);
    taciti_optim_destroy(optim);
    taciti_pool_destroy(pool);
    taciti_pages_destroy(&s.parameter_pages);
    taciti_pages_destroy(&s.gradient_pages);
    taciti_pages_destroy(&s.copy_pages);
    taciti_layout_destroy(&s.layout);
}

static inline trial trial_of(int ranks, int stage) {
    return (trial){
        .ranks = ranks,
        .stage = stage,
        .passes = 1,
        .steps = STEPS,
        .bad_rank = -1,
        .optim = {
            .name = TACITI_OPTIM_ADAMW, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}};
}

static inline void play(trial *t) {
    const taciti_comm_options options = test_comm_options(!t->no_thread);
    test_hosts(t->hosts);
    test_world_run(t->ranks, &options, run_rank, t);
    test_hosts(NULL);
}

static inline void forget(trial *t) {
    for (int r = 0; r < t->ranks; r++) taciti_free(t->parameters[r]);
    for (int s = 0; s < t->steps; s++) taciti_free(t->path[s]);
}

static const int RANKS[] = {1, 2, 3, 5, 6, 7};
enum { RANK_COUNT = sizeof RANKS / sizeof *RANKS };

/* Plays `t`, which must find what `reference` found, and end there. */
static inline void agrees(trial *t, const trial *reference) {
    t->expected = reference;
    play(t);
    for (int r = 0; r < t->ranks; r++) {
        assert_memory_equal(t->parameters[r], reference->parameters[0], t->n * sizeof(float));
        for (int s = 0; s < t->steps; s++) {
            const double found = t->reports[r][s].grad_norm, expected = reference->reports[0][s].grad_norm;
            assert_true(t->reports[r][s].skipped == reference->reports[0][s].skipped);
            assert_true(t->reports[r][s].skipped || fabs(found - expected) <= 1e-12 * expected);
        }
    }
    forget(t);
}

#endif
