/* SPDX-License-Identifier: Apache-2.0
 *
 * 1-bit Adam (Tang et al., arXiv 2102.02888, algorithm 1): dp with compress.what momentum and optim.freeze.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "strategy/test_replicas.h"

enum { MAX_RANKS = 7, STEPS = 9, FREEZE = 4, BLOCK = 512, FLOATS = 3008 + 32 + 912, MAX_RANGES = 16 };

typedef struct trial {
    int ranks, steps, freeze;
    bool overlap;
    taciti_compression_setup compression;
    double clip;
    int bad_step, absent_step; /* -1: none */

    /* what came of it */
    taciti_range owned[MAX_RANKS][MAX_RANGES]; /* whose sums a rank encodes */
    float parameters[MAX_RANKS][FLOATS], m[MAX_RANKS][FLOATS], v[MAX_RANKS][FLOATS];
    double norm[STEPS]; /* that was reported */
} trial;

/* Each tensor is followed by a gap, up to whole lines of 16 floats. */
static const size_t SIZES[TEST_TENSORS] = {3001, 17, 905};

static bool is_gap(size_t i) { return (i >= 3001 && i < 3008) || (i >= 3008 + 17 && i < 3040) || i >= 3040 + 905; }

static double gradient(int rank, int step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(3, (uint64_t)rank), (uint64_t)step);
    return taciti_rng_unit(key, i) - 0.5 + 0.3 * sin((double)i);
}

/* Returns the rank's part of the mean over ranks. */
static float contribution(int ranks, int rank, int step, size_t i) {
    return is_gap(i) ? 0 : (float)(gradient(rank, step, i) / ranks);
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

static taciti_optim_options adamw(const trial *t) {
    return (taciti_optim_options){.name = TACITI_OPTIM_ADAMW,
                                  .lr = 0.01,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .clip = t->clip,
                                  .freeze = t->freeze};
}

static void find_owners(trial *t, const taciti_strategy_context *c) {
    const taciti_compression_setup *setup = &t->compression;
    const taciti_encoding compression = {.codec = setup->sums.codec,
                                         .options = setup->sums.options,
                                         .feedback = {.errors = true, .decay = 1},
                                         .way = TACITI_WAY_SCATTER};
    taciti_exchange *exchange = NULL;
    taciti_range *out = t->owned[taciti_comm_rank(c->comm)];
    CHECK(taciti_exchange_create(c->comm, c->layout, c->exchange_options, &compression, &exchange) == TACIT_OK);
    for (size_t b = 0; b < c->layout->bucket_count; b++)
        for (size_t i = 0; taciti_exchange_owned(exchange, b, i, out); i++, out++) CHECK(b + i < MAX_RANGES);
    taciti_exchange_destroy(exchange);
}

static void make_steps(trial *t, const taciti_strategy_context *c) {
    const taciti_strategy *dp = taciti_strategy_find("dp");
    const int rank = taciti_comm_rank(c->comm);
    void *self = NULL;
    CHECK(dp->create(c, &self) == TACIT_OK && dp->start(self, 0, false) == TACIT_OK);
    for (int step = 0; step < t->steps; step++) {
        taciti_step_report report;
        if (step == t->absent_step) continue;
        for (size_t i = 0; i < FLOATS; i++) c->gradients[i] = contribution(t->ranks, rank, step, i);
        if (step == t->bad_step && rank == t->ranks - 1) c->gradients[FLOATS / 2] = NAN;
        for (size_t b = 0; b < c->layout->bucket_count; b++) CHECK(dp->ready(self, b) == TACIT_OK);
        CHECK(dp->finish(self, 0.01, &report) == TACIT_OK);
        CHECK(report.skipped == (step == t->bad_step));
        if (rank == 0) t->norm[step] = report.grad_norm;
    }
    dp->destroy(self);
}

static void train(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    const taciti_optim_options options = adamw(t);
    const taciti_exchange_options exchange = {.bucket_bytes = 8192, .overlap = t->overlap};
    taciti_layout layout;
    taciti_pool *pool = NULL;
    taciti_optim *optim = NULL;
    test_make_layout(SIZES, TEST_TENSORS, 8192, &layout);
    CHECK(layout.n == FLOATS && taciti_pool_create(1, 0, &pool) == TACIT_OK);
    CHECK(taciti_optim_create(&options, &layout, pool, &optim) == TACIT_OK);
    float *g = taciti_calloc(FLOATS, sizeof *g);
    const taciti_strategy_context c = {.comm = comm,
                                       .layout = &layout,
                                       .pool = pool,
                                       .optim = optim,
                                       .optim_options = &options,
                                       .exchange_options = &exchange,
                                       .compression = t->compression,
                                       .parameters = t->parameters[rank],
                                       .gradients = g};
    if (t->compression.sums.codec != NULL) find_owners(t, &c);
    make_steps(t, &c);
    taciti_state listed = {.count = 0};
    taciti_optim_list_state(optim, TACITI_STATE_SHARED, &listed);
    memcpy(t->m[rank], listed.entries[0].data, sizeof t->m[rank]);
    memcpy(t->v[rank], listed.entries[1].data, sizeof t->v[rank]);
    taciti_optim_destroy(optim);
    taciti_pool_destroy(pool);
    taciti_free(g);
    taciti_layout_destroy(&layout);
}

static const taciti_compress_options MOMENTUM = {
    .what = TACITI_SENDS_MOMENTUM, .factor = 10, .feedback = 1, .collective = TACITI_WAY_SCATTER};

static trial *trial_of(int ranks, int steps, int freeze) {
    trial *t = taciti_calloc(1, sizeof *t);
    assert_non_null(t);
    const taciti_codec *codec = taciti_codec_find("onebit");
    *t = (trial){.ranks = ranks, .steps = steps, .freeze = freeze, .bad_step = -1, .absent_step = -1};
    t->compression = (taciti_compression_setup){.sums.codec = codec, .options = &MOMENTUM};
    return t;
}

static trial *dense_of(int ranks, int steps, int freeze) {
    trial *t = trial_of(ranks, steps, freeze);
    t->compression = (taciti_compression_setup){0};
    return t;
}

static void play(trial *t) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(t->ranks, &options, train, t);
    for (int r = 1; r < t->ranks; r++) assert_memory_equal(t->parameters[r], t->parameters[0], sizeof t->parameters[0]);
}

/* ---- the paper's algorithm, in double ---------------------------------------------------------------------------- */

typedef struct reference {
    double x[FLOATS], m[FLOATS], v[FLOATS], worker_error[MAX_RANKS][FLOATS], server_error[FLOATS];
} reference;

/* Lines 6 and 8, of u from element `at` on: c = C(u), and u becomes u - c. Gaps stay 0. */
static void compress(double *u, double *c, size_t at, size_t n) {
    double sums[2] = {0}, counts[2] = {0};
    for (size_t i = 0; i < n; i++) {
        sums[u[i] >= 0] += u[i];
        counts[u[i] >= 0]++;
    }
    for (size_t i = 0; i < n; i++) {
        c[i] = is_gap(at + i) ? 0 : sums[u[i] >= 0] / counts[u[i] >= 0];
        u[i] -= c[i];
    }
}

/* Lines 5 to 9 for n elements at `at`, which share a scale. */
static void average_momenta(reference *p, const trial *t, int step, size_t at, size_t n) {
    double c[BLOCK], *server = p->server_error + at;
    for (int r = 0; r < t->ranks; r++) {
        double *worker = p->worker_error[r] + at;
        for (size_t i = 0; i < n; i++) {
            const double g = (double)contribution(t->ranks, r, step, at + i) * t->ranks;
            worker[i] += 0.9 * p->m[at + i] + 0.1 * g;
        }
        compress(worker, c, at, n);
        for (size_t i = 0; i < n; i++) server[i] += c[i] / t->ranks;
    }
    compress(server, c, at, n);
    memcpy(p->m + at, c, n * sizeof *c);
}

static void update_moments(reference *p, const trial *t, int step) {
    for (size_t i = 0; i < FLOATS; i++) {
        double g = 0;
        for (int r = 0; r < t->ranks; r++) g += (double)contribution(t->ranks, r, step, i);
        p->m[i] = 0.9 * p->m[i] + 0.1 * g;
        p->v[i] = 0.95 * p->v[i] + 0.05 * g * g;
    }
}

/* Line 10, with both moments corrected; v's correction is frozen with it. */
static void move_parameters(reference *p, int step) {
    const double first = 1 - pow((double)0.9f, step + 1), second = 1 - pow((double)0.95f, fmin(step + 1, FREEZE));
    for (size_t i = 0; i < FLOATS; i++) {
        const double decay = i >= 3008 && i < 3040 ? 0 : 0.1; /* the second tensor has none */
        p->x[i] -= 0.01 * (p->m[i] / first / (sqrt(p->v[i] / second) + 1e-8) + decay * p->x[i]);
    }
}

static void play_reference(reference *p, const trial *t) {
    for (int step = 0; step < t->steps; step++) {
        if (step < FREEZE) update_moments(p, t, step);
        for (int r = 0; r < t->ranks && step >= FREEZE; r++)
            for (const taciti_range *range = t->owned[r]; range->n > 0; range++)
                for (size_t at = 0; at < range->n; at += BLOCK)
                    average_momenta(p, t, step, range->at + at, range->n - at < BLOCK ? range->n - at : BLOCK);
        move_parameters(p, step);
    }
}

/* ---- properties
 * -------------------------------------------------------------------------------------------------------- */

static void it_is_the_algorithm_of_the_paper(void **state) {
    (void)state;
    static const int RANKS[] = {2, 3, 5, 7};
    for (size_t k = 0; k < sizeof RANKS / sizeof *RANKS; k++) {
        trial *t = trial_of(RANKS[k], STEPS, FREEZE);
        reference *p = taciti_calloc(1, sizeof *p);
        assert_non_null(p);
        t->overlap = k % 2 == 0;
        play(t);
        play_reference(p, t);
        for (size_t i = 0; i < FLOATS; i++)
            if (!(fabs((double)t->parameters[0][i] - p->x[i]) < 1e-6))
                fail_msg("%d ranks, element %zu: %g, not %g", t->ranks, i, (double)t->parameters[0][i], p->x[i]);
        taciti_free(p);
        taciti_free(t);
    }
}

static void before_the_freeze_it_is_adamw_bit_for_bit(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= MAX_RANKS; ranks += 2) {
        trial *compressed = trial_of(ranks, FREEZE, FREEZE), *dense = dense_of(ranks, FREEZE, 0);
        compressed->clip = dense->clip = 1;
        play(compressed);
        play(dense);
        assert_memory_equal(compressed->parameters[0], dense->parameters[0], sizeof dense->parameters[0]);
        assert_memory_equal(compressed->v[0], dense->v[0], sizeof dense->v[0]);
        taciti_free(compressed);
        taciti_free(dense);
    }
}

/* Steps of factor 1 lose nothing: what remains is adamw with frozen second moments. */
static void momenta_that_lose_nothing_are_adamw_with_frozen_moments(void **state) {
    (void)state;
    static const taciti_compress_options ALL = {.what = TACITI_SENDS_MOMENTUM, .factor = 1, .feedback = 1};
    for (int ranks = 1; ranks <= 3; ranks++) {
        trial *sent = trial_of(ranks, STEPS, FREEZE), *dense = dense_of(ranks, STEPS, FREEZE);
        sent->compression.options = &ALL;
        play(sent);
        play(dense);
        const float tolerance = ranks == 1 ? 0 : 1e-6f;
        for (size_t i = 0; i < FLOATS; i++)
            assert_true(fabsf(sent->parameters[0][i] - dense->parameters[0][i]) <= tolerance);
        assert_memory_equal(sent->v[0], dense->v[0], sizeof dense->v[0]);
        taciti_free(sent);
        taciti_free(dense);
    }
}

/* The norm that is reported is that of the momentum, which becomes the first moment as it is. */
static void momenta_are_not_clipped(void **state) {
    (void)state;
    trial *t = trial_of(3, STEPS, FREEZE);
    double squares = 0;
    t->clip = 1e-3;
    play(t);
    for (size_t i = 0; i < FLOATS; i++) squares += (double)t->m[0][i] * (double)t->m[0][i];
    assert_true(t->norm[STEPS - 1] > 10 * t->clip);
    assert_true(fabs(sqrt(squares) / t->norm[STEPS - 1] - 1) < 1e-6);
    taciti_free(t);
}

static void a_skipped_step_changes_nothing(void **state) {
    (void)state;
    for (int step = FREEZE - 1; step <= FREEZE + 2; step++) {
        trial *bad = trial_of(3, STEPS, FREEZE), *absent = trial_of(3, STEPS, FREEZE);
        bad->overlap = true;
        bad->bad_step = absent->absent_step = step;
        play(bad);
        play(absent);
        assert_memory_equal(bad->parameters[0], absent->parameters[0], sizeof bad->parameters[0]);
        taciti_free(bad);
        taciti_free(absent);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void is_refused(taciti_compress_options options, taciti_optim_options optim, const char *message) {
    const taciti_compression_setup setup = {.sums.codec = taciti_codec_find("onebit"), .options = &options};
    test_log_keep();
    assert_int_equal(taciti_compression_check_momentum(&setup, &optim), TACIT_E_CONFIG);
    if (test_log_count(message) != 1) fail_msg("no message contains \"%s\"", message);
    test_log_drop();
}

static void what_has_no_meaning_is_refused(void **state) {
    (void)state;
    const taciti_optim_options good = {.name = TACITI_OPTIM_ADAMW, .freeze = 10, .weight_decay = 0.1};
    const taciti_compression_setup legal = {.sums.codec = taciti_codec_find("onebit"), .options = &MOMENTUM};
    taciti_compress_options twice = MOMENTUM;
    taciti_optim_options never = good, sgd = good, coupled = good;
    twice.momentum = 0.9;
    never.freeze = 0;
    sgd.name = TACITI_OPTIM_SGD;
    coupled.name = TACITI_OPTIM_ADAM;
    assert_int_equal(taciti_compression_check_momentum(&legal, &good), TACIT_OK);
    is_refused(MOMENTUM, never, "--optim.freeze N");
    is_refused(MOMENTUM, sgd, "--optim.name adamw");
    is_refused(MOMENTUM, coupled, "without weight decay");
    is_refused(twice, good, "leave one of them out");
    taciti_compress_options corrected = {.momentum = 0.9};
    never.beta1 = 0.9, sgd.momentum = 0.9;
    is_refused(corrected, never, "--optim.beta1 0");
    is_refused(corrected, sgd, "--optim.momentum 0");
    coupled.weight_decay = 0;
    assert_int_equal(taciti_compression_check_momentum(&legal, &coupled), TACIT_OK);
    const taciti_compression_setup none = {.options = &MOMENTUM};
    test_log_keep();
    assert_int_equal(taciti_compression_check_momentum(&none, &good), TACIT_E_CONFIG);
    assert_int_equal(test_log_count("--compress.codec onebit"), 1);
    test_log_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_algorithm_of_the_paper),
        cmocka_unit_test(before_the_freeze_it_is_adamw_bit_for_bit),
        cmocka_unit_test(momenta_that_lose_nothing_are_adamw_with_frozen_moments),
        cmocka_unit_test(momenta_are_not_clipped),
        cmocka_unit_test(a_skipped_step_changes_nothing),
        cmocka_unit_test(what_has_no_meaning_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
