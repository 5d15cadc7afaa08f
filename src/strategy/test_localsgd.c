/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "exchange/test_wire.h"
#include "strategy/test_localsgd.h"

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
        theta -= o->outer_lr * (delta + o->outer_momentum * velocity);
        for (int r = 0; r < ranks; r++) x[r] = theta;
    }
    return x[0];
}

static void the_outer_step_is_that_of_the_paper(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++)
        for (int64_t every = 1; every <= 7; every += 6) {
            trial t = diloco_of(REALS, every);
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
    CHECK(w.figures.period == 3);
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

/* Rank 1 is a step behind: all refuse to average, and do when it has come. */
static void meet_too_early(taciti_comm *comm, void *context) {
    worker w = {.t = context, .comm = comm, .rank = taciti_comm_rank(comm)};
    double distance = 0;
    w.strategy = taciti_strategy_find("localsgd");
    w.local = w.t->local;
    test_make_layout(SIZES, TEST_TENSORS, 4096, &w.layout);
    open_worker(&w);
    start(&w, 0, false);
    for (int s = 0; s < (w.rank == 1 ? 4 : 5); s++) take_step(&w, s);
    float *own = copy_of(w.p, w.layout.n);
    CHECK(w.strategy->replicas->average(w.self, &distance) == TACIT_E_USAGE);
    CHECK(strstr(taciti_error_text(), "numbers of steps: 5 and, on rank 1, 4") != NULL);
    CHECK(memcmp(w.p, own, w.layout.n * sizeof *own) == 0);
    if (w.rank == 1) take_step(&w, 4);
    CHECK(w.strategy->replicas->average(w.self, &distance) == TACIT_OK);
    taciti_free(own);
    close_worker(&w);
    taciti_layout_destroy(&w.layout);
}

static void a_rank_with_fewer_steps_is_named(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_log_keep();
    for (int ranks = 2; ranks <= 5; ranks++) {
        trial t = trial_of(REALS, TACITI_OPTIM_SGD, 3);
        test_world_run(ranks, &options, meet_too_early, &t);
    }
    assert_int_equal(test_log_count("different numbers of steps"), 4);
    test_log_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
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
        cmocka_unit_test(a_rank_with_fewer_steps_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
