/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of strategy shard: runs of a network that asks for units as a transformer does, and finds in every one what
 * a run before has left there after the same step. Include cmocka first.
 */
#ifndef TACITI_STRATEGY_TEST_SHARDING_H
#define TACITI_STRATEGY_TEST_SHARDING_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "exchange/demand.h"
#include "exchange/test_wire.h"
#include "strategy/shard.h"
#include "strategy/test_replicas.h"

enum { MAX_RANKS = 7, STEPS = 4, MAX_STEPS = 24, BAD_STEP = 2, TENSORS = 7, UNITS = 5, MAX_UNIT = 12032 };

typedef struct trial {
    int ranks, stage, gather;
    size_t passes;
    bool blocking, no_thread, whole; /* whole: ordinary arrays, and a network that does not ask for units */
    bool evaluates;                  /* a forward pass alone between the steps */
    bool strays;                     /* between the steps units are asked for in an order of their own */
    int stops_after;                 /* the step after which all is created again from a checkpoint; 0: never */
    bool scattered;                  /* the checkpoint is of other ranks: what they do not own is not in it */
    enum { NUMBERS, MEANS, QUANTA } gradients; /* 1 / ranks; -7, 0 or 7, and 0 on all but the first rank of a host */
    int wire, bad_rank;                        /* -1: none */
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
    uint64_t sent[MAX_RANKS], away[MAX_RANKS]; /* in the whole run */
    uint64_t per_step[MAX_RANKS];              /* what the strategy says */
    double planned, transfers;    /* bytes of a step on the busiest host's link, and how many transfers they are */
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

static inline uint64_t key_of(uint64_t a, uint64_t b, uint64_t c) {
    return taciti_rng_key(taciti_rng_key(taciti_rng_key(11, a), b), c);
}

static inline float number(uint64_t key, size_t i) { return (float)(taciti_rng_unit(key, i) - 0.5); }

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
    taciti_pool *pool;
    taciti_optim *optim;
    taciti_exchange_options exchange; /* what the strategy borrows, with the options */
    taciti_shard_options options;
    taciti_strategy_context context;
} seat;

/* ---- the network ------------------------------------------------------------------------------------------------- */

static inline void full(void *context, size_t bucket) {
    const seat *s = context;
    if (s->strategy->ready != NULL) CHECK(s->strategy->ready(s->self, bucket) == TACIT_OK);
}

static inline bool is_first_of_host(const seat *s) {
    for (int r = 0; r < s->rank; r++)
        if (s->t->hosts[r] == s->t->hosts[s->rank]) return false;
    return true;
}

static inline float gradient(const seat *s, uint64_t key, size_t i) {
    if (s->t->gradients == MEANS) return 1 / (float)s->t->ranks;
    if (s->t->gradients == QUANTA) return is_first_of_host(s) ? (float)(7 * ((int)taciti_rng_below(key, i, 3) - 1)) : 0;
    return number(key, i);
}

static inline void add_gradient(const seat *s, size_t unit, size_t pass) {
    const uint64_t key = key_of((uint64_t)s->rank, (uint64_t)s->step, pass);
    for (size_t a = 0; a < s->layout.tensor_count; a++) {
        const taciti_tensor *t = &s->layout.tensors[a];
        for (size_t i = t->offset; t->unit == unit && i < t->offset + t->n; i++) {
            const float g = gradient(s, key, i);
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

static inline bool asks(const seat *s) { return s->strategy->units != NULL && !s->t->whole; }

static inline taciti_shard_options options_of(const trial *t) {
    return (taciti_shard_options){t->stage, t->gather, t->over, t->secondary};
}

static inline void need(const seat *s, size_t unit) {
    if (!asks(s)) return;
    CHECK(s->strategy->units->need(s->self, unit) == TACIT_OK);
    const taciti_range r = taciti_layout_unit(&s->layout, unit);
    const bool compares = s->t->expected != NULL && s->t->expected != s->t && s->step > 0;
    const float *expected = compares ? s->t->expected->path[s->step - 1] : NULL;
    CHECK(expected == NULL || memcmp(s->p + r.at, expected + r.at, r.n * sizeof *expected) == 0);
    taciti_bf16 rounded[MAX_UNIT];
    CHECK(r.n <= MAX_UNIT);
    taciti_kernels_get()->bf16_encode(rounded, s->p + r.at, r.n);
    CHECK(memcmp(s->copy + r.at, rounded, r.n * sizeof *rounded) == 0);
}

static inline void release(const seat *s, size_t unit) {
    if (asks(s)) s->strategy->units->release(s->self, unit);
}

static inline void write_unit(const seat *s, size_t unit) {
    if (asks(s)) CHECK(s->strategy->units->write(s->self, unit) == TACIT_OK);
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
    const uint64_t key = key_of(99, 99, 99);
    for (size_t u = 0; u < UNITS; u++) {
        if (asks(s)) CHECK(s->strategy->units->need(s->self, u) == TACIT_OK);
        for (size_t a = 0; a < TENSORS; a++) {
            const taciti_tensor *t = &s->layout.tensors[a];
            for (size_t i = t->offset; t->unit == u && i < t->offset + t->n; i++) s->p[i] = number(key, i);
        }
        if (asks(s)) s->strategy->units->release(s->self, u);
    }
}

static inline float *copy_parameters(const seat *s) {
    float *out = taciti_calloc(s->layout.n, sizeof *out);
    for (size_t u = UNITS; u-- > 0;) {
        const taciti_range r = taciti_layout_unit(&s->layout, u);
        if (asks(s)) CHECK(s->strategy->units->need(s->self, u) == TACIT_OK);
        memcpy(out + r.at, s->p + r.at, r.n * sizeof *out);
        release(s, u);
    }
    return out;
}

/* Unit 2 is fetched ahead, as it follows unit 1 in the second pass; room for unit 4 must come from it and not from unit
 * 1, which is in use. */
static inline void stray(const seat *s) {
    need(s, 1);
    release(s, 1);
    need(s, 1);
    need(s, UNITS - 1);
    need(s, 1); /* looks at it again */
    release(s, 1);
    release(s, 1);
    release(s, UNITS - 1);
}

static inline void step(seat *s) {
    taciti_readiness_reset(&s->readiness);
    for (size_t p = 0; p < s->t->passes; p++) pass(s, p);
    CHECK(s->strategy->finish(s->self, s->t->ends_at_rest && s->step > 1 ? 0 : 0.01,
                              &s->t->reports[s->rank][s->step]) == TACIT_OK);
    CHECK(s->t->reports[s->rank][s->step].wait_ns >= 0);
}

static inline void open_strategy(seat *s) {
    const trial *t = s->t;
    const int dp_scheme = t->hosts == NULL ? TACITI_SCHEME_FLAT : TACITI_SCHEME_HOSTS;
    const bool pages = asks(s);
    s->exchange = (taciti_exchange_options){
        .overlap = !t->blocking, .wire = test_wire(t->wire), .scheme = t->stage == 0 ? dp_scheme : TACITI_SCHEME_AUTO};
    s->options = options_of(t);
    s->context = (taciti_strategy_context){.comm = s->comm,
                                           .layout = &s->layout,
                                           .pool = s->pool,
                                           .optim = s->optim,
                                           .optim_options = &t->optim,
                                           .exchange_options = &s->exchange,
                                           .compression = t->compression,
                                           .options = &s->options,
                                           .parameters = s->p,
                                           .gradients = s->g,
                                           .copy16 = s->copy,
                                           .parameter_pages = pages ? &s->parameter_pages : NULL,
                                           .gradient_pages = pages ? &s->gradient_pages : NULL,
                                           .copy16_pages = pages ? &s->copy_pages : NULL,
                                           .by_units = pages};
    CHECK(s->strategy->create(&s->context, &s->self) == TACIT_OK);
}

static inline void open_seat(trial *t, taciti_comm *comm, seat *s) {
    *s = (seat){.t = t, .comm = comm, .rank = taciti_comm_rank(comm)};
    s->strategy = taciti_strategy_find(t->stage == 0 ? "dp" : "shard");
    make_layout(t->stage > 0, t->plain, &s->layout);
    CHECK(taciti_pool_create(1, 0, &s->pool) == TACIT_OK);
    CHECK((s->strategy->units != NULL ? taciti_optim_create_parts : taciti_optim_create)(&t->optim, &s->layout, s->pool,
                                                                                         &s->optim) == TACIT_OK);
    open_arrays(s);
    open_strategy(s);
    CHECK(taciti_readiness_create(&s->layout, &s->readiness) == TACIT_OK);
}

static inline void close_seat(seat *s) {
    s->strategy->destroy(s->self); /* waits for what is under way */
    taciti_readiness_destroy(&s->readiness);
    taciti_optim_destroy(s->optim);
    taciti_pool_destroy(s->pool);
    taciti_pages_destroy(&s->parameter_pages);
    taciti_pages_destroy(&s->gradient_pages);
    taciti_pages_destroy(&s->copy_pages);
    taciti_layout_destroy(&s->layout);
}

/* Copies what the entry points to into the buffer, or back. */
static inline void move_entry(const taciti_state_entry *e, char *buffer, bool back) {
    taciti_range r;
    if (e->kind != TACITI_STATE_ARRAY) {
        const size_t bytes = e->kind == TACITI_STATE_COUNT     ? sizeof(int64_t)
                             : e->kind == TACITI_STATE_NUMBERS ? e->n * sizeof(double)
                                                               : e->n;
        memcpy(back ? e->data : buffer, back ? buffer : e->data, bytes);
    } else if (e->access.read != NULL) {
        if (back)
            e->access.write(e->access.object, e->access.which, 0, (const float *)(const void *)buffer, e->n);
        else
            e->access.read(e->access.object, e->access.which, 0, (float *)(void *)buffer, e->n);
    } else {
        for (size_t i = 0; taciti_state_range(e, i, &r); i++) {
            char *there = (char *)e->data + r.at * sizeof(float), *here = buffer + r.at * sizeof(float);
            memcpy(back ? there : here, back ? here : there, r.n * sizeof(float));
        }
    }
}

/* Copies all that a checkpoint holds of this rank to memory, and creates everything again. */
static inline void stop_and_go_on(seat *s, bool scattered) {
    char *saved[TACITI_STATE_MAX_ENTRIES], names[TACITI_STATE_MAX_ENTRIES][TACITI_STATE_NAME_BYTES];
    const int done = s->step + 1;
    taciti_state before = {.count = 0}, after = {.count = 0};
    s->strategy->state(s->self, &before);
    CHECK(before.count <= TACITI_STATE_MAX_ENTRIES);
    for (size_t i = 0; i < before.count; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s", before.entries[i].name);
        saved[i] = taciti_calloc(before.entries[i].n + s->layout.n + 1, sizeof(double));
        move_entry(&before.entries[i], saved[i], false);
    }
    close_seat(s);
    open_seat(s->t, s->comm, s);
    s->step = done - 1;
    s->strategy->state(s->self, &after);
    size_t next = 0;
    for (size_t i = 0; i < after.count; i++) {
        if (next < before.count && strcmp(after.entries[i].name, names[next]) == 0) {
            move_entry(&after.entries[i], saved[next], true);
            if (after.entries[i].filled != NULL) *after.entries[i].filled = true;
            taciti_free(saved[next++]);
        } else { /* one rank takes residuals of several, but keeps none */
            CHECK(taciti_comm_size(s->comm) == 1 && strstr(after.entries[i].name, "residual") != NULL);
        }
    }
    CHECK(next == before.count);
    for (size_t i = 0; i < s->layout.n && scattered; i++) s->p[i] = (float)s->rank;
    CHECK(s->strategy->start(s->self, done, !scattered) == TACIT_OK);
}

static inline void between_steps(seat *s) {
    const trial *t = s->t;
    s->step++;
    for (int i = 0; i < 2 && t->evaluates; i++) evaluate(s);
    if (t->strays) stray(s);
    s->step--;
}

static inline double half_sum(const seat *s, const taciti_exchange_options *options, size_t n) {
    const taciti_codec *wire = taciti_exchange_wire(options);
    return taciti_allreduce_demand(taciti_comm_hosts(s->comm), NULL, 0, taciti_exchange_placement(options),
                                   wire->bound(wire, NULL, n), SIZE_MAX)
               .host_bytes /
           2;
}

/* As the planner does (plan/parts.h): a gather and a reduction are halves of a dense sum, a reduction over hosts is all
 * of it. */
static inline void plan_bytes(const seat *s) {
    const taciti_exchange_options reduce = taciti_shard_reduce_options(&s->context),
                                  gather = taciti_shard_gather_options(&s->context);
    const bool over_host = taciti_shard_is_over_host(&s->context);
    for (size_t b = 0; b < s->layout.bucket_count; b++) {
        const taciti_bucket *bucket = &s->layout.buckets[b];
        const size_t all = ((taciti_shard *)s->self)->units[s->layout.tensors[bucket->first].unit].per_step;
        const size_t between = over_host ? 0 : s->options.secondary && all > 1 ? 1 : all;
        s->t->planned += (over_host ? 2 : 1) * half_sum(s, &reduce, bucket->n);
        s->t->planned += (double)between * half_sum(s, &gather, bucket->n);
        s->t->transfers += (double)(2 + between);
    }
}

static inline void run_rank(taciti_comm *comm, void *context) {
    trial *t = context;
    seat s;
    open_seat(t, comm, &s);
    initialise(&s);
    CHECK(s.strategy->start(s.self, 0, false) == TACIT_OK);
    for (; s.step < t->steps; s.step++) {
        step(&s);
        if (s.rank == 0 && t->expected == NULL) t->path[s.step] = copy_parameters(&s);
        if (t->expected == NULL && s.rank > 0 && asks(&s)) taciti_free(copy_parameters(&s));
        between_steps(&s);
        for (int again = 0; again <= t->scattered && s.step + 1 == t->stops_after; again++)
            stop_and_go_on(&s, t->scattered && again == 0);
    }
    t->parameters[s.rank] = copy_parameters(&s);
    if (s.rank == 0) t->n = s.layout.n;
    taciti_strategy_figures figures;
    CHECK(s.strategy->describe(&s.context, s.self, &figures) == TACIT_OK);
    t->per_step[s.rank] = figures.sent_bytes;
    if (s.rank == 0 && t->stage > 0) plan_bytes(&s);
    close_seat(&s);
    t->sent[s.rank] = taciti_comm_count(comm).bytes_sent;
    t->away[s.rank] = taciti_comm_count(comm).away_bytes_sent;
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
