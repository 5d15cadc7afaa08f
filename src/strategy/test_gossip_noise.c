/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam without the noise of a rank's share of the batch, and the steps of dp at the start of gossip.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "exchange/test_wire.h"
#include "strategy/test_replicas.h"

enum { SIGNAL, SHARE }; /* places in the arrays of a checkpoint without others of gossip */

static test_replicas adam_of(int ranks, int steps, const char *topology, test_problem problem) {
    test_replicas t = test_replicas_of_adam(ranks, steps, topology);
    t.optim.name = TACITI_OPTIM_ADAMW;
    t.optim.weight_decay = t.optim.clip = 0;
    t.optim.beta2 = 0.95;
    t.problem = problem;
    t.gossip.denoise = 8;
    return t;
}

/* ---- the share --------------------------------------------------------------------------------------------------- */

static void one_rank_makes_the_steps_of_adam(void **state) {
    (void)state;
    test_replicas plain = adam_of(1, 30, "exp", TEST_UNEQUAL), other = plain;
    plain.gossip.denoise = 0;
    other.gossip.start = 0.5;
    other.total_steps = 30;
    assert_true(test_replicas_agree(&plain, &other));
}

static void equal_gradients_make_the_steps_of_adam(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 6; ranks++)
        for (size_t floats = 10; floats <= 700; floats += 690) {
            test_replicas plain = adam_of(ranks, 40, "complete", TEST_EQUAL), other = plain;
            plain.floats = other.floats = floats;
            plain.gossip.denoise = 0;
            assert_true(test_replicas_agree(&plain, &other));
        }
}

/* Every element has a share of 1/N, up to the noise of the signals: their mean square is f/N there, and it counts. */
static void noise_alone_counts_one_nth(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks += 3) {
        test_replicas t = adam_of(ranks, 64, "exp", TEST_NOISE);
        const double f = (1 - t.optim.beta1) / (1 + t.optim.beta1), least = 1.0 / ranks;
        double sum = 0;
        t.floats = 4000;
        test_replicas_run(&t);
        size_t n = 0;
        for (size_t i = 0; i < t.floats; i++, n++) {
            const double share = (double)t.arrays[0][SHARE][i];
            assert_true(share >= least - 1e-6 && share <= 1);
            sum += share;
        }
        const double expected = least + f / ranks * (1 - least); /* 1/N + q (1 - 1/N) */
        assert_true(fabs(sum / (double)n - expected) < 0.03 * least);
        for (int r = 1; r < ranks; r++)
            assert_memory_equal(t.arrays[r][SHARE], t.arrays[0][SHARE], t.n * sizeof(float));
        test_replicas_free(&t);
    }
}

static double square_distance(const test_replicas *t) {
    double sum = 0;
    for (size_t i = 0; i < t->floats; i++) {
        const double moved = (double)t->parameters[0][i] - t->start;
        sum += moved * moved;
    }
    return sum / (double)t->floats;
}

/* The mean of the replicas' steps is as long as dense training's, less two things: where signals have seen a large mean
 * of first moments by chance, the share is larger for a while (4 %), and 20 of the 400 steps know no share yet (3 %).
 * Without the share it is a fifth. The mean squares have a standard error of 2 %. */
static void steps_are_as_long_as_dense_ones(void **state) {
    (void)state;
    double moved[3] = {1};
    for (int kind = 0; kind < 3; kind++) {
        test_replicas t = adam_of(5, 400, "complete", TEST_NOISE);
        t.floats = 10000;
        t.gossip.denoise = kind == 2 ? 24 : 0;
        t.gossip.start = kind == 2 ? 0.1 : 0;
        t.total_steps = 400;
        if (kind == 0) t.strategy = "dp";
        test_replicas_run(&t);
        moved[kind] = square_distance(&t) / moved[0];
        if (kind == 0) moved[0] = square_distance(&t);
        test_replicas_free(&t);
    }
    assert_true(moved[1] > 0.18 && moved[1] < 0.22);
    assert_true(moved[2] > 0.88 && moved[2] < 1.05);
}

/* ---- the steps of dp --------------------------------------------------------------------------------------------- */

/* Their sums are int8 with error feedback, whatever mixes are compressed with. */
static void the_first_steps_are_those_of_dp_in_int8(void **state) {
    (void)state;
    static const char *const CODECS[] = {NULL, "f32", "int4", "int8", "topk", "signmag2", TACITI_GOSSIP_POWER};
    for (int ranks = 2; ranks <= 5; ranks += 3)
        for (size_t c = 0; c < sizeof CODECS / sizeof *CODECS; c++) {
            test_replicas dp = adam_of(ranks, 7, "exp", TEST_UNEQUAL), start = dp;
            dp.strategy = "dp";
            dp.codec = "int8";
            if (CODECS[c] == NULL || taciti_codec_find(CODECS[c]) != NULL)
                start.codec = CODECS[c];
            else
                start.gossip.codec = (taciti_text){TACITI_GOSSIP_POWER};
            start.total_steps = 14;
            start.gossip.start = 0.5;
            assert_true(test_replicas_agree(&dp, &start));
        }
}

/* Signals that leave when first moments still agree would say that there is no noise. Looks at shares wherever they may
 * have been used for the first time; zeros are none. */
static void the_share_does_not_depend_on_when_replicas_go_apart(void **state) {
    (void)state;
    for (int window = 1; window <= 4; window += 3)
        for (int dense = 8; dense < 16; dense += window)
            for (int later = 4; later <= 28 * window; later += 8) {
                if (test_spares(dense + later / 8)) continue;
                test_replicas t = adam_of(6, dense + later, "exp", TEST_NOISE);
                double sum = 0;
                if (window > 1) t.optim.name = TACITI_OPTIM_ACCUM_ADAMW;
                t.optim.accum = window;
                t.optim.beta2 = 0.5; /* v is that of replicas soon */
                t.total_steps = t.steps;
                t.gossip.start = (double)dense / t.steps - 1e-9;
                test_replicas_run(&t);
                for (size_t i = 0; i < t.floats; i++) sum += (double)t.arrays[0][SHARE][i];
                assert_true(sum / (double)t.floats < 0.5); /* a sixth, and what signals and memory add to it */
                test_replicas_free(&t);
            }
}

/* After dense steps only what replicas have added to v has their noise. */
static void the_share_knows_what_replicas_have_seen(void **state) {
    (void)state;
    test_replicas t = adam_of(6, 61, "exp", TEST_NOISE);
    const double seen = (1 - pow(0.99, 20)) / (1 - pow(0.99, 60)),
                 expected = 1 - seen / (seen + (1 - seen) / 6) * 5 / 6; /* used at step 60 */
    double sum = 0;
    t.floats = 4000;
    t.optim.beta2 = 0.99;
    t.total_steps = 61;
    t.gossip.start = 39.5 / 61;
    test_replicas_run(&t);
    for (size_t i = 0; i < t.floats; i++) sum += (double)t.arrays[0][SHARE][i];
    assert_true(fabs(sum / (double)t.floats - expected) < 0.05);
    test_replicas_free(&t);
}

/* ---- traffic ----------------------------------------------------------------------------------------------------- */

/* A sum of N arrays of a byte per float every 24 steps, beside a model of four bytes in each: 2 (N - 1) / N / 96. */
static void a_correction_adds_three_percent_of_the_bytes(void **state) {
    (void)state;
    static const char *const GRAPHS[] = {"exp", "base-k", "complete"};
    for (size_t i = 0; i < sizeof GRAPHS / sizeof *GRAPHS; i++)
        for (int ranks = 2; ranks <= 8; ranks += 3) {
            test_replicas with = adam_of(ranks, 120, GRAPHS[i], TEST_UNEQUAL), without = with;
            double all = 0, plain = 0;
            with.gossip.denoise = 24;
            without.gossip.denoise = 0;
            with.floats = without.floats = 4000;
            with.exchange.overlap = without.exchange.overlap = false;
            test_replicas_run(&with);
            test_replicas_run(&without);
            for (int r = 0; r < ranks; r++) all += (double)with.sent[r], plain += (double)without.sent[r];
            assert_true(all > 1.005 * plain && all <= 1.03 * plain);
            test_replicas_free(&with);
            test_replicas_free(&without);
        }
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

enum { WAYS = 7 };
static test_replicas way(int which, int ranks, int steps) {
    test_replicas t = adam_of(ranks, steps, which == 3 ? "ring" : "exp", TEST_UNEQUAL);
    t.optim.clip = 1;
    t.gossip.denoise = 6;
    t.gossip.integral = 0.1;
    t.total_steps = steps;
    t.gossip.start = which == 2 ? 0 : 0.2;
    t.gossip.order = which == 1 ? TACITI_GOSSIP_ATC : TACITI_GOSSIP_AWC;
    if (which == 3) t.gossip.every = 3;
    if (which == 4) t.optim.name = TACITI_OPTIM_ACCUM_ADAMW;
    if (which == 5) {
        t.gossip.delay = 1;
        t.gossip.gamma = 0.5;
    }
    if (which == 6) t.codec = "int4";
    return t;
}

/* In every place: dense, at the border, while signals travel, before and after they are used. */
static void resumed_is_uninterrupted_at_any_step(void **state) {
    (void)state;
    for (int which = 0; which < WAYS; which++)
        for (int stop = 1; stop < 21; stop += which < 2 ? 1 : 3) {
            if (test_spares(which + stop)) continue;
            test_replicas whole = way(which, 3, 22), cut = whole;
            cut.stop_after = stop;
            assert_true(test_replicas_agree(&whole, &cut));
        }
}

/* In the dense steps nothing of gossip is under way, so its keys may change there. */
static void keys_change_in_dense_steps(void **state) {
    (void)state;
    for (int from = 0; from < WAYS; from++)
        for (int to = 0; to < WAYS; to++) {
            if (from == 4 || to == 4) continue; /* another optimizer */
            if (from == 6 || to == 6) continue; /* `resumed` has no codec */
            test_replicas whole = way(to, 3, 20), cut = way(from, 3, 20);
            whole.gossip.start = cut.gossip.start = 0.4;
            const taciti_gossip_options now = whole.gossip;
            cut.resumed = &now;
            cut.stop_after = 4;
            assert_true(test_replicas_agree(&whole, &cut));
        }
}

static void overlapped_is_blocking(void **state) {
    (void)state;
    for (int which = 0; which < WAYS; which++)
        for (int ranks = 2; ranks <= 7; ranks += 5) {
            test_replicas overlapped = way(which, ranks, 20), blocking = overlapped;
            overlapped.dawdle = true;
            blocking.exchange.overlap = false;
            assert_true(test_replicas_agree(&overlapped, &blocking));
        }
}

static void sums_of_the_start_leave_during_backward(void **state) {
    (void)state;
    for (int which = 0; which < WAYS; which++) {
        test_replicas t = way(which, 3, 6);
        t.sends_early = which != 2; /* has no start */
        test_replicas_run(&t);
        assert_int_equal(t.early_steps, which == 2 ? 0 : 2);
        test_replicas_free(&t);
    }
}

static void the_start_is_no_step_longer_than_asked(void **state) {
    (void)state;
    test_replicas t = way(0, 2, 9);
    t.total_steps = 100;
    t.gossip.start = 0.07; /* times 100 is more than 7, in doubles */
    test_replicas_run(&t);
    assert_int_equal(t.early_steps, 7);
    test_replicas_free(&t);
}

/* A rank whose gradient is not finite makes no update, before and after replicas go apart. */
static void a_bad_gradient_stops_nothing(void **state) {
    (void)state;
    for (int step = 2; step < 12; step += 7) {
        test_replicas t = way(0, 4, 20);
        t.bad_rank = 1;
        t.bad_step = step;
        test_replicas_run(&t);
        for (int r = 0; r < 4; r++) {
            assert_true(t.reports[r][step].skipped == (step < 4 || r == 1));
            for (size_t i = 0; i < t.n; i++) assert_true(isfinite(t.parameters[r][i]));
        }
        test_replicas_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_makes_the_steps_of_adam),
        cmocka_unit_test(equal_gradients_make_the_steps_of_adam),
        cmocka_unit_test(noise_alone_counts_one_nth),
        cmocka_unit_test(steps_are_as_long_as_dense_ones),
        cmocka_unit_test(the_first_steps_are_those_of_dp_in_int8),
        cmocka_unit_test(the_share_does_not_depend_on_when_replicas_go_apart),
        cmocka_unit_test(the_share_knows_what_replicas_have_seen),
        cmocka_unit_test(a_correction_adds_three_percent_of_the_bytes),
        cmocka_unit_test(resumed_is_uninterrupted_at_any_step),
        cmocka_unit_test(keys_change_in_dense_steps),
        cmocka_unit_test(overlapped_is_blocking),
        cmocka_unit_test(sums_of_the_start_leave_during_backward),
        cmocka_unit_test(the_start_is_no_step_longer_than_asked),
        cmocka_unit_test(a_bad_gradient_stops_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
