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

enum { OPTIMIZERS = 6 };
static const taciti_optim_options KINDS[OPTIMIZERS] = {
    {.name = TACITI_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
    {.name = TACITI_OPTIM_SGD, .momentum = 0.9, .weight_decay = 0.01},
    {.name = TACITI_OPTIM_SGD, .weight_decay = 0.01},
    {.name = TACITI_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
    {.name = TACITI_OPTIM_ACCUM_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .accum = 3},
    {.name = TACITI_OPTIM_ACCUM_ADAM, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .accum = 2},
};

static const double LR = 1e-2, SCALE = 0.7;

/* Three flat arrays beside the fixture's. */
typedef struct flats {
    float *arrived, *leaving, *own;
} flats;

static flats make_flats(const fixture *f) {
    const flats x = {taciti_calloc(f->layout.n, sizeof(float)), taciti_calloc(f->layout.n, sizeof(float)),
                     taciti_calloc(f->layout.n, sizeof(float))};
    assert_true(x.arrived != NULL && x.leaving != NULL && x.own != NULL);
    randomise(f, x.arrived, 7);
    return x;
}

static void free_flats(flats *x) {
    taciti_free(x->arrived);
    taciti_free(x->leaving);
    taciti_free(x->own);
}

static void same_floats(const float *a, const float *b, size_t n) { assert_memory_equal(a, b, n * sizeof *a); }

static void same_state(const fixture *a, const fixture *b) {
    const size_t n = a->layout.n;
    same_floats(a->p, b->p, n);
    assert_memory_equal(a->copy, b->copy, n * sizeof(taciti_bf16));
    assert_int_equal(taciti_optim_updates(a->optim), taciti_optim_updates(b->optim));
    for (int s = 0; s < taciti_optim_state_count(a->optim); s++)
        same_floats(state_of(a->optim, s), state_of(b->optim, s), n);
}

static void start(fixture *f, int kind, int threads) {
    set_up(f, &KINDS[kind], threads);
    randomise(f, f->p, 1);
}

/* Cuts of the layout: everything, buckets of several sizes, single lines; forwards or backwards. */
enum { CUTS = 6 };
static void update_in_cut(fixture *f, int cut, taciti_blend *blend) {
    static const size_t LENGTHS[CUTS] = {SIZE_MAX, 65536, 16384, 4096 + 16, 1008, 16};
    const size_t n = f->layout.n, length = LENGTHS[cut] < n ? LENGTHS[cut] : n, parts = (n + length - 1) / length;
    taciti_optim_begin(f->optim, LR, SCALE);
    for (size_t i = 0; i < parts; i++) {
        const size_t offset = (cut % 2 ? parts - 1 - i : i) * length, left = n - offset;
        taciti_optim_update_range(f->optim, f->p, f->g, f->copy, offset, left < length ? left : length, blend);
    }
}

static void ranges_in_any_cut_are_one_update(void **state) {
    (void)state;
    for (int kind = 0; kind < OPTIMIZERS; kind++)
        for (int cut = 0; cut < CUTS; cut++) {
            fixture whole, parts;
            start(&whole, kind, 1);
            start(&parts, kind, 1 + (CUTS - 1 - cut) % 3);
            for (uint64_t step = 0; step < 4; step++) {
                randomise(&whole, whole.g, 10 + step);
                randomise(&parts, parts.g, 10 + step);
                taciti_optim_update(whole.optim, whole.p, whole.g, whole.copy, LR, SCALE);
                update_in_cut(&parts, cut, NULL);
                same_state(&whole, &parts);
            }
            tear_down(&whole);
            tear_down(&parts);
        }
}

static void blend_apart(fixture *f, const float *arrived, float keep, float share) {
    for (size_t i = 0; i < f->layout.n; i++) f->p[i] = keep * f->p[i] + share * arrived[i];
}

/* Blending, updating and handing on in one pass is what the three kernels do one after the other. */
static void one_pass_is_blend_then_update_then_copy(void **state) {
    (void)state;
    for (int kind = 0; kind < OPTIMIZERS; kind++)
        for (int cut = 0; cut < CUTS; cut++) {
            fixture fused, apart;
            start(&fused, kind, 1 + (CUTS - 1 - cut) % 4);
            start(&apart, kind, 1);
            flats x = make_flats(&fused);
            taciti_blend blend = {
                .arrived = x.arrived, .keep = 0.3f, .share = 0.7f, .leaving = x.leaving, .leaving_scale = 0.5f};
            for (uint64_t step = 0; step < 4; step++) {
                randomise(&fused, fused.g, 10 + step);
                randomise(&apart, apart.g, 10 + step);
                update_in_cut(&fused, cut, &blend);
                blend_apart(&apart, x.arrived, 0.3f, 0.7f);
                taciti_optim_update(apart.optim, apart.p, apart.g, apart.copy, LR, SCALE);
                taciti_kernels_named("scalar")->scaled_copy(x.own, apart.p, 0.5f, apart.layout.n);
                same_state(&fused, &apart);
                same_floats(x.own, x.leaving, apart.layout.n);
            }
            for (size_t i = 37; i < 48; i++) assert_true(fused.p[i] == 0.0f && x.leaving[i] == 0.0f);
            free_flats(&x);
            tear_down(&fused);
            tear_down(&apart);
        }
}

/* Floats that arrived may be overwritten by floats that leave. */
static void arrived_may_be_leaving(void **state) {
    (void)state;
    fixture a, b;
    start(&a, 4, 3);
    start(&b, 4, 2);
    flats x = make_flats(&a);
    memcpy(x.own, x.arrived, a.layout.n * sizeof(float));
    randomise(&a, a.g, 3);
    randomise(&b, b.g, 3);
    taciti_blend two = {.arrived = x.arrived, .keep = 0.5f, .share = 1, .leaving = x.leaving, .leaving_scale = 0.25f};
    taciti_blend one = {.arrived = x.own, .keep = 0.5f, .share = 1, .leaving = x.own, .leaving_scale = 0.25f};
    update_in_cut(&a, 1, &two);
    update_in_cut(&b, 3, &one);
    same_state(&a, &b);
    same_floats(x.own, x.leaving, a.layout.n);
    free_flats(&x);
    tear_down(&a);
    tear_down(&b);
}

/* Without arrivals a blend is only the copy that leaves. */
static void nothing_arrived_is_a_plain_update(void **state) {
    (void)state;
    fixture a, b;
    start(&a, 0, 2);
    start(&b, 0, 2);
    flats x = make_flats(&a);
    randomise(&a, a.g, 3);
    randomise(&b, b.g, 3);
    taciti_blend blend = {.keep = 0, .share = (float)NAN, .leaving = x.leaving, .leaving_scale = 1};
    taciti_optim_update(a.optim, a.p, a.g, a.copy, LR, SCALE);
    update_in_cut(&b, 2, &blend);
    same_state(&a, &b);
    same_floats(a.p, x.leaving, a.layout.n);
    assert_true(blend.moved == 0);
    free_flats(&x);
    tear_down(&a);
    tear_down(&b);
}

/* keep 1 share 0 changes nothing, keep 0 share 1 copies, whatever the other operand holds. */
static void neutral_blends_are_exact(void **state) {
    (void)state;
    fixture f;
    start(&f, 0, 3);
    flats x = make_flats(&f);
    const size_t n = f.layout.n;
    f.p[1] = -0.0f;
    x.arrived[2] = -0.0f;
    memcpy(x.own, f.p, n * sizeof(float));
    for (size_t i = 0; i < n; i++) x.leaving[i] = i % 2 ? (float)NAN : (float)INFINITY;
    taciti_blend keep = {.arrived = x.leaving, .keep = 1, .share = 0};
    taciti_optim_blend_range(f.optim, f.p, f.copy, 0, n, &keep);
    same_floats(f.p, x.own, n);
    assert_true(keep.moved == 0);
    memcpy(f.p, x.leaving, n * sizeof(float));
    taciti_blend take = {.arrived = x.arrived, .keep = 0, .share = 1, .leaving = x.own, .leaving_scale = 1};
    taciti_optim_blend_range(f.optim, f.p, f.copy, 0, n, &take);
    same_floats(f.p, x.arrived, n);
    same_floats(x.own, x.arrived, n);
    assert_true(!isfinite(take.moved)); /* from where p was */
    free_flats(&x);
    tear_down(&f);
}

/* The consensus factor: with W' = gamma W + (1 - gamma) I a member of a group of n that keeps w of itself blends its
 * own with keep = (1 - gamma) + gamma (w - (1 - w) / (n - 1)), share = gamma. */
static void a_consensus_factor_mixes_towards_the_group(void **state) {
    (void)state;
    const double w = 0.3, others = (1 - w) / 3;
    fixture f;
    start(&f, 0, 2);
    flats x = make_flats(&f);
    const size_t n = f.layout.n;
    for (size_t i = 0; i < n; i++)
        x.leaving[i] = (float)(others * (double)(f.p[i] + x.arrived[i])); /* the group's sum */
    for (int tenth = 0; tenth <= 10; tenth++) {
        const double gamma = tenth / 10.0;
        randomise(&f, f.p, 1);
        memcpy(x.own, f.p, n * sizeof(float));
        taciti_blend blend = {
            .arrived = x.leaving, .keep = (float)((1 - gamma) + gamma * (w - others)), .share = (float)gamma};
        taciti_optim_blend_range(f.optim, f.p, NULL, 0, n, &blend);
        if (tenth == 0) same_floats(f.p, x.own, n);
        FOR_TENSOR_ELEMENTS(&f, t, i) {
            const double mixed = w * (double)x.own[i] + others * (double)x.arrived[i];
            const double expected = gamma * mixed + (1 - gamma) * (double)x.own[i];
            /* operands below 1, at most six roundings of products and sums below 1 */
            assert_true(fabs((double)f.p[i] - expected) <= 6 * 0x1p-24);
        }
    }
    free_flats(&x);
    tear_down(&f);
}

/* A blend alone leaves moments and count alone; the copy follows. */
static void blending_alone_touches_no_state(void **state) {
    (void)state;
    fixture f, g;
    start(&f, 4, 2);
    start(&g, 4, 1);
    flats x = make_flats(&f);
    randomise(&f, f.g, 3);
    randomise(&g, g.g, 3);
    taciti_optim_update(f.optim, f.p, f.g, f.copy, LR, SCALE);
    taciti_optim_update(g.optim, g.p, g.g, g.copy, LR, SCALE);
    taciti_blend blend = {.arrived = x.arrived, .keep = 0.75f, .share = 0.25f};
    taciti_optim_blend_range(f.optim, f.p, f.copy, 0, f.layout.n, &blend);
    blend_apart(&g, x.arrived, 0.75f, 0.25f);
    taciti_kernels_named("scalar")->bf16_encode(g.copy, g.p, g.layout.n);
    same_state(&f, &g);
    free_flats(&x);
    tear_down(&f);
    tear_down(&g);
}

/* moved: against a sum in double, added to what was there, and the same bits for every number of threads. */
static void moved_is_the_sum_of_squares_of_the_change(void **state) {
    (void)state;
    const size_t lengths[] = {0, 1, 16, 4096, 4097, 70000, SIZE_MAX};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        double first = 0;
        for (int threads = 1; threads <= 4; threads++) {
            fixture f;
            start(&f, 0, threads);
            flats x = make_flats(&f);
            const size_t offset = l % 2 * 48, n = lengths[l] < f.layout.n ? lengths[l] : f.layout.n - offset;
            memcpy(x.own, f.p, f.layout.n * sizeof(float));
            taciti_blend blend = {.arrived = x.arrived, .keep = 0.5f, .share = 0.5f, .moved = 2};
            taciti_optim_blend_range(f.optim, f.p, f.copy, offset, n, &blend);
            double expected = 2;
            for (size_t i = offset; i < offset + n; i++) {
                const double change = (double)f.p[i] - (double)x.own[i];
                expected += change * change;
            }
            assert_true(fabs(blend.moved - expected) <= expected * ((double)n + 2) * 0x1p-52);
            if (threads == 1) first = blend.moved;
            assert_memory_equal(&first, &blend.moved, sizeof first);
            free_flats(&x);
            tear_down(&f);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_in_any_cut_are_one_update),
        cmocka_unit_test(one_pass_is_blend_then_update_then_copy),
        cmocka_unit_test(arrived_may_be_leaving),
        cmocka_unit_test(nothing_arrived_is_a_plain_update),
        cmocka_unit_test(neutral_blends_are_exact),
        cmocka_unit_test(a_consensus_factor_mixes_towards_the_group),
        cmocka_unit_test(blending_alone_touches_no_state),
        cmocka_unit_test(moved_is_the_sum_of_squares_of_the_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
