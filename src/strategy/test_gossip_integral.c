/* SPDX-License-Identifier: Apache-2.0
 *
 * What mixes have moved is moved again: modes follow the recurrence, the mean of replicas stays, noise leaves them
 * nearer to each other, and no graph gets a gain that it does not bear.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "strategy/gossip_state.h"
#include "strategy/test_replicas.h"

#define PI 3.14159265358979323846
#define ROUNDINGS 0x1p-17 /* some hundreds of floats of size 1 */

/* Replicas that differ, and nothing but mixes. */
static test_replicas mixing(int ranks, int steps, const char *topology, double gain) {
    test_replicas t = test_replicas_of(ranks, steps);
    t.floats = 50;
    t.scattered = true;
    t.lr = 0;
    t.optim.name = TACITI_OPTIM_ADAMW;
    t.gossip.integral = gain;
    test_topology(&t, topology);
    return t;
}

/* Element `i` in the direction of an eigenvector of a ring. */
static double mode_of(const test_replicas *t, int mode, size_t i) {
    double sum = 0;
    for (int r = 0; r < t->ranks; r++) sum += cos(2 * PI * mode * (r + 0.125) / t->ranks) * (double)t->parameters[r][i];
    return sum;
}

/* With e = gamma (lambda - 1) x: c <- 0.9 c + gain e, x <- x + e + c. */
static void modes_follow_the_recurrence(void **state) {
    (void)state;
    for (int ranks = 4; ranks <= 7; ranks += 3)
        for (int steps = 1; steps <= 12; steps += 11)
            for (int mode = 0; mode <= ranks / 2; mode++) {
                test_replicas before = mixing(ranks, 0, "ring", 0.2), after = mixing(ranks, steps, "ring", 0.2);
                before.gossip.gamma = after.gossip.gamma = 0.8;
                test_replicas_run(&before);
                test_replicas_run(&after);
                const double lambda = (1 + 2 * cos(2 * PI * mode / ranks)) / 3;
                for (size_t i = 0; i < before.floats; i++) {
                    double x = mode_of(&before, mode, i), c = 0;
                    for (int s = 0; s < steps; s++) {
                        const double e = 0.8 * (lambda - 1) * x;
                        c = 0.9 * c + 0.2 * e;
                        x += e + c;
                    }
                    assert_true(fabs(mode_of(&after, mode, i) - x) < ROUNDINGS);
                }
                test_replicas_free(&before);
                test_replicas_free(&after);
            }
}

static double mean_of(const test_replicas *t, size_t i) {
    double sum = 0;
    for (int r = 0; r < t->ranks; r++) sum += (double)t->parameters[r][i] / t->ranks;
    return sum;
}

static double square_distance(const test_replicas *t) {
    double sum = 0;
    for (size_t i = 0; i < t->n; i++)
        for (int r = 0; r < t->ranks; r++) {
            const double apart = (double)t->parameters[r][i] - mean_of(t, i);
            sum += apart * apart;
        }
    return sum;
}

static void the_mean_stays(void **state) {
    (void)state;
    static const char *const GRAPHS[] = {"base-k", "exp", "aer", "random", "complete", "file"};
    for (size_t g = 0; g < sizeof GRAPHS / sizeof *GRAPHS; g++)
        for (int ranks = 3; ranks <= 7; ranks += 2) {
            test_replicas before = mixing(ranks, 0, GRAPHS[g], 0.1), after = mixing(ranks, 40, GRAPHS[g], 0.1);
            test_replicas_run(&before);
            test_replicas_run(&after);
            for (size_t i = 0; i < before.floats; i++)
                assert_true(fabs(mean_of(&after, i) - mean_of(&before, i)) < ROUNDINGS);
            assert_true(square_distance(&after) < 0.05 * square_distance(&before));
            test_replicas_free(&before);
            test_replicas_free(&after);
        }
}

/* First moments push a replica in one direction for some ten steps. In theory 0.34 to 0.51 of the squared distance are
 * left; the standard error is 0.02. */
static void noise_leaves_less_than_half_of_the_distance(void **state) {
    (void)state;
    static const struct {
        const char *graph;
        int ranks;
    } CASES[] = {{"base-k", 5}, {"base-k", 7}, {"exp", 6}, {"exp", 8}, {"complete", 6}, {"ring", 7}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        double left[2];
        for (int with = 0; with < 2; with++) {
            test_replicas t = mixing(CASES[i].ranks, 120, CASES[i].graph, with ? 0.2 : 0);
            t.floats = 1000;
            t.problem = TEST_NOISE;
            t.optim.beta1 = 0.9;
            t.lr = 0.01;
            test_replicas_run(&t);
            left[with] = square_distance(&t);
            test_replicas_free(&t);
        }
        assert_true(left[1] > 0.28 * left[0] && left[1] < 0.57 * left[0]);
    }
}

/* All ranks see the same gradients, so mixes move nothing. */
static void equal_data_know_no_integral(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 8; ranks += 3) {
        test_replicas t = test_replicas_of(ranks, 12);
        t.problem = TEST_EQUAL;
        t.optim.name = TACITI_OPTIM_ADAMW;
        t.gossip.integral = 0.1;
        test_replicas_run(&t);
        for (int r = 1; r < ranks; r++) assert_memory_equal(t.parameters[r], t.parameters[0], t.n * sizeof(float));
        test_replicas_free(&t);
    }
}

/* These mixes keep another sum, arrive too late, or move a part of a replica at a time. */
static void other_mixes_have_no_integral(void **state) {
    (void)state;
    for (int which = 0; which < 7; which++) {
        test_replicas with = mixing(5, 8, which >= 5 ? "base-k" : "exp", 0.2);
        with.lr = 0.01;
        if (which == 0) with.gossip.order = TACITI_GOSSIP_ATC;
        if (which == 1) with.gossip.tracker = true;
        if (which == 2) with.gossip.gamma = 0;
        if (which == 3) with.optim.name = TACITI_OPTIM_SGD;
        if (which == 4) {
            with.gossip.delay = 1;
            with.gossip.gamma = 0.5;
        }
        if (which == 5) with.gossip.codec = (taciti_text){TACITI_GOSSIP_POWER};
        if (which == 6) {
            with.codec = "topk";
            with.gossip.codec = (taciti_text){"topk"};
        }
        test_replicas without = with;
        without.gossip.integral = 0;
        assert_true(test_replicas_agree(&with, &without));
    }
}

/* Returns what `mixes` mixes of numbers of size 1, with the integral of what they have moved, leave in a half. */
static double left_in(const taciti_topology *topology, int half, double gain, size_t mixes) {
    double x[64], c[64] = {0}, mixed[64], sum = 0;
    const int ranks = topology->ranks;
    for (int r = 0; r < ranks; r++) sum += (x[r] = taciti_rng_unit(3, (uint64_t)r)) / ranks;
    for (int r = 0; r < ranks; r++) x[r] -= sum;
    for (size_t k = 0; k < mixes; k++) {
        taciti_topology_mix(topology, taciti_topology_round(topology, (int64_t)k, half), x, mixed);
        for (int r = 0; r < ranks; r++) {
            c[r] = 0.9 * c[r] + gain * (mixed[r] - x[r]);
            x[r] = mixed[r] + c[r];
        }
    }
    sum = 0;
    for (int r = 0; r < ranks; r++) sum += fabs(x[r]) + fabs(c[r]);
    return sum;
}

static double left_after(const taciti_topology *topology, double gain, size_t mixes) {
    return fmax(left_in(topology, 0, gain, mixes), left_in(topology, 1, gain, mixes));
}

static void assert_gain(const char *graph, int ranks, double wanted, double expected) {
    const taciti_topo_request request = {.name = graph,
                                         .ranks = ranks,
                                         .per_host = 1,
                                         .degree = strcmp(graph, "base-k") == 0,
                                         .seed = TACITI_GOSSIP_SEED};
    taciti_topology topology;
    double gain = 0;
    assert_int_equal(taciti_topology_create(&request, &topology), TACIT_OK);
    assert_int_equal(taciti_gossip_find_gain(&topology, 1, wanted, &gain), TACIT_OK);
    taciti_topology_destroy(&topology);
    assert_true(!(gain < expected) && !(gain > expected));
}

/* Some graphs do not bear half of 1, which the same sum shows. */
static void every_graph_bears_its_gain(void **state) {
    (void)state;
    int unbearable = 0;
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++)
        for (int ranks = 2; ranks <= 24; ranks++) {
            const taciti_topo_request request = {.name = kind->name,
                                                 .ranks = ranks,
                                                 .per_host = strcmp(kind->name, "aer") == 0 ? 1 + ranks % 3 : 0,
                                                 .seed = TACITI_GOSSIP_SEED};
            taciti_topology topology;
            double small = 0, large = 0;
            if (strcmp(kind->name, "file") == 0 || taciti_topology_create(&request, &topology) != TACIT_OK) continue;
            assert_int_equal(taciti_gossip_find_gain(&topology, 1, 0.1, &small), TACIT_OK);
            assert_int_equal(taciti_gossip_find_gain(&topology, 1, 0.5, &large), TACIT_OK);
            assert_true(small >= 0.05 && small <= 0.1 && large >= 0.0625 && large <= 0.5);
            assert_true(left_after(&topology, small, 1200) < 1e-6);
            assert_true(left_after(&topology, large, 1200) < 1e-6);
            unbearable += !(left_after(&topology, 0.5, 1200) < 1);
            taciti_topology_destroy(&topology);
        }
    assert_true(unbearable > 10);
    assert_gain("aer", 3, 0.2, 0.1); /* 0.2: a radius of 0.99 */
    assert_gain("base-k", 7, 0.4, 0.2);
    assert_gain("base-k", 20, 0.2, 0.1);
    assert_gain("exp", 7, 0.2, 0.2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_follow_the_recurrence),
        cmocka_unit_test(the_mean_stays),
        cmocka_unit_test(noise_leaves_less_than_half_of_the_distance),
        cmocka_unit_test(equal_data_know_no_integral),
        cmocka_unit_test(other_mixes_have_no_integral),
        cmocka_unit_test(every_graph_bears_its_gain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
