/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "adapt/test_controller.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/test_sparse.h"
#include "exchange/test_wire.h"
#include "strategy/localsgd.h"
#include "strategy/test_replicas.h"

enum { MAX_RANKS = 8, STEPS = 7, NOBODY = -1 };
static const int RANKS[] = {1, 2, 3, 5, 8};
enum { RANK_COUNTS = sizeof RANKS / sizeof *RANKS };

/* Dyadic: small integers, of which sums are exact. Reals: rounded everywhere. Alike: reals, the same on every rank. */
enum { DYADIC, REALS, ALIKE };

/* What a run is asked to do and what every rank ended with. */
typedef struct trial {
    const char *strategy;
    int data, steps, threads;
    taciti_exchange_options exchange;
    taciti_localsgd_options local;
    taciti_optim_options optim;
    int bad_rank, bad_step; /* its gradient of bad_step is not finite, or, when bad is 0, all zeros */
    float bad;
    int stop_after;   /* everything is saved, destroyed, made anew and restored after so many steps; 0: never */
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

static trial trial_of(int data, int optim_name, int64_t every) {
    return (trial){.strategy = "localsgd",
                   .data = data,
                   .steps = STEPS,
                   .threads = 1,
                   .exchange = {.bucket_bytes = 4096, .overlap = true},
                   .local = {.every = every, .outer_lr = 1, .outer_nesterov = true},
                   .optim = {.name = optim_name, .lr = 0.0625, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
                   .bad_rank = NOBODY};
}

static trial diloco_of(int data, int64_t every) {
    trial t = trial_of(data, TACITI_OPTIM_SGD, every);
    t.local.outer_lr = 0.7;
    t.local.outer_momentum = 0.9;
    return t;
}

static float gradient(const trial *t, int rank, int step, size_t i) {
    if (t->constant > 0) return t->constant;
    const uint64_t stream = t->data == ALIKE ? 0 : (uint64_t)rank;
    const uint64_t key = taciti_rng_key(taciti_rng_key(3, stream), (uint64_t)step);
    const float integer = (float)((int)taciti_rng_below(key, i, 9) - 4);
    return t->data == DYADIC ? integer : integer / 7 + (float)(i % 11) / 97;
}

static float start_value(const trial *t, size_t i) {
    const float integer = (float)(i % 17) - 8;
    return t->data == DYADIC ? integer : integer / 13;
}

static const size_t SIZES[TEST_TENSORS] = {3000, 17, 900};

static void backward(const trial *t, const taciti_layout *layout, int rank, int step, float *g) {
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
} worker;

static void open_worker(worker *w) {
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
    size_t predicted = 0;
    CHECK(w->strategy->predict_bytes(&c, &predicted) == TACIT_OK && predicted < (size_t)1 << 24);
    CHECK(w->strategy->create(&c, &w->self) == TACIT_OK);
}

static void close_worker(worker *w) {
    w->strategy->destroy(w->self);
    taciti_optim_destroy(w->optim);
    taciti_pool_destroy(w->pool);
    taciti_free(w->p);
    taciti_free(w->g);
    taciti_free(w->copy);
}

static void start(worker *w, int64_t step, bool restored) {
    taciti_kernels_get()->bf16_encode(w->copy, w->p, w->layout.n);
    if (w->strategy->start != NULL) CHECK(w->strategy->start(w->self, step, restored) == TACIT_OK);
}

static float *copy_of(const float *flat, size_t n) {
    float *copy = taciti_calloc(n, sizeof *copy);
    memcpy(copy, flat, n * sizeof *copy);
    return copy;
}

static taciti_state state_of(const worker *w) {
    taciti_state state = {.count = 0};
    w->strategy->state(w->self, &state);
    return state;
}

static size_t bytes_of(const taciti_state_entry *entry) {
    if (entry->kind == TACITI_STATE_COUNT) return sizeof(int64_t);
    return entry->n * (entry->kind == TACITI_STATE_ARRAY ? sizeof(float) : sizeof(double));
}

/* Saves what a checkpoint holds of this rank, makes everything anew and restores it. forget: only what does not belong
 * to the strategy. */
static void stop_and_go_on(worker *w, int step) {
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
static void check_bytes(const worker *w, int step, taciti_comm_counters before) {
    const taciti_comm_counters after = taciti_comm_count(w->comm);
    const uint64_t sent = after.bytes_sent - before.bytes_sent;
    const uint64_t away = test_sum_over_host(w->comm, after.away_bytes_sent - before.away_bytes_sent);
    const uint64_t every = (uint64_t)w->t->local.every;
    if (((uint64_t)step + 1) % every != 0) {
        CHECK(sent == 0 && away == 0);
        return;
    }
    CHECK((sent + every / 2) / every == w->strategy->bytes_per_step(w->self));
    CHECK((away + every / 2) / every == w->strategy->nic_bytes_per_step(w->self));
}

static void check_copy(const worker *w) {
    taciti_bf16 *expected = taciti_calloc(w->layout.n, sizeof *expected);
    taciti_kernels_get()->bf16_encode(expected, w->p, w->layout.n);
    CHECK(memcmp(w->copy, expected, w->layout.n * sizeof *expected) == 0);
    taciti_free(expected);
}

static void take_step(worker *w, int step) {
    const taciti_comm_counters before = taciti_comm_count(w->comm);
    backward(w->t, &w->layout, w->rank, step, w->g);
    for (size_t b = 0; w->strategy->ready != NULL && b < w->layout.bucket_count; b++)
        CHECK(w->strategy->ready(w->self, b) == TACIT_OK);
    CHECK(w->strategy->finish(w->self, w->t->optim.lr, &w->t->reports[w->rank][step]) == TACIT_OK);
    if (w->t->check_bytes) check_bytes(w, step, before);
    check_copy(w);
}

/* The average is taken back to the bit, and copy16 follows both ways. */
static void look_at_the_average(worker *w, int step) {
    const size_t n = w->layout.n;
    float *own = copy_of(w->p, n);
    double *distance = &w->t->distances[w->rank][step];
    CHECK(w->strategy->average(w->self, distance) == TACIT_OK);
    check_copy(w);
    if (*distance == 0) CHECK(memcmp(w->p, own, n * sizeof *own) == 0);
    w->strategy->revert(w->self);
    CHECK(memcmp(w->p, own, n * sizeof *own) == 0);
    check_copy(w);
    taciti_free(own);
}

static void train(taciti_comm *comm, void *context) {
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
        if (w.strategy->average != NULL && !t->emulated) look_at_the_average(&w, step);
        if (t->stop_after == step + 1) stop_and_go_on(&w, step + 1);
    }
    t->parameters[w.rank] = copy_of(w.p, w.layout.n);
    if (w.rank == 0) t->n = w.layout.n;
    close_worker(&w);
    taciti_layout_destroy(&w.layout);
}

static void play(trial *t, int ranks) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(ranks, &options, train, t);
}

static void play_both(trial *a, trial *b, int ranks) { play(a, ranks), play(b, ranks); }

static void forget(trial *t, int ranks) {
    for (int r = 0; r < ranks; r++) taciti_free(t->parameters[r]);
}

static void forget_both(trial *a, trial *b, int ranks) { forget(a, ranks), forget(b, ranks); }

static void assert_same(const trial *a, const trial *b, int ranks) {
    assert_int_equal(a->n, b->n);
    for (int r = 0; r < ranks; r++) assert_memory_equal(a->parameters[r], b->parameters[r], a->n * sizeof(float));
}

static void assert_replicas_equal(const trial *t, int ranks) {
    for (int r = 1; r < ranks; r++) assert_memory_equal(t->parameters[r], t->parameters[0], t->n * sizeof(float));
}

/* A period moves every replica by lr N = 0.125, less than the threshold: the average takes part in it some periods
 * later. What is missing in the end are residuals, below the threshold in each contribution and in the sum. */
static void error_feedback_loses_nothing(void **state) {
    (void)state;
    static const test_sparse_options THRESHOLD = {.threshold = 0.3};
    static const taciti_compress_options FEEDBACK = {.factor = 10, .feedback = true, .decay = 1, .seed = 7};
    const taciti_compression_setup sparse = {.codec = &test_sparse, .codec_options = &THRESHOLD, .options = &FEEDBACK};
    trial t = trial_of(DYADIC, TACITI_OPTIM_SGD, 1);
    t.compression = sparse;
    t.constant = 1;
    play(&t, 2);
    assert_memory_equal(t.parameters[1], t.parameters[0], t.n * sizeof(float));
    for (size_t i = 0; i < SIZES[0]; i++) {
        const double moved = (double)start_value(&t, i) - (double)t.parameters[0][i], all = STEPS * 0.125;
        assert_true(moved <= all && moved > all - 1.5 * THRESHOLD.threshold);
    }
    forget(&t, 2);
}

/* A controller that compares what the ranks' controllers are told. Every second outer step is dense. */
typedef struct witness {
    _Atomic uint64_t told[STEPS]; /* by the first rank */
    _Atomic int decisions, others;
} witness;

static size_t witness_state_bytes(const void *options, size_t buckets) {
    (void)options;
    (void)buckets;
    return sizeof(double);
}

static void witness_start(const void *options, const taciti_adapt_start *start, void *state, taciti_decision *decision,
                          double *factors) {
    (void)options;
    (void)start;
    (void)state;
    (void)factors;
    *decision = (taciti_decision){.factor = 1};
}

static void witness_decide(const void *options, const taciti_adapt_facts *facts, void *state, taciti_decision *decision,
                           double *factors) {
    witness *w = *(witness *const *)options;
    const double squares = facts->model.squares_total + facts->model.sent.squares_in;
    uint64_t told = 0, first = 0;
    (void)factors;
    memcpy(&told, &squares, sizeof told);
    if (!atomic_compare_exchange_strong(&w->told[facts->step], &first, told) && first != told) w->others++;
    w->decisions++;
    *(double *)state = squares;
    decision->factor = decision->factor > 1 ? 1 : 10;
    taciti_decision_explain(decision, "alternates");
}

static const taciti_controller WITNESS = {.name = "witness",
                                          .help = "-",
                                          .source = "-",
                                          .state_bytes = witness_state_bytes,
                                          .start = witness_start,
                                          .decide = witness_decide};

static void defaults(const taciti_option_table *table, void *values) {
    const taciti_section section = {.table = table, .values = values};
    assert_int_equal(taciti_config_defaults(&(taciti_config){&section, 1}), TACIT_OK);
}

/* Gradients differ between ranks; what a controller sees, and what it decides, does not. */
static void controllers_see_the_same_on_all_ranks(void **state) {
    (void)state;
    static const taciti_compress_options FEEDBACK = {.factor = 10, .feedback = true, .decay = 1, .seed = 7};
    const taciti_codec *topk = taciti_codec_find("topk");
    driven knee = driven_create("knee");
    void *codec_options = taciti_calloc(1, topk->options_size);
    witness w = {.decisions = 0};
    witness *borrowed = &w;
    defaults(topk->options, codec_options);
    trial t = trial_of(REALS, TACITI_OPTIM_SGD, 1);
    t.compression = (taciti_compression_setup){.codec = topk,
                                               .codec_options = codec_options,
                                               .options = &FEEDBACK,
                                               .controller = knee.controller,
                                               .controller_options = knee.options};
    play(&t, 4);
    assert_replicas_equal(&t, 4);
    forget(&t, 4);
    t.compression.controller = &WITNESS;
    t.compression.controller_options = &borrowed;
    play(&t, 4);
    assert_replicas_equal(&t, 4);
    assert_int_equal(w.decisions, 4 * STEPS);
    assert_int_equal(w.others, 0);
    for (int step = 0; step < STEPS; step++)
        assert_true(w.told[step] != 0 && t.reports[1][step].factor == (step % 2 ? 10 : 1));
    forget(&t, 4);
    taciti_free(codec_options);
    driven_destroy(&knee);
}

/* Elements that a rank's contributions and the owners' sums hold on 4 ranks, at a factor and on the way back. */
static double bytes_of_a_step(double back, int64_t warmup, int step) {
    const taciti_codec *topk = taciti_codec_find("topk");
    const taciti_compress_options o = {
        .factor = 16, .back = back, .warmup = warmup, .collective = TACITI_ROUTE_SCATTER, .feedback = true, .decay = 1};
    void *codec_options = taciti_calloc(1, topk->options_size);
    defaults(topk->options, codec_options);
    trial t = trial_of(REALS, TACITI_OPTIM_SGD, 1);
    t.compression = (taciti_compression_setup){.codec = topk, .codec_options = codec_options, .options = &o};
    play(&t, 4);
    assert_replicas_equal(&t, 4);
    forget(&t, 4);
    taciti_free(codec_options);
    return t.reports[0][step].bytes;
}

/* Also when a threshold is known, from the second step on; and the way back warms up as the way there. */
static void the_way_back_has_its_own_factor(void **state) {
    (void)state;
    const double quarter = (double)(SIZES[0] + SIZES[1] + SIZES[2]); /* bytes of a quarter of the sum */
    for (int step = 0; step < STEPS; step++) assert_true(bytes_of_a_step(1, 0, step) > 2.5 * quarter);
    assert_true(bytes_of_a_step(16, 0, 2) < 1.5 * quarter);
    assert_true(bytes_of_a_step(16, 100, 2) > 5 * quarter);
}

static bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

static void alone_it_is_dp_to_the_bit(void **state) {
    (void)state;
    for (int name = TACITI_OPTIM_ADAMW; name <= TACITI_OPTIM_SGD; name++)
        for (int64_t every = 1; every <= 3; every += 2)
            for (int clip = 0; clip < 2; clip++) {
                trial local = trial_of(REALS, name, every);
                local.optim.clip = clip;
                local.optim.momentum = 0.9;
                local.optim.weight_decay = 0.1;
                local.check_bytes = true;
                trial dp = local;
                dp.strategy = "dp";
                dp.check_bytes = false;
                play_both(&local, &dp, 1);
                assert_same(&local, &dp, 1);
                for (int s = 0; s < STEPS; s++)
                    assert_true(local.reports[0][s].grad_norm == dp.reports[0][s].grad_norm &&
                                local.distances[0][s] == 0);
                forget_both(&local, &dp, 1);
            }
}

/* x - lr N g_i averaged is x - lr sum g_i: exact in small integers, else up to the rounding of some operations. */
static void averaging_every_step_of_sgd_is_dp(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++)
        for (int data = DYADIC; data <= REALS; data++) {
            trial local = trial_of(data, TACITI_OPTIM_SGD, 1);
            local.check_bytes = true;
            trial dp = local;
            dp.strategy = "dp";
            dp.check_bytes = false;
            play_both(&local, &dp, RANKS[k]);
            assert_replicas_equal(&local, RANKS[k]);
            if (data == DYADIC && is_power_of_two(RANKS[k])) assert_same(&local, &dp, RANKS[k]);
            for (size_t i = 0; i < local.n; i++)
                assert_true(fabsf(local.parameters[0][i] - dp.parameters[0][i]) <= STEPS * 32 * 8 * 0x1p-23f);
            forget_both(&local, &dp, RANKS[k]);
        }
}

/* The same steps without the average at their end: its replicas are what is averaged, `moved` how far each of them is
 * moved. */
static void the_average_conserves_the_sum(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++)
        for (int data = DYADIC; data <= REALS; data++) {
            const int ranks = RANKS[k];
            trial met = trial_of(data, TACITI_OPTIM_SGD, 4), apart = trial_of(data, TACITI_OPTIM_SGD, 5);
            met.steps = apart.steps = 4;
            play_both(&met, &apart, ranks);
            assert_replicas_equal(&met, ranks);
            double moved[MAX_RANKS] = {0};
            for (size_t i = 0; i < met.n; i++) {
                double sum = 0;
                for (int r = 0; r < ranks; r++) {
                    const double d = (double)met.parameters[r][i] - (double)apart.parameters[r][i];
                    sum += (double)apart.parameters[r][i];
                    moved[r] += d * d;
                }
                const double error = fabs(ranks * (double)met.parameters[0][i] - sum);
                assert_true(error <= (data == DYADIC && is_power_of_two(ranks) ? 0 : ranks * 32 * 4 * 0x1p-23));
            }
            double sum_moved = 0;
            for (int r = 0; r < ranks; r++) {
                assert_true(fabs(met.reports[r][3].moved - moved[r]) <= 1e-5 * moved[r]);
                assert_true(met.reports[r][2].moved == 0 && (ranks == 1 || met.reports[r][3].moved > 0));
                sum_moved += met.reports[r][3].moved;
            }
            const double distance = apart.distances[0][3]; /* what `moved` is the local part of */
            assert_true(fabs(sqrt(sum_moved / ranks) - distance) <= 1e-5 * distance);
            forget_both(&met, &apart, ranks);
        }
}

static void consensus_is_exact_after_an_average_and_lost_between(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++)
        for (int outer = 0; outer < 2; outer++)
            for (int wire = 0; wire < 2; wire++) {
                trial t = outer == 0 ? trial_of(REALS, TACITI_OPTIM_ADAMW, 3) : diloco_of(REALS, 3);
                t.exchange.wire = test_wire(wire);
                t.check_bytes = true;
                play(&t, RANKS[k]);
                for (int r = 0; r < RANKS[k]; r++)
                    for (int s = 0; s < STEPS; s++) {
                        const bool together = s % 3 == 2 || RANKS[k] == 1;
                        assert_true(together ? t.distances[r][s] == 0 : t.distances[r][s] > 0);
                        assert_memory_equal(&t.distances[r][s], &t.distances[0][s], sizeof(double));
                    }
                forget(&t, RANKS[k]);
            }
}

static void equal_data_keeps_replicas_equal(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++)
        for (int name = TACITI_OPTIM_ADAMW; name <= TACITI_OPTIM_ACCUM_ADAM; name++) {
            trial t = trial_of(ALIKE, name, 3);
            t.optim.accum = 2;
            t.optim.clip = 1;
            play(&t, RANKS[k]); /* ends within a period */
            assert_replicas_equal(&t, RANKS[k]);
            forget(&t, RANKS[k]);
        }
}

static void overlap_and_threads_change_no_bit(void **state) {
    (void)state;
    for (int wire = 0; wire < 2; wire++)
        for (int threads = 1; threads <= 3; threads += 2) {
            trial one = diloco_of(REALS, 2), other = one;
            one.exchange.wire = other.exchange.wire = test_wire(wire);
            other.exchange.overlap = false;
            other.threads = threads;
            play_both(&one, &other, 3);
            assert_same(&one, &other, 3);
            for (int s = 0; s < STEPS; s++) assert_true(one.reports[1][s].moved == other.reports[1][s].moved);
            forget_both(&one, &other, 3);
        }
}

/* Algorithm 1 in double, one element: inner SGD without momentum, outer SGD in the form of PyTorch. */
static double diloco(const trial *t, int ranks, size_t i) {
    const taciti_localsgd_options *o = &t->local;
    double theta = (double)start_value(t, i), velocity = 0, x[MAX_RANKS];
    for (int r = 0; r < ranks; r++) x[r] = theta;
    for (int s = 0; s < t->steps; s++) {
        for (int r = 0; r < ranks; r++) x[r] -= t->optim.lr * ranks * (double)gradient(t, r, s, i);
        if ((s + 1) % o->every != 0) continue;
        double delta = 0;
        for (int r = 0; r < ranks; r++) delta += (theta - x[r]) / ranks;
        velocity = o->outer_momentum * velocity + delta;
        theta -= o->outer_lr * (o->outer_nesterov ? delta + o->outer_momentum * velocity : velocity);
        for (int r = 0; r < ranks; r++) x[r] = theta;
    }
    return x[0];
}

static void the_outer_step_is_that_of_the_paper(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++)
        for (int nesterov = 0; nesterov < 2; nesterov++)
            for (int64_t every = 1; every <= 7; every += 6) {
                trial t = diloco_of(REALS, every);
                t.local.outer_nesterov = nesterov == 1;
                play(&t, RANKS[k]);
                for (size_t i = 0; i < 3000; i++) {
                    const double exact = diloco(&t, RANKS[k], i);
                    assert_true(fabs((double)t.parameters[0][i] - exact) <= 1e-5 * (16 + fabs(exact)));
                }
                assert_replicas_equal(&t, RANKS[k]);
                forget(&t, RANKS[k]);
            }
}

/* A 16-bit wire rounds differences (8 bits: 2^-8 of each contribution and of the sum), never a parameter. */
static void a_short_wire_rounds_differences_only(void **state) {
    (void)state;
    trial fine = trial_of(REALS, TACITI_OPTIM_SGD, STEPS), coarse = fine;
    fine.optim.lr = coarse.optim.lr = 1e-4; /* differences are far below the spacing of bf16 parameters */
    coarse.exchange.wire = test_wire(1);
    play_both(&fine, &coarse, 3);
    assert_replicas_equal(&coarse, 3);
    size_t changed = 0;
    for (size_t i = 0; i < fine.n; i++) {
        const float difference = fabsf(fine.parameters[0][i] - coarse.parameters[0][i]);
        assert_true(difference <= STEPS * 3 * 1e-4f * 0x1p-7f + 0x1p-24f);
        changed += difference > 0;
    }
    assert_true(changed > 0);
    forget_both(&fine, &coarse, 3);
}

/* The formulas are checked in every step. */
static void bytes_between_hosts_are_as_predicted(void **state) {
    (void)state;
    for (int per_host = 1; per_host <= 4; per_host++)
        for (int64_t every = 1; every <= 3; every++) {
            trial t = trial_of(REALS, TACITI_OPTIM_SGD, every);
            t.exchange.wire = test_wire(per_host % 2);
            t.check_bytes = true;
            test_ranks_per_host(per_host);
            play(&t, 5);
            test_ranks_per_host(0);
            forget(&t, 5);
        }
}

/* It skips its step, not the average: as if its gradient had been 0. */
static void a_bad_gradient_makes_its_own_rank_skip(void **state) {
    (void)state;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int step = 2; step <= 3; step++) { /* the average's own step, and one after it */
            trial t = trial_of(REALS, TACITI_OPTIM_SGD, 3), zero = t;
            t.bad_rank = zero.bad_rank = 1;
            t.bad_step = zero.bad_step = step;
            t.bad = bad[i];
            play_both(&t, &zero, 3);
            assert_same(&t, &zero, 3);
            for (int r = 0; r < 3; r++)
                for (int s = 0; s < STEPS; s++) {
                    assert_true(t.reports[r][s].skipped == (r == 1 && s == step));
                    assert_true(isfinite(t.reports[r][s].grad_norm) == !t.reports[r][s].skipped);
                }
            forget_both(&t, &zero, 3);
        }
}

/* Its own gradient is N times what it contributes. */
static void each_rank_clips_by_its_own_norm(void **state) {
    (void)state;
    trial t = trial_of(REALS, TACITI_OPTIM_SGD, STEPS + 1);
    t.optim.clip = 0.5;
    t.steps = 1;
    play(&t, 5);
    for (int r = 0; r < 5; r++) {
        double squares = 0, moved = 0;
        for (size_t i = 0; i < 3000; i++) {
            const double d = (double)t.parameters[r][i] - (double)start_value(&t, i), g = (double)gradient(&t, r, 0, i);
            moved += d * d;
            squares += g * g;
        }
        assert_true(t.reports[r][0].grad_norm >= 5 * sqrt(squares) * (1 - 1e-6));
        assert_true(moved > 0 && sqrt(moved) <= 0.0625 * 0.5 * (1 + 1e-5));
    }
    assert_true(t.reports[0][0].grad_norm != t.reports[1][0].grad_norm);
    forget(&t, 5);
}

static void a_stop_anywhere_in_a_period_changes_no_bit(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++)
        for (int name = TACITI_OPTIM_ADAMW; name <= TACITI_OPTIM_SGD; name++)
            for (int stop = 1; stop < 5; stop++) {
                trial t = diloco_of(REALS, 3);
                t.optim.name = name;
                t.optim.momentum = 0.9;
                trial stopped = t;
                stopped.stop_after = stop;
                play_both(&t, &stopped, RANKS[k]);
                assert_same(&t, &stopped, RANKS[k]);
                forget_both(&t, &stopped, RANKS[k]);
            }
}

/* One rank alone averages by doing nothing; its anchor moves nevertheless, so that an outer step may begin there. */
static void alone_the_anchor_is_where_the_period_began(void **state) {
    (void)state;
    trial t = trial_of(DYADIC, TACITI_OPTIM_SGD, 3), anchor = t, unmoved = t;
    t.stop_after = 4;
    t.then_lr = 0.5;
    anchor.steps = 3;
    t.steps = unmoved.steps = 6;
    play(&t, 1);
    play_both(&anchor, &unmoved, 1);
    for (size_t i = 0; i < t.n; i++) /* exact: small multiples of 1/32 */
        assert_true(t.parameters[0][i] == (anchor.parameters[0][i] + unmoved.parameters[0][i]) / 2);
    forget(&t, 1);
    forget_both(&anchor, &unmoved, 1);
}

static void without_numbers_averages_keep_their_steps(void **state) {
    (void)state;
    trial t = trial_of(REALS, TACITI_OPTIM_SGD, 3);
    t.stop_after = 4;
    t.forget = t.check_bytes = true;
    play(&t, 3);
    for (int s = 0; s < STEPS; s++) assert_true((t.distances[0][s] == 0) == (s % 3 == 2));
    forget(&t, 3);
}

static void an_emulated_step_moves_bytes_only(void **state) {
    (void)state;
    trial t = diloco_of(REALS, 2);
    t.emulated = t.check_bytes = true;
    t.bad = NAN;
    t.bad_rank = 1;
    play(&t, 3);
    for (int r = 0; r < 3; r++) {
        for (size_t i = 0; i < 3000; i++) assert_true(t.parameters[r][i] == start_value(&t, i));
        for (int s = 0; s < STEPS; s++) assert_true(!t.reports[r][s].skipped && t.reports[r][s].moved == 0);
    }
    forget(&t, 3);
}

static void refuse(taciti_comm *comm, void *context) {
    worker w = {.t = context, .comm = comm};
    const double wrong[] = {-1, 3, 1e300, (double)NAN};
    w.strategy = taciti_strategy_find("localsgd");
    w.local = w.t->local;
    test_make_layout(SIZES, TEST_TENSORS, 4096, &w.layout);
    open_worker(&w);
    const taciti_state state = state_of(&w);
    double *done = taciti_state_find(&state, "numbers")->data;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        *done = wrong[i];
        CHECK(w.strategy->start(w.self, 1, true) == TACIT_E_CONFIG);
    }
    *done = 2;
    CHECK(w.strategy->start(w.self, 2, true) == TACIT_OK);
    CHECK(w.strategy->period(w.self) == 3);
    close_worker(&w);
    taciti_layout_destroy(&w.layout);
}

static void a_place_outside_the_period_is_refused(void **state) {
    (void)state;
    trial t = trial_of(REALS, TACITI_OPTIM_SGD, 3);
    const taciti_comm_options options = test_comm_options(true);
    test_log_keep();
    test_world_run(1, &options, refuse, &t);
    assert_int_equal(test_log_count("localsgd.every is 3"), 4);
    test_log_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_feedback_loses_nothing),
        cmocka_unit_test(the_way_back_has_its_own_factor),
        cmocka_unit_test(controllers_see_the_same_on_all_ranks),
        cmocka_unit_test(alone_it_is_dp_to_the_bit),
        cmocka_unit_test(averaging_every_step_of_sgd_is_dp),
        cmocka_unit_test(the_average_conserves_the_sum),
        cmocka_unit_test(consensus_is_exact_after_an_average_and_lost_between),
        cmocka_unit_test(equal_data_keeps_replicas_equal),
        cmocka_unit_test(overlap_and_threads_change_no_bit),
        cmocka_unit_test(the_outer_step_is_that_of_the_paper),
        cmocka_unit_test(a_short_wire_rounds_differences_only),
        cmocka_unit_test(bytes_between_hosts_are_as_predicted),
        cmocka_unit_test(a_bad_gradient_makes_its_own_rank_skip),
        cmocka_unit_test(each_rank_clips_by_its_own_norm),
        cmocka_unit_test(a_stop_anywhere_in_a_period_changes_no_bit),
        cmocka_unit_test(alone_the_anchor_is_where_the_period_began),
        cmocka_unit_test(without_numbers_averages_keep_their_steps),
        cmocka_unit_test(an_emulated_step_moves_bytes_only),
        cmocka_unit_test(a_place_outside_the_period_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
