/* SPDX-License-Identifier: Apache-2.0
 *
 * localsgd whose differences are compressed.
 */
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
#include "codec/test_sparse.h"
#include "strategy/test_localsgd.h"

/* A period moves every replica by lr N = 0.125, less than the threshold: the average takes part in it some periods
 * later. The residuals are missing in the end, below the threshold in each contribution and in the sum. */
static void error_feedback_loses_nothing(void **state) {
    (void)state;
    static const test_sparse_options THRESHOLD = {.threshold = 0.3};
    static const taciti_compress_options FEEDBACK = {.factor = 10, .feedback = 1};
    const taciti_compression_setup sparse = {
        .sums.codec = &test_sparse, .sums.options = &THRESHOLD, .options = &FEEDBACK};
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

static size_t witness_state_bytes(size_t buckets) {
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
    const double squares = facts->model.sent.squares_in;
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
    static const taciti_compress_options FEEDBACK = {.factor = 10, .feedback = 1};
    const taciti_codec *topk = taciti_codec_find("topk");
    driven gravac = driven_create("gravac");
    void *codec_options = taciti_calloc(1, topk->options_size);
    witness w = {.decisions = 0};
    witness *borrowed = &w;
    defaults(topk->options, codec_options);
    trial t = trial_of(REALS, TACITI_OPTIM_SGD, 1);
    t.compression = (taciti_compression_setup){.sums.codec = topk,
                                               .sums.options = codec_options,
                                               .options = &FEEDBACK,
                                               .controller = gravac.controller,
                                               .controller_options = gravac.options};
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
    driven_destroy(&gravac);
}

/* Bytes that a rank's contributions and the owners' sums take on 4 ranks, at a factor and on the way back. */
static double bytes_of_a_step(int64_t every, double back, int64_t warmup, int step) {
    const taciti_codec *topk = taciti_codec_find("topk");
    const taciti_compress_options o = {
        .factor = 16, .back = back, .warmup = warmup, .start = 1, .collective = TACITI_WAY_SCATTER, .feedback = 1};
    void *codec_options = taciti_calloc(1, topk->options_size);
    defaults(topk->options, codec_options);
    trial t = trial_of(REALS, TACITI_OPTIM_SGD, every);
    t.compression = (taciti_compression_setup){.sums.codec = topk, .sums.options = codec_options, .options = &o};
    play(&t, 4);
    if (every == 1) assert_replicas_equal(&t, 4);
    forget(&t, 4);
    taciti_free(codec_options);
    return t.reports[0][step].bytes;
}

/* Also when a threshold is known, from the second step on; and the way back warms up as the way there. */
static void the_way_back_has_its_own_factor(void **state) {
    (void)state;
    const double quarter = (double)(SIZES[0] + SIZES[1] + SIZES[2]); /* bytes of a quarter of the sum */
    for (int step = 0; step < STEPS; step++) assert_true(bytes_of_a_step(1, 1, 0, step) > 2.5 * quarter);
    assert_true(bytes_of_a_step(1, 16, 0, 2) < 1.5 * quarter);
    assert_true(bytes_of_a_step(1, 16, 100, 2) > 5 * quarter);
}

/* Steps that send nothing report the mean of the last average, as they do without a codec; none is known before it. */
static void every_step_of_a_period_reports_its_mean(void **state) {
    enum { EVERY = 3 };
    (void)state;
    double bytes[STEPS];
    for (int step = 0; step < STEPS; step++) bytes[step] = bytes_of_a_step(EVERY, 0, 0, step);
    assert_true(bytes[0] == 0 && bytes[1] == 0 && bytes[2] > 0 && bytes[5] > 0);
    for (int step = 2; step < STEPS; step++) assert_true(bytes[step] == bytes[step < 5 ? 2 : 5]);
}

static const double *numbers_of(const taciti_state *state, const char *name) {
    const taciti_state_entry *entry = taciti_state_find(state, name);
    CHECK(entry != NULL && entry->kind == TACITI_STATE_NUMBERS);
    return entry->data;
}

/* An average's threshold is made for the factor that the next average has. */
static void watch_warmup(taciti_comm *comm, void *context) {
    enum { EVERY = 2 };
    static trial trials[MAX_RANKS];
    worker w = {.t = &trials[taciti_comm_rank(comm)], .comm = comm, .rank = taciti_comm_rank(comm)};
    double next = 0;
    *w.t = trial_of(REALS, TACITI_OPTIM_SGD, EVERY);
    w.t->compression = *(const taciti_compression_setup *)context;
    w.strategy = taciti_strategy_find("localsgd");
    w.local = w.t->local;
    test_make_layout(SIZES, TEST_TENSORS, 4096, &w.layout);
    open_worker(&w);
    start(&w, 0, false);
    for (int step = 0; step < STEPS; step++) {
        take_step(&w, step);
        if (step % EVERY != EVERY - 1) continue;
        const taciti_state state = state_of(&w);
        CHECK(next == 0 || w.t->reports[w.rank][step].factor == next);
        CHECK(numbers_of(&state, "strategy.sent")[1] > 0);
        next = numbers_of(&state, "strategy.sent")[0];
    }
    CHECK(next > 2);
    close_worker(&w);
    taciti_layout_destroy(&w.layout);
}

static void a_warmup_goes_by_averages(void **state) {
    (void)state;
    static const taciti_compress_options RISES = {.factor = 32, .start = 2, .warmup = STEPS, .feedback = 1};
    const taciti_codec *topk = taciti_codec_find("topk");
    void *codec_options = taciti_calloc(1, topk->options_size);
    defaults(topk->options, codec_options);
    taciti_compression_setup setup = {.sums.codec = topk, .sums.options = codec_options, .options = &RISES};
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(3, &options, watch_warmup, &setup);
    taciti_free(codec_options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_feedback_loses_nothing),    cmocka_unit_test(controllers_see_the_same_on_all_ranks),
        cmocka_unit_test(the_way_back_has_its_own_factor), cmocka_unit_test(every_step_of_a_period_reports_its_mean),
        cmocka_unit_test(a_warmup_goes_by_averages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
