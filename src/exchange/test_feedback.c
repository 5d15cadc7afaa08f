/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of a compressed exchange over whole runs: factors that change, dense steps, dropped steps, both routes,
 * residuals that move to other ranks, momentum, decay, estimates, tallies. Numbers are small integers or short
 * fractions, so that sums are exact in any order.
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
#include "codec/trial.h"
#include "comm/state.h"
#include "comm/test_engine.h"
#include "exchange/exchange.h"
#include "exchange/test_layout.h"
#include "kernel/kernel.h"

/* Rank r is on host ARRANGEMENTS[i][r]: all alone; unequal hosts; pairs; all together. */
static const int ARRANGEMENTS[][8] = {
    {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 0}};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS, STEPS = 9 };

static const taciti_feedback ERRORS = {.errors = true, .decay = 1}, ESTIMATES = {.estimates = true};

typedef struct trial {
    taciti_feedback feedback;
    int route, scheme;
    int64_t lanes;
} trial;

typedef struct bench {
    taciti_comm *comm;
    taciti_layout layout;
    taciti_exchange_options options;
    void *topk; /* options; owned */
    taciti_exchange *exchange;
    float *x;
    double *sum;
} bench;

/* topk with its defaults: exact, values in f32. Options: owned by the caller. */
static taciti_encoding topk_of(void **options, taciti_feedback feedback, taciti_way way) {
    const taciti_codec *codec = taciti_codec_find("topk");
    CHECK(codec != NULL && taciti_codec_defaults(codec, options) == TACIT_OK);
    return (taciti_encoding){
        .codec = codec, .options = *options, .expected = {.factor = 4}, .feedback = feedback, .way = way};
}

static void open_bench(taciti_comm *comm, const trial *t, const size_t *sizes, int count, bench *b) {
    *b = (bench){.comm = comm, .options = {.bucket_bytes = 10000, .scheme = t->scheme, .lanes = t->lanes}};
    test_layout(sizes, count, 10000, &b->layout);
    const taciti_encoding compression = topk_of(&b->topk, t->feedback, (taciti_way)t->route);
    CHECK(taciti_exchange_create(comm, &b->layout, &b->options, &compression, &b->exchange) == TACIT_OK);
    b->x = taciti_calloc(b->layout.n, sizeof *b->x);
    b->sum = taciti_calloc(b->layout.n, sizeof *b->sum);
}

static void set_up(taciti_comm *comm, const trial *t, bench *b) {
    static const size_t SIZES[] = {5000, 3, 12000, 700, 64};
    open_bench(comm, t, SIZES, 5, b);
}

static void tear_down(bench *b) {
    taciti_exchange_destroy(b->exchange);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->x);
    taciti_free(b->sum);
    taciti_free(b->topk);
}

/* 0 in gaps, as always. */
static float small_integer(const taciti_layout *layout, int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(9, (uint64_t)rank), (uint64_t)step);
    return test_is_gap(layout, i) ? 0 : (float)((int)taciti_rng_below(key, i, 17) - 8);
}

static taciti_bucket_task factor_of(double factor) {
    return (taciti_bucket_task){.setting[TACITI_PAYLOAD_CONTRIBUTION] = {.factor = factor},
                                .setting[TACITI_PAYLOAD_RESULT] = {.factor = factor}};
}

static void run_all(const bench *b, float *x) {
    for (size_t i = 0; i < b->layout.bucket_count; i++) CHECK(taciti_exchange_begin(b->exchange, x, i) == TACIT_OK);
    for (size_t i = 0; i < b->layout.bucket_count; i++) CHECK(taciti_exchange_wait(b->exchange, i) == TACIT_OK);
}

static void has_rank_0s_bits(const bench *b, const float *x) {
    float *first = taciti_calloc(b->layout.n, sizeof *first);
    memcpy(first, x, b->layout.n * sizeof *x);
    CHECK(taciti_comm_broadcast(b->comm, 0, first, b->layout.n * sizeof *first) == TACIT_OK);
    CHECK(memcmp(first, x, b->layout.n * sizeof *x) == 0);
    taciti_free(first);
}

static void try_all(test_rank *law, taciti_feedback feedback) {
    static const int SIZES[] = {1, 2, 3, 5, 6, 7};
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        taciti_comm_options options = test_comm_options(SIZES[s] % 3 != 0);
        options.segment_bytes = SIZES[s] % 2 == 0 ? 1024 : 16384;
        for (int route = TACITI_WAY_SCATTER; route <= TACITI_WAY_GATHER; route++)
            for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
                if (test_spares((int)s + route + i)) continue;
                trial t = {.feedback = feedback, .route = route, .scheme = (i + SIZES[s]) % 3, .lanes = i % 3};
                test_hosts(ARRANGEMENTS[i]);
                test_world_run(SIZES[s], &options, law, &t);
            }
    }
    test_hosts(NULL);
}

/* ---- conservation ------------------------------------------------------------------------------------------------ */
/* Inputs of all ranks come in, results go out; what is left must lie in the residuals. */
static void settle_balance(const bench *b) {
    double *left = taciti_calloc(b->layout.n, sizeof *left);
    for (int a = 0; a <= TACITI_RESIDUAL_RESULT; a++) {
        const float *residual = taciti_exchange_residual(b->exchange, (taciti_residual_array)a);
        for (size_t i = 0; i < b->layout.n && residual != NULL; i++) left[i] += (double)residual[i];
    }
    CHECK(taciti_comm_allreduce_f64(b->comm, left, b->layout.n, TACITI_OP_SUM) == TACIT_OK);
    for (size_t i = 0; i < b->layout.n; i++) CHECK(left[i] == b->sum[i]);
    taciti_free(left);
}

static void take_in(const bench *b, int64_t step) {
    for (size_t i = 0; i < b->layout.n; i++) {
        for (int r = 0; r < taciti_comm_size(b->comm); r++) b->sum[i] += (double)small_integer(&b->layout, r, step, i);
        b->sum[i] -= (double)b->x[i];
    }
}

/* Strong and weak compression, everything, and dense in turn. */
static taciti_bucket_task setting_at(int64_t step) {
    static const double FACTORS[] = {4, 50, 1, 10, 1000, 10, 3, 7, 20};
    taciti_bucket_task setting = factor_of(FACTORS[step % STEPS]);
    setting.dense = step % 4 == 3;
    setting.trial.factor = step % 3 == 1 ? 16 : 0;
    return setting;
}

static void one_step(const bench *b, int64_t step, taciti_bucket_task setting) {
    for (size_t i = 0; i < b->layout.n; i++) b->x[i] = small_integer(&b->layout, taciti_comm_rank(b->comm), step, i);
    taciti_exchange_at(b->exchange, step, &setting);
    run_all(b, b->x);
    has_rank_0s_bits(b, b->x);
}

static void conserve(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    for (int64_t step = 0; step < STEPS; step++) {
        const bool taken = step % 5 != 4;
        one_step(&b, step, setting_at(step));
        CHECK(taciti_exchange_settle(b.exchange, taken) == TACIT_OK);
        if (taken) take_in(&b, step);
        settle_balance(&b);
    }
    tear_down(&b);
}

static void nothing_is_lost_whatever_the_factors(void **state) {
    (void)state;
    try_all(conserve, ERRORS);
}

/* Every other bucket is dense, in turns, and the others are compressed; residuals of contributions decay. */
static void conserve_mixed(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, &b);
    double *kept = taciti_calloc(b.layout.n, sizeof *kept); /* of the residuals before the step */
    for (int64_t step = 0; step < STEPS; step++) {
        memset(kept, 0, b.layout.n * sizeof *kept);
        for (int a = 0; a <= TACITI_RESIDUAL_RESULT; a++) {
            const float *residual = taciti_exchange_residual(b.exchange, (taciti_residual_array)a);
            const double decay = a == TACITI_RESIDUAL_CONTRIBUTION ? t->feedback.decay : 1;
            for (size_t i = 0; i < b.layout.n && residual != NULL; i++) kept[i] += decay * (double)residual[i];
        }
        CHECK(taciti_comm_allreduce_f64(comm, kept, b.layout.n, TACITI_OP_SUM) == TACIT_OK);
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = small_integer(&b.layout, taciti_comm_rank(comm), step, i);
        for (size_t k = 0; k < b.layout.bucket_count; k++) {
            taciti_bucket_task setting = factor_of(10);
            setting.dense = ((int64_t)k + step) % 3 == 0;
            taciti_exchange_at(b.exchange, step, &setting);
            CHECK(taciti_exchange_begin(b.exchange, b.x, k) == TACIT_OK);
        }
        for (size_t k = 0; k < b.layout.bucket_count; k++) CHECK(taciti_exchange_wait(b.exchange, k) == TACIT_OK);
        CHECK(taciti_exchange_settle(b.exchange, step != 4) == TACIT_OK);
        if (step == 4) continue;
        memcpy(b.sum, kept, b.layout.n * sizeof *kept);
        take_in(&b, step);
        settle_balance(&b);
    }
    taciti_free(kept);
    tear_down(&b);
}

static void nothing_is_lost_where_dense_and_compressed_buckets_mix(void **state) {
    (void)state;
    try_all(conserve_mixed, (taciti_feedback){.errors = true, .decay = 0.5});
}

/* Residuals of rank r go to rank r + 1, as if another number of ranks had written them; ranks without a share of the
 * encoding get some, too. */
static void move_residuals(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    const int size = taciti_comm_size(comm), rank = taciti_comm_rank(comm);
    float *all = taciti_calloc(b.layout.n * (size_t)size, sizeof *all);
    for (int64_t step = 0; step < STEPS; step++) {
        one_step(&b, step, factor_of(10));
        CHECK(taciti_exchange_settle(b.exchange, step != 4) == TACIT_OK);
        if (step != 4) take_in(&b, step);
        for (int a = 0; a <= TACITI_RESIDUAL_RESULT && step == 3; a++) {
            float *residual = taciti_exchange_residual(b.exchange, (taciti_residual_array)a);
            if (residual == NULL) continue;
            CHECK(taciti_comm_allgather(comm, residual, b.layout.n * sizeof *residual, all) == TACIT_OK);
            memcpy(residual, all + (size_t)((rank + 1) % size) * b.layout.n, b.layout.n * sizeof *residual);
        }
        if (step == 3) taciti_exchange_restored(b.exchange, true); /* and step 4 is dropped */
        settle_balance(&b);
    }
    taciti_free(all);
    tear_down(&b);
}

static void residuals_of_other_ranks_arrive(void **state) {
    (void)state;
    try_all(move_residuals, ERRORS);
}

/* ---- dense steps ------------------------------------------------------------------------------------------------- */
static float real_number(const taciti_layout *layout, int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(3, (uint64_t)rank), (uint64_t)step);
    if (test_is_gap(layout, i)) return 0;
    return i % 7 == 0 ? -0.0F : (float)taciti_rng_unit(key, i) - 0.5F;
}

/* Without residuals, dense steps have the bits of an exchange without compression, negative zeros included. */
static void compare_dense(taciti_comm *comm, void *context) {
    bench b;
    taciti_exchange *plain = NULL;
    set_up(comm, context, &b);
    CHECK(taciti_exchange_create(comm, &b.layout, &b.options, NULL, &plain) == TACIT_OK);
    float *x = taciti_calloc(b.layout.n, sizeof *x);
    for (int64_t step = 0; step < 4; step++) {
        taciti_bucket_task setting = {.dense = step != 2, .trial.factor = 8};
        setting.setting[TACITI_PAYLOAD_CONTRIBUTION].factor = setting.setting[TACITI_PAYLOAD_RESULT].factor = 9;
        for (size_t i = 0; i < b.layout.n; i++) x[i] = b.x[i] = real_number(&b.layout, taciti_comm_rank(comm), step, i);
        taciti_exchange_at(b.exchange, step, &setting);
        const uint64_t before = taciti_comm_count(comm).bytes_sent;
        run_all(&b, b.x);
        const uint64_t between = taciti_comm_count(comm).bytes_sent;
        CHECK(taciti_exchange_run(plain, x) == TACIT_OK);
        CHECK(step == 2 || memcmp(x, b.x, b.layout.n * sizeof *x) == 0);
        CHECK(step == 2 || taciti_comm_count(comm).bytes_sent - between == between - before);
        CHECK(taciti_exchange_settle(b.exchange, step != 2) == TACIT_OK);
    }
    taciti_free(x);
    taciti_exchange_destroy(plain);
    tear_down(&b);
}

static void dense_steps_have_the_bits_of_no_compression(void **state) {
    (void)state;
    try_all(compare_dense, ERRORS);
}

/* ---- tallies ----------------------------------------------------------------------------------------------------- */
static double squares_of_inputs(const bench *b, int64_t step) {
    double sum = 0;
    for (size_t i = 0; i < b->layout.n; i++) {
        const double x = (double)small_integer(&b->layout, taciti_comm_rank(b->comm), step, i);
        sum += x * x;
    }
    return sum;
}

/* Buckets that are waited for one by one give the bits of buckets that overlap; tallies count what was sent. */
static void count_everything(taciti_comm *comm, void *context) {
    bench b, other;
    set_up(comm, context, &b);
    set_up(comm, context, &other);
    for (int64_t step = 0; step < 3; step++) {
        taciti_bucket_task setting = factor_of(step == 0 ? 4 : 25);
        setting.trial.factor = 100;
        taciti_exchange_at(other.exchange, step, &setting);
        for (size_t i = 0; i < b.layout.n; i++) other.x[i] = small_integer(&b.layout, taciti_comm_rank(comm), step, i);
        for (size_t k = 0; k < b.layout.bucket_count; k++)
            CHECK(taciti_exchange_begin(other.exchange, other.x, k) == TACIT_OK &&
                  taciti_exchange_wait(other.exchange, k) == TACIT_OK);
        const uint64_t before = taciti_comm_count(comm).bytes_sent;
        one_step(&b, step, setting);
        CHECK(memcmp(b.x, other.x, b.layout.n * sizeof *b.x) == 0);
        taciti_tally sum = {.bytes = 0};
        uint64_t results = 0;
        double squares = 0;
        for (size_t k = 0; k < b.layout.bucket_count; k++) {
            const taciti_tally *one = taciti_exchange_tally_of(b.exchange, k);
            sum.bytes += one[0].bytes + one[1].bytes;
            results += one[1].sent.n;
            sum.sent.n += one[0].sent.n;
            sum.sent.selected += one[0].sent.selected;
            sum.trial.selected += one[0].trial.selected;
            CHECK(one[0].sent.squares_out <= one[0].sent.squares_in);
            CHECK(one[0].trial.squares_out <= one[0].sent.squares_out);
            CHECK(one[0].trial.squares_in == one[0].sent.squares_in);
            squares += one[0].sent.squares_in;
        }
        CHECK(sum.trial.selected <= sum.sent.selected && sum.sent.selected <= sum.sent.n);
        CHECK(sum.sent.n == 0 || sum.trial.selected > 0);
        CHECK(step > 0 || sum.sent.n < b.layout.n || b.options.scheme != TACITI_SCHEME_FLAT ||
              squares == squares_of_inputs(&b, step)); /* later ones hold residuals */
        CHECK(sum.bytes <= taciti_comm_count(comm).bytes_sent - before);
        CHECK(results == 0 || taciti_exchange_way(b.exchange) == TACITI_WAY_SCATTER);
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
        CHECK(taciti_exchange_settle(other.exchange, true) == TACIT_OK);
    }
    tear_down(&b);
    tear_down(&other);
}

/* Gathers that begin alone count until their step ends, bucket by bucket: the second of a step twice. */
static void count_gathers(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    for (int64_t step = 0; step < 3; step++) {
        const taciti_bucket_task setting = factor_of(4);
        taciti_exchange_at(b.exchange, step, &setting);
        for (uint64_t times = 1; times <= 2; times++)
            for (size_t k = 0; k < b.layout.bucket_count; k++) {
                taciti_range own = {.n = 0};
                uint64_t owned = 0;
                for (size_t i = 0; taciti_exchange_owned(b.exchange, k, i, &own); i++) owned += own.n;
                CHECK(taciti_exchange_begin_phase(b.exchange, b.x, k, TACITI_PHASE_ALL_GATHER) == TACIT_OK);
                CHECK(taciti_exchange_wait(b.exchange, k) == TACIT_OK);
                CHECK(taciti_exchange_tally_of(b.exchange, k)[TACITI_PAYLOAD_RESULT].sent.n == times * owned);
            }
        CHECK(taciti_exchange_settle(b.exchange, step != 1) == TACIT_OK);
    }
    tear_down(&b);
}

/* A dense step with a trial: all counts as sent, and the trial as what it would send. */
static void count_dense_trials(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    const taciti_bucket_task task = {.dense = true, .trial.factor = 4};
    taciti_exchange_at(b.exchange, 0, &task);
    for (size_t i = 0; i < b.layout.n; i++) b.x[i] = small_integer(&b.layout, taciti_comm_rank(comm), 0, i);
    double squares = 0;
    run_all(&b, b.x);
    for (size_t k = 0; k < b.layout.bucket_count; k++) {
        const taciti_tally *t = taciti_exchange_tally_of(b.exchange, k);
        CHECK(t->sent.n == b.layout.buckets[k].n && t->sent.selected == t->sent.n);
        CHECK(t->sent.squares_out == t->sent.squares_in && t->trial.squares_out < t->sent.squares_in);
        CHECK(t->trial.selected > 0 && t->trial.selected < t->sent.n / 2);
        squares += t->sent.squares_in;
    }
    CHECK(squares == squares_of_inputs(&b, 0));
    tear_down(&b);
}

static void gathers_and_dense_trials_are_counted(void **state) {
    (void)state;
    trial t = {.route = TACITI_WAY_SCATTER, .scheme = TACITI_SCHEME_FLAT};
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(3, &options, count_gathers, &t);
    test_world_run(5, &options, count_dense_trials, &t);
}

static void tallies_count_what_was_encoded_and_sent(void **state) {
    (void)state;
    try_all(count_everything, ERRORS);
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */
/* Rank 0 has the same gradient in every step, rank 1 has zeros: so the result is what rank 0 sends. */
typedef struct trace {
    trial t;
    size_t n, k, steps;
    float gradient[8], sent[12][8], left[8];
} trace;

static void follow(taciti_comm *comm, void *context) {
    const trace *expected = context;
    bench b;
    open_bench(comm, &expected->t, &expected->n, 1, &b);
    for (size_t step = 0; step < expected->steps; step++) {
        const taciti_bucket_task setting = factor_of((double)b.layout.n / (double)expected->k);
        for (size_t i = 0; i < expected->n; i++) b.x[i] = taciti_comm_rank(comm) == 0 ? expected->gradient[i] : 0;
        taciti_exchange_at(b.exchange, (int64_t)step, &setting);
        run_all(&b, b.x);
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
        for (size_t i = 0; i < expected->n; i++) CHECK(fabs((double)b.x[i] - (double)expected->sent[step][i]) <= 1e-6);
    }
    const float *left = taciti_exchange_residual(b.exchange, TACITI_RESIDUAL_CONTRIBUTION);
    for (size_t i = 0; i < expected->n && taciti_comm_rank(comm) == 0; i++)
        CHECK(fabs((double)left[i] - (double)expected->left[i]) <= 1e-6);
    tear_down(&b);
}

static void follow_trace(trace *expected) {
    const taciti_comm_options options = test_comm_options(true);
    expected->t.scheme = TACITI_SCHEME_FLAT; /* auto: two members gather */
    test_hosts(ARRANGEMENTS[0]);
    test_world_run(2, &options, follow, expected);
    test_hosts(NULL);
}

static void error_feedback_follows_its_trace(void **state) {
    (void)state;
    trace expected = {.t = {.feedback = ERRORS},
                      .n = 4,
                      .steps = 12,
                      .k = 1,
                      .gradient = {1, 2, 4, 8},
                      .sent = {{0, 0, 0, 8},
                               {0, 0, 8, 0},
                               {0, 0, 0, 16},
                               {0, 8, 0, 0},
                               {0, 0, 0, 16},
                               {0, 0, 16, 0},
                               {0, 0, 0, 16},
                               {8, 0, 0, 0},
                               {0, 0, 0, 16},
                               {0, 0, 16, 0},
                               {0, 0, 0, 16},
                               {0, 16, 0, 0}},
                      .left = {4, 0, 8, 8}};
    follow_trace(&expected);
}

static void momentum_correction_follows_its_trace(void **state) {
    (void)state;
    trace expected = {.t = {.feedback = {.errors = true, .decay = 1, .momentum = 0.5}},
                      .n = 2,
                      .steps = 5,
                      .k = 1,
                      .gradient = {1, 2},
                      .sent = {{0, 2}, {2.5F, 0}, {0, 5}, {2.5F, 0}, {0, 5}},
                      .left = {1, 0}};
    follow_trace(&expected);
}

static void decay_forgets(void **state) {
    (void)state;
    trace expected = {.t = {.feedback = {.errors = true, .decay = 0.95}},
                      .n = 8,
                      .steps = 2,
                      .k = 2,
                      .gradient = {0.5F, -0.2F, 0.1F, 0.4F, 0, 0, -0.3F, 0.05F},
                      .sent = {{0.5F, 0, 0, 0.4F}, {0.5F, 0, 0, 0, 0, 0, -0.585F}},
                      .left = {0, -0.39F, 0.195F, 0.4F, 0, 0, 0, 0.0975F}};
    follow_trace(&expected);
}

/* ---- estimates --------------------------------------------------------------------------------------------------- */
/* All ranks know the sum of the owners' or of all ranks' estimates; a constant gradient is reached after n/k rounds,
 * and its sum, which has an encoding of its own with owners, after as many more. */
static void estimate(taciti_comm *comm, void *context) {
    enum { FACTOR = 4, ROUNDS = 12 };
    bench b;
    set_up(comm, context, &b);
    const float *mine = taciti_exchange_residual(b.exchange, TACITI_RESIDUAL_CONTRIBUTION);
    for (int64_t step = 0; step < 3 * ROUNDS; step++) {
        taciti_bucket_task setting = factor_of(FACTOR);
        setting.dense = step == 5;
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = small_integer(&b.layout, taciti_comm_rank(comm), 0, i);
        taciti_exchange_at(b.exchange, step, &setting);
        run_all(&b, b.x);
        has_rank_0s_bits(&b, b.x);
        CHECK(taciti_exchange_settle(b.exchange, step % 4 != 2) == TACIT_OK);
        mine = taciti_exchange_residual(b.exchange, TACITI_RESIDUAL_CONTRIBUTION);
        if (mine == NULL || step == 5 || step % 4 == 2) continue;
        const float *owned = taciti_exchange_residual(b.exchange, TACITI_RESIDUAL_RESULT);
        memset(b.sum, 0, b.layout.n * sizeof *b.sum);
        for (size_t i = 0; i < b.layout.n; i++) b.sum[i] = (double)mine[i] - (owned == NULL ? 0 : (double)owned[i]);
        CHECK(taciti_comm_allreduce_f64(comm, b.sum, b.layout.n, TACITI_OP_SUM) == TACIT_OK);
        for (size_t i = 0; i < b.layout.n; i++) CHECK(b.sum[i] == (owned == NULL ? (double)b.x[i] : 0));
    }
    for (size_t i = 0; i < b.layout.n; i++) {
        float sum = 0;
        for (int r = 0; r < taciti_comm_size(comm); r++) sum += small_integer(&b.layout, r, 0, i);
        CHECK(b.x[i] == sum);
    }
    tear_down(&b);
}

static void estimates_add_up_and_reach_a_constant_gradient(void **state) {
    (void)state;
    try_all(estimate, ESTIMATES);
}

static void refuse(taciti_comm *comm, void *context) {
    trial t = {.feedback = {.errors = true, .decay = 1, .estimates = true}};
    taciti_exchange *exchange = NULL;
    taciti_layout layout;
    void *space = NULL;
    (void)context;
    test_layout_of_five(&layout);
    const taciti_encoding compression = topk_of(&space, t.feedback, TACITI_WAY_AUTO);
    const taciti_exchange_options options = {.bucket_bytes = 10000};
    CHECK(taciti_exchange_create(comm, &layout, &options, &compression, &exchange) == TACIT_E_CONFIG);
    taciti_layout_destroy(&layout);
    taciti_free(space);
}

static void estimates_with_errors_are_refused(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_log_keep();
    test_world_run(2, &options, refuse, NULL);
    assert_true(test_log_count("estimates take the place of error feedback") > 0);
    test_log_drop();
}

/* Whole results make the way by owners the longer one. */
static void choose_ways(taciti_comm *comm, void *context) {
    (void)context;
    const taciti_codec *codec = taciti_codec_find("topk");
    const taciti_exchange_options options = {.bucket_bytes = 1 << 20};
    const size_t sizes[] = {41 * 100};
    taciti_layout layout;
    void *own = NULL;
    test_layout(sizes, 1, 1 << 20, &layout);
    CHECK(taciti_codec_defaults(codec, &own) == TACIT_OK);
    for (int whole = 0; whole < 2; whole++) {
        const taciti_encoding encoding = {
            .codec = codec, .options = own, .expected = {.factor = 100}, .back = {.factor = whole ? 1 : 100}};
        taciti_exchange *exchange = NULL;
        CHECK(taciti_exchange_create(comm, &layout, &options, &encoding, &exchange) == TACIT_OK);
        CHECK(taciti_exchange_way(exchange) == (whole ? TACITI_WAY_GATHER : TACITI_WAY_SCATTER));
        taciti_exchange_destroy(exchange);
    }
    taciti_free(own);
    taciti_layout_destroy(&layout);
}

static void what_goes_back_decides_the_way(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(5, &options, choose_ways, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_back_decides_the_way),
        cmocka_unit_test(nothing_is_lost_whatever_the_factors),
        cmocka_unit_test(nothing_is_lost_where_dense_and_compressed_buckets_mix),
        cmocka_unit_test(residuals_of_other_ranks_arrive),
        cmocka_unit_test(dense_steps_have_the_bits_of_no_compression),
        cmocka_unit_test(tallies_count_what_was_encoded_and_sent),
        cmocka_unit_test(gathers_and_dense_trials_are_counted),
        cmocka_unit_test(error_feedback_follows_its_trace),
        cmocka_unit_test(momentum_correction_follows_its_trace),
        cmocka_unit_test(decay_forgets),
        cmocka_unit_test(estimates_add_up_and_reach_a_constant_gradient),
        cmocka_unit_test(estimates_with_errors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
