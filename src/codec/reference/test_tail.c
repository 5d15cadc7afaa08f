/* SPDX-License-Identifier: Apache-2.0
 *
 * Thresholds of fitted laws: exact values, inverses, and samples of the laws themselves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>

#include "base/rng.h"
#include "codec/reference/tail.h"

static void near(double got, double expected, double relative) {
    if (!(fabs(got - expected) <= relative * fabs(expected))) fail_msg("%.15g is not %.15g", got, expected);
}

static void exponential_thresholds_are_exact(void **state) {
    (void)state;
    near(taciti_tail_exponential(1, .001), 6.907755278982137, 1e-14);
    near(taciti_tail_exponential(3, .25), 3 * 1.3862943611198906, 1e-14);
    /* stages of 0.25, the last of 0.256: the same in all */
    double sum = taciti_tail_exponential(1, .256);
    for (int i = 0; i < 4; i++) sum += taciti_tail_exponential(1, .25);
    near(sum, 6.907755278982137, 1e-14);
}

static void pareto_thresholds_are_exact(void **state) {
    (void)state;
    near(taciti_tail_pareto(1, 2, .01), 6.486833, 1e-7); /* kk -0.25, scale 0.75 */
    near(taciti_tail_pareto(1, 2, .01), .75 * (pow(.01, -.25) - 1) / .25, 1e-14);
    near(taciti_tail_pareto(1, 1, .01), 4.605170185988091, 1e-14); /* kk 0: exponential */
    near(taciti_tail_pareto(1, 1 + 1e-7, .01), 4.605170185988091, 1e-6);
    near(taciti_tail_pareto(1, 1 - 1e-7, .01), 4.605170185988091, 1e-6);
    near(taciti_tail_pareto(2, 0, .01), 2 * 4.605170185988091, 1e-14);
    /* kk 1: uniform on 0 .. 2 mean */
    near(taciti_tail_pareto(1, 1.0 / 3, .25), 1.5, 1e-14);
}

static void gamma_shapes_are_near_those_of_the_law(void **state) {
    (void)state;
    const double euler = 0.5772156649015329;
    near(taciti_tail_gamma_shape(1, -euler), .990942, 1e-6);
    near(taciti_tail_gamma_shape(5, log(5) - euler), .990942, 1e-6);
    /* shape 1/2, mean 1: the mean logarithm is digamma(1/2) + ln 2 = -euler - ln 2 */
    near(taciti_tail_gamma_shape(1, -euler - log(2)), .5, .02);
    assert_true(taciti_tail_gamma_shape(3, log(3)) > 1e6); /* all magnitudes equal */
    near(taciti_tail_gamma(3, log(3), .01), 3, 1e-3);
}

/* Q(1, x) = e^-x; Q(1/2, x) = erfc(sqrt x); Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1). */
static void incomplete_gamma_has_its_closed_forms(void **state) {
    (void)state;
    for (double x = 1e-6; x < 300; x *= 1.7) {
        near(taciti_gamma_upper(1, x), exp(-x), 1e-12);
        near(taciti_gamma_upper(.5, x), erfc(sqrt(x)), 1e-11);
        near(taciti_gamma_upper(2, x), (1 + x) * exp(-x), 1e-12);
        near(taciti_gamma_upper(12.5, x), taciti_gamma_upper(11.5, x) + exp(11.5 * log(x) - x - lgamma(12.5)), 1e-11);
        near(taciti_gamma_upper(1.3, x), taciti_gamma_upper(.3, x) + exp(.3 * log(x) - x - lgamma(1.3)), 1e-11);
        near(taciti_gamma_upper(1.02, x), taciti_gamma_upper(.02, x) + exp(.02 * log(x) - x - lgamma(1.02)), 1e-11);
    }
    assert_true(taciti_gamma_upper(.7, 0) == 1);
}

static void the_inverse_is_one(void **state) {
    (void)state;
    for (double a = .05; a < 500; a *= 1.9)
        for (double q = .9; q > 1e-7; q /= 2.3) near(taciti_gamma_upper(a, taciti_gamma_upper_inverse(a, q)), q, 1e-9);
    near(taciti_gamma_upper_inverse(1, .001), 6.907755278982137, 1e-12);
    assert_true(taciti_gamma_upper_inverse(.001, .9) > 0);
}

static void normal_thresholds_are_exact(void **state) {
    (void)state;
    near(taciti_tail_normal(.3173105078629141), 1, 1e-12);
    near(taciti_tail_normal(.05), 1.959963984540054, 1e-12);
    near(taciti_tail_normal(.01), 2.5758293035489, 1e-12);
    near(taciti_tail_normal(.001), 3.290526731491896, 1e-12);
}

static void logarithms_add_up(void **state) {
    (void)state;
    enum { N = 1000 };
    float x[N];
    double sum = 0;
    size_t counted = 0, nonzero = 0;
    for (size_t i = 0; i < N; i++) {
        const uint64_t r = taciti_rng_u64(3, i);
        x[i] = i % 7 == 3 ? 0 : (float)ldexp(1 + (double)(r >> 40) * 0x1p-24, (int)(r % 270) - 145);
        if (r & 1) x[i] = -x[i];
        if (x[i] == 0) continue;
        sum += log(fabs((double)x[i]));
        nonzero++;
    }
    near(taciti_sum_of_logs(x, N, &counted), sum, 1e-12);
    assert_int_equal(counted, nonzero);
    for (size_t i = 0; i < N; i++) x[i] = 0x1.fffffep127f;
    near(taciti_sum_of_logs(x, N, &counted), N * log(0x1.fffffep127), 1e-13);
    assert_true(taciti_sum_of_logs(x, 0, &counted) == 0 && counted == 0);
}

/* Each law's threshold lets its share of the law's own sample pass: 5 standard deviations of a binomial count. */
static void samples_pass_in_their_share(void **state) {
    (void)state;
    enum { N = 200000 };
    static float x[N];
    const double share = .01, bound = 5 * sqrt(share * (1 - share) / N);
    for (int law = 0; law < 3; law++) {
        double sum = 0, squares = 0, above = 0;
        size_t counted = 0;
        for (size_t i = 0; i < N; i++) {
            const double u = taciti_rng_unit(51, 3 * i) + 0x1p-54, v = taciti_rng_unit(51, 3 * i + 1) + 0x1p-54;
            if (law == 0) x[i] = (float)-log(u);
            if (law == 1) x[i] = (float)(4 * (pow(u, -.1) - 1)); /* Pareto, shape 0.1: moments of the sample settle */
            if (law == 2) x[i] = (float)(-log(u) - log(v));      /* gamma, shape 2 */
            sum += (double)x[i];
            squares += (double)x[i] * (double)x[i];
        }
        const double mean = sum / N, variance = squares / N - mean * mean;
        const double mean_log = taciti_sum_of_logs(x, N, &counted) / N;
        const double t = law == 0   ? taciti_tail_exponential(mean, share)
                         : law == 1 ? taciti_tail_pareto(mean, variance, share)
                                    : taciti_tail_gamma(mean, mean_log, share);
        for (size_t i = 0; i < N; i++) above += (double)x[i] >= t;
        assert_true(fabs(above / N - share) < bound);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential_thresholds_are_exact),
        cmocka_unit_test(pareto_thresholds_are_exact),
        cmocka_unit_test(gamma_shapes_are_near_those_of_the_law),
        cmocka_unit_test(incomplete_gamma_has_its_closed_forms),
        cmocka_unit_test(the_inverse_is_one),
        cmocka_unit_test(normal_thresholds_are_exact),
        cmocka_unit_test(logarithms_add_up),
        cmocka_unit_test(samples_pass_in_their_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
