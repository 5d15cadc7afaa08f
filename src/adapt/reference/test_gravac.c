/* SPDX-License-Identifier: Apache-2.0
 *
 * GraVAC: the branch table, lists of candidates, saturation and averages; what its state
 * is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adapt/reference/ewma.h"
#include "adapt/test_controller.h"

static const taciti_adapt_start BEGIN = {.factor = 10, .buckets = 1};

typedef double (*law)(double factor); /* gain, or throughput, of a factor */

static driven gravac(const char *const *settings) {
    driven d = driven_create("gravac");
    for (; settings != NULL && *settings != NULL; settings += 2) driven_set(&d, settings[0], settings[1]);
    driven_start(&d, &BEGIN);
    return d;
}

static taciti_codec_tally tally(double gain) {
    return (taciti_codec_tally){.squares_in = 4, .squares_out = 4 * gain, .n = 1000, .selected = 10};
}

/* One step at what was decided. throughput: steps per second x gain of a factor; NULL: that of the factor itself. */
static void step(driven *d, int64_t at, law gain, law throughput) {
    taciti_adapt_facts facts = {.step = at, .factor = d->decision.factor, .ranks = 32, .buckets = 1};
    const double own = facts.factor == 1 ? 1 : gain(facts.factor);
    facts.model.sent = tally(own);
    if (d->decision.trial > 0) facts.model.trial = tally(gain(d->decision.trial));
    facts.seconds.step = own / (throughput != NULL ? throughput(facts.factor) : 100 * facts.factor);
    driven_decide(d, &facts);
}

static double g_low, g_high;
static double two_gains(double factor) { return factor == 10 ? g_low : g_high; }
static double falling(double factor) { return 1 - .03 * log(factor); }

static void test_branches(void **state) {
    (void)state;
    static const struct {
        double low, high, factor;
    } table[] = {{.9, .8, 20}, {.9, .6, 10}, {.6, .5, 1}, {.7, .7, 20}, {.6, .75, 20}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        driven d = gravac(NULL);
        assert_true(d.decision.factor == 10 && d.decision.trial == 20);
        g_low = table[i].low, g_high = table[i].high;
        for (int s = 0; s < 20; s++) step(&d, s, two_gains, NULL);
        assert_true(d.decision.factor == table[i].factor);
        assert_true(d.decision.trial == (table[i].factor == 10 ? 20 : d.decision.trial));
        assert_true(strlen(d.decision.reason) > 20);
        driven_destroy(&d);
    }
}

/* From dense steps the controller returns: both levels are measured there, in turn. */
static void test_dense_is_left(void **state) {
    (void)state;
    driven d = gravac(NULL);
    g_low = .6, g_high = .5;
    int dense = 0;
    for (int s = 0; s < 52; s++) {
        step(&d, s, two_gains, NULL);
        if (s >= 2) dense += d.decision.factor == 1;
    }
    assert_int_equal(dense, 50);
    g_low = .95, g_high = .9;
    for (int s = 52; s < 252; s++) step(&d, s, two_gains, NULL);
    assert_true(d.decision.factor > 1);
    driven_destroy(&d);
}

/* Nothing measures it, and events give its gain. */
static void test_a_floor_of_1_keeps_everything(void **state) {
    (void)state;
    driven d = gravac((const char *const[]){"gravac.floor", "1", NULL});
    g_high = .5;
    for (int s = 0; s < 3; s++) step(&d, s, two_gains, NULL);
    assert_true(d.decision.factor == 1);
    assert_non_null(strstr(d.decision.reason, "floor 1x keeps 1.000 of the energy"));
    driven_destroy(&d);
}

static void expect_list(const char *const *settings, const double *list, size_t count) {
    driven d = gravac(settings);
    int64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        step(&d, at++, falling, NULL); /* the step that is sent at the floor while the candidate is measured */
        while (at % 10 != 9) step(&d, at++, falling, NULL);
        if (d.decision.factor != list[i]) fail_msg("window %zu: %g, not %g", i, d.decision.factor, list[i]);
        step(&d, at++, falling, NULL);
    }
    driven_destroy(&d);
}

/* The floor is the first entry of the paper's lists. Gains differ by more than omega, throughputs grow. */
static void test_lists_of_candidates(void **state) {
    (void)state;
    static const double exponential[] = {20, 40, 160, 1000}, doubled[] = {20, 40, 80, 160, 320, 640, 1280, 2000},
                        small[] = {3, 6, 12, 24, 48, 96, 192, 384, 768, 1000};
    const char *const common[] = {"gravac.window", "10", "gravac.omega", "0", "gravac.epsilon", "0.1", NULL};
    const char *const high[] = {"gravac.window",
                                "10",
                                "gravac.omega",
                                "0",
                                "gravac.epsilon",
                                "0.1",
                                "gravac.policy",
                                "geometric",
                                "gravac.ceiling",
                                "2000",
                                NULL};
    const char *const low[] = {
        "gravac.window", "10",           "gravac.omega", "0", "gravac.epsilon", "0.1", "gravac.policy",
        "geometric",     "gravac.floor", "1.5",          NULL};
    expect_list(common, exponential, 4);
    expect_list(high, doubled, 8);
    expect_list(low, small, 10);
}

static double paper_throughput(double factor) { /* figure 11: 10 .. 2000x */
    static const double factors[] = {1, 10, 20, 40, 80, 160, 320, 640, 1280, 2000},
                        values[] = {500, 730, 775, 803, 900, 930, 872, 960, 1029.9, 1035.4};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (factors[i] == factor) return values[i];
    fail_msg("factor %g", factor);
    return 0;
}

/* The factor after `steps`, in windows of 10. */
static double search(const char *omega, law throughput, int64_t steps) {
    const char *const settings[] = {"gravac.window",
                                    "10",
                                    "gravac.omega",
                                    omega,
                                    "gravac.epsilon",
                                    "0.1",
                                    "gravac.policy",
                                    "geometric",
                                    "gravac.ceiling",
                                    "2000",
                                    NULL};
    driven d = gravac(settings);
    for (int64_t at = 0; at < steps; at++) step(&d, at, falling, throughput);
    const double factor = d.decision.factor;
    driven_destroy(&d);
    return factor;
}

static void test_saturation(void **state) {
    (void)state;
    assert_true(search("0.01", paper_throughput, 85) == 1280);
    assert_true(search("0.005", paper_throughput, 85) == 2000); /* they differ by 0.534 % */
}

static double plateau(double factor) { return factor < 40 ? 10 * factor : 1000 - .01 * factor; }

/* The smallest of the best ones, for good. */
static void test_plateau(void **state) {
    (void)state;
    for (int64_t steps = 32; steps < 300; steps += 67) {
        assert_true(search("0.01", plateau, steps) == 40);
    }
}

static double rising(double factor) { return factor == 10 ? .8 : .795; }

/* Gains within omega: the candidate becomes the floor, before it moves to a factor that nobody has scored. */
static void test_promotion(void **state) {
    (void)state;
    const char *const settings[] = {"gravac.window", "10", NULL};
    driven d = gravac(settings);
    for (int s = 0; s < 10; s++) step(&d, s, rising, NULL);
    double floor = 0;
    memcpy(&floor, d.state, sizeof floor);
    assert_true(floor == 20);
    driven_destroy(&d);
}

static void test_averages(void **state) {
    (void)state;
    static const struct { double weight, value; } golden[] = {{.32, 2.7176998}, {.05, 2.3847502}};
    for (int i = 0; i < 2; i++) {
        taciti_ewma e = {0};
        for (int x = 1; x <= 4; x *= 2) taciti_ewma_add(&e, golden[i].weight, x);
        assert_true(fabs(e.value - golden[i].value) < 5e-8);
    }
}

/* Equal facts give equal bytes; state and decision copied in the middle go on alike. */
static void test_deterministic_and_resumed(void **state) {
    (void)state;
    const char *const settings[] = {"gravac.window", "10", "gravac.epsilon", "0.8", NULL};
    driven a = gravac(settings), b = gravac(settings);
    for (int s = 0; s < 35; s++) step(&a, s, falling, NULL);
    memcpy(b.state, a.state, a.state_bytes);
    b.decision = a.decision;
    for (int s = 35; s < 80; s++) {
        step(&a, s, falling, NULL);
        step(&b, s, falling, NULL);
        assert_memory_equal(a.state, b.state, a.state_bytes);
        assert_memory_equal(&a.decision, &b.decision, sizeof a.decision);
    }
    driven_destroy(&a);
    driven_destroy(&b);
}

static double level(double factor) { return factor == 10 ? .8 : factor == 20 ? .788 : .7; }

/* Gains that differ by one and a half omega are not the same. */
static void test_no_promotion(void **state) {
    (void)state;
    const char *const settings[] = {"gravac.window", "10", NULL};
    driven d = gravac(settings);
    for (int s = 0; s < 12; s++) step(&d, s, level, NULL);
    double floor = 0;
    memcpy(&floor, d.state, sizeof floor);
    assert_true(floor == 10);
    driven_destroy(&d);
}

static double wide(double factor) { return factor == 10 ? 10 : 15.5; }

/* Throughputs that differ by 55 % of the second and 35 % of the best are not the same at an omega of 50 %. */
static void test_saturation_is_of_the_second(void **state) {
    (void)state;
    assert_true(search("0.5", wide, 12) > 40); /* it goes on */
}

static double steady(double factor) { return 100 + 0 * factor; }
static double nearly(double factor) { return factor <= 20 ? .998 : .5; }

/* The floor was promoted to 20x; dense was seen, and is as fast. The search ends there, and stays. */
static void test_it_ends_at_dense(void **state) {
    (void)state;
    const char *const settings[] = {"gravac.window", "10", NULL};
    driven d = gravac(settings);
    g_low = .2, g_high = .2;
    for (int s = 0; s < 9; s++) step(&d, s, two_gains, steady); /* dense, but for the first one */
    assert_true(d.decision.factor == 1);
    for (int s = 9; s < 400; s++) step(&d, s, nearly, steady);
    assert_true(d.decision.factor == 1 && d.decision.trial == 0);
    assert_non_null(strstr(d.decision.reason, "than dense"));
    driven_destroy(&d);
}

/* The candidate becomes the floor again, whose gain is known. */
static void test_it_ends_at_the_floor(void **state) {
    (void)state;
    driven d = gravac((const char *const[]){"gravac.window", "10", NULL});
    g_low = .9, g_high = .8;
    for (int s = 0; s < 10; s++) step(&d, s, two_gains, steady);
    assert_true(d.decision.factor == 10 && d.decision.trial == 0);
    assert_non_null(strstr(d.decision.reason, "search ended: candidate 10x keeps 0.900"));
    driven_destroy(&d);
}

/* Dense steps measure floor and candidate in turns, after even and odd steps. */
static void test_turns(void **state) {
    (void)state;
    driven d = gravac(NULL);
    g_low = g_high = .2;
    int floors = 0, candidates = 0;
    for (int s = 0; s < 22; s++) {
        step(&d, s, two_gains, NULL);
        floors += d.decision.factor == 1 && d.decision.trial == 10 && s % 2 == 0;
        candidates += d.decision.factor == 1 && d.decision.trial == 20 && s % 2 == 1;
    }
    assert_true(floors >= 10 && candidates >= 10);
    driven_destroy(&d);
}

/* A candidate that is the floor has its gain from the start. */
static void test_the_candidate_is_the_floor(void **state) {
    (void)state;
    driven d = gravac((const char *const[]){"gravac.ceiling", "10", NULL});
    assert_true(d.decision.factor == 10 && d.decision.trial == 0);
    g_low = .9;
    step(&d, 0, two_gains, NULL);
    assert_true(d.decision.factor == 10 && d.decision.trial == 0);
    assert_non_null(strstr(d.decision.reason, "keeps 0.900"));
    driven_destroy(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_branches),
                                       cmocka_unit_test(test_dense_is_left),
                                       cmocka_unit_test(test_a_floor_of_1_keeps_everything),
                                       cmocka_unit_test(test_lists_of_candidates),
                                       cmocka_unit_test(test_saturation),
                                       cmocka_unit_test(test_promotion),
                                       cmocka_unit_test(test_no_promotion),
                                       cmocka_unit_test(test_saturation_is_of_the_second),
                                       cmocka_unit_test(test_it_ends_at_dense),
                                       cmocka_unit_test(test_it_ends_at_the_floor),
                                       cmocka_unit_test(test_turns),
                                       cmocka_unit_test(test_the_candidate_is_the_floor),
                                       cmocka_unit_test(test_plateau),
                                       cmocka_unit_test(test_averages),
                                       cmocka_unit_test(test_deterministic_and_resumed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
