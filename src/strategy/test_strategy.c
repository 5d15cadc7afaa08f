/* SPDX-License-Identifier: Apache-2.0 */
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

#include "base/memory.h"
#include "base/rng.h"
#include "codec/test_sparse.h"
#include "exchange/test_wire.h"
#include "strategy/localsgd.h"
#include "strategy/test_replicas.h"

enum { MAX_RANKS = 5, STEPS = 4, BAD_STEP = 2 };

/* The settings of a run and the results of every rank. */
typedef struct trial {
    taciti_exchange_options exchange;
    taciti_optim_options optim;
    float bad;     /* planted into one rank's gradient in step BAD_STEP when not zero */
    int bad_rank;  /* -1: none */
    int virtually; /* a single rank that plays this many: the reference; 0: no */
    bool emulated; /* the optimizer leaves all elements alone */
    taciti_compression_setup compression;
    float constant; /* every element of every gradient; 0: small integers */
    bool absent;    /* step BAD_STEP is not made */
    float *parameters[MAX_RANKS];
    taciti_step_report reports[MAX_RANKS][STEPS];
    size_t n;
} trial;

/* Small integers: sums over ranks are exact in any order, so one rank can compute them as the reference. */
static float gradient(int rank, int step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(3, (uint64_t)rank), (uint64_t)step);
    return (float)((int)taciti_rng_below(key, i, 9) - 4);
}

static void backward(const trial *t, const taciti_layout *layout, int rank, int step, float *g) {
    memset(g, 0, layout->n * sizeof *g);
    for (size_t a = 0; a < layout->tensor_count; a++)
        for (size_t i = layout->tensors[a].offset; i < layout->tensors[a].offset + layout->tensors[a].n; i++)
            for (int r = 0; r < (t->virtually > 0 ? t->virtually : 1); r++)
                g[i] += t->constant > 0 ? t->constant : gradient(rank + r, step, i);
    const bool mine = t->virtually > 0 || rank == t->bad_rank;
    if (t->bad_rank >= 0 && mine && step == BAD_STEP) g[layout->n / 2] = t->bad;
}

static void train(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    taciti_layout layout;
    taciti_pool *pool = NULL;
    taciti_optim *optim = NULL;
    void *self = NULL;
    const size_t sizes[TEST_TENSORS] = {3000, 17, 900};
    test_make_layout(sizes, TEST_TENSORS, 4096, &layout);
    CHECK(taciti_pool_create(1, 0, &pool) == TACIT_OK);
    CHECK((t->emulated ? test_idle_optimizer(&layout, &optim)
                       : taciti_optim_create(&t->optim, &layout, pool, &optim)) == TACIT_OK);
    float *p = taciti_calloc(layout.n, sizeof *p), *g = taciti_calloc(layout.n, sizeof *g);
    taciti_bf16 *copy = taciti_calloc(layout.n, sizeof *copy);
    const taciti_strategy *dp = taciti_strategy_find("dp");
    const taciti_strategy_context c = {.comm = comm,
                                       .layout = &layout,
                                       .pool = pool,
                                       .optim = optim,
                                       .optim_options = &t->optim,
                                       .exchange_options = &t->exchange,
                                       .compression = t->compression,
                                       .parameters = p,
                                       .gradients = g,
                                       .copy16 = copy};
    taciti_strategy_figures figures;
    CHECK(dp->create(&c, &self) == TACIT_OK && dp->start(self, 0, false) == TACIT_OK);
    for (int step = 0; step < STEPS; step++) {
        if (t->absent && step == BAD_STEP) continue;
        const taciti_comm_counters before = taciti_comm_count(comm);
        backward(t, &layout, rank, step, g);
        for (size_t b = 0; b < layout.bucket_count; b++) CHECK(dp->ready(self, b) == TACIT_OK);
        CHECK(dp->finish(self, 0.01, &t->reports[rank][step]) == TACIT_OK);
        const taciti_comm_counters after = taciti_comm_count(comm);
        if (t->compression.sums.codec != NULL) continue; /* of variable size */
        CHECK(dp->describe(&c, self, &figures) == TACIT_OK && figures.period == 1);
        CHECK(after.bytes_sent - before.bytes_sent == figures.sent_bytes);
        CHECK(t->reports[rank][step].bytes == (double)figures.sent_bytes);
        CHECK(test_sends_as_planned(comm, &layout, &t->exchange, after.away_bytes_sent - before.away_bytes_sent));
    }
    const bool one_skipped = t->bad_rank >= 0 && !isfinite(t->bad);
    CHECK(taciti_optim_updates(optim) == STEPS - (one_skipped || t->absent));
    t->parameters[rank] = p;
    if (rank == 0) t->n = layout.n;
    dp->destroy(self);
    taciti_optim_destroy(optim);
    taciti_pool_destroy(pool);
    taciti_free(g);
    taciti_free(copy);
    taciti_layout_destroy(&layout);
}

static trial trial_of(bool overlap, int optim_name, double clip) {
    return (trial){.exchange = {.bucket_bytes = 4096, .overlap = overlap},
                   .optim = {.name = optim_name,
                             .lr = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .momentum = 0.9,
                             .weight_decay = 0.1,
                             .clip = clip},
                   .bad_rank = -1};
}

static void play(trial *t, int ranks) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(ranks, &options, train, t);
}

static void forget(trial *t, int ranks) {
    for (int r = 0; r < ranks; r++) taciti_free(t->parameters[r]);
}

static void many_ranks_equal_one_that_sums(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++)
        for (int kind = 0; kind < 8; kind++) {
            trial many = trial_of(kind % 2 == 1, kind & 2 ? TACITI_OPTIM_ADAMW : TACITI_OPTIM_SGD, kind & 4 ? 1.0 : 0);
            trial one = many;
            one.virtually = ranks;
            play(&many, ranks);
            play(&one, 1);
            for (int r = 0; r < ranks; r++) {
                assert_memory_equal(many.parameters[r], one.parameters[0], many.n * sizeof(float));
                for (int s = 0; s < STEPS; s++) {
                    assert_true(many.reports[r][s].grad_norm == one.reports[0][s].grad_norm);
                    assert_true(many.reports[r][s].grad_norm > 1 && !many.reports[r][s].skipped);
                }
            }
            forget(&many, ranks);
            forget(&one, 1);
        }
}

/* The formulas for bytes are checked in every step of train(). */
static void bytes_between_hosts_are_as_predicted(void **state) {
    (void)state;
    for (int per_host = 1; per_host <= 3; per_host++)
        for (int wire = 0; wire < 2; wire++) {
            trial t = trial_of(true, TACITI_OPTIM_SGD, 0);
            t.exchange.wire = test_wire(wire);
            test_ranks_per_host(per_host);
            play(&t, MAX_RANKS);
            test_ranks_per_host(0);
            assert_true(t.n > 0);
            forget(&t, MAX_RANKS);
        }
}

static void overlapped_equals_blocking_on_both_wires(void **state) {
    (void)state;
    for (int wire = 0; wire < 2; wire++) {
        trial overlapped = trial_of(true, TACITI_OPTIM_ADAMW, 1), blocking = trial_of(false, TACITI_OPTIM_ADAMW, 1);
        overlapped.exchange.wire = blocking.exchange.wire = test_wire(wire);
        play(&overlapped, 3);
        play(&blocking, 3);
        for (int r = 0; r < 3; r++)
            assert_memory_equal(overlapped.parameters[r], blocking.parameters[0], blocking.n * sizeof(float));
        forget(&overlapped, 3);
        forget(&blocking, 3);
    }
}

/* Nothing changes: the outcome is that of a run in which the step was absent. */
static void one_bad_gradient_makes_all_skip(void **state) {
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int hosts = 0; hosts < 3; hosts++) {
            trial t = trial_of(true, TACITI_OPTIM_ADAMW, 1), reference = t;
            t.bad = reference.bad = bad[i];
            t.bad_rank = hosts;
            reference.bad_rank = 0;
            reference.virtually = 3;
            play(&t, 3);
            play(&reference, 1);
            for (int r = 0; r < 3; r++) {
                for (int s = 0; s < STEPS; s++) assert_true(t.reports[r][s].skipped == (s == BAD_STEP));
                assert_true(!(fabs(t.reports[r][BAD_STEP].grad_norm) < (double)INFINITY));
                assert_memory_equal(t.parameters[r], reference.parameters[0], t.n * sizeof(float));
                for (size_t k = 0; k < t.n; k++) assert_true(fabsf(t.parameters[r][k]) < INFINITY);
            }
            forget(&t, 3);
            forget(&reference, 1);
        }
}

/* Ones below the threshold of 1.5: a step sends few elements, and every second one what two have left. All of it is in
 * the parameters but for the residuals, which are below the threshold in each rank's contribution and in the sum. */
static void error_feedback_loses_nothing(void **state) {
    (void)state;
    static const test_sparse_options THRESHOLD = {.threshold = 1.5};
    static const taciti_compress_options FEEDBACK = {.factor = 10, .feedback = 1};
    const taciti_compression_setup sparse = {
        .sums.codec = &test_sparse, .sums.options = &THRESHOLD, .options = &FEEDBACK};
    for (int ranks = 2; ranks <= MAX_RANKS; ranks++) {
        trial t = trial_of(ranks % 2 == 0, TACITI_OPTIM_SGD, 0);
        t.optim.momentum = t.optim.weight_decay = 0;
        t.compression = sparse;
        t.constant = 1;
        play(&t, ranks);
        for (size_t i = 0; i < 3000; i++) { /* the first tensor */
            const double sent = -(double)t.parameters[0][i] / 0.01, all = (double)STEPS * ranks;
            assert_true(sent <= all + 1e-3 && sent > all - (ranks + 1) * THRESHOLD.threshold);
        }
        for (int r = 1; r < ranks; r++) assert_memory_equal(t.parameters[r], t.parameters[0], t.n * sizeof(float));
        forget(&t, ranks);
    }
}

static void a_skipped_step_leaves_residuals_alone(void **state) {
    (void)state;
    static const test_sparse_options THRESHOLD = {.threshold = 3.5};
    static const taciti_compress_options FEEDBACK = {.factor = 10, .feedback = 1};
    const taciti_compression_setup sparse = {
        .sums.codec = &test_sparse, .sums.options = &THRESHOLD, .options = &FEEDBACK};
    trial skipped = trial_of(true, TACITI_OPTIM_ADAMW, 1), absent = trial_of(false, TACITI_OPTIM_ADAMW, 1);
    skipped.compression = absent.compression = sparse;
    skipped.bad = NAN;
    skipped.bad_rank = 1;
    absent.absent = true;
    play(&skipped, 3);
    play(&absent, 3);
    for (int r = 0; r < 3; r++) {
        assert_true(skipped.reports[r][BAD_STEP].skipped);
        assert_memory_equal(skipped.parameters[r], absent.parameters[0], absent.n * sizeof(float));
    }
    forget(&skipped, 3);
    forget(&absent, 3);
}

static void clipping_bounds_the_update(void **state) {
    (void)state;
    trial loose = trial_of(true, TACITI_OPTIM_SGD, 1e9), none = trial_of(true, TACITI_OPTIM_SGD, 0),
          tight = trial_of(true, TACITI_OPTIM_SGD, 0.5);
    loose.optim.momentum = none.optim.momentum = tight.optim.momentum = 0;
    loose.optim.weight_decay = none.optim.weight_decay = tight.optim.weight_decay = 0;
    play(&loose, 2);
    play(&none, 2);
    play(&tight, 2);
    assert_memory_equal(loose.parameters[0], none.parameters[0], none.n * sizeof(float));
    double square = 0;
    for (size_t i = 0; i < tight.n; i++) square += (double)tight.parameters[0][i] * (double)tight.parameters[0][i];
    assert_true(sqrt(square) <= STEPS * 0.01 * 0.5 * 1.0001 && square > 0);
    forget(&loose, 2);
    forget(&none, 2);
    forget(&tight, 2);
}

/* Bytes move as ever (train() checks them), no step is skipped or clipped, not even by a huge gradient, and no
 * parameter is touched. */
static void an_emulated_optimizer_changes_nothing(void **state) {
    (void)state;
    trial t = trial_of(true, TACITI_OPTIM_ADAMW, 1);
    t.emulated = true;
    t.bad = 1e38f;
    t.bad_rank = 1;
    play(&t, 3);
    for (int r = 0; r < 3; r++) {
        for (size_t i = 0; i < t.n; i++) assert_true(fabsf(t.parameters[r][i]) <= 0);
        for (int s = 0; s < STEPS; s++) {
            assert_false(t.reports[r][s].skipped);
            assert_true(fabs(t.reports[r][s].grad_norm) <= 0);
        }
    }
    forget(&t, 3);
}

static void strategies_are_found_by_name(void **state) {
    (void)state;
    assert_null(taciti_strategy_find("none such"));
    for (const taciti_strategy *const *s = taciti_strategy_list(); *s != NULL; s++) {
        assert_ptr_equal(taciti_strategy_find((*s)->name), *s);
        assert_true((*s)->help[0] != 0 && (*s)->source[0] != 0);
        assert_true((*s)->create != NULL && (*s)->finish != NULL && (*s)->destroy != NULL);
        assert_true((*s)->describe != NULL && (*s)->patterns != NULL && (*s)->state != NULL);
        if ((*s)->replicas != NULL) assert_true((*s)->replicas->average != NULL && (*s)->replicas->revert != NULL);
    }
}

static void an_outer_step_of_nothing_is_refused(void **state) {
    (void)state;
    test_log_keep();
    const taciti_strategy *strategy = taciti_strategy_find("localsgd");
    taciti_localsgd_options options = {.every = 4};
    const taciti_strategy_context context = {.options = &options};
    assert_int_equal(strategy->check(&context, NULL), TACIT_E_CONFIG);
    assert_int_equal(test_log_count("--localsgd.outer_lr 1 is plain averaging"), 1);
    test_log_drop();
    options.outer_lr = 1e-3;
    assert_int_equal(strategy->check(&context, NULL), TACIT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_ranks_equal_one_that_sums),
        cmocka_unit_test(overlapped_equals_blocking_on_both_wires),
        cmocka_unit_test(bytes_between_hosts_are_as_predicted),
        cmocka_unit_test(one_bad_gradient_makes_all_skip),
        cmocka_unit_test(error_feedback_loses_nothing),
        cmocka_unit_test(a_skipped_step_leaves_residuals_alone),
        cmocka_unit_test(clipping_bounds_the_update),
        cmocka_unit_test(an_emulated_optimizer_changes_nothing),
        cmocka_unit_test(strategies_are_found_by_name),
        cmocka_unit_test(an_outer_step_of_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
