/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes against noise: how rare false alarms are, and how soon a change is noticed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "adapt/change.h"
#include "base/rng.h"

enum { SEEDS = 100, LONG = 10000 };

static double normal(uint64_t seed, uint64_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(5, seed), i);
    const double u = ((double)(key >> 11) + .5) * 0x1p-53, v = ((double)(taciti_rng_key(key, 1) >> 11) + .5) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Returns the mean of `steps` log-normal samples around 1. */
static double sample(uint64_t seed, uint64_t i, double spread, int64_t steps) {
    double sum = 0;
    for (int64_t j = 0; j < steps; j++) sum += exp(spread * normal(seed, i * 64 + (uint64_t)j));
    return sum / (double)steps;
}

/* Nothing changes: fewer than one alarm in 10000 samples on the average, and no seed has more than a few. */
static void test_false_alarms(void **state) {
    (void)state;
    static const double SPREADS[] = {0, .01, .05, .15, .3, .5};
    static const int64_t STEPS[] = {1, 8};
    for (int k = 0; k < 6; k++)
        for (int j = 0; j < 2; j++) {
            int all = 0, worst = 0;
            for (uint64_t seed = 0; seed < SEEDS; seed++) {
                taciti_change c = {0};
                int alarms = 0;
                for (uint64_t i = 0; i < LONG; i++)
                    alarms += taciti_change_observe(&c, sample(seed, i, SPREADS[k], STEPS[j]), STEPS[j]) != 1;
                all += alarms;
                worst = alarms > worst ? alarms : worst;
            }
            printf("spread %g, means of %d: %g alarms in 10000 samples, %d at most; noise is measured\n", SPREADS[k],
                   (int)STEPS[j], all / (double)SEEDS, worst);
            assert_true(all < SEEDS / 2 && worst <= 3);
        }
}

/* Twice, half and eight times: noticed soon, by about as much, in time that the approximation gives. */
static void test_delays(void **state) {
    (void)state;
    static const double SPREADS[] = {.01, .05, .3}, RATIOS[] = {1.35, 2, .5, 8, .125};
    for (int k = 0; k < 3; k++)
        for (int r = 0; r < 5; r++) {
            int sum = 0, worst = 0, late = 0;
            double off = 0, bias = 0;
            for (uint64_t seed = 0; seed < SEEDS; seed++) {
                taciti_change c = {0};
                for (uint64_t i = 0; i < 300; i++) (void)taciti_change_observe(&c, sample(seed, i, SPREADS[k], 1), 1);
                double ratio = 1;
                int delay = 0;
                while (ratio == 1 && delay < 200)
                    ratio =
                        taciti_change_observe(&c, RATIOS[r] * sample(seed, 300 + (uint64_t)delay++, SPREADS[k], 1), 1);
                sum += delay;
                worst = delay > worst ? delay : worst;
                late += delay > 20;
                off = fmax(off, fabs(log(ratio / RATIOS[r])));
                bias += log(ratio / RATIOS[r]) / SEEDS;
            }
            const double shift = fabs(log(RATIOS[r])) / SPREADS[k] - .5 - 1 / sqrt(50);
            const double expected = fmax(shift > 0 ? 8.17 / shift - 1 / (2 * shift * shift) : 200, 3);
            const double mean = sum / (double)SEEDS;
            printf("spread %g, %g times: %.1f samples, %d at most (%.1f expected); ratio off by %.2f, %.2f at most\n",
                   SPREADS[k], RATIOS[r], mean, worst, expected, bias, off);
            if (fabs(log(RATIOS[r])) < .5 && SPREADS[k] > .1) continue; /* a third of noise of 30 % */
            assert_true(late <= SEEDS / 50 && worst <= 30 && mean >= 2);
            assert_true(off < .3 + .3 * fabs(log(RATIOS[r])) &&
                        fabs(bias) < .5 * SPREADS[k] + .03 * fabs(log(RATIOS[r])));
            if (SPREADS[k] > .1) assert_true(mean < 1.5 * expected + 2);
            if (SPREADS[k] < .1 && RATIOS[r] != 1.35) assert_true(worst <= 4);
        }
}

/* Means over several steps: one is never enough, three always, in both directions. */
static void test_means(void **state) {
    (void)state;
    static const double RATIOS[] = {4, .25};
    for (int r = 0; r < 2; r++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            taciti_change c = {.mean = 0};
            for (uint64_t i = 0; i < 100; i++) assert_true(taciti_change_observe(&c, sample(seed, i, .2, 8), 8) == 1);
            assert_true(taciti_change_observe(&c, RATIOS[r] * sample(seed, 100, .2, 8), 8) == 1);
            double ratio = 1;
            for (uint64_t i = 101; i < 103 && ratio == 1; i++)
                ratio = taciti_change_observe(&c, RATIOS[r] * sample(seed, i, .2, 8), 8);
            assert_true(fabs(log(ratio / RATIOS[r])) < .5);
        }
}

/* One hiccup in a row is none, two are none; a drift that the mean follows is none. */
static void test_no_changes(void **state) {
    (void)state;
    taciti_change c = {0};
    for (uint64_t i = 0; i < 2000; i++) {
        const double hiccup = i % 40 == 20 ? 10 : i % 40 == 21 ? 3 : 1;
        assert_true(taciti_change_observe(&c, hiccup * sample(1, i, .02, 1), 1) == 1);
    }
    c = (taciti_change){0};
    for (uint64_t i = 0; i < 2000; i++)
        assert_true(taciti_change_observe(&c, exp((double)i / 1000) * sample(2, i, .02, 1), 1) == 1);
}

/* After a change the new level is the mean. */
static void test_goes_on(void **state) {
    (void)state;
    taciti_change c = {0};
    int alarms = 0;
    for (uint64_t i = 0; i < 2000; i++)
        alarms += taciti_change_observe(&c, (i / 200 % 2 ? 3 : 1) * sample(3, i, .1, 1), 1) != 1;
    assert_int_equal(alarms, 9);
    assert_true(fabs(taciti_noise_deviation(&c.noise) - .1) < .06);
}

static void test_edges(void **state) {
    (void)state;
    taciti_change c = {0}, before;
    assert_true(taciti_noise_deviation(&c.noise) > 0);
    assert_true(taciti_change_observe(&c, 1, 1) == 1);
    assert_true(c.samples == 1 && c.noise.weight == 0); /* the first sample tells nothing of noise */
    before = c;
    assert_true(taciti_change_observe(&c, 0, 1) == 1 && taciti_change_observe(&c, -1, 1) == 1);
    assert_true(taciti_change_observe(&c, (double)NAN, 1) == 1 && taciti_change_observe(&c, (double)INFINITY, 1) == 1);
    assert_true(taciti_change_observe(&c, 5, 0) == 1);
    assert_memory_equal(&c, &before, sizeof c);
    for (int i = 0; i < 100; i++) assert_true(taciti_change_observe(&c, 1, 1) == 1); /* no noise at all */
    taciti_change_move(&c);
    assert_true(c.samples == 0 && c.noise.weight > 0);
    taciti_noise noise = {0};
    const double limit = 3 * taciti_noise_deviation(&noise); /* of what one sample tells */
    taciti_noise_observe(&noise, 100, 1);
    assert_true(noise.weight == 1 && noise.variance == limit * limit);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_false_alarms), cmocka_unit_test(test_delays),
                                       cmocka_unit_test(test_means),        cmocka_unit_test(test_no_changes),
                                       cmocka_unit_test(test_goes_on),      cmocka_unit_test(test_edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
