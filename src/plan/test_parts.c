/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "plan/parts.h"

/* Units: high 0, middle 1, low 2, and a layer without tensors. */
static taciti_profile_tensor g_low[] = {{"embedding", 2, {1000, 131}}};
static taciti_profile_tensor g_middle[] = {{"x", 2, {170, 300}}};
static taciti_profile_tensor g_high[] = {{"y", 1, {8192}}};
static taciti_profile_layer g_layers[] = {
    {.name = "low", .forward_s = 1, .backward_s = 2, .tensors = g_low, .tensor_count = 1},
    {.name = "middle", .forward_s = 3, .backward_s = 6, .tensors = g_middle, .tensor_count = 1},
    {.name = "none", .forward_s = 1, .backward_s = 1},
    {.name = "high", .forward_s = 2, .backward_s = 4, .tensors = g_high, .tensor_count = 1},
};
enum { LAYERS = 4, RANKS = 3 };
static const double COMPUTE_S = 20, UPDATE_S = 0.5;
static const taciti_profile PROFILE = {.name = "p", .layers = g_layers, .layer_count = LAYERS, .update_s = 1.5};

typedef struct fixture {
    taciti_layout layout;
    taciti_cluster cluster;
    taciti_hosts hosts;
    taciti_scene scene;
    taciti_method method;
    taciti_parts_plan plan;
} fixture;

static void set_up(fixture *f, int passes, bool gradients, bool overlap) {
    static int per_host[RANKS] = {1, 1, 1};
    *f = (fixture){.cluster = taciti_cluster_unknown()};
    assert_int_equal(taciti_profile_layout(&PROFILE, 1 << 18, &f->layout), TACIT_OK);
    f->cluster.hosts = RANKS;
    f->cluster.ranks_per_host = per_host;
    f->cluster.between = (taciti_link_cost){.alpha_s = 1e-4, .beta_s_per_byte = 1e-8};
    assert_int_equal(taciti_cluster_hosts(&f->cluster, RANKS, &f->hosts), TACIT_OK);
    f->scene = (taciti_scene){.profile = &PROFILE, .layout = &f->layout, .cluster = &f->cluster, .hosts = &f->hosts};
    f->method = (taciti_method){.order = TACITI_ORDER_PARTS,
                                .wire = taciti_codec_find("f32"),
                                .overlap = overlap,
                                .every = 1,
                                .parts = {passes, gradients, taciti_codec_find("bf16"), NULL}};
    assert_int_equal(taciti_parts_create(&f->scene, &f->method, 0, &f->plan), TACIT_OK);
}

static void tear_down(fixture *f) {
    taciti_parts_destroy(&f->plan);
    taciti_hosts_destroy(&f->hosts);
    taciti_layout_destroy(&f->layout);
}

/* "G2" a gather of unit 2 is submitted, "g2" waited for, "R2" and "r2" its sum, "c3" seconds of computing. */
static void text_of(const taciti_parts_plan *p, char *out, size_t size) {
    const size_t units = p->job_count / TACITI_PARTS_CLASSES;
    *out = '\0';
    for (size_t k = 0; k < p->op_count; k++) {
        const taciti_parts_op *op = &p->ops[k];
        const bool gather = op->job < units;
        const size_t length = strlen(out);
        char *at = out + length;
        if (op->kind == TACITI_PARTS_COMPUTE)
            (void)snprintf(at, size - length, "%s%g ", op->update ? "u" : "c", op->seconds);
        else
            (void)snprintf(at, size - length, "%c%zu ",
                           op->kind == TACITI_PARTS_SUBMIT ? (gather ? 'G' : 'R') : (gather ? 'g' : 'r'),
                           op->job % units);
    }
}

static void check_step(int passes, bool gradients, bool overlap, bool tied, const char *expected) {
    char text[512];
    fixture f;
    g_layers[3].tied = tied;
    set_up(&f, passes, gradients, overlap);
    text_of(&f.plan, text, sizeof text);
    assert_string_equal(text, expected);
    tear_down(&f);
    g_layers[3].tied = false;
}

/* As test_emulated.c asks, and as strategy shard answers. */
static void a_step_is_what_the_strategy_does(void **state) {
    (void)state;
    check_step(2, true, true, false, "G1 g2 c1 G0 g1 c3 c1 G1 g0 c2 c4 R0 c1 g1 c6 R1 r0 c2 R2 r0 r1 r2 u0.5 G2 ");
    check_step(2, true, true, true, "G1 g2 c1 G0 g1 c3 c1 G2 g0 G1 g2 c2 c4 R0 c1 g1 c6 R1 c2 R2 r0 r1 r2 u0.5 G2 ");
    check_step(1, false, true, false, "G1 g2 c1 G0 g1 c3 c1 g0 c2 c4 R0 c1 c6 R1 c2 R2 r0 r1 r2 u0.5 G2 ");
    check_step(1, true, false, false, "G1 g2 c1 G0 g1 c3 c1 g0 c2 c4 c1 c6 c2 R0 R1 R2 r0 r1 r2 u0.5 G2 ");
}

static taciti_recursion_times time_with(fixture *f, double gather_s, double reduce_s, const taciti_recursion *like) {
    taciti_recursion r = *like;
    taciti_recursion_times times[TACITI_SCENARIOS];
    r.ranks = RANKS;
    r.scenarios = TACITI_SCENARIOS;
    r.steps = 2000;
    for (size_t job = 0; job < f->plan.job_count; job++)
        for (size_t c = 0; c < TACITI_SCENARIOS; c++)
            f->plan.transfer_s[job * TACITI_SCENARIOS + c] =
                (double)(c + 1) * (job < f->plan.job_count / 2 ? gather_s : reduce_s);
    assert_int_equal(taciti_parts_run(&f->plan, &r, times), TACIT_OK);
    assert_true(times[1].step_s >= times[0].step_s - 1e-12);
    return times[0];
}

static void assert_near(double a, double b) { assert_true(fabs(a - b) <= 1e-9 * b); }

static void steps_have_the_times_that_follow(void **state) {
    (void)state;
    const taciti_recursion even = {.cv = 0};
    fixture f;
    set_up(&f, 2, true, true);
    assert_near(time_with(&f, 0, 0, &even).step_s, COMPUTE_S + UPDATE_S);
    assert_near(time_with(&f, 0, 0, &even).compute_s, COMPUTE_S + UPDATE_S);
    /* Gathers of half a second: the first is exposed, the others travel while the unit before is used; but that of unit
     * 1, submitted first thing, goes behind the first. */
    assert_near(time_with(&f, 0.5, 0, &even).step_s, COMPUTE_S + UPDATE_S + 0.5);
    /* Sums of one second: those of two units hide, the last one is exposed. */
    assert_near(time_with(&f, 0, 1, &even).step_s, COMPUTE_S + UPDATE_S + 1);
    /* Transfers of 100 s: four gathers and three sums, and what is computed while none is under way: the update, and
     * the last unit behind its gather and both sums before. */
    const double bound = time_with(&f, 100, 100, &even).step_s;
    assert_true(bound >= 700 + UPDATE_S && bound <= 700 + COMPUTE_S + UPDATE_S);
    /* A slow rank holds up all. */
    const double slow[RANKS] = {1, 2, 1};
    const taciti_recursion uneven = {.cv = 0, .slow = slow};
    assert_near(time_with(&f, 0, 0, &uneven).step_s, 2 * COMPUTE_S + UPDATE_S);
    const taciti_recursion random = {.cv = 0.1, .seed = 1};
    const double with = time_with(&f, 0, 0, &random).step_s;
    assert_true(with > 1.03 * COMPUTE_S && with < 1.2 * COMPUTE_S);
    tear_down(&f);
}

/* Bytes: (N - 1) / N of the model for sums in f32, half of that for each gather in bf16. */
static void bytes_are_those_of_the_halves(void **state) {
    (void)state;
    double unit_bytes[3];
    for (int passes = 1; passes <= 2; passes++) {
        fixture f;
        set_up(&f, passes, true, true);
        double expected = 0;
        for (size_t u = 0; u < 3; u++) {
            unit_bytes[u] = 4.0 * (double)taciti_layout_unit(&f.layout, u).n * (RANKS - 1) / RANKS;
            expected += unit_bytes[u] * (1 + (u == 1 ? passes : 1) * 0.5);
        }
        assert_true(fabs(f.plan.nic_bytes / expected - 1) < 0.002);
        tear_down(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_what_the_strategy_does),
        cmocka_unit_test(steps_have_the_times_that_follow),
        cmocka_unit_test(bytes_are_those_of_the_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
