/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "model/sampler.h"

enum { N = 5, DRAWS = 40000 };

/* Draws many tokens and returns how often each came, as a fraction. */
static void draw(const taciti_sampler *sampler, const float *logits, double *share) {
    memset(share, 0, N * sizeof *share);
    for (uint64_t i = 0; i < DRAWS; i++) {
        float scratch[N];
        int32_t order[N];
        memcpy(scratch, logits, sizeof scratch);
        const int32_t t = taciti_sampler_choose(sampler, scratch, order, N, taciti_rng_unit(11, i));
        assert_in_range(t, 0, N - 1);
        share[t] += 1.0 / DRAWS;
    }
}

static void frequencies_follow_the_softmax(void **state) {
    (void)state;
    const float logits[N] = {0.5f, -1, 2, 0, 1};
    const taciti_sampler sampler = {.temperature = 0.7, .top_p = 1};
    double share[N], sum = 0;
    draw(&sampler, logits, share);
    for (int i = 0; i < N; i++) sum += exp((double)logits[i] / 0.7);
    for (int i = 0; i < N; i++) {
        const double p = exp((double)logits[i] / 0.7) / sum;
        assert_true(fabs(share[i] - p) < 5 * sqrt(p * (1 - p) / DRAWS)); /* five standard errors */
    }
}

static void top_k_and_top_p_cut_the_tail(void **state) {
    (void)state;
    const float logits[N] = {0, 3, 1, 2, -1};
    double share[N];
    draw(&(taciti_sampler){.temperature = 1, .top_k = 2, .top_p = 1}, logits, share);
    assert_true(share[1] > 0 && share[3] > 0);
    assert_true(share[0] <= 0 && share[2] <= 0 && share[4] <= 0);
    draw(&(taciti_sampler){.temperature = 1, .top_p = 0.5}, logits, share);
    assert_true(share[1] >= 1 - 1e-9); /* token 1 alone has 64 % */
}

static void zero_temperature_takes_the_first_of_the_largest(void **state) {
    (void)state;
    float logits[N] = {1, 4, 4, NAN, -INFINITY};
    int32_t order[N];
    assert_int_equal(taciti_sampler_choose(&(taciti_sampler){.temperature = 0, .top_p = 1}, logits, order, N, 0.9), 1);
}

static void nothing_finite_is_refused(void **state) {
    (void)state;
    float logits[N] = {NAN, NAN, INFINITY, -INFINITY, NAN};
    int32_t order[N];
    assert_int_equal(taciti_sampler_choose(&(taciti_sampler){.temperature = 1, .top_p = 1}, logits, order, N, 0.1), -1);
    assert_int_equal(taciti_sampler_choose(&(taciti_sampler){.temperature = 1, .top_p = 1}, logits, order, 0, 0.1), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_follow_the_softmax),
        cmocka_unit_test(top_k_and_top_p_cut_the_tail),
        cmocka_unit_test(zero_temperature_takes_the_first_of_the_largest),
        cmocka_unit_test(nothing_finite_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
