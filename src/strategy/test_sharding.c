/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that hold parts: against dp, which holds everything. The network of these tests asks for units as a transformer
 * does, and finds in every one what dp has after the same step.
 */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "base/rng.h"
#include "exchange/test_wire.h"
#include "strategy/shard.h"
#include "strategy/test_replicas.h"

enum { MAX_RANKS = 7, STEPS = 4, BAD_STEP = 2, TENSORS = 7, UNITS = 5, PAGE = 4096 };

typedef struct trial {
    int ranks, stage, gather;
    size_t passes;
    bool blocking, no_thread, whole; /* whole: ordinary arrays, and a network that does not ask for units */
    bool evaluates;                  /* a forward pass alone between the steps */
    int wire, bad_rank;              /* -1: none */
    float bad;
    taciti_optim_options optim;

    /* what came of it; path: after every step, of rank 0 */
    float *parameters[MAX_RANKS], *path[STEPS];
    taciti_step_report reports[MAX_RANKS][STEPS];
    const struct trial *expected; /* its path is what needs must find; NULL: anything */
    size_t n;
} trial;

/* Sizes below the number of ranks, of several pages, of one float more than a line. */
static void make_layout(bool units, taciti_layout *out) {
    static const size_t SIZES[TENSORS] = {17, 5, 9000, 33, 7000, 1, 12000};
    static const size_t UNIT[TENSORS] = {0, 0, 1, 1, 2, 3, 4};
    CHECK(taciti_layout_create(TENSORS, out) == TACIT_OK);
    for (size_t i = 0; i < TENSORS; i++) {
        const char name[2] = {(char)('a' + (int)i), 0};
        if (i > 0 && UNIT[i] != UNIT[i - 1]) taciti_layout_next_unit(out);
        CHECK(taciti_layout_append(out, name, 1, &SIZES[i], i % 2 == 0) == TACIT_OK);
    }
    out->tensors[TENSORS - 1].early = true;
    CHECK((units ? taciti_layout_seal_units : taciti_layout_seal)(out, units ? 20000 : 30000) == TACIT_OK);
}

static float number(uint64_t a, uint64_t b, uint64_t c, size_t i) {
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

static void full(void *context, size_t bucket) {
    const seat *s = context;
    if (s->strategy->ready != NULL) CHECK(s->strategy->ready(s->self, bucket) == TACIT_OK);
}

static void add_gradient(const seat *s, size_t unit, size_t pass) {
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

static void report(seat *s, size_t unit) {
    for (size_t a = 0; a < s->layout.tensor_count; a++)
        if (s->layout.tensors[a].unit == unit) taciti_readiness_mark(&s->readiness, a, full, s);
}

static bool asks(const seat *s) { return s->strategy->need != NULL && !s->t->whole; }

/* Resident bytes of a region. */
static size_t resident(const taciti_pages *pages) {
    unsigned char in_memory[64];
    size_t bytes = 0;
    const size_t count = (pages->bytes + PAGE - 1) / PAGE;
    CHECK(count <= sizeof in_memory && mincore(pages->base, count * PAGE, in_memory) == 0);
    for (size_t i = 0; i < count; i++) bytes += in_memory[i] & 1 ? PAGE : 0;
    return bytes;
}

/* What is predicted, up to the pages at the edges of parts and units. */
static void check_memory(const seat *s) {
    const taciti_shard_options options = {s->t->stage, s->t->gather};
    const taciti_strategy_context c = {
        .comm = s->comm, .layout = &s->layout, .options = &options, .optim_options = &s->t->optim};
    const size_t edges = (2 * s->layout.bucket_count + UNITS) * PAGE;
    taciti_strategy_memory memory;
    s->strategy->memory(&c, s->t->passes, &memory);
    CHECK(resident(&s->parameter_pages) + resident(&s->gradient_pages) <=
          memory.parameters + memory.gradients + 2 * edges);
}

static void need(const seat *s, size_t unit) {
    if (!asks(s)) return;
    CHECK(s->strategy->need(s->self, unit) == TACIT_OK);
    const taciti_range r = taciti_layout_unit(&s->layout, unit);
    const float *expected = s->t->expected == NULL || s->step == 0 ? NULL : s->t->expected->path[s->step - 1];
    CHECK(expected == NULL || memcmp(s->p + r.at, expected + r.at, r.n * sizeof *expected) == 0);
    for (size_t i = r.at; i < r.at + r.n; i++) {
        taciti_bf16 rounded;
        taciti_kernels_get()->bf16_encode(&rounded, &s->p[i], 1);
        CHECK(memcmp(&s->copy[i], &rounded, sizeof rounded) == 0);
    }
    check_memory(s);
}

static void release(const seat *s, size_t unit) {
    if (asks(s)) s->strategy->release(s->self, unit);
}

static void write_unit(const seat *s, size_t unit) {
    if (asks(s)) CHECK(s->strategy->write(s->self, unit) == TACIT_OK);
}

static void forward(const seat *s) {
    need(s, UNITS - 1);
    for (size_t u = UNITS - 1; u-- > 0;) {
        need(s, u);
        release(s, u + 1);
    }
    need(s, UNITS - 1); /* a tied head */
}

static void pass(seat *s, size_t index) {
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

static void evaluate(const seat *s) {
    forward(s);
    release(s, UNITS - 1);
    release(s, 0);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void open_arrays(seat *s) {
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
static void initialise(const seat *s) {
    for (size_t u = 0; u < UNITS; u++) {
        if (asks(s)) CHECK(s->strategy->need(s->self, u) == TACIT_OK);
        for (size_t a = 0; a < TENSORS; a++) {
            const taciti_tensor *t = &s->layout.tensors[a];
            for (size_t i = t->offset; t->unit == u && i < t->offset + t->n; i++) s->p[i] = number(99, 99, 99, i);
        }
        if (asks(s)) s->strategy->release(s->self, u);
    }
}

static float *copy_parameters(const seat *s) {
    float *out = taciti_calloc(s->layout.n, sizeof *out);
    for (size_t u = UNITS; u-- > 0;) {
        const taciti_range r = taciti_layout_unit(&s->layout, u);
        if (asks(s)) CHECK(s->strategy->need(s->self, u) == TACIT_OK);
        memcpy(out + r.at, s->p + r.at, r.n * sizeof *out);
        release(s, u);
    }
    return out;
}

static void step(seat *s) {
    taciti_readiness_reset(&s->readiness);
    for (size_t p = 0; p < s->t->passes; p++) pass(s, p);
    CHECK(s->strategy->finish(s->self, 0.01, &s->t->reports[s->rank][s->step]) == TACIT_OK);
}

static void run_rank(taciti_comm *comm, void *context) {
    trial *t = context;
    seat s = {.t = t, .comm = comm, .rank = taciti_comm_rank(comm)};
    taciti_pool *pool = NULL;
    taciti_optim *optim = NULL;
    s.strategy = taciti_strategy_find(t->stage == 0 ? "dp" : "shard");
    make_layout(t->stage > 0, &s.layout);
    CHECK(taciti_pool_create(1, 0, &pool) == TACIT_OK);
    CHECK((s.strategy->parts ? taciti_optim_create_parts : taciti_optim_create)(&t->optim, &s.layout, pool, &optim) ==
          TACIT_OK);
    open_arrays(&s);
    const taciti_shard_options options = {t->stage, t->gather};
    const taciti_exchange_options exchange = {.overlap = !t->blocking,
                                              .wire = test_wire(t->wire),
                                              .scheme = t->stage == 0 ? TACITI_SCHEME_FLAT : TACITI_SCHEME_AUTO};
    const bool pages = asks(&s);
    const taciti_strategy_context c = {.comm = comm,
                                       .layout = &s.layout,
                                       .pool = pool,
                                       .optim = optim,
                                       .optim_options = &t->optim,
                                       .exchange_options = &exchange,
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
    for (; s.step < STEPS; s.step++) {
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
    s.strategy->destroy(s.self);
    taciti_readiness_destroy(&s.readiness);
    taciti_optim_destroy(optim);
    taciti_pool_destroy(pool);
    taciti_pages_destroy(&s.parameter_pages);
    taciti_pages_destroy(&s.gradient_pages);
    taciti_pages_destroy(&s.copy_pages);
    taciti_layout_destroy(&s.layout);
}

static trial trial_of(int ranks, int stage) {
    return (trial){
        .ranks = ranks,
        .stage = stage,
        .passes = 1,
        .bad_rank = -1,
        .optim = {
            .name = TACITI_OPTIM_ADAMW, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1}};
}

static void play(trial *t) {
    const taciti_comm_options options = test_comm_options(!t->no_thread);
    test_world_run(t->ranks, &options, run_rank, t);
}

static void forget(trial *t) {
    for (int r = 0; r < t->ranks; r++) taciti_free(t->parameters[r]);
    for (int s = 0; s < STEPS; s++) taciti_free(t->path[s]);
}

/* Plays `t`, which must find what `reference` found, and end there. */
static void agrees(trial *t, const trial *reference) {
    t->expected = reference;
    play(t);
    for (int r = 0; r < t->ranks; r++) {
        assert_memory_equal(t->parameters[r], reference->parameters[0], t->n * sizeof(float));
        for (int s = 0; s < STEPS; s++) {
            const double found = t->reports[r][s].grad_norm, expected = reference->reports[0][s].grad_norm;
            assert_true(t->reports[r][s].skipped == reference->reports[0][s].skipped);
            assert_true(t->reports[r][s].skipped || fabs(found - expected) <= 1e-12 * expected);
        }
    }
    forget(t);
}

/* ---- laws -------------------------------------------------------------------------------------------------------- */

static const int RANKS[] = {1, 2, 3, 5, 6, 7};
enum { RANK_COUNT = sizeof RANKS / sizeof *RANKS };

static void every_stage_is_dp_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++)
        for (size_t passes = 1; passes <= 2; passes++) {
            trial dp = trial_of(RANKS[i], 0);
            dp.passes = passes;
            play(&dp);
            for (int stage = 1; stage <= 3; stage++)
                for (int kind = 0; kind < 8; kind++) {
                    trial t = trial_of(RANKS[i], stage);
                    t.passes = passes;
                    t.blocking = kind % 2 == 1;
                    t.evaluates = kind / 2 % 2 == 1;
                    t.no_thread = kind == 4;
                    t.whole = kind >= 6;
                    agrees(&t, &dp);
                }
            forget(&dp);
        }
}

static void every_optimizer_is_updated_in_parts(void **state) {
    (void)state;
    static const int NAMES[] = {TACITI_OPTIM_SGD, TACITI_OPTIM_ADAM, TACITI_OPTIM_ACCUM_ADAMW, TACITI_OPTIM_ACCUM_ADAM};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        trial dp = trial_of(3, 0);
        dp.optim.name = NAMES[i];
        dp.optim.accum = 3;
        dp.optim.momentum = 0.9;
        play(&dp);
        trial t = trial_of(3, 3);
        t.optim = dp.optim;
        agrees(&t, &dp);
        forget(&dp);
    }
}

/* The squares are added in another order. */
static void clipping_is_that_of_dp_up_to_rounding(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++) {
        trial dp = trial_of(RANKS[i], 0);
        dp.optim.clip = 0.5;
        play(&dp);
        for (int stage = 1; stage <= 3; stage++) {
            trial t = trial_of(RANKS[i], stage);
            t.optim = dp.optim;
            play(&t);
            for (int r = 0; r < t.ranks; r++) {
                assert_memory_equal(t.parameters[r], t.parameters[0], t.n * sizeof(float));
                for (int s = 0; s < STEPS; s++) assert_true(t.reports[r][s].grad_norm > dp.optim.clip);
            }
            for (size_t k = 0; k < t.n; k++) assert_true(fabsf(t.parameters[0][k] - dp.parameters[0][k]) <= 1e-5F);
            forget(&t);
        }
        forget(&dp);
    }
}

static void a_bad_gradient_anywhere_makes_all_skip(void **state) {
    (void)state;
    static const float BAD[] = {NAN, INFINITY};
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int bad_rank = 0; bad_rank < ranks; bad_rank++) {
            trial dp = trial_of(ranks, 0);
            dp.bad = BAD[bad_rank % 2];
            dp.bad_rank = bad_rank;
            play(&dp);
            for (int s = 0; s < STEPS; s++) assert_true(dp.reports[0][s].skipped == (s == BAD_STEP));
            for (int stage = 1; stage <= 3; stage++) {
                trial t = trial_of(ranks, stage);
                t.bad = dp.bad;
                t.bad_rank = bad_rank;
                agrees(&t, &dp);
            }
            forget(&dp);
        }
}

/* Gradients on a 16-bit wire are rounded once, then added in f32: the ranks agree, whatever the stage. */
static void stages_agree_on_every_wire_and_gather(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks += 3)
        for (int kind = 1; kind < 4; kind++) {
            trial first = trial_of(ranks, 1);
            first.wire = kind & 1;
            first.gather = kind >> 1;
            play(&first);
            for (int stage = 1; stage <= 3; stage++) {
                trial t = trial_of(ranks, stage);
                t.wire = first.wire;
                t.gather = first.gather;
                t.blocking = stage == 1;
                agrees(&t, &first);
            }
            forget(&first);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_is_dp_bit_for_bit),
        cmocka_unit_test(every_optimizer_is_updated_in_parts),
        cmocka_unit_test(clipping_is_that_of_dp_up_to_rounding),
        cmocka_unit_test(a_bad_gradient_anywhere_makes_all_skip),
        cmocka_unit_test(stages_agree_on_every_wire_and_gather),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
