/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "optim/test_fixture.h"

static const double U = 0x1p-24; /* unit roundoff of a float */

static const taciti_optim_options ADAMW = {.name = TACITI_OPTIM_ADAMW,
                                           .lr = 1e-3,
                                           .lr_min = 0.1,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .weight_decay = 0.1};
static const taciti_optim_options SGD = {
    .name = TACITI_OPTIM_SGD, .lr = 0.1, .lr_min = 0.1, .momentum = 0.9, .weight_decay = 0.01};

/* One AdamW step from (p, m, v), in double; asserts that the floats are within the rounding errors of one step. */
static void check_adamw(const taciti_optim_options *o, int64_t t, bool decay, const double *before, double scale,
                        const float *after) {
    const double b1 = (double)(float)o->beta1, b2 = (double)(float)o->beta2, wd = decay ? o->weight_decay : 0;
    const double p = before[0], g = before[1] * scale;
    const double m = b1 * before[2] + (1 - b1) * g, v = b2 * before[3] + (1 - b2) * g * g;
    const double m_error = 4 * U * (fabs(b1 * before[2]) + fabs((1 - b1) * g)) + 1e-44;
    assert_true(fabs((double)after[1] - m) <= m_error);
    assert_true(fabs((double)after[2] - v) <= 6 * U * v + 1e-44);
    const double c1 = 1 / (1 - pow(b1, (double)t)), c2 = 1 / (1 - pow(b2, (double)t));
    /* v may be a denormal float: its absolute error counts under the root */
    const double root = sqrt(v * c2), root_error = sqrt(v * c2 + 1e-43) - root + 6 * U * root;
    const double denominator = root + o->eps, direction = m * c1 / denominator;
    const double direction_error =
        m_error * c1 / denominator + fabs(direction) * (8 * U + root_error / denominator) * 1.01;
    const double q = p - o->lr * (direction + wd * p);
    const double error = o->lr * (direction_error + 4 * U * (fabs(direction) + fabs(wd * p))) + U * fabs(q) + 1e-44;
    assert_true(fabs((double)after[0] - q) <= error);
}

static void adamw_follows_the_formula_within_rounding(void **state) {
    (void)state;
    fixture f;
    set_up(&f, &ADAMW, 2);
    randomise(&f, f.p, 1);
    const float *m = state_of(f.optim, 0), *v = state_of(f.optim, 1);
    double *before = taciti_calloc(4 * f.layout.n, sizeof *before);
    assert_non_null(before);
    for (int64_t t = 1; t <= 6; t++) {
        randomise(&f, f.g, (uint64_t)(100 + t));
        FOR_TENSOR_ELEMENTS(&f, tensor, i) {
            const float now[4] = {f.p[i], f.g[i], m[i], v[i]};
            for (size_t k = 0; k < 4; k++) before[4 * i + k] = (double)now[k];
        }
        const double scale = t % 2 ? 1.0 : 0.375;
        taciti_optim_update(f.optim, f.p, f.g, f.copy, ADAMW.lr, scale);
        FOR_TENSOR_ELEMENTS(&f, tensor, i) {
            const float after[3] = {f.p[i], m[i], v[i]};
            check_adamw(&ADAMW, t, tensor->decay, before + 4 * i, scale, after);
        }
    }
    taciti_free(before);
    tear_down(&f);
}

/* At t = 1 the corrected moments are g and g^2, so every step has length lr, whatever the gradient's size. */
static void the_first_adamw_step_has_length_lr(void **state) {
    (void)state;
    taciti_optim_options options = ADAMW;
    options.weight_decay = 0;
    fixture f;
    set_up(&f, &options, 1);
    FOR_TENSOR_ELEMENTS(&f, t, i) f.g[i] = (i % 2 ? 1.0f : -1.0f) * (float)ldexp(1.0, (int)(i % 40) - 10);
    taciti_optim_update(f.optim, f.p, f.g, NULL, options.lr, 1);
    FOR_TENSOR_ELEMENTS(&f, t, i) assert_true(fabs((double)f.p[i] * (i % 2 ? -1 : 1) - 1e-3) <= 1e-3 * 1e-4);
    tear_down(&f);
}

static void sgd_follows_the_formula_within_rounding(void **state) {
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        taciti_optim_options options = SGD;
        if (variant == 1) options.momentum = 0;
        fixture f;
        set_up(&f, &options, 3);
        assert_int_equal(taciti_optim_state_count(f.optim), variant == 1 ? 0 : 1);
        randomise(&f, f.p, 1);
        double *p = taciti_calloc(f.layout.n, sizeof *p), *m = taciti_calloc(f.layout.n, sizeof *m);
        assert_true(p != NULL && m != NULL);
        FOR_TENSOR_ELEMENTS(&f, t, i) p[i] = (double)f.p[i];
        for (uint64_t step = 0; step < 5; step++) {
            randomise(&f, f.g, 50 + step);
            FOR_TENSOR_ELEMENTS(&f, t, i) {
                const double g = (double)f.g[i] * 0.5 + (t->decay ? options.weight_decay : 0) * p[i];
                m[i] = options.momentum * m[i] + g;
                p[i] -= options.lr * m[i];
            }
            taciti_optim_update(f.optim, f.p, f.g, f.copy, options.lr, 0.5);
        }
        /* |p|, |m|, |g| <= 10 all along; five steps of at most eight roundings each */
        FOR_TENSOR_ELEMENTS(&f, t, i) assert_true(fabs((double)f.p[i] - p[i]) <= 5 * 8 * U * 2);
        taciti_free(p);
        taciti_free(m);
        tear_down(&f);
    }
}

/* A zero gradient moves only what decays: p - lr * decay * p, from p itself for sgd as well. Padding stays 0. */
static void decay_touches_only_tensors_that_ask_for_it(void **state) {
    (void)state;
    const taciti_optim_options *const kinds[] = {&ADAMW, &SGD};
    for (size_t k = 0; k < 2; k++) {
        fixture f;
        set_up(&f, kinds[k], 2);
        FOR_TENSOR_ELEMENTS(&f, t, i) f.p[i] = 2.0f;
        taciti_optim_update(f.optim, f.p, f.g, f.copy, 0.5, 1);
        const float decayed = 2.0f - 0.5f * ((float)kinds[k]->weight_decay * 2.0f);
        FOR_TENSOR_ELEMENTS(&f, t, i) {
            const float expected = t->decay ? decayed : 2.0f;
            assert_memory_equal(&f.p[i], &expected, sizeof expected);
        }
        for (size_t i = 37; i < 48; i++) assert_true(f.p[i] == 0.0f && f.copy[i] == 0);
        tear_down(&f);
    }
}

static void the_bf16_copy_is_the_rounded_parameters(void **state) {
    (void)state;
    const taciti_optim_options *const kinds[] = {&ADAMW, &SGD};
    for (size_t k = 0; k < 2; k++) {
        fixture f;
        set_up(&f, kinds[k], 2);
        randomise(&f, f.p, 3);
        randomise(&f, f.g, 4);
        taciti_optim_update(f.optim, f.p, f.g, f.copy, 1e-2, 1);
        taciti_bf16 *expected = taciti_calloc(f.layout.n, sizeof *expected);
        taciti_kernels_named("scalar")->bf16_encode(expected, f.p, f.layout.n);
        assert_memory_equal(expected, f.copy, f.layout.n * sizeof *expected);
        taciti_free(expected);
        tear_down(&f);
    }
}

static void results_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    taciti_optim_options accum = ADAMW;
    accum.name = TACITI_OPTIM_ACCUM_ADAM;
    accum.accum = 2;
    const taciti_optim_options *const kinds[] = {&ADAMW, &SGD, &accum};
    const int threads[] = {1, 2, 3, 5};
    for (size_t k = 0; k < 3; k++) {
        fixture f[4];
        double norm[4];
        for (size_t c = 0; c < 4; c++) {
            set_up(&f[c], kinds[k], threads[c]);
            randomise(&f[c], f[c].p, 1);
            for (uint64_t step = 0; step < 3; step++) {
                randomise(&f[c], f[c].g, 10 + step);
                taciti_optim_update(f[c].optim, f[c].p, f[c].g, f[c].copy, 1e-3, 0.7);
            }
            norm[c] = taciti_optim_sum_squares(f[c].optim, f[c].g, 3, f[c].layout.n - 3);
        }
        const size_t n = f[0].layout.n;
        for (size_t c = 1; c < 4; c++) {
            assert_memory_equal(f[0].p, f[c].p, n * sizeof(float));
            assert_memory_equal(f[0].copy, f[c].copy, n * sizeof(taciti_bf16));
            for (int s = 0; s < taciti_optim_state_count(f[0].optim); s++)
                assert_memory_equal(state_of(f[0].optim, s), state_of(f[c].optim, s), n * sizeof(float));
            assert_memory_equal(&norm[0], &norm[c], sizeof norm[0]);
        }
        for (size_t c = 0; c < 4; c++) tear_down(&f[c]);
    }
}

static void the_norm_is_the_sum_of_squares(void **state) {
    (void)state;
    fixture f;
    set_up(&f, &SGD, 3);
    randomise(&f, f.g, 8);
    const size_t sizes[] = {0, 1, 15, 16, 17, 65535, 65536, 65537, 131072, f.layout.n};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t offset = 0; offset < 3 && offset + sizes[s] <= f.layout.n; offset++) {
            double expected = 0;
            for (size_t i = 0; i < sizes[s]; i++) expected += (double)f.g[offset + i] * (double)f.g[offset + i];
            const double sum = taciti_optim_sum_squares(f.optim, f.g, offset, sizes[s]);
            assert_true(fabs(sum - expected) <= expected * (double)sizes[s] * 0x1p-52);
        }
    f.g[70000] = INFINITY;
    assert_true(isinf(taciti_optim_sum_squares(f.optim, f.g, 0, f.layout.n)));
    f.g[3] = NAN;
    assert_true(isnan(taciti_optim_sum_squares(f.optim, f.g, 0, f.layout.n)));
    tear_down(&f);
}

/* An optimizer remembers nothing beside what is saved and restored: parameters, states and the update count. */
static void a_restored_optimizer_goes_on_bit_for_bit(void **state) {
    (void)state;
    taciti_optim_options accum = ADAMW; /* saved amid of a window */
    accum.name = TACITI_OPTIM_ACCUM_ADAMW;
    accum.accum = 4;
    const taciti_optim_options *const kinds[] = {&ADAMW, &SGD, &accum};
    const char *const names[] = {"optim.m", "optim.v", "optim.a"};
    for (size_t k = 0; k < 3; k++) {
        fixture a, b;
        set_up(&a, kinds[k], 1);
        set_up(&b, kinds[k], 2);
        randomise(&a, a.p, 1);
        randomise(&a, a.g, 2);
        for (int i = 0; i < 3; i++) taciti_optim_update(a.optim, a.p, a.g, NULL, 1e-3, 1);
        const size_t bytes = a.layout.n * sizeof(float);
        assert_int_equal(taciti_optim_bytes_per_float(kinds[k]), 4 * taciti_optim_state_count(a.optim));
        taciti_state listed = {.count = 0};
        taciti_optim_list_state(a.optim, TACITI_STATE_SHARED, &listed);
        for (int s = 0; s < taciti_optim_state_count(a.optim); s++) {
            assert_string_equal(listed.entries[s].name, kinds[k] == &SGD ? "optim.momentum" : names[s]);
            memcpy(state_of(b.optim, s), state_of(a.optim, s), bytes);
        }
        memcpy(b.p, a.p, bytes);
        taciti_optim_set_updates(b.optim, taciti_optim_updates(a.optim));
        taciti_optim_update(a.optim, a.p, a.g, NULL, 1e-3, 1);
        taciti_optim_update(b.optim, b.p, a.g, NULL, 1e-3, 1);
        assert_memory_equal(a.p, b.p, bytes);
        assert_int_equal(taciti_optim_updates(b.optim), 4);
        tear_down(&a);
        tear_down(&b);
    }
}

static void near(double a, double b) { assert_true(fabs(a - b) <= 1e-15 * fabs(b)); }

static void the_schedule_passes_through_its_points(void **state) {
    (void)state;
    taciti_optim_options o = ADAMW;
    o.lr = 2e-3;
    o.warmup_steps = 10;
    for (int64_t step = 0; step < 10; step++) near(taciti_optim_lr(&o, step, 110), 2e-3 * (double)(step + 1) / 10);
    near(taciti_optim_lr(&o, 10, 110), 2e-3);
    near(taciti_optim_lr(&o, 60, 110), 2e-3 * 0.55); /* half way: the mean of peak and floor */
    near(taciti_optim_lr(&o, 110, 110), 2e-4);
    near(taciti_optim_lr(&o, 5000, 110), 2e-4);
    for (int64_t step = 10; step <= 110; step++) {
        const double cosine = 0.5 * (1 + cos(3.14159265358979323846 * (double)(step - 10) / 100));
        assert_true(fabs(taciti_optim_lr(&o, step, 110) - 2e-3 * (0.1 + 0.9 * cosine)) <= 2e-3 * 4e-16);
        if (step > 10) assert_true(taciti_optim_lr(&o, step, 110) < taciti_optim_lr(&o, step - 1, 110));
    }
    o.decay_steps = 60; /* overrides the run's length */
    near(taciti_optim_lr(&o, 35, 110), 2e-3 * 0.55);
    near(taciti_optim_lr(&o, 60, 110), 2e-4);
    o.decay_steps = -1;
    near(taciti_optim_lr(&o, 100000, 110), 2e-3);
    o.warmup_steps = 0;
    near(taciti_optim_lr(&o, 0, 110), 2e-3);
    o.decay_steps = 0;
    near(taciti_optim_lr(&o, 0, 1), 2e-3);
    near(taciti_optim_lr(&o, 0, 0), 2e-4);
    o.warmup_steps = 10; /* longer than the run: never reaches the peak */
    near(taciti_optim_lr(&o, 3, 4), 2e-3 * 0.4);
}

static void each_restart_is_a_longer_cosine(void **state) {
    (void)state;
    taciti_optim_options o = ADAMW;
    o.lr = 2e-3;
    o.warmup_steps = 10;
    o.decay_steps = 110;
    o.restart = 4;
    near(taciti_optim_lr(&o, 60, 1000), 2e-3 * 0.55);
    near(taciti_optim_lr(&o, 110, 1000), 2e-3); /* second cycle: steps 110 to 510 */
    near(taciti_optim_lr(&o, 310, 1000), 2e-3 * 0.55);
    near(taciti_optim_lr(&o, 510, 1000), 2e-3); /* third */
    o.restart = 0.5;                            /* cycles of 100, 50, 25 ... steps, then the floor */
    near(taciti_optim_lr(&o, 135, 1000), 2e-3 * 0.55);
    near(taciti_optim_lr(&o, 400, 1000), 2e-4);
}

/* Peak at the end of the warm-up, a quarter of the steps at twice the rate, no end. */
static void the_inverse_square_root_goes_on_for_ever(void **state) {
    (void)state;
    taciti_optim_options o = ADAMW;
    o.lr = 2e-3;
    o.schedule = TACITI_SCHEDULE_INVERSE_SQRT;
    o.warmup_steps = 10;
    near(taciti_optim_lr(&o, 4, 20), 1e-3);
    near(taciti_optim_lr(&o, 9, 20), 2e-3);
    near(taciti_optim_lr(&o, 39, 20), 1e-3);
    near(taciti_optim_lr(&o, 999, 20), 2e-4);
    for (int64_t step = 10; step < 1000; step++)
        assert_true(taciti_optim_lr(&o, step, 20) < taciti_optim_lr(&o, step - 1, 20));
    o.warmup_steps = 0;
    near(taciti_optim_lr(&o, 0, 20), 2e-3);
    near(taciti_optim_lr(&o, 3, 20), 1e-3);
}

static void a_constant_rate_stays_after_the_warm_up(void **state) {
    (void)state;
    taciti_optim_options o = ADAMW;
    o.schedule = TACITI_SCHEDULE_CONSTANT;
    o.warmup_steps = 4;
    near(taciti_optim_lr(&o, 1, 20), 5e-4);
    for (int64_t step = 3; step < 100; step++) near(taciti_optim_lr(&o, step, 20), 1e-3);
}

static void clipping_bounds_the_norm_and_leaves_shorter_ones(void **state) {
    (void)state;
    taciti_optim_options o = ADAMW;
    o.clip = 0;
    assert_true(taciti_optim_clip_scale(&o, 1e30) == 1);
    o.clip = 0.5;
    assert_true(taciti_optim_clip_scale(&o, 0) == 1 && taciti_optim_clip_scale(&o, 0.5) == 1);
    assert_true(taciti_optim_clip_scale(&o, 2) == 0.25);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_follows_the_formula_within_rounding),
        cmocka_unit_test(the_first_adamw_step_has_length_lr),
        cmocka_unit_test(sgd_follows_the_formula_within_rounding),
        cmocka_unit_test(decay_touches_only_tensors_that_ask_for_it),
        cmocka_unit_test(the_bf16_copy_is_the_rounded_parameters),
        cmocka_unit_test(results_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(the_norm_is_the_sum_of_squares),
        cmocka_unit_test(clipping_bounds_the_norm_and_leaves_shorter_ones),
        cmocka_unit_test(a_restored_optimizer_goes_on_bit_for_bit),
        cmocka_unit_test(the_schedule_passes_through_its_points),
        cmocka_unit_test(each_restart_is_a_longer_cosine),
        cmocka_unit_test(the_inverse_square_root_goes_on_for_ever),
        cmocka_unit_test(a_constant_rate_stays_after_the_warm_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
