/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam and AccumAdam(W): golden runs of the update equations in double, and the float optimizer against them.
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

static const double U = 0x1p-24; /* unit roundoff of a float */

static taciti_optim_options options_of(int name, int64_t accum, double decay) {
    return (taciti_optim_options){
        .name = name, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .accum = accum, .weight_decay = decay};
}

static bool coupled(const taciti_optim_options *o) {
    return o->name == TACITI_OPTIM_ADAM || o->name == TACITI_OPTIM_ACCUM_ADAM;
}

static int64_t window_of(const taciti_optim_options *o) {
    return o->name == TACITI_OPTIM_ACCUM_ADAMW || o->name == TACITI_OPTIM_ACCUM_ADAM ? o->accum : 1;
}

/* ---- the equations, in double --------------------------------------------------------------------------------- */

typedef struct parameter {
    double x, m, v, a;
} parameter;

/* Step t from mixed parameters y: Wang et al., arXiv 2410.11998. */
static void reference_step(const taciti_optim_options *o, int64_t t, double y, double gradient, parameter *p) {
    const int64_t s = window_of(o), k = (t + s - 1) / s;
    const double b1 = o->beta1, b2 = o->beta2, g = coupled(o) ? gradient + o->weight_decay * y : gradient;
    const double m = b1 * p->m + (1 - b1) * g, v = b2 * p->v + (1 - b2) * g * g;
    if (!coupled(o)) y *= 1 - o->lr * o->weight_decay;
    p->a += g / (double)s;
    p->x = y - o->lr * (m / (1 - pow(b1, (double)k))) / (sqrt(v) / sqrt(1 - pow(b2, (double)k)) + o->eps);
    if (t % s != 0) return;
    p->m = b1 * p->m + (1 - b1) * p->a;
    p->v = b2 * p->v + (1 - b2) * p->a * p->a;
    p->a = 0;
}

/* ---- golden runs ---------------------------------------------------------------------------------------------- */

/* N ranks, one parameter each, f_i(x) = (x - c_i)^2 / 2, adapt while communicate: in step t rank i takes the mean of
 * itself and rank i ^ (1 << (t - 1) % bits), both as they were after step t - 1. */
enum { MAX_RANKS = 4, MAX_STEPS = 6 };
typedef struct golden {
    taciti_optim_options options;
    int bits; /* 2^bits ranks */
    double c[MAX_RANKS], x0;
    int64_t first, last;            /* steps whose results are known */
    double x[MAX_STEPS][MAX_RANKS]; /* from step `first` on */
} golden;

static const golden GOLDEN[] = {
    {.options = {.name = TACITI_OPTIM_ACCUM_ADAM, .accum = 2},
     .c = {1},
     .first = 1,
     .last = 6,
     .x = {{.099999999000}, {.199999997889}, {.299189404158}, {.397290889750}, {.494074983424}, {.589118235699}}},
    {.options = {.name = TACITI_OPTIM_ACCUM_ADAMW, .accum = 2, .weight_decay = 0.1},
     .c = {1},
     .x0 = 0.5,
     .first = 1,
     .last = 4,
     .x = {{.594999998000}, {.689049995551}, {.779533013478}, {.864574776823}}},
    {.options = {.name = TACITI_OPTIM_ADAM},
     .bits = 1,
     .c = {1, -3},
     .first = 1,
     .last = 4,
     .x = {{.099999999000, -.099999999667},
           {.099587770954, -.099897292916},
           {.099355175186, -.100025734847},
           {.099153156858, -.100195658530}}},
    {.options = {.name = TACITI_OPTIM_ADAM},
     .bits = 2,
     .c = {1, -3, 2, .5},
     .first = 2,
     .last = 3,
     .x = {{.199587770538, -.099897293416, .199833513129, .098812577436},
           {.148671193767, -.050025735305, .248866139092, .247972345695}}},
    {.options = {.name = TACITI_OPTIM_ACCUM_ADAM, .accum = 2},
     .bits = 1,
     .c = {1, -3},
     .first = 3,
     .last = 4,
     .x = {{.099822648264, -.099951792722}, {.099758854728, -.100016414656}}},
};
enum { GOLDENS = sizeof GOLDEN / sizeof GOLDEN[0] };

static taciti_optim_options options_of_golden(const golden *run) {
    return options_of(run->options.name, run->options.accum, run->options.weight_decay);
}

static int partner(const golden *run, int rank, int64_t t) {
    return run->bits == 0 ? rank : rank ^ (1 << (int)((t - 1) % run->bits));
}

static void the_equations_give_the_golden_numbers(void **state) {
    (void)state;
    for (size_t r = 0; r < GOLDENS; r++) {
        const golden *run = &GOLDEN[r];
        const taciti_optim_options o = options_of_golden(run);
        const int ranks = 1 << run->bits;
        parameter p[MAX_RANKS] = {{0}};
        for (int i = 0; i < ranks; i++) p[i].x = run->x0;
        for (int64_t t = 1; t <= run->last; t++) {
            double x[MAX_RANKS];
            for (int i = 0; i < ranks; i++) x[i] = p[i].x;
            for (int i = 0; i < ranks; i++)
                reference_step(&o, t, (x[i] + x[partner(run, i, t)]) / 2, x[i] - run->c[i], &p[i]);
            for (int i = 0; t >= run->first && i < ranks; i++)
                assert_true(fabs(p[i].x - run->x[t - run->first][i]) <= 1.01e-12);
        }
    }
}

typedef struct rank {
    taciti_layout layout;
    taciti_optim *optim;
    float x, leaving;
} rank;

static void set_up_rank(rank *r, const taciti_optim_options *o, taciti_pool *pool, double x0) {
    const size_t shape = 1;
    assert_int_equal(taciti_layout_create(1, &r->layout), TACIT_OK);
    assert_int_equal(taciti_layout_append(&r->layout, "x", 1, &shape, true), TACIT_OK);
    assert_int_equal(taciti_layout_seal(&r->layout, 1 << 20), TACIT_OK);
    assert_int_equal(taciti_optim_create(o, &r->layout, pool, &r->optim), TACIT_OK);
    r->x = (float)x0;
    r->leaving = 0.5f * r->x;
}

/* The blend of a pair: half of the partner's arrives, half of mine stays. */
static void step_rank(const golden *run, rank *r, int64_t t, int i, float x, float arrived) {
    const float g = x - (float)run->c[i];
    taciti_blend blend = {.arrived = &arrived, .keep = 0.5f, .share = 1, .leaving = &r->leaving, .leaving_scale = 0.5f};
    taciti_optim_begin(r->optim, 0.1, 1);
    assert_int_equal(taciti_optim_updates(r->optim), t);
    taciti_optim_update_range(r->optim, &r->x, &g, NULL, 0, 1, run->bits > 0 ? &blend : NULL);
}

/* Per step, relative to lr: four roundings each of m and v, eight of the direction; of p: three of values below 1. The
 * errors of gradients go on through Lipschitz constants below 2 for these few steps. */
static void the_optimizer_gives_the_golden_numbers(void **state) {
    (void)state;
    taciti_pool *pool = NULL;
    assert_int_equal(taciti_pool_create(1, 0, &pool), TACIT_OK);
    for (size_t g = 0; g < GOLDENS; g++) {
        const golden *run = &GOLDEN[g];
        const taciti_optim_options o = options_of_golden(run);
        const int ranks = 1 << run->bits;
        rank r[MAX_RANKS];
        for (int i = 0; i < ranks; i++) set_up_rank(&r[i], &o, pool, run->x0);
        for (int64_t t = 1; t <= run->last; t++) {
            float x[MAX_RANKS], leaving[MAX_RANKS];
            for (int i = 0; i < ranks; i++) {
                x[i] = r[i].x;
                leaving[i] = r[i].leaving;
            }
            for (int i = 0; i < ranks; i++) step_rank(run, &r[i], t, i, x[i], leaving[partner(run, i, t)]);
            for (int i = 0; t >= run->first && i < ranks; i++)
                assert_true(fabs((double)r[i].x - run->x[t - run->first][i]) <= 2 * (double)t * (16 * 0.1 + 3) * U);
        }
        for (int i = 0; i < ranks; i++) {
            taciti_optim_destroy(r[i].optim);
            taciti_layout_destroy(&r[i].layout);
        }
    }
    taciti_pool_destroy(pool);
}

/* ---- one step within rounding --------------------------------------------------------------------------------- */

/* Checks that `after` is one float step from p, g, m, v, a (as doubles), within its roundings. */
static void check_step(const taciti_optim_options *o, int64_t t, bool decay, const double *before, const float *after) {
    const int64_t s = window_of(o), k = (t + s - 1) / s;
    const double b1 = (double)(float)o->beta1, b2 = (double)(float)o->beta2, wd = decay ? o->weight_decay : 0;
    const double p = before[0], g = before[1] + (coupled(o) ? wd * p : 0);
    const double g_error = 3 * U * (fabs(before[1]) + wd * fabs(p)) + 1e-44;
    const double mean = before[4] + g / (double)s;
    const double mean_error = 3 * U * (fabs(before[4]) + fabs(g)) + g_error + 1e-44;
    const double m = b1 * before[2] + (1 - b1) * g, v = b2 * before[3] + (1 - b2) * g * g;
    const double m_error = 4 * U * (fabs(b1 * before[2]) + fabs((1 - b1) * g)) + g_error + 1e-44;
    const double v_error = 6 * U * v + (1 - b2) * (2 * fabs(g) + g_error) * g_error + 1e-43;
    const double c1 = 1 / (1 - pow(b1, (double)k)), c2 = 1 / (1 - pow(b2, (double)k));
    const double root = sqrt(v * c2), min = sqrt(fmax(0, (v - v_error) * c2)) * (1 - 6 * U) + o->eps * (1 - U);
    const double root_error = fmax(sqrt((v + v_error) * c2) - root, root - sqrt(fmax(0, (v - v_error) * c2)));
    const double direction = m * c1 / (root + o->eps);
    const double direction_error =
        (m_error * c1 + fabs(direction) * (root_error + 6 * U * root)) / min + 8 * U * fabs(direction);
    const double q = p - o->lr * (direction + (coupled(o) ? 0 : wd * p));
    const double error = o->lr * (direction_error + 4 * U * (fabs(direction) + wd * fabs(p))) + U * fabs(q) + 1e-44;
    assert_true(fabs((double)after[0] - q) <= error);
    if (t % s != 0) {
        assert_true((double)after[1] == before[2] && (double)after[2] == before[3]);
        assert_true(fabs((double)after[3] - mean) <= mean_error);
        return;
    }
    const double full_m = b1 * before[2] + (1 - b1) * mean, full_v = b2 * before[3] + (1 - b2) * mean * mean;
    assert_true(fabs((double)after[1] - full_m) <= 4 * U * (fabs(before[2]) + fabs(mean)) + mean_error + 1e-44);
    assert_true(fabs((double)after[2] - full_v) <=
                6 * U * full_v + (1 - b2) * (2 * fabs(mean) + mean_error) * mean_error + 1e-43);
    const float zero = 0;
    assert_memory_equal(&after[3], &zero, sizeof zero);
}

static void every_step_follows_the_equations_within_rounding(void **state) {
    (void)state;
    static const int NAMES[] = {TACITI_OPTIM_ADAM, TACITI_OPTIM_ACCUM_ADAMW, TACITI_OPTIM_ACCUM_ADAM};
    for (size_t k = 0; k < 6; k++) {
        const taciti_optim_options o = options_of(NAMES[k % 3], k < 3 ? 2 : 3, 0.1);
        fixture f;
        set_up(&f, &o, 2);
        randomise(&f, f.p, 1);
        const float *const m = state_of(f.optim, 0), *const v = state_of(f.optim, 1), *const a = state_of(f.optim, 2);
        double *before = taciti_calloc(5 * f.layout.n, sizeof *before);
        assert_non_null(before);
        for (int64_t t = 1; t <= 7; t++) {
            randomise(&f, f.g, (uint64_t)(100 + t));
            FOR_TENSOR_ELEMENTS(&f, tensor, i) {
                const float now[5] = {f.p[i], f.g[i], m[i], v[i], a != NULL ? a[i] : 0.0f};
                for (size_t j = 0; j < 5; j++) before[5 * i + j] = (double)now[j];
            }
            taciti_optim_update(f.optim, f.p, f.g, f.copy, o.lr, 1);
            FOR_TENSOR_ELEMENTS(&f, tensor, i) {
                const float after[4] = {f.p[i], m[i], v[i], a != NULL ? a[i] : 0.0f};
                check_step(&o, t, tensor->decay, before + 5 * i, after);
            }
        }
        taciti_free(before);
        tear_down(&f);
    }
}

/* ---- properties -----------------------------------------------------------------------------------------------------
 */

/* A window of one step is Adam(W): parameters, copies and moments to the bit, signs of zeros included. */
static void a_window_of_one_step_is_adam(void **state) {
    (void)state;
    static const int PAIRS[2][2] = {{TACITI_OPTIM_ADAMW, TACITI_OPTIM_ACCUM_ADAMW},
                                    {TACITI_OPTIM_ADAM, TACITI_OPTIM_ACCUM_ADAM}};
    for (size_t k = 0; k < 2; k++) {
        fixture plain, accum;
        const taciti_optim_options a = options_of(PAIRS[k][0], 0, 0.1), b = options_of(PAIRS[k][1], 1, 0.1);
        set_up(&plain, &a, 1);
        set_up(&accum, &b, 3);
        randomise(&plain, plain.p, 1);
        randomise(&accum, accum.p, 1);
        const size_t n = plain.layout.n;
        for (uint64_t step = 0; step < 20; step++) {
            randomise(&plain, plain.g, 20 + step);
            for (size_t i = step % 5; i < n; i += 34) plain.g[i] = -0.0f;
            for (size_t i = step % 7 + 1; i < n; i += 51) plain.g[i] *= 1e-38f;
            memcpy(accum.g, plain.g, n * sizeof(float));
            taciti_optim_update(plain.optim, plain.p, plain.g, plain.copy, 1e-3, 0.7);
            taciti_optim_update(accum.optim, accum.p, accum.g, accum.copy, 1e-3, 0.7);
            assert_memory_equal(plain.p, accum.p, n * sizeof(float));
            assert_memory_equal(plain.copy, accum.copy, n * sizeof(taciti_bf16));
            for (int s = 0; s < 2; s++)
                assert_memory_equal(state_of(plain.optim, s), state_of(accum.optim, s), n * sizeof(float));
        }
        tear_down(&plain);
        tear_down(&accum);
    }
}

/* Constant gradients: the corrected moments are g and g^2 in every step, so every step has length lr. Corrections that
 * counted steps instead of windows would show. */
static void a_constant_gradient_moves_by_lr_in_every_step(void **state) {
    (void)state;
    for (int64_t s = 1; s <= 9; s++) {
        const taciti_optim_options o = options_of(TACITI_OPTIM_ACCUM_ADAMW, s, 0);
        fixture f;
        set_up(&f, &o, 2);
        float *old = taciti_calloc(f.layout.n, sizeof *old);
        assert_non_null(old);
        FOR_TENSOR_ELEMENTS(&f, t, i) f.g[i] = (i % 2 ? 1.0f : -1.0f) * (float)ldexp(1.1, (int)(i % 30) - 20);
        for (int64_t t = 1; t <= 4 * s + 1; t++) {
            memcpy(old, f.p, f.layout.n * sizeof *old);
            taciti_optim_update(f.optim, f.p, f.g, NULL, o.lr, 1);
            const double windows = (double)(t + s - 1) / (double)s;
            FOR_TENSOR_ELEMENTS(&f, tensor, i) {
                const double g = (double)f.g[i], moved = (double)f.p[i] - (double)old[i];
                const double expected = -o.lr * g / (fabs(g) + o.eps);
                /* s additions in a mean, four roundings per window in each moment, eight in the direction */
                const double error = o.lr * ((double)s + 4 * windows + 8) * 2 * U + 2 * U * fabs((double)f.p[i]);
                assert_true(fabs(moved - expected) <= error);
            }
        }
        taciti_free(old);
        tear_down(&f);
    }
}

/* Inside of a window the moments stay and the mean grows; at its end the mean is exactly 0, whatever it was. */
static void the_mean_is_zero_at_the_end_of_a_window(void **state) {
    (void)state;
    for (int64_t s = 1; s <= 8; s++) {
        const taciti_optim_options o = options_of(TACITI_OPTIM_ACCUM_ADAM, s, 0.1);
        fixture f;
        set_up(&f, &o, 2);
        randomise(&f, f.p, 1);
        assert_int_equal(taciti_optim_state_count(f.optim), 3);
        taciti_state listed = {.count = 0};
        taciti_optim_list_state(f.optim, TACITI_STATE_OWN, &listed);
        const float *const a = state_of(f.optim, 2);
        assert_ptr_equal(taciti_state_find(&listed, "optim.a")->data, a);
        for (int64_t t = 1; t <= 2 * s + 1; t++) {
            randomise(&f, f.g, (uint64_t)(10 + t));
            if (t == s) f.g[5] = INFINITY;
            taciti_optim_update(f.optim, f.p, f.g, f.copy, 1e-3, 1);
            size_t zeros = 0;
            FOR_TENSOR_ELEMENTS(&f, tensor, i) {
                const float zero = 0;
                zeros += memcmp(&a[i], &zero, sizeof zero) == 0;
            }
            if (t % s == 0)
                assert_int_equal(zeros, f.layout.parameters);
            else
                assert_true(zeros < f.layout.parameters / 2);
        }
        tear_down(&f);
    }
}

/* Replicas with the same data stay equal to the bit and equal to one alone, mixed by pairs or by a group of four. */
static void equal_replicas_stay_equal(void **state) {
    (void)state;
    const taciti_optim_options o = options_of(TACITI_OPTIM_ACCUM_ADAMW, 4, 0.1);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        fixture alone, one;
        set_up(&alone, &o, 1);
        set_up(&one, &o, 2);
        randomise(&alone, alone.p, 1);
        randomise(&one, one.p, 1);
        const size_t n = one.layout.n;
        float *leaving = taciti_calloc(n, sizeof *leaving), *sum = taciti_calloc(n, sizeof *sum);
        assert_true(leaving != NULL && sum != NULL);
        const float share = 1.0f / (float)ranks;
        taciti_kernels_get()->scaled_copy(leaving, one.p, share, n);
        taciti_blend blend = {.arrived = sum, .keep = 0, .share = 1, .leaving = leaving, .leaving_scale = share};
        for (uint64_t step = 0; step < 6; step++) {
            randomise(&alone, alone.g, 30 + step);
            randomise(&one, one.g, 30 + step);
            memset(sum, 0, n * sizeof *sum);
            for (int r = 0; r < ranks; r++) taciti_kernels_get()->add(sum, leaving, n);
            taciti_optim_update(alone.optim, alone.p, alone.g, alone.copy, 1e-3, 1);
            taciti_optim_begin(one.optim, 1e-3, 1);
            taciti_optim_update_range(one.optim, one.p, one.g, one.copy, 0, n, &blend);
            assert_memory_equal(alone.p, one.p, n * sizeof(float));
            assert_memory_equal(alone.copy, one.copy, n * sizeof(taciti_bf16));
        }
        assert_true(blend.moved == 0);
        taciti_free(leaving);
        taciti_free(sum);
        tear_down(&alone);
        tear_down(&one);
    }
}

/* The decay of Adam is a gradient like any other: alone, it moves what decays by lr and nothing else. */
static void coupled_decay_touches_only_tensors_that_ask_for_it(void **state) {
    (void)state;
    static const int NAMES[] = {TACITI_OPTIM_ADAM, TACITI_OPTIM_ACCUM_ADAM};
    for (size_t k = 0; k < 2; k++) {
        const taciti_optim_options o = options_of(NAMES[k], 4, 0.1);
        fixture f;
        set_up(&f, &o, 2);
        FOR_TENSOR_ELEMENTS(&f, t, i) f.p[i] = i % 2 ? 2.0f : -2.0f;
        taciti_optim_update(f.optim, f.p, f.g, f.copy, 0.5, 1);
        FOR_TENSOR_ELEMENTS(&f, t, i) {
            const double length = 2 - fabs((double)f.p[i]);
            assert_true(t->decay ? fabs(length - 0.5) <= 16 * U : length == 0);
        }
        for (size_t i = 37; i < 48; i++) assert_true(f.p[i] == 0.0f && f.copy[i] == 0);
        tear_down(&f);
    }
}

static void a_window_without_steps_is_refused(void **state) {
    (void)state;
    const taciti_optim_options o = options_of(TACITI_OPTIM_ACCUM_ADAM, 0, 0);
    taciti_optim *optim = NULL;
    assert_int_equal(taciti_optim_create(&o, NULL, NULL, &optim), TACIT_E_CONFIG);
    assert_null(optim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_equations_give_the_golden_numbers),
        cmocka_unit_test(the_optimizer_gives_the_golden_numbers),
        cmocka_unit_test(every_step_follows_the_equations_within_rounding),
        cmocka_unit_test(a_window_of_one_step_is_adam),
        cmocka_unit_test(a_constant_gradient_moves_by_lr_in_every_step),
        cmocka_unit_test(the_mean_is_zero_at_the_end_of_a_window),
        cmocka_unit_test(equal_replicas_stay_equal),
        cmocka_unit_test(coupled_decay_touches_only_tensors_that_ask_for_it),
        cmocka_unit_test(a_window_without_steps_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
