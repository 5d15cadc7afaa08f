/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixes of other kinds than one per step: the tracker, several steps per mix, transfers that take two iterations.
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

static bool near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance; }

static double mean_at(const test_replicas *t, size_t i) {
    double sum = 0;
    for (int r = 0; r < t->ranks; r++) sum += (double)t->parameters[r][i];
    return sum / t->ranks;
}

static double distance_of(const test_replicas *t) {
    double sum = 0;
    for (size_t i = 0; i < t->n; i++)
        for (int r = 0; r < t->ranks; r++) {
            const double d = (double)t->parameters[r][i] - mean_at(t, i);
            sum += d * d;
        }
    return sqrt(sum / t->ranks);
}

/* Replicas that differ, and nothing but mixing. */
static test_replicas consensus(int ranks, int steps, const char *topology) {
    test_replicas t = test_replicas_of(ranks, steps);
    t.scattered = true;
    t.lr = 0;
    test_topology(&t, topology);
    return t;
}

/* Distance after the run in units of that before it; the mean stays. */
static double shrinks(test_replicas t) {
    test_replicas before = t;
    before.steps = 0;
    test_replicas_run(&before);
    test_replicas_run(&t);
    assert_true(t.status == TACIT_OK);
    for (size_t i = 0; i < t.n; i++) assert_true(near(mean_at(&t, i), mean_at(&before, i), 0x1p-18));
    const double ratio = distance_of(&t) / distance_of(&before);
    test_replicas_free(&before);
    test_replicas_free(&t);
    return ratio;
}

/* ---- tracker -------------------------------------------------------------------------------------------------------
 */

static void the_tracker_finds_the_common_minimum(void **state) {
    (void)state;
    const double c[] = {1, -3, 2, .5, -1, 3};
    static const char *const topologies[] = {"complete", "ring", "exp", "one-peer-ring"};
    for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++)
        for (int order = 0; order < 2; order++)
            for (int ranks = 1; ranks <= 6; ranks++) {
                test_replicas t = test_replicas_of(ranks, 300);
                double mean = 0;
                for (int r = 0; r < ranks; r++) mean += c[r] / ranks;
                t.problem = TEST_QUADRATIC;
                t.c = c;
                t.floats = 1;
                t.gossip.tracker = true;
                t.gossip.order = order;
                test_topology(&t, topologies[i]);
                test_replicas_run(&t);
                for (int r = 0; r < ranks; r++) assert_true(near((double)t.parameters[r][0], mean, 1e-5));
                test_replicas_free(&t);
            }
}

/* Local moments are biased (test_gossip.c); moments of the tracker's estimate are not. */
static void adam_with_the_tracker_is_not_biased(void **state) {
    (void)state;
    const double c[] = {1, -3};
    test_replicas t = test_replicas_of(2, 1000);
    t.problem = TEST_QUADRATIC;
    t.c = c;
    t.floats = 1;
    t.start = 0;
    t.optim.name = TACITI_OPTIM_ADAM;
    t.lr = -0.05;
    t.gossip.tracker = true;
    test_topology(&t, "complete");
    test_replicas_run(&t);
    assert_true(near(mean_at(&t, 0), -1, 0.01));
    test_replicas_free(&t);
}

static void a_bad_gradient_does_not_poison_the_tracker(void **state) {
    (void)state;
    test_replicas t = test_replicas_of(3, 12);
    t.gossip.tracker = true;
    t.bad_rank = 1;
    t.bad_step = 4;
    test_replicas_run(&t);
    for (int r = 0; r < 3; r++)
        for (size_t i = 0; i < t.n; i++) assert_true(fabsf(t.parameters[r][i]) < 100);
    assert_true(t.reports[1][4].skipped && !t.reports[0][4].skipped && !t.reports[1][5].skipped);
    test_replicas_free(&t);
}

enum { TRACKER, GRADIENT }; /* places in the arrays of a checkpoint */

/* The sum over ranks of the estimates is that of the gradients that went into them: of a rank that skipped its last. */
static void a_bad_gradient_leaves_the_sum_of_the_tracker(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        test_replicas t = test_replicas_of(3, 4), bad;
        t.gossip.order = order;
        t.gossip.tracker = true;
        bad = t;
        bad.steps = 5;
        bad.bad_rank = 1;
        bad.bad_step = 4;
        test_replicas_run(&t);
        test_replicas_run(&bad);
        assert_memory_equal(bad.arrays[1][GRADIENT], t.arrays[1][GRADIENT], t.n * sizeof(float));
        assert_true(memcmp(bad.arrays[0][GRADIENT], t.arrays[0][GRADIENT], t.n * sizeof(float)) != 0);
        for (size_t i = 0; i < bad.n; i++) {
            double tracked = 0, gradients = 0;
            for (int r = 0; r < 3; r++) {
                tracked += (double)bad.arrays[r][TRACKER][i];
                gradients += (double)bad.arrays[r][GRADIENT][i];
            }
            assert_true(near(tracked, gradients, 0x1p-20)); /* 60 roundings of numbers below 1/2 */
        }
        test_replicas_free(&t);
        test_replicas_free(&bad);
    }
}

/* ---- fewer mixes, later mixes ---------------------------------------------------------------------------------------
 */

static void mixes_of_every_few_steps_conserve_the_mean(void **state) {
    (void)state;
    for (int every = 2; every <= 5; every++)
        for (int order = 0; order < 2; order++) {
            test_replicas t = consensus(6, 4 * every, "complete");
            t.gossip.every = every;
            t.gossip.order = order;
            assert_true(shrinks(t) < 1e-5);
        }
}

/* awc with several steps per mix: the mean follows dense SGD although replicas change while a mix is under way. */
static void late_mixes_conserve_the_mean(void **state) {
    (void)state;
    const double c[] = {1, -3, 2, .5, -1, 3};
    for (int kind = 0; kind < 2; kind++) /* every, delay */
        for (int ranks = 2; ranks <= 6; ranks++) {
            test_replicas t = test_replicas_of(ranks, 30);
            double cbar = 0, x = t.start;
            for (int r = 0; r < ranks; r++) cbar += c[r] / ranks;
            t.problem = TEST_QUADRATIC;
            t.c = c;
            t.floats = 1;
            test_topology(&t, "exp");
            t.gossip.every = kind == 1 ? 1 : 3;
            t.gossip.delay = kind == 1;
            t.gossip.gamma = kind == 1 ? 0.5 : 1;
            test_replicas_run(&t);
            for (int s = 0; s < t.steps; s++) x -= t.lr * (x - cbar);
            assert_true(near(mean_at(&t, 0), x, 0x1p-18));
            assert_int_equal(t.lag, kind == 1 ? 1 : 2);
            test_replicas_free(&t);
        }
}

/* The delayed mix has z^2 - z + gamma (1 - l) = 0: with gamma 1/4 and l = 0 a double root at 1/2, (1 + t) 2^-t. */
static void a_delayed_mix_shrinks_as_it_should(void **state) {
    (void)state;
    test_replicas t = consensus(4, 16, "complete");
    t.gossip.delay = 1;
    t.gossip.gamma = 0.25;
    assert_true(shrinks(t) <= 17 * pow(0.5, 16) * 1.01 + 1e-6);
    t.gossip.gamma = 0.5;
    assert_true(shrinks(t) <= 3 * pow(0.5, 8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tracker_finds_the_common_minimum),
        cmocka_unit_test(adam_with_the_tracker_is_not_biased),
        cmocka_unit_test(a_bad_gradient_does_not_poison_the_tracker),
        cmocka_unit_test(a_bad_gradient_leaves_the_sum_of_the_tracker),
        cmocka_unit_test(mixes_of_every_few_steps_conserve_the_mean),
        cmocka_unit_test(late_mixes_conserve_the_mean),
        cmocka_unit_test(a_delayed_mix_shrinks_as_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
