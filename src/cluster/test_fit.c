/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "cluster/fit.h"

static const double SIZES[] = {1, 8, 64, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 21, 1 << 22, 1 << 24};
enum { COUNT = sizeof SIZES / sizeof *SIZES };

static void assert_close(double x, double expected, double tolerance) {
    if (!(fabs(x - expected) <= tolerance * fabs(expected))) fail_msg("%.17g is not %.17g", x, expected);
}

static void test_median(void **state) {
    (void)state;
    assert_true(taciti_median((double[]){3}, 1) == 3);
    assert_true(taciti_median((double[]){5, 3}, 2) == 4);
    assert_true(taciti_median((double[]){9, -1, 4}, 3) == 4);
    assert_true(taciti_median((double[]){1, 1e300, 2, 3}, 4) == 2.5);
}

static void line_at(double alpha, double beta, double *seconds) {
    for (int i = 0; i < COUNT; i++) seconds[i] = alpha + beta * SIZES[i];
}

static void test_exact_line(void **state) {
    (void)state;
    static const double alphas[] = {0, 1e-7, 30e-6, 5e-3}, betas[] = {1e-11, 0.32e-9, 40e-9, 1e-6};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            double seconds[COUNT];
            taciti_link_cost link;
            line_at(alphas[i], betas[j], seconds);
            assert_true(taciti_fit_link(SIZES, seconds, COUNT, &link));
            assert_close(link.beta_s_per_byte, betas[j], 1e-9);
            assert_true(fabs(link.alpha_s - alphas[i]) <= 1e-9 * seconds[COUNT - 1]);
            assert_true(link.fit_error < 1e-6);
        }
}

static void test_noise(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        double seconds[COUNT];
        taciti_link_cost link;
        line_at(30e-6, 40e-9, seconds);
        for (uint64_t i = 0; i < COUNT; i++) seconds[i] *= 1 + 0.02 * (taciti_rng_unit(seed, i) - 0.5);
        assert_true(taciti_fit_link(SIZES, seconds, COUNT, &link));
        assert_close(link.beta_s_per_byte, 40e-9, 0.02);
        assert_close(link.alpha_s, 30e-6, 0.02);
        assert_true(link.fit_error < 0.04);
    }
}

/* One of the long messages met a pause of the machine; a shaper let the first 25 KB of all pass at once. */
static void test_what_does_not_bend_the_line(void **state) {
    (void)state;
    double seconds[COUNT];
    taciti_link_cost link;
    for (int i = 0; i < COUNT; i++) seconds[i] = 30e-6 + 40e-9 * (SIZES[i] > 25e3 ? SIZES[i] - 25e3 : 0);
    assert_true(taciti_fit_link(SIZES, seconds, COUNT, &link));
    assert_close(link.beta_s_per_byte, 40e-9, 1e-6);
    assert_close(link.alpha_s, 30e-6, 0.1);
    assert_true(link.fit_error > 0.5 && link.fit_error < 1); /* and it is told that some sizes are off */
    line_at(30e-6, 40e-9, seconds);
    seconds[8] += 1;
    assert_true(taciti_fit_link(SIZES, seconds, COUNT, &link));
    assert_close(link.beta_s_per_byte, 40e-9, 1e-6);
}

static void test_two_points(void **state) {
    (void)state;
    taciti_link_cost link;
    assert_true(taciti_fit_link((double[]){1, 1001}, (double[]){1e-3, 2e-3}, 2, &link));
    assert_close(link.beta_s_per_byte, 1e-6, 1e-9);
    assert_close(link.alpha_s, 999e-6, 1e-9);
}

/* The intercept is never below zero: no message arrives before it was sent. */
static void test_no_negative_latency(void **state) {
    (void)state;
    taciti_link_cost link;
    assert_true(taciti_fit_link((double[]){64, 1000, 2000}, (double[]){1e-9, 1e-3, 2e-3}, 3, &link));
    assert_true(link.alpha_s >= 0 && link.beta_s_per_byte > 0);
}

static void test_no_line(void **state) {
    (void)state;
    double many[TACITI_FIT_MAX + 1];
    taciti_link_cost link = {.alpha_s = 7};
    for (int i = 0; i <= TACITI_FIT_MAX; i++) many[i] = i + 1;
    assert_false(taciti_fit_link(SIZES, SIZES, 0, &link));
    assert_false(taciti_fit_link(SIZES, SIZES, 1, &link));
    assert_false(taciti_fit_link(many, many, TACITI_FIT_MAX + 1, &link));
    assert_false(taciti_fit_link((double[]){1, 2}, (double[]){2, 1}, 2, &link));
    assert_false(taciti_fit_link((double[]){1, 2}, (double[]){1, 1}, 2, &link));
    assert_true(link.alpha_s == 7); /* outputs are written only on success */
}

static void test_jitter_of_equal_pieces(void **state) {
    (void)state;
    const double same[] = {0.5, 0.5, 0.5, 0.5};
    const taciti_jitter j = taciti_jitter_of(same, 2, 2);
    assert_true(j.mean_s == 0.5 && j.cv == 0 && j.rank_spread == 0 && j.lag1 == -2);
}

/* 1 3 1 3: standard deviation 1 about 2, each piece the opposite of the one before. */
static void test_jitter_that_alternates(void **state) {
    (void)state;
    const double x[] = {1, 3, 1, 3};
    const taciti_jitter j = taciti_jitter_of(x, 1, 4);
    assert_close(j.cv, 0.5, 1e-12);
    assert_close(j.lag1, -1, 1e-12);
    assert_true(j.rank_spread == 0);
}

static void test_persistent_straggler(void **state) {
    (void)state;
    const double x[] = {1, 1, 1, 1, 3, 3, 3, 3};
    const taciti_jitter j = taciti_jitter_of(x, 2, 4);
    assert_close(j.lag1, 1, 1e-12);
    assert_close(j.rank_spread, 1, 1e-12);
    assert_close(j.cv, 0.5, 1e-12);
}

/* Independent delays have no memory: the estimate is 0 within a few 1/sqrt(n). */
static void test_independent_jitter(void **state) {
    (void)state;
    enum { RANKS = 8, PIECES = 500 };
    static double x[RANKS * PIECES];
    for (uint64_t i = 0; i < RANKS * PIECES; i++) x[i] = 1 + 0.2 * (taciti_rng_unit(3, i) - 0.5);
    const taciti_jitter j = taciti_jitter_of(x, RANKS, PIECES);
    assert_close(j.mean_s, 1, 0.01);
    assert_close(j.cv, 0.2 / sqrt(12), 0.05);
    assert_true(fabs(j.lag1) < 5 / sqrt(RANKS * PIECES));
    assert_true(j.rank_spread < 0.02);
}

/* ---- bounds -------------------------------------------------------------------------------------------------------
 */

static void test_bounds(void **state) {
    (void)state;
    int four[] = {2, 2, 2, 2}, one[] = {4};
    taciti_cluster c = taciti_cluster_unknown();
    c.hosts = 4;
    c.ranks_per_host = four;
    c.between = (taciti_link_cost){30e-6, 1e-8, -1};
    const size_t b = 1000;
    assert_close(taciti_cluster_bound_s(&c, TACITI_COLLECTIVE_ALL_REDUCE, TACITI_GROUP_WORLD, b), 1.5e-5, 1e-12);
    /* 2 ranks x 6 ranks elsewhere x 125 bytes */
    assert_close(taciti_cluster_bound_s(&c, TACITI_COLLECTIVE_ALL_TO_ALL, TACITI_GROUP_WORLD, b), 1.5e-5, 1e-12);
    assert_true(taciti_cluster_bound_s(&c, TACITI_COLLECTIVE_ALL_REDUCE, TACITI_GROUP_HOST, b) == 0); /* unknown */
    c.inside = (taciti_link_cost){1e-6, 1e-10, -1};
    assert_close(taciti_cluster_bound_s(&c, TACITI_COLLECTIVE_ALL_REDUCE, TACITI_GROUP_HOST, b), 1e-7, 1e-12);
    c.host_beta_s_per_byte = 2e-8; /* what was measured with all ranks at once counts */
    assert_close(taciti_cluster_bound_s(&c, TACITI_COLLECTIVE_ALL_REDUCE, TACITI_GROUP_WORLD, b), 3e-5, 1e-12);
    c.host_beta_s_per_byte = 1e-8;
    four[1] = 16; /* a pair takes one rank of each of two hosts */
    four[2] = 3;
    assert_close(taciti_cluster_bound_s(&c, TACITI_COLLECTIVE_ALL_REDUCE, TACITI_GROUP_PAIR, b), 2e-5, 1e-12);
    c.hosts = 1;
    c.ranks_per_host = one;
    assert_close(taciti_cluster_bound_s(&c, TACITI_COLLECTIVE_ALL_REDUCE, TACITI_GROUP_WORLD, b), 1.5e-7, 1e-12);
    one[0] = 1;
    assert_true(taciti_cluster_bound_s(&c, TACITI_COLLECTIVE_ALL_REDUCE, TACITI_GROUP_WORLD, b) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_exact_line),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_what_does_not_bend_the_line),
        cmocka_unit_test(test_two_points),
        cmocka_unit_test(test_no_negative_latency),
        cmocka_unit_test(test_no_line),
        cmocka_unit_test(test_jitter_of_equal_pieces),
        cmocka_unit_test(test_jitter_that_alternates),
        cmocka_unit_test(test_persistent_straggler),
        cmocka_unit_test(test_independent_jitter),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
