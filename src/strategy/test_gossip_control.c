/* SPDX-License-Identifier: Apache-2.0
 *
 * Consensus control: the factor of the distance, both its thresholds, and which mixes tell.
 *
 * f_r(x) = (x - c_r)^2 / 2 with one element per rank: under awc the replicas come to rest at distances that do not
 * change any more, and what a mix moves neither.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "strategy/test_replicas.h"

enum {
    MIXES = 2,
    WINDOW = 4
}; /* place in the numbers of a checkpoint; mixing steps per decision, as periods divide it */
static const double C[] = {3, 3, 1, 1, 2.5, 1.5, 2.25, 1.75};

static test_replicas resting(int ranks, int steps, const char *topology, double target) {
    test_replicas t = test_replicas_of(ranks, steps);
    t.floats = 1;
    t.problem = TEST_QUADRATIC;
    t.c = C;
    t.start = 2; /* the mean of each pair of c, so the mean of the replicas stays */
    t.gossip.target = target;
    test_topology(&t, topology);
    return t;
}

static int64_t mixes_of(test_replicas t) {
    test_replicas_run(&t);
    assert_int_equal(t.status, TACIT_OK);
    const double mixes = t.numbers[0][MIXES];
    for (int r = 1; r < t.ranks; r++) assert_true(t.numbers[r][MIXES] == mixes);
    test_replicas_free(&t);
    return (int64_t)mixes;
}

/* The largest sqrt(mean over a window of what a mix moved, all ranks / sum of squares at its end). */
static double largest_proxy(int ranks, int steps, const char *topology) {
    static float path[TEST_MAX_STEPS][TEST_MAX_RANKS];
    test_replicas t = resting(ranks, steps, topology, 1e3);
    t.path = path;
    test_replicas_run(&t);
    double largest = 0;
    for (int end = WINDOW; end < steps; end += WINDOW) {
        double moved = 0, squares = 0;
        for (int r = 0; r < ranks; r++) {
            for (int s = end - WINDOW; s < end; s++) moved += t.reports[r][s].moved / WINDOW;
            squares += pow((double)path[end - 1][r], 2);
        }
        largest = fmax(largest, sqrt(moved / squares));
    }
    test_replicas_free(&t);
    return largest;
}

/* factor = P / (1 - contraction), in closed form: law 4 and the hypercube. */
static void more_mixes_begin_at_the_factor_times_what_a_mix_moves(void **state) {
    (void)state;
    enum { STEPS = 42 };
    const double pi = acos(-1);
    const struct {
        const char *topology;
        int ranks;
        double factor;
    } cases[] = {{"complete", 4, 1},
                 {"exp", 4, 2},
                 {"ring", 8, 1 / (1 - (1 + 2 * cos(2 * pi / 8)) / 3)},
                 {"one-peer-ring", 8, 2 / (1 - cos(2 * pi / 8))}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double apart = cases[i].factor * largest_proxy(cases[i].ranks, STEPS, cases[i].topology);
        assert_true(apart > 0);
        assert_true(mixes_of(resting(cases[i].ranks, STEPS, cases[i].topology, apart * 1.02)) == 1);
        assert_true(mixes_of(resting(cases[i].ranks, STEPS, cases[i].topology, apart / 1.02)) >= 2);
    }
}

/* On the complete graph the distance at rest is lr / (1 + lr) times that of c, however many mixes a step makes: the
 * target alone decides. Decisions of the second leg fall into steps 12, 16 and 20. */
static void mixes_double_above_the_target_and_fall_below_half_of_it(void **state) {
    (void)state;
    enum { LEG = 11, STEPS = 22 };
    const double d = 0.1 / 1.1, apart = d / sqrt(4 + d * d);
    const struct {
        double share; /* distance / target */
        int64_t mixes;
    } cases[] = {{1.1, 32}, {0.9, 4}, {0.55, 4}, {0.45, 1}, {0.1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_replicas t = resting(4, STEPS, "complete", apart / 3);
        taciti_gossip_options then = t.gossip;
        then.target = apart / cases[i].share;
        t.steps = LEG;
        assert_int_equal(mixes_of(t), 4); /* doubled in steps 4 and 8 */
        t.steps = STEPS;
        t.stop_after = LEG;
        t.resumed = &then;
        assert_int_equal(mixes_of(t), cases[i].mixes);
    }
}

/* One less at a time, and never fewer than gossip.mixes. */
static void mixes_fall_one_by_one_to_those_of_the_options(void **state) {
    (void)state;
    enum { LEG = 11 };
    const int64_t expected[] = {4, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2};
    for (int more = 1; more <= 13; more++) {
        test_replicas t = resting(4, LEG + more, "complete", 0.01);
        taciti_gossip_options then = t.gossip;
        t.gossip.mixes = 1;
        then.mixes = 2;
        then.target = 10;
        t.stop_after = LEG;
        t.resumed = &then;
        assert_int_equal(mixes_of(t), expected[more - 1]);
    }
}

/* The first mixes of a period bring all ranks of these graphs together: what comes then moves nothing and must not
 * count. */
static void mixes_beyond_a_period_tell_nothing(void **state) {
    (void)state;
    static const struct {
        const char *topology;
        int ranks, period;
    } cases[] = {{"complete", 4, 1}, {"exp", 4, 2}, {"exp", 8, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int order = 0; order < 2; order++) {
            test_replicas once = resting(cases[i].ranks, 8, cases[i].topology, 0), often;
            once.gossip.order = order;
            once.gossip.mixes = cases[i].period;
            often = once;
            often.gossip.mixes = 3 * cases[i].period;
            test_replicas_run(&once);
            test_replicas_run(&often);
            for (int r = 0; r < once.ranks; r++) {
                assert_true(once.reports[r][7].moved > 0);
                for (int s = 0; s < 8; s++)
                    assert_true(fabs(often.reports[r][s].moved - once.reports[r][s].moved) <=
                                1e-4 * once.reports[r][s].moved + 1e-12);
            }
            test_replicas_free(&once);
            test_replicas_free(&often);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_mixes_begin_at_the_factor_times_what_a_mix_moves),
        cmocka_unit_test(mixes_double_above_the_target_and_fall_below_half_of_it),
        cmocka_unit_test(mixes_fall_one_by_one_to_those_of_the_options),
        cmocka_unit_test(mixes_beyond_a_period_tell_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
