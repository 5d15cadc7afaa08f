/* SPDX-License-Identifier: Apache-2.0
 *
 * The gain curve against exact selection and closed forms.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/reference/curve.h"
#include "base/rng.h"

enum { N = 1 << 20, LAPLACE = 0, MIXTURE, GAUSS, LAWS };

static float *g_x;
static double g_counts[TACITI_MAGNITUDE_BINS];
static taciti_curve g_curve;

static double uniform(uint64_t i, uint64_t stream) {
    return ((double)(taciti_rng_key(taciti_rng_key(7, stream), i) >> 11) + .5) * 0x1p-53;
}

static double gauss(uint64_t i, uint64_t stream) {
    return sqrt(-2 * log(uniform(i, stream))) * cos(6.283185307179586 * uniform(i, stream + 100));
}

/* Magnitudes: signs do not matter. The mixture is Laplace with scales that are log-normal per block of 4096. */
static double draw(int law, uint64_t i) {
    if (law == GAUSS) return fabs(gauss(i, 1));
    const double scale = law == MIXTURE ? exp(1.5 * gauss(i / 4096, 2)) : 1;
    return -log(uniform(i, 3)) * scale;
}

static void observe(size_t n) {
    memset(g_counts, 0, sizeof g_counts);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &g_x[i], sizeof bits);
        g_counts[bits << 1 >> 21]++;
    }
    taciti_curve_build(g_counts, &g_curve);
}

static int descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void sample(int law) {
    for (size_t i = 0; i < N; i++) g_x[i] = (float)draw(law, i);
    observe(N);
    qsort(g_x, N, sizeof *g_x, descending);
}

static double exact(size_t k) {
    double kept = 0, all = 0;
    for (size_t i = 0; i < N; i++) {
        all += (double)g_x[i] * (double)g_x[i];
        if (i + 1 == k) kept = all;
    }
    return kept / all;
}

static const double FACTORS[] = {1.5, 2, 4, 10, 20, 40, 100, 160, 1000, 10000};
enum { FACTORS_COUNT = sizeof FACTORS / sizeof *FACTORS };

static void test_against_exact_selection(void **state) {
    (void)state;
    for (int law = 0; law < LAWS; law++) {
        sample(law);
        for (int f = 0; f < FACTORS_COUNT; f++) {
            const size_t k = (size_t)(N / FACTORS[f]);
            const double want = exact(k), got = taciti_curve_gain(&g_curve, N / (double)k);
            if (fabs(got / want - 1) > .008) fail_msg("law %d, factor %g: %g, exact %g", law, FACTORS[f], got, want);
        }
    }
}

/* Closed forms of a first step: p (1 + L + L^2 / 2) with L = ln(1/p), and p + sqrt(2/pi) t exp(-t^2/2). */
static void test_closed_forms(void **state) {
    (void)state;
    static const double laplace[] = {.99178, .96669, .83680, .59535, .42415, .28732, .16209, .11846, .03177};
    static const double normal[] = {.97989, .92867, .72361, .43929, .27910, .17006, .08449, .05816, .01270};
    for (int law = 0; law < 2; law++) {
        sample(law == 0 ? LAPLACE : GAUSS);
        for (int f = 0; f + 1 < FACTORS_COUNT; f++) {
            const double want = law == 0 ? laplace[f] : normal[f];
            const double bound = FACTORS[f] <= 10 ? .005 : FACTORS[f] <= 160 ? .015 : .04; /* sampling: n / factor */
            const double got = taciti_curve_gain(&g_curve, FACTORS[f]);
            if (fabs(got / want - 1) > bound) fail_msg("law %d, factor %g: %g, not %g", law, FACTORS[f], got, want);
        }
    }
}

static void test_a_tenth_of_the_lines_suffices(void **state) {
    (void)state;
    for (int law = 0; law < LAWS; law++) {
        size_t n = 0;
        for (size_t i = 0; i < N; i++)
            if (i / 16 % 10 == 3) g_x[n++] = (float)draw(law, i);
        observe(n);
        double got[FACTORS_COUNT];
        for (int f = 0; f < FACTORS_COUNT; f++) got[f] = taciti_curve_gain(&g_curve, FACTORS[f]);
        sample(law);
        for (int f = 0; FACTORS[f] <= 100; f++) assert_true(fabs(got[f] / exact((size_t)(N / FACTORS[f])) - 1) < .03);
    }
}

static void test_edges(void **state) {
    (void)state;
    observe(0);
    assert_true(taciti_curve_gain(&g_curve, 10) == 1);

    memset(g_x, 0, 1000 * sizeof *g_x); /* zeros, then one spike */
    observe(1000);
    assert_true(taciti_curve_gain(&g_curve, 100) == 1);
    g_x[5] = 3;
    observe(1000);
    assert_true(taciti_curve_gain(&g_curve, 1000) > .999999);

    for (size_t i = 0; i < 1000; i++) g_x[i] = 1; /* all equal: the gain is the part that is sent */
    observe(1000);
    assert_true(fabs(taciti_curve_gain(&g_curve, 10) - .1) < .02);

    g_x[0] = INFINITY, g_x[1] = NAN, g_x[2] = 1e-45F, g_x[3] = 3e38F; /* the last one has all the energy */
    observe(1000);
    assert_true(g_curve.count == 998);
    assert_true(taciti_curve_gain(&g_curve, 500) > .999);
}

/* Densities that rise by the steepest tilt: all of a bin is above its lower edge. */
static void test_a_whole_bin(void **state) {
    (void)state;
    memset(g_counts, 0, sizeof g_counts);
    for (int j = 0; j < 3; j++) g_counts[1000 + j] = pow(100, j);
    taciti_curve_build(g_counts, &g_curve);
    assert_true(g_curve.tilt[1001] == 1);
    const double gain = taciti_curve_gain(&g_curve, 10101. / 10100); /* the upper two bins */
    assert_true(fabs(gain * g_curve.squares / g_curve.energy[1001] - 1) < 1e-12);
}

static void test_monotone(void **state) {
    (void)state;
    sample(MIXTURE);
    double before = 1;
    for (double factor = 1; factor < 1e7; factor *= 1.01) {
        const double gain = taciti_curve_gain(&g_curve, factor);
        assert_true(gain <= before + 1e-12 && gain > 0);
        before = gain;
    }
}

static int allocate(void **state) {
    (void)state;
    g_x = malloc(N * sizeof *g_x);
    return g_x == NULL;
}

static int release(void **state) {
    (void)state;
    free(g_x);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_exact_selection),
                                       cmocka_unit_test(test_closed_forms),
                                       cmocka_unit_test(test_a_tenth_of_the_lines_suffices),
                                       cmocka_unit_test(test_edges),
                                       cmocka_unit_test(test_a_whole_bin),
                                       cmocka_unit_test(test_monotone)};
    return cmocka_run_group_tests(tests, allocate, release);
}
