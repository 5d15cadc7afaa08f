/* SPDX-License-Identifier: Apache-2.0
 *
 * A share of second moments counts in the update, and the signal of moments.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "optim/test_fixture.h"

enum { KINDS = 4, STEPS = 7 };
static const double RATE = 1e-2;

static taciti_optim_options kind(int which) {
    static const int NAMES[KINDS] = {TACITI_OPTIM_ADAMW, TACITI_OPTIM_ADAM, TACITI_OPTIM_ACCUM_ADAMW,
                                     TACITI_OPTIM_ACCUM_ADAM};
    return (taciti_optim_options){
        .name = NAMES[which], .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .accum = 3};
}

static void step(const fixture *f, int number, const float *share) {
    randomise(f, f->g, (uint64_t)number);
    taciti_optim_discount(f->optim, share);
    taciti_optim_update(f->optim, f->p, f->g, f->copy, RATE, 0.5);
}

static void begin(fixture *f, int which, int threads) {
    const taciti_optim_options options = kind(which);
    set_up(f, &options, threads);
    randomise(f, f->p, 99);
}

static void shares_of_one_change_no_bit(void **state) {
    (void)state;
    for (int which = 0; which < KINDS; which++) {
        fixture a, b;
        begin(&a, which, 1);
        begin(&b, which, 2);
        float *ones = taciti_calloc(a.layout.n, sizeof *ones);
        assert_non_null(ones);
        for (size_t i = 0; i < a.layout.n; i++) ones[i] = 1;
        for (int number = 0; number < STEPS; number++) {
            step(&a, number, NULL);
            step(&b, number, ones);
            assert_memory_equal(a.p, b.p, a.layout.n * sizeof(float));
        }
        taciti_free(ones);
        tear_down(&a);
        tear_down(&b);
    }
}

/* The moments are those without shares. Without decay and with hardly any eps, a share of 1/4 everywhere doubles the
 * step, to the bit.
 */
static void a_share_counts_in_the_update_alone(void **state) {
    (void)state;
    for (int which = 0; which < KINDS; which++) {
        taciti_optim_options options = kind(which);
        fixture a, b;
        options.weight_decay = 0;
        options.eps = 1e-37;
        set_up(&a, &options, 1);
        set_up(&b, &options, 2);
        float *quarters = taciti_calloc(a.layout.n, sizeof *quarters);
        assert_non_null(quarters);
        for (size_t i = 0; i < a.layout.n; i++) quarters[i] = 0.25f;
        for (int number = 0; number < STEPS; number++) {
            memset(a.p, 0, a.layout.n * sizeof *a.p);
            memset(b.p, 0, b.layout.n * sizeof *b.p);
            step(&a, number, NULL);
            step(&b, number, quarters);
            FOR_TENSOR_ELEMENTS(&a, tensor, i)
            if (a.g[i] != 0.0f) assert_true(b.p[i] == 2 * a.p[i] || fabsf(a.g[i]) < 1e-15f); /* v may be a denormal */
            for (int s = 0; s < taciti_optim_state_count(a.optim); s++)
                assert_memory_equal(state_of(a.optim, s), state_of(b.optim, s), a.layout.n * sizeof(float));
        }
        taciti_free(quarters);
        tear_down(&a);
        tear_down(&b);
    }
}

/* m / sqrt(v), corrected for the windows that have ended; 0 where there is nothing. */
static void the_signal_follows_the_formula(void **state) {
    (void)state;
    for (int which = 0; which < KINDS; which++) {
        const taciti_optim_options options = kind(which);
        const int window = which < 2 ? 1 : 3;
        fixture f;
        begin(&f, which, 2);
        float *signal = taciti_calloc(f.layout.n, sizeof *signal);
        assert_non_null(signal);
        for (int number = 0; number < STEPS; number++) {
            const double t = number / window;
            const double c1 = t > 0 ? 1 / (1 - pow((double)(float)options.beta1, t)) : 0;
            const double c2 = t > 0 ? 1 / (1 - pow((double)(float)options.beta2, t)) : 0;
            const float *m = state_of(f.optim, 0), *v = taciti_optim_second_moments(f.optim);
            memset(signal, 1, f.layout.n * sizeof *signal);
            taciti_optim_signal(f.optim, signal);
            for (size_t i = 0; i < f.layout.n; i++) {
                const double root = sqrt((double)v[i] * c2),
                             expected = t > 0 && v[i] > 0 ? (double)m[i] * c1 / root : 0;
                assert_true(fabs((double)signal[i] - expected) <= 1e-6 * fabs(expected) || v[i] < 1e-36f);
            }
            step(&f, number, NULL);
        }
        taciti_free(signal);
        tear_down(&f);
    }
}

static void sgd_has_no_second_moments(void **state) {
    (void)state;
    const taciti_optim_options sgd = {.name = TACITI_OPTIM_SGD, .momentum = 0.9};
    fixture f;
    set_up(&f, &sgd, 1);
    step(&f, 1, NULL);
    memset(f.g, 1, f.layout.n * sizeof *f.g);
    taciti_optim_signal(f.optim, f.g);
    for (size_t i = 0; i < f.layout.n; i++) assert_true(f.g[i] == 0);
    assert_null(taciti_optim_second_moments(f.optim));
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_one_change_no_bit),
        cmocka_unit_test(a_share_counts_in_the_update_alone),
        cmocka_unit_test(the_signal_follows_the_formula),
        cmocka_unit_test(sgd_has_no_second_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
