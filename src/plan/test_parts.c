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
#include "codec/trial.h"
#include "plan/parts.h"
#include "strategy/shard.h"

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
enum { LAYERS = 4, RANKS = 3, UNITS = 3 };
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

static taciti_placement flat(const taciti_hosts *hosts, taciti_placement requested) {
    (void)hosts;
    (void)requested;
    return (taciti_placement){.scheme = TACITI_SCHEME_FLAT, .contiguous = true};
}

static void set_up(fixture *f, int passes, bool gradients, bool overlap) {
    static int per_host[RANKS] = {1, 1, 1};
    *f = (fixture){.cluster = taciti_cluster_unknown()};
    assert_int_equal(taciti_profile_layout(&PROFILE, 1 << 18, &f->layout), TACIT_OK);
    f->cluster.hosts = RANKS;
    f->cluster.ranks_per_host = per_host;
    f->cluster.between = (taciti_link_cost){.alpha_s = 1e-4, .beta_s_per_byte = 1e-8};
    assert_int_equal(taciti_cluster_hosts(&f->cluster, RANKS, &f->hosts), TACIT_OK);
    f->scene = (taciti_scene){.profile = &PROFILE, .layout = &f->layout, .cluster = &f->cluster, .hosts = &f->hosts};
    f->method = (taciti_method){
        .order = TACITI_ORDER_PARTS,
        .wire = taciti_codec_find("f32"),
        .overlap = overlap,
        .every = 1,
        .parts = {.passes = passes, .gradients = gradients, .gather = taciti_codec_find("bf16"), .placement = flat}};
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
    taciti_draws draws = {0};
    taciti_recursion_times times[TACITI_SCENARIOS];
    r.ranks = RANKS;
    r.draws = &draws;
    r.steps = 2000;
    for (size_t job = 0; job < f->plan.job_count; job++)
        for (size_t c = 0; c < TACITI_SCENARIOS; c++)
            f->plan.jobs[job].transfer_s[c] = (double)(c + 1) * (job < UNITS ? gather_s : reduce_s);
    assert_int_equal(taciti_parts_run(&f->plan, &r, times), TACIT_OK);
    taciti_draws_destroy(&draws);
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

static void open_links(fixture *f, taciti_links *links) {
    assert_int_equal(taciti_links_create(&f->scene, links), TACIT_OK);
}

static double nic_bytes(fixture *f) {
    taciti_links links;
    open_links(f, &links);
    const double bytes = taciti_parts_nic_bytes(&f->plan, &links);
    taciti_links_destroy(&links);
    return bytes;
}

/* Bytes: (N - 1) / N of the model for sums in f32, half of that for each gather in bf16. */
static void bytes_are_those_of_the_halves(void **state) {
    (void)state;
    double unit_bytes[UNITS];
    for (int passes = 1; passes <= 2; passes++) {
        fixture f;
        set_up(&f, passes, true, true);
        double expected = 0;
        for (size_t u = 0; u < UNITS; u++) {
            unit_bytes[u] = 4.0 * (double)taciti_layout_unit(&f.layout, u).n * (RANKS - 1) / RANKS;
            expected += unit_bytes[u] * (1 + (u == 1 ? passes : 1) * 0.5);
        }
        assert_true(fabs(nic_bytes(&f) / expected - 1) < 0.002);
        tear_down(&f);
    }
}

/* Two hosts of two ranks: by hosts each link carries half the model per half, flat each rank's data twice. */
static void by_hosts_data_cross_a_link_once(void **state) {
    (void)state;
    static int pairs[] = {2, 2};
    double bytes[2];
    for (int by_hosts = 0; by_hosts < 2; by_hosts++) {
        taciti_pattern patterns[TACITI_PATTERNS_MAX];
        const taciti_shard_options options = {.stage = 3};
        size_t count = 0;
        fixture f;
        set_up(&f, 2, true, true);
        taciti_parts_destroy(&f.plan);
        taciti_hosts_destroy(&f.hosts);
        f.cluster.hosts = 2;
        f.cluster.ranks_per_host = pairs;
        assert_int_equal(taciti_cluster_hosts(&f.cluster, 4, &f.hosts), TACIT_OK);
        assert_int_equal(taciti_strategy_find("shard")->patterns(&options, NULL, patterns, &count), TACIT_OK);
        if (by_hosts == 1) f.method.parts.placement = patterns[0].parts.placement;
        assert_int_equal(taciti_parts_create(&f.scene, &f.method, 0, &f.plan), TACIT_OK);
        bytes[by_hosts] = nic_bytes(&f);
        double expected = 0;
        for (size_t u = 0; u < UNITS; u++)
            expected += 2.0 * (double)taciti_layout_unit(&f.layout, u).n * (1 + (u == 1 ? 2 : 1) * 0.5);
        assert_true(fabs(bytes[by_hosts] / expected - (by_hosts == 1 ? 1 : 2)) < 0.003);
        tear_down(&f);
    }
}

/* ---- compressed traffic ------------------------------------------------------------------------------------------ */

/* Seconds per float of codecs, and bytes per second of an addition. */
static const double ENCODE_S = 3e-9, DECODE_S = 2e-9, ADD_S = 1e-9, CORE_SHARE = 0.5, PASS_BYTES_PER_S = 1e10;

static taciti_plan_compression compression_of(const char *codec, double factor) {
    taciti_plan_compression c = {.encoding = {.codec = taciti_codec_find(codec)}};
    void *options = NULL;
    if (c.encoding.codec->selects) c.encoding.expected.factor = factor;
    assert_int_equal(taciti_codec_defaults(c.encoding.codec, &options), TACIT_OK);
    c.encoding.options = options;
    return c;
}

static void forget(taciti_plan_compression *c) {
    taciti_free((void *)(uintptr_t)c->encoding.options);
    *c = (taciti_plan_compression){.adapts = false};
}

/* Through these codecs ("" is none), on a cluster that says how fast all of them are. */
static void set_up_coded(fixture *f, int passes, const char *sums, const char *gathers, bool adapts) {
    static const char *const CODECS[] = {"int4", "int8", "topk"};
    set_up(f, passes, true, true);
    taciti_parts_destroy(&f->plan);
    for (size_t i = 0; i < sizeof CODECS / sizeof *CODECS; i++) {
        taciti_cluster_compression row = {
            .factor = 1, .encode_s = ENCODE_S, .decode_s = DECODE_S, .add_s = ADD_S, .bytes = 1};
        (void)snprintf(row.codec, sizeof row.codec, "%s", CODECS[i]);
        assert_int_equal(taciti_cluster_add_compression(&f->cluster, &row), TACIT_OK);
    }
    const taciti_cluster_compression f32 = {.codec = "f32", .factor = 1, .add_s = sizeof(float) / PASS_BYTES_PER_S};
    assert_int_equal(taciti_cluster_add_compression(&f->cluster, &f32), TACIT_OK);
    f->cluster.compute_core_share = CORE_SHARE;
    f->method.parts.gather = taciti_codec_find("f32");
    if (*sums != '\0') f->method.compression = compression_of(sums, 10);
    if (*gathers != '\0') f->method.gather = compression_of(gathers, 5);
    f->method.compression.adapts = f->method.gather.adapts = adapts;
    assert_int_equal(taciti_parts_create(&f->scene, &f->method, 0, &f->plan), TACIT_OK);
}

static void tear_down_coded(fixture *f) {
    forget(&f->method.compression);
    forget(&f->method.gather);
    f->cluster.ranks_per_host = NULL; /* borrowed */
    taciti_cluster_destroy(&f->cluster);
    tear_down(f);
}

/* A range of n / N floats in one message: 4.25 bits per number in int4, 8.25 in int8. */
static double bits_of(const char *codec) { return strcmp(codec, "int4") == 0 ? 4.25 : 8.25; }

static void check_bytes(int passes, const char *sums, const char *gathers) {
    fixture f;
    double expected = 0;
    set_up_coded(&f, passes, sums, gathers, false);
    for (size_t u = 0; u < UNITS; u++) {
        const double others = (double)taciti_layout_unit(&f.layout, u).n * (RANKS - 1) / RANKS;
        expected += others * (*sums == '\0' ? 32 : bits_of(sums)) / 8;
        expected += others * (u == 1 ? passes : 1) * (*gathers == '\0' ? 32 : bits_of(gathers)) / 8;
    }
    if (!(fabs(nic_bytes(&f) / expected - 1) < 0.003))
        fail_msg("%d passes, %s, %s: %g bytes instead of %g", passes, sums, gathers, nic_bytes(&f), expected);
    tear_down_coded(&f);
}

static void compressed_bytes_are_payloads(void **state) {
    (void)state;
    check_bytes(2, "int4", "int8");
    check_bytes(1, "int4", "int4");
    check_bytes(2, "int8", "");
    check_bytes(2, "", "int8");
}

/* A sum: every rank encodes all n floats, decodes its own part and adds the others'. A gather: a rank encodes its part
 * and decodes all. Twice as long on half a core. */
static void codecs_take_the_seconds_of_their_half(void **state) {
    (void)state;
    fixture f;
    set_up_coded(&f, 2, "int4", "int8", false);
    for (size_t u = 0; u < UNITS; u++) {
        const taciti_parts_job *job = &f.plan.jobs[u];
        const taciti_price *gather = &job->coded.price, *reduce = &job[UNITS].coded.price;
        const size_t n = gather->length.f32_bytes / sizeof(float);
        const double all = (double)n, own = all / RANKS;
        assert_int_equal(n, taciti_layout_unit(&f.layout, u).n / job->buckets);
        assert_near(gather->codec_s, (own * ENCODE_S + all * DECODE_S) / CORE_SHARE);
        assert_near(reduce->codec_s, (all * ENCODE_S + own * (DECODE_S + (RANKS - 1) * ADD_S)) / CORE_SHARE);
        assert_int_equal(job->coded.demand.wire_hops, 1);
    }
    tear_down_coded(&f);
}

/* The factor of a gather is its own: topk at 5 sends about twice as much as the sum at 10. */
static void gathers_have_a_factor_of_their_own(void **state) {
    (void)state;
    fixture f;
    set_up_coded(&f, 1, "topk", "topk", false);
    const double ratio = f.plan.jobs[1].coded.demand.host_bytes / f.plan.jobs[UNITS + 1].coded.demand.host_bytes;
    assert_true(ratio > 1.7 && ratio < 2.1);
    tear_down_coded(&f);
}

static double passes_s(const taciti_parts_plan *p) {
    double sum = 0;
    for (size_t i = 0; i < p->op_count; i++) sum += p->ops[i].coded ? p->ops[i].seconds : 0;
    return sum;
}

/* Changes of n floats: two passes over what a rank owns, one over all. Values: one over what it owns, per gather. */
static void ranks_pass_over_what_they_gather(void **state) {
    (void)state;
    const double pass_s = 4 / PASS_BYTES_PER_S / CORE_SHARE;
    for (int passes = 1; passes <= 2; passes++) {
        fixture f;
        double expected = 0;
        set_up_coded(&f, passes, "int4", "int8", false);
        for (size_t u = 0; u < UNITS; u++) {
            const double n = (double)taciti_layout_unit(&f.layout, u).n;
            expected += pass_s * (passes == 1 ? 2 * n / RANKS + n : (u == 1 ? 2 : 1) * n / RANKS);
        }
        assert_near(passes_s(&f.plan), expected);
        tear_down_coded(&f);
        set_up_coded(&f, passes, "int4", "", false);
        assert_true(passes_s(&f.plan) <= 0);
        tear_down_coded(&f);
    }
}

/* Returns the seconds of all transfers of a step on a link of beta_s per byte; *step_s receives those of the step. */
static double transfers_s(fixture *f, double beta_s, double *step_s) {
    taciti_links links;
    taciti_draws draws = {0};
    const taciti_recursion r = {.ranks = RANKS, .draws = &draws};
    taciti_recursion_times times[TACITI_SCENARIOS];
    f->cluster.between.beta_s_per_byte = beta_s;
    open_links(f, &links);
    taciti_parts_time(&f->plan, 0, &links, 1, 1);
    taciti_links_destroy(&links);
    assert_int_equal(taciti_parts_run(&f->plan, &r, times), TACIT_OK);
    *step_s = times[0].step_s;
    return taciti_parts_transfer_s(&f->plan, 0);
}

/* Each kind of traffic is what takes less time: on a slow link coded, on a fast one dense, and nothing between them is
 * longer than either. */
static void what_adapts_takes_the_shorter_way(void **state) {
    (void)state;
    fixture dense, coded, adapts, one;
    double d_step, c_step, a_step, o_step;
    set_up_coded(&dense, 1, "", "", false);
    set_up_coded(&coded, 1, "int4", "int4", false);
    set_up_coded(&adapts, 1, "int4", "int4", true);
    set_up_coded(&one, 1, "", "int4", false);
    double d = transfers_s(&dense, 1e-6, &d_step), c = transfers_s(&coded, 1e-6, &c_step);
    assert_true(c < 0.2 * d && c_step < d_step);
    assert_near(transfers_s(&adapts, 1e-6, &a_step), c);
    assert_near(a_step, c_step);
    d = transfers_s(&dense, 1e-12, &d_step);
    c = transfers_s(&coded, 1e-12, &c_step);
    assert_true(c > 1.5 * d);
    assert_near(transfers_s(&adapts, 1e-12, &a_step), d);
    assert_near(a_step, d_step); /* without the passes over changes */
    /* Encoding a sum costs more than encoding a gather: between the two rates only gathers are coded. */
    const double between = 3e-9, mixed = transfers_s(&one, between, &o_step);
    assert_true(mixed < transfers_s(&dense, between, &d_step) && mixed < transfers_s(&coded, between, &c_step));
    assert_near(transfers_s(&adapts, between, &a_step), mixed);
    assert_near(a_step, o_step);
    tear_down_coded(&dense);
    tear_down_coded(&coded);
    tear_down_coded(&adapts);
    tear_down_coded(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_what_the_strategy_does),   cmocka_unit_test(steps_have_the_times_that_follow),
        cmocka_unit_test(bytes_are_those_of_the_halves),      cmocka_unit_test(by_hosts_data_cross_a_link_once),
        cmocka_unit_test(compressed_bytes_are_payloads),      cmocka_unit_test(codecs_take_the_seconds_of_their_half),
        cmocka_unit_test(gathers_have_a_factor_of_their_own), cmocka_unit_test(ranks_pass_over_what_they_gather),
        cmocka_unit_test(what_adapts_takes_the_shorter_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
