/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws and golden numbers of gossip. Golden numbers are doubles; parameters are floats below 1 in size, and a step adds
 * a handful of roundings of at most 2^-25 each: TOLERANCE is 32 of them.
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
#include "exchange/test_wire.h"
#include "strategy/gossip.h"
#include "strategy/test_replicas.h"
#include "topo/topo.h"

#define TOLERANCE 0x1p-20

static const char *const TOPOLOGIES[] = {"complete",   "one-peer-ring", "ring",   "torus",  "exp", "exp-directed",
                                         "exp-static", "aer",           "base-k", "random", "file"};
enum { TOPOLOGY_COUNT = sizeof TOPOLOGIES / sizeof *TOPOLOGIES };
static const int RANKS[] = {1, 2, 3, 5, 6, 8};
enum { RANK_COUNTS = sizeof RANKS / sizeof *RANKS };

static bool near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance; }

/* ---- golden numbers ------------------------------------------------------------------------------------------------
 */

static test_replicas golden(int ranks, int steps, const char *topology, const double *c, int optim) {
    test_replicas t = test_replicas_of(ranks, steps);
    t.floats = 1;
    t.problem = TEST_QUADRATIC;
    t.c = c;
    t.start = 0;
    t.optim.name = optim;
    test_topology(&t, topology);
    return t;
}

static void expect_path(test_replicas *t, int first_step, int steps, const double *expected) {
    float path[TEST_MAX_STEPS][TEST_MAX_RANKS];
    t->path = path;
    test_replicas_run(t);
    for (int s = 0; s < steps; s++)
        for (int r = 0; r < t->ranks; r++)
            assert_true(near((double)path[first_step + s][r], expected[s * t->ranks + r], TOLERANCE));
    test_replicas_free(t);
}

static void two_workers_of_dadam(void **state) {
    (void)state;
    const double c[] = {1, -3};
    const double expected[] = {.099999999000, -.099999999667, .099587770954, -.099897292916,
                               .099355175186, -.100025734847, .099153156858, -.100195658530};
    test_replicas t = golden(2, 4, "complete", c, TACITI_OPTIM_ADAM);
    expect_path(&t, 0, 4, expected);
}

static void four_workers_of_dadam_on_a_hypercube(void **state) {
    (void)state;
    const double c[] = {1, -3, 2, .5};
    const double expected[] = {.199587770538, -.099897293416, .199833513129, .098812577436,
                               .148671193767, -.050025735305, .248866139092, .247972345695};
    test_replicas awc = golden(4, 3, "exp", c, TACITI_OPTIM_ADAM);
    expect_path(&awc, 1, 2, expected);
    const double combined[] = {.149916755649, .049406288502, .149916755649, .049406288502};
    test_replicas atc = golden(4, 2, "exp", c, TACITI_OPTIM_ADAM);
    atc.gossip.order = TACITI_GOSSIP_ATC;
    expect_path(&atc, 1, 1, combined);
}

static void two_workers_of_accumadam(void **state) {
    (void)state;
    const double c[] = {1, -3};
    const double expected[] = {.099822648264, -.099951792722, .099758854728, -.100016414656};
    test_replicas t = golden(2, 4, "complete", c, TACITI_OPTIM_ACCUM_ADAM);
    t.optim.accum = 2;
    expect_path(&t, 2, 2, expected);
}

/* ---- SGD -----------------------------------------------------------------------------------------------------------
 */

/* Sums of integers are exact on both sides, and a power of two of ranks divides exactly; then only the place of the
 * learning rate differs, which a power of two makes exact too. */
static void complete_atc_is_dense_sgd(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks *= 2)
        for (int momentum = 0; momentum < 2; momentum++) {
            test_replicas dense = test_replicas_of(ranks, 6), gossip;
            dense.problem = TEST_INTEGERS;
            dense.optim.lr = dense.lr = 0x1p-6;
            dense.optim.momentum = momentum ? 0.5 : 0;
            gossip = dense;
            dense.strategy = "dp";
            test_topology(&gossip, "complete");
            gossip.gossip.order = TACITI_GOSSIP_ATC;
            test_replicas_run(&dense);
            test_replicas_run(&gossip);
            assert_true(test_replicas_same(&dense, &gossip));
            test_replicas_free(&dense);
            test_replicas_free(&gossip);
        }
}

static double mean_of(const float *values, int ranks) {
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += (double)values[r];
    return sum / ranks;
}

/* Equal Hessians: the mean gradient is the gradient at the mean, whatever the topology. */
static void the_mean_follows_dense_sgd(void **state) {
    (void)state;
    const double c[] = {1, -3, 2, .5, -1, 4, .25, -2};
    for (int i = 0; i < TOPOLOGY_COUNT; i++)
        for (int k = 1; k < RANK_COUNTS; k++) {
            float path[TEST_MAX_STEPS][TEST_MAX_RANKS];
            test_replicas t = golden(RANKS[k], 12, TOPOLOGIES[i], c, TACITI_OPTIM_SGD);
            double cbar = 0, x = 0;
            for (int r = 0; r < t.ranks; r++) cbar += c[r] / t.ranks;
            t.path = path;
            test_replicas_run(&t);
            for (int s = 0; s < t.steps; s++) {
                x -= t.lr * (x - cbar);
                assert_true(near(mean_of(path[s], t.ranks), x, TOLERANCE));
            }
            test_replicas_free(&t);
        }
}

static void fixed_points_of_unequal_data(void **state) {
    (void)state;
    const double c[] = {1, -3, 2, .5};
    const double complete[] = {.2045454545, -.1590909091, .2954545455, .1590909091};
    const double ring[] = {.155712841254, -.199191102123, .286147623862, .257330637007};
    const double all_equal[] = {.125, .125, .125, .125};
    test_replicas a = golden(4, 300, "complete", c, TACITI_OPTIM_SGD);
    expect_path(&a, 299, 1, complete);
    test_replicas b = golden(4, 300, "ring", c, TACITI_OPTIM_SGD);
    expect_path(&b, 299, 1, ring);
    test_replicas atc = golden(4, 300, "complete", c, TACITI_OPTIM_SGD);
    atc.gossip.order = TACITI_GOSSIP_ATC;
    expect_path(&atc, 299, 1, all_equal);
}

/* With groups awc is stable up to half the step size of atc. */
static void step_sizes_that_are_stable(void **state) {
    (void)state;
    const double c[] = {1, -3};
    const struct {
        double lr;
        int order;
        double apart; /* after 200 steps, awc: 4 lr / (1 + lr) |1 - (-lr)^200| */
        double tolerance;
    } cases[] = {{.99, TACITI_GOSSIP_AWC, 1.7233369284, 1e-4},
                 {1.01, TACITI_GOSSIP_AWC, 12.6948816524, 1e-4},
                 {1.5, TACITI_GOSSIP_ATC, 0, 1e-6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_replicas t = golden(2, 200, "complete", c, TACITI_OPTIM_SGD);
        t.lr = cases[i].lr;
        t.gossip.order = cases[i].order;
        test_replicas_run(&t);
        const double apart = fabs((double)t.parameters[0][0] - (double)t.parameters[1][0]);
        assert_true(near(apart, cases[i].apart, cases[i].tolerance));
        if (i == 2) assert_true(near((double)t.parameters[0][0], -1, 1e-6));
        test_replicas_free(&t);
    }
}

/* How far replicas of equal data are apart between two steps at most, from a start that differs. */
static double apart_between(float (*path)[TEST_MAX_RANKS], int ranks, int first, int last) {
    double max = 0;
    for (int s = first; s < last; s++)
        for (int r = 0; r < ranks; r++) max = fmax(max, fabs((double)path[s][r] - mean_of(path[s], ranks)));
    return max;
}

/* Law 19: just below the limit of the step size replicas come together, just above it they part. */
static void the_limit_of_the_step_size_is_awcs(void **state) {
    (void)state;
    const double c[TEST_MAX_RANKS] = {0};
    const struct {
        const char *topology;
        int ranks;
    } cases[] = {{"ring", 5},  {"one-peer-ring", 3}, {"exp", 6},    {"exp-directed", 5}, {"exp-static", 5},
                 {"torus", 6}, {"aer", 5},           {"base-k", 9}, {"random", 5},       {"file", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int above = 0; above < 2; above++) {
            float path[TEST_MAX_STEPS][TEST_MAX_RANKS];
            double limit = 0;
            test_replicas t = golden(cases[i].ranks, TEST_MAX_STEPS, cases[i].topology, c, TACITI_OPTIM_SGD);
            taciti_topology made;
            const taciti_topo_request request = {
                .name = cases[i].topology, .ranks = t.ranks, .seed = TACITI_GOSSIP_SEED, .file = t.gossip.file.text};
            assert_int_equal(taciti_topology_create(&request, &made), TACIT_OK);
            const taciti_topo_awc how = {.gamma = 1};
            assert_int_equal(taciti_topology_awc_limit(&made, &how, &limit), TACIT_OK);
            taciti_topology_destroy(&made);
            t.scattered = true;
            t.lr = (above ? 1.02 : 0.98) * limit;
            t.path = path;
            test_replicas_run(&t);
            const double middle = apart_between(path, t.ranks, 160, 200), end = apart_between(path, t.ranks, 360, 400);
            assert_true(above ? end > 1.5 * middle && end > 1 : end < fmax(0.7 * middle, 1e-4));
            test_replicas_free(&t);
        }
}

/* Stationary disagreement under pure noise, in units of lr^2, from FLOATS independent coordinates. Each adds a sum of
 * squares of normal numbers, whose relative variance is at most that of a single square, 2 (aer after a round inside of
 * hosts has but one degree of freedom). So the relative deviation is at most sqrt(2 / FLOATS) = 0.01; 4 are allowed. */
enum { FLOATS = 20000 };
static double noise_floor(const char *topology, int ranks, int per_host, int order) {
    enum { STEPS = 41 };
    test_replicas t = test_replicas_of(ranks, STEPS);
    t.floats = FLOATS;
    t.bucket_bytes = 1 << 20;
    t.problem = TEST_NOISE;
    t.start = 0;
    t.lr = 1;
    t.gossip.order = order;
    t.gossip.per_host = per_host;
    test_topology(&t, topology);
    test_replicas_run(&t);
    double sum = 0;
    for (size_t i = 0; i < FLOATS; i++) {
        float x[TEST_MAX_RANKS];
        for (int r = 0; r < ranks; r++) x[r] = t.parameters[r][i];
        const double mean = mean_of(x, ranks);
        for (int r = 0; r < ranks; r++) sum += ((double)x[r] - mean) * ((double)x[r] - mean);
    }
    test_replicas_free(&t);
    return sum / ranks / FLOATS;
}

static void noise_floors(void **state) {
    (void)state;
    /* aer: of the step that ends the run, a round inside of hosts */
    const struct {
        const char *topology;
        int ranks, per_host;
        double awc, atc;
    } cases[] = {
        {"complete", 4, 0, .75, 0},         {"exp", 2, 0, .5, 0},           {"exp", 4, 0, 1, .25},
        {"exp", 8, 0, 1.375, .5},           {"one-peer-ring", 2, 0, .5, 0}, {"one-peer-ring", 4, 0, 1, .25},
        {"one-peer-ring", 8, 0, 1.5, .625}, {"aer", 8, 4, 1, .125},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double awc = noise_floor(cases[i].topology, cases[i].ranks, cases[i].per_host, TACITI_GOSSIP_AWC);
        const double atc = noise_floor(cases[i].topology, cases[i].ranks, cases[i].per_host, TACITI_GOSSIP_ATC);
        const double relative = 4 * sqrt(2.0 / FLOATS);
        assert_true(near(awc, cases[i].awc, relative * cases[i].awc + 1e-9));
        assert_true(near(atc, cases[i].atc, relative * cases[i].atc + 1e-9));
    }
}

/* Every rank makes its own gradient +-1: local moments do not see how much the gradients differ. Characterised, not
 * wished for: dense Adam ends at the minimum, -1. */
static void local_adam_is_biased_on_unequal_data(void **state) {
    (void)state;
    const double c[] = {1, -3};
    for (int kind = 0; kind < 3; kind++) { /* awc, atc, dense */
        test_replicas t = golden(2, 1000, "complete", c, TACITI_OPTIM_ADAM);
        t.lr = -0.1;
        t.gossip.order = kind == 1 ? TACITI_GOSSIP_ATC : TACITI_GOSSIP_AWC;
        if (kind == 2) t.strategy = "dp";
        test_replicas_run(&t);
        const float x[] = {t.parameters[0][0], t.parameters[1][0]};
        if (kind == 2)
            assert_true(near(mean_of(x, 2), -1, 1e-3));
        else
            assert_true(near(mean_of(x, 2), 0, 0.05));
        test_replicas_free(&t);
    }
}

/* ---- exactness -----------------------------------------------------------------------------------------------------
 */

static void overlapped_is_blocking_on_every_topology(void **state) {
    (void)state;
    for (int i = 0; i < TOPOLOGY_COUNT; i++)
        for (int k = 0; k < RANK_COUNTS; k++)
            for (int order = 0; order < 2; order++) {
                test_replicas overlapped = test_replicas_of_adam(RANKS[k], 5, TOPOLOGIES[i]), blocking;
                overlapped.gossip.order = order;
                overlapped.exchange.wire = test_wire(k % 2);
                overlapped.dawdle = k % 3 == 0;
                blocking = overlapped;
                blocking.exchange.overlap = blocking.dawdle = false;
                assert_true(test_replicas_agree(&overlapped, &blocking));
            }
}

static void delays_and_threads_change_nothing(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        test_replicas plain = test_replicas_of_adam(6, 12, "exp"), slow, alone;
        plain.gossip.order = order;
        slow = alone = plain;
        slow.dawdle = true;
        alone.no_thread = true;
        test_replicas_run(&plain);
        test_replicas_run(&slow);
        test_replicas_run(&alone);
        assert_true(test_replicas_same(&plain, &slow) && test_replicas_same(&plain, &alone));
        test_replicas_free(&plain);
        test_replicas_free(&slow);
        test_replicas_free(&alone);
    }
}

/* Without clipping and with it: the norm is the whole gradient's. */
static void buckets_of_any_size_give_the_same_bits(void **state) {
    (void)state;
    for (int clip = 0; clip < 2; clip++)
        for (int order = 0; order < 2; order++) {
            test_replicas small = test_replicas_of_adam(5, 7, "exp"), large;
            small.optim.clip = clip;
            small.gossip.order = order;
            small.bucket_bytes = 1024;
            large = small;
            large.bucket_bytes = 1 << 20;
            assert_true(test_replicas_agree(&small, &large));
        }
}

static void equal_data_keep_replicas_equal(void **state) {
    (void)state;
    for (int i = 0; i < TOPOLOGY_COUNT; i++) {
        test_replicas t = test_replicas_of_adam(8, 9, TOPOLOGIES[i]), one = test_replicas_of_adam(1, 9, TOPOLOGIES[i]);
        t.problem = one.problem = TEST_EQUAL;
        test_replicas_run(&t);
        test_replicas_run(&one);
        for (int r = 1; r < t.ranks; r++) assert_memory_equal(t.parameters[r], t.parameters[0], t.n * sizeof(float));
        /* the mean of equal numbers is exact in pairs, and off by roundings where thirds are added */
        for (size_t k = 0; k < t.n; k++)
            assert_true(near((double)t.parameters[0][k], (double)one.parameters[0][k], 9 * TOLERANCE));
        test_replicas_free(&t);
        test_replicas_free(&one);
    }
}

static void without_consensus_nothing_mixes(void **state) {
    (void)state;
    test_replicas apart = test_replicas_of_adam(4, 6, "exp"), one;
    apart.gossip.gamma = 0;
    test_replicas_run(&apart);
    one = test_replicas_of_adam(4, 6, "exp");
    one.gossip.every = 1000; /* never within this run */
    test_replicas_run(&one);
    assert_true(test_replicas_same(&apart, &one));
    assert_true(memcmp(apart.parameters[0], apart.parameters[1], apart.n * sizeof(float)) != 0);
    test_replicas_free(&apart);
    test_replicas_free(&one);
}

/* ---- skipped steps -------------------------------------------------------------------------------------------------
 */

static void a_bad_gradient_is_skipped_by_its_rank_alone(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        test_replicas t = test_replicas_of_adam(4, 8, "exp");
        t.gossip.order = order;
        t.bad_rank = 2;
        t.bad_step = 3;
        test_replicas_run(&t);
        for (int r = 0; r < 4; r++) {
            for (int s = 0; s < 8; s++) assert_true(t.reports[r][s].skipped == (r == 2 && s == 3));
            for (size_t k = 0; k < t.n; k++) assert_true(fabsf(t.parameters[r][k]) < 1e3f);
        }
        assert_true(t.reports[2][3].moved > 0);
        test_replicas_free(&t);
    }
}

/* The planner prices every topology in both orders; only awc has a delay, and the configured one has its options. */
static void patterns_have_the_options_that_apply(void **state) {
    (void)state;
    const taciti_gossip_options options = {.topology = {"file"},
                                           .file = {"m"},
                                           .order = TACITI_GOSSIP_ATC,
                                           .degree = 3,
                                           .per_host = 2,
                                           .every = 5,
                                           .delay = 1};
    taciti_pattern patterns[TACITI_PATTERNS_MAX];
    size_t count = 0, configured = 0, kinds = 0;
    assert_int_equal(taciti_gossip_patterns(&options, NULL, patterns, &count), TACIT_OK);
    while (taciti_topo_kinds()[kinds].name != NULL) kinds++;
    assert_int_equal(count, 2 * kinds);
    for (size_t i = 0; i < count; i++) {
        const taciti_pattern *p = &patterns[i];
        const bool file = strcmp(p->topology.name, "file") == 0;
        assert_int_equal(p->order, i % 2 == 0 ? TACITI_ORDER_AWC : TACITI_ORDER_ATC);
        assert_int_equal(p->delay, i % 2 == 0 ? 1 : 0);
        assert_true(p->every == 5 && p->topology.per_host == 2 && p->topology.degree == (file ? 3 : 0));
        assert_true(file ? strcmp(p->topology.file, "m") == 0 : p->topology.file == NULL);
        assert_int_equal(p->configured, file && p->order == TACITI_ORDER_ATC);
        configured += p->configured;
    }
    assert_int_equal(configured, 1);
}

/* Hosts decide, so no option of a named topology applies. */
static void auto_is_one_of_the_patterns(void **state) {
    static const char *const NAMES[] = {"aer", "exp", "aer"}; /* of gossip.per_host 0, 1 and 2 */
    (void)state;
    taciti_hosts hosts;
    assert_int_equal(taciti_hosts_create(3, &hosts), TACIT_OK);
    for (int per_host = 0; per_host < 3; per_host++) {
        const taciti_gossip_options options = {
            .topology = {TACITI_TOPO_AUTO}, .degree = 2, .per_host = per_host, .every = 1};
        taciti_pattern patterns[TACITI_PATTERNS_MAX];
        taciti_topology t;
        size_t count = 0, configured = 0;
        assert_int_equal(taciti_gossip_patterns(&options, &hosts, patterns, &count), TACIT_OK);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(patterns[i].topology.degree, 0);
            if (!patterns[i].configured) continue;
            configured++;
            assert_string_equal(patterns[i].topology.name, NAMES[per_host]);
        }
        assert_int_equal(configured, 1);
        assert_int_equal(taciti_gossip_topology(&options, &hosts, &t), TACIT_OK);
        assert_string_equal(t.name, NAMES[per_host]);
        taciti_topology_destroy(&t);
    }
    taciti_hosts_destroy(&hosts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_have_the_options_that_apply),
        cmocka_unit_test(auto_is_one_of_the_patterns),
        cmocka_unit_test(two_workers_of_dadam),
        cmocka_unit_test(four_workers_of_dadam_on_a_hypercube),
        cmocka_unit_test(two_workers_of_accumadam),
        cmocka_unit_test(complete_atc_is_dense_sgd),
        cmocka_unit_test(the_mean_follows_dense_sgd),
        cmocka_unit_test(fixed_points_of_unequal_data),
        cmocka_unit_test(step_sizes_that_are_stable),
        cmocka_unit_test(the_limit_of_the_step_size_is_awcs),
        cmocka_unit_test(noise_floors),
        cmocka_unit_test(local_adam_is_biased_on_unequal_data),
        cmocka_unit_test(overlapped_is_blocking_on_every_topology),
        cmocka_unit_test(delays_and_threads_change_nothing),
        cmocka_unit_test(buckets_of_any_size_give_the_same_bits),
        cmocka_unit_test(equal_data_keep_replicas_equal),
        cmocka_unit_test(without_consensus_nothing_mixes),
        cmocka_unit_test(a_bad_gradient_is_skipped_by_its_rank_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
