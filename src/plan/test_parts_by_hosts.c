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

#include "advise/candidates.h"
#include "base/memory.h"
#include "comm/test_engine.h"
#include "plan/footprint.h"
#include "plan/parts.h"
#include "strategy/shard.h"

/* H hosts of P ranks, a network of 4 layers, links without latency; inside hosts everything is free. */
enum { HOSTS = 3, PER_HOST = 2, RANKS = HOSTS * PER_HOST, BUCKET_BYTES = 1 << 18, UNITS = 4 };
static taciti_profile_tensor g_wte[] = {{"wte", 2, {1024, 128}}};
static taciti_profile_tensor g_first[] = {{"h.0.attn.c_attn.weight", 2, {128, 640}},
                                          {"h.0.mlp.c_fc.weight", 2, {128, 512}}};
static taciti_profile_tensor g_second[] = {{"h.1.attn.c_attn.weight", 2, {128, 640}},
                                           {"h.1.mlp.c_fc.weight", 2, {128, 512}}};
static taciti_profile_tensor g_norm[] = {{"ln_f.weight", 1, {8192}}};
static taciti_profile_layer g_layers[UNITS] = {
    {.name = "embedding", .forward_s = 1e-3, .backward_s = 2e-3, .tensors = g_wte, .tensor_count = 1},
    {.name = "h.0", .forward_s = 3e-3, .backward_s = 6e-3, .tensors = g_first, .tensor_count = 2},
    {.name = "h.1", .forward_s = 3e-3, .backward_s = 6e-3, .tensors = g_second, .tensor_count = 2},
    {.name = "head", .forward_s = 2e-3, .backward_s = 4e-3, .tensors = g_norm, .tensor_count = 1},
};
static const taciti_profile PROFILE = {.name = "p", .layers = g_layers, .layer_count = UNITS, .update_s = 1e-3};

typedef struct stage {
    taciti_settings settings;
    taciti_layout layout;
    taciti_cluster cluster;
    taciti_hosts hosts;
    taciti_scene scene;
    taciti_candidates candidates;
} stage;
static stage g;

static int open_stage(void **state) {
    (void)state;
    static const char TEXT[] = "{\"format\": \"tacit-cluster-1\", \"hosts\": 3, \"ranks_per_host\": 2, \"links\": "
                               "{\"between\": {\"latency_us\": 0, \"gbit_per_s\": 1}}}";
    memset(&g, 0, sizeof g);
    if (taciti_settings_init(&g.settings, NULL, 0) != TACIT_OK) return -1;
    if (taciti_profile_layout(&PROFILE, BUCKET_BYTES, &g.layout) != TACIT_OK) return -1;
    if (taciti_cluster_parse("c.json", TEXT, strlen(TEXT), &g.cluster) != TACIT_OK) return -1;
    if (taciti_cluster_hosts(&g.cluster, RANKS, &g.hosts) != TACIT_OK) return -1;
    g.scene = (taciti_scene){
        .profile = &PROFILE, .layout = &g.layout, .cluster = &g.cluster, .hosts = &g.hosts, .optim = &g.settings.optim};
    return 0;
}

static int close_stage(void **state) {
    (void)state;
    taciti_candidates_destroy(&g.candidates);
    taciti_settings_destroy(&g.settings);
    taciti_layout_destroy(&g.layout);
    taciti_cluster_destroy(&g.cluster);
    taciti_hosts_destroy(&g.hosts);
    return 0;
}

static void set(const char *key, const char *value) {
    assert_int_equal(taciti_config_set(&g.settings.config, key, value, "test"), TACIT_OK);
}

static void make(void) {
    taciti_candidates_destroy(&g.candidates);
    assert_int_equal(taciti_candidates_create(&g.settings, &g.hosts, NULL, &g.candidates), TACIT_OK);
}

static taciti_candidate *find_label(const char *label) {
    for (size_t i = 0; i < g.candidates.count; i++)
        if (strcmp(g.candidates.list[i].method.label, label) == 0) return &g.candidates.list[i];
    fail_msg("there is no %s", label);
    return &g.candidates.list[0];
}

static taciti_prediction predict(const char *label) {
    const taciti_plan_options even = {.seed = 1, .cv = 0};
    taciti_prediction p;
    assert_int_equal(taciti_predict(&g.scene, &find_label(label)->method, &even, &p), TACIT_OK);
    return p;
}

static void assert_near(double a, double b) {
    if (!(fabs(a - b) <= 1e-6 * fabs(b))) fail_msg("%.17g instead of %.17g", a, b);
}

/* ---- which rows there are ---------------------------------------------------------------------------------------- */

/* Hosts of these sizes. */
static void place(const int *per_host, int hosts) {
    static int host_of[64];
    taciti_hosts_destroy(&g.hosts);
    int ranks = 0;
    for (int h = 0; h < hosts; h++)
        for (int r = 0; r < per_host[h]; r++) host_of[ranks++] = h;
    int *copy = taciti_calloc((size_t)ranks, sizeof *copy);
    memcpy(copy, host_of, (size_t)ranks * sizeof *copy);
    g.hosts = (taciti_hosts){.ranks = ranks, .count = hosts, .host_of = copy};
}

static size_t rows_by_hosts(void) {
    size_t count = 0;
    make();
    for (size_t i = 0; i < g.candidates.count; i++)
        count += g.candidates.list[i].method.parts.replicas || g.candidates.list[i].method.parts.secondary;
    return count;
}

static void rows_are_there_where_hosts_have_several_ranks_and_as_many(void **state) {
    (void)state;
    const size_t all = rows_by_hosts();
    assert_true(all >= 5 * 2); /* three stages over hosts and two gathers of secondary parts, two wires at least */
    place((const int[]){1, 1, 1}, 3);
    assert_int_equal(rows_by_hosts(), 0);
    place((const int[]){4}, 1);
    assert_int_equal(rows_by_hosts(), 0);
    place((const int[]){2, 3}, 2);
    assert_int_equal(rows_by_hosts(), 0);
    place((const int[]){3, 3}, 2);
    assert_int_equal(rows_by_hosts(), all);
    set("exchange.scheme", "flat");
    assert_int_equal(rows_by_hosts(), 0);
}

static size_t count_configured(const char *label) {
    size_t count = 0;
    make();
    for (size_t i = 0; i < g.candidates.count; i++) count += g.candidates.list[i].configured;
    return find_label(label)->configured ? count : 0;
}

static void what_is_configured_is_marked_also_on_uneven_hosts(void **state) {
    (void)state;
    set("strategy", "shard");
    set("shard.over", "host");
    assert_int_equal(count_configured("shard 3 over host f32"), 1);
    set("compress.codec", "int4");
    assert_int_equal(count_configured("shard 3 over host int4"), 1);
    set("compress.codec", "auto");
    assert_int_equal(count_configured("shard 3 over host auto int4"), 1);
    set("compress.loss", "4");
    assert_int_equal(count_configured("shard 3 over host auto int4"), 2);
    assert_int_equal(count_configured("shard 3 over host auto topk 5"), 2);
    set("compress.codec", "none");
    place((const int[]){2, 3}, 2);
    assert_int_equal(count_configured("shard 3 over host f32"), 1);
    set("shard.over", "all");
    set("shard.secondary", "true");
    set("shard.gather", "bf16");
    assert_int_equal(count_configured("shard 3 secondary gather bf16 f32"), 1);
}

static void flags_are_what_to_type(void **state) {
    static const struct {
        const char *label, *flags;
    } ROWS[] = {{"shard 3 over host f32", "--shard.stage 3 --shard.over host"},
                {"shard 1 over host bf16", "--shard.stage 1 --shard.over host --exchange.wire bf16"},
                {"shard 2 over host auto int4", "--shard.stage 2 --shard.over host --compress.codec auto"},
                {"shard 3 secondary gather bf16 f32", "--shard.stage 3 --shard.secondary true --shard.gather bf16"}};
    char flags[TACITI_FLAGS_BYTES];
    (void)state;
    make();
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        taciti_method_flags(&find_label(ROWS[i].label)->method, flags, sizeof flags);
        assert_string_equal(flags, ROWS[i].flags);
    }
}

/* ---- what travels ------------------------------------------------------------------------------------------------ */

/* Replicas on hosts whose inside is free: on the wire the sums of dp by hosts, and no gathers. */
static void replicas_send_what_dp_sends(void **state) {
    static const char *const WIRES[] = {"f32", "bf16"};
    (void)state;
    make();
    for (size_t w = 0; w < 2; w++) {
        char replicas[64], dense[64];
        (void)snprintf(replicas, sizeof replicas, "shard 3 over host %s", WIRES[w]);
        (void)snprintf(dense, sizeof dense, "dense %s", WIRES[w]);
        const taciti_prediction a = predict(replicas), b = predict(dense);
        assert_near(a.nic_bytes, b.nic_bytes);
        assert_near(a.transfer_s, b.transfer_s);
        assert_near(b.nic_bytes, 2.0 * (double)g.layout.n * (w == 0 ? 4 : 2) * (HOSTS - 1) / HOSTS);
        /* the update of its own half instead of the model's: the rest is bytes behind the last layer's backward */
        assert_near(a.compute_s, b.compute_s - PROFILE.update_s * (PER_HOST - 1) / PER_HOST);
    }
}

static size_t times_of(const taciti_parts_plan *p, int class) {
    const size_t units = p->job_count / TACITI_PARTS_CLASSES;
    size_t times = 0;
    for (size_t u = 0; u < units; u++) times += p->jobs[(size_t) class * units + u].times;
    return times;
}

/* Two passes on the wire, gathers of the backward pass inside; over all ranks three. */
static void secondary_parts_gather_once_between_hosts(void **state) {
    taciti_parts_plan all, secondary;
    (void)state;
    make();
    const double bytes = predict("dense f32").nic_bytes / 2;
    const double twice =
        4.0 * (HOSTS - 1) / HOSTS * (double)(taciti_layout_unit(&g.layout, 1).n + taciti_layout_unit(&g.layout, 2).n);
    assert_near(predict("shard 3 gather f32 f32").nic_bytes, 2 * bytes + twice);
    assert_near(predict("shard 3 secondary gather f32 f32").nic_bytes, 2 * bytes);
    assert_near(predict("shard 3 secondary gather bf16 f32").nic_bytes, 1.5 * bytes);
    assert_int_equal(taciti_parts_create(&g.scene, &find_label("shard 3 gather f32 f32")->method, 0, &all), TACIT_OK);
    assert_int_equal(
        taciti_parts_create(&g.scene, &find_label("shard 3 secondary gather f32 f32")->method, 0, &secondary),
        TACIT_OK);
    assert_int_equal(times_of(&all, TACITI_PARTS_SHARE), 0);
    assert_int_equal(times_of(&all, TACITI_PARTS_GATHER), UNITS + 2);
    assert_int_equal(times_of(&secondary, TACITI_PARTS_SHARE), 2);
    assert_int_equal(times_of(&secondary, TACITI_PARTS_GATHER), UNITS);
    assert_int_equal(all.op_count, secondary.op_count);
    taciti_parts_destroy(&all);
    taciti_parts_destroy(&secondary);
}

/* Traffic inside hosts takes time where the file says how fast it is: (P - 1) / P of a unit per gather. */
static void gathers_inside_hosts_take_their_time(void **state) {
    taciti_links links;
    taciti_parts_plan p;
    (void)state;
    make();
    g.cluster.inside = (taciti_link_cost){.alpha_s = 1e-5, .beta_s_per_byte = 1e-9};
    assert_int_equal(taciti_links_create(&g.scene, &links), TACIT_OK);
    assert_int_equal(taciti_parts_create(&g.scene, &find_label("shard 3 over host f32")->method, 0, &p), TACIT_OK);
    taciti_parts_time(&p, 0, &links, 1, 1);
    for (size_t u = 0; u < UNITS; u++) {
        const taciti_parts_job *job = &p.jobs[TACITI_PARTS_SHARE * UNITS + u];
        const double bytes = 4.0 * (double)taciti_layout_unit(&g.layout, u).n * (PER_HOST - 1) / PER_HOST;
        assert_near(job->transfer_s[0], 1e-9 * bytes + 1e-5 * (double)job->buckets);
        assert_true(job->dense.demand.host_bytes <= 0 && job->dense.demand.wire_hops == 0);
    }
    taciti_parts_destroy(&p);
    taciti_links_destroy(&links);
}

/* ---- what the strategy says itself --------------------------------------------------------------------------------
 */

/* A way to hold parts, as the strategy knows it. */
typedef struct trial {
    const char *label;
    taciti_shard_options options;
    const char *codec, *gather; /* "": none */
    double memory, between;     /* of rank 0: bytes held, bytes sent to other hosts */
} trial;

static taciti_compression_setup setup_of(const trial *t) {
    taciti_compression_setup setup = {.options = &g.settings.compress};
    if (*t->codec != '\0') setup.sums.codec = taciti_codec_find(t->codec);
    if (*t->gather != '\0') setup.gathers.codec = taciti_codec_find(t->gather);
    if (setup.sums.codec != NULL) setup.sums.options = taciti_settings_options(&g.settings, setup.sums.codec->options);
    if (setup.gathers.codec != NULL)
        setup.gathers.options = taciti_settings_options(&g.settings, setup.gathers.codec->options);
    return setup;
}

/* Masters are rounded by what is gathered; changes are an array of their own. Both are in own_bytes, with buffers.
 */
static double memory_beside(const trial *t, const taciti_strategy_context *c, size_t own_floats) {
    double bytes = 0;
    if (taciti_shard_has_masters(c)) bytes += (double)(own_floats * sizeof(float));
    if (taciti_shard_sends_changes(c)) bytes += (double)(c->layout->n * sizeof(float));
    if (*t->codec == '\0') return bytes;
    /* residuals: two versions of what a lane encodes, its share; replicas own results as well */
    const double share = 8.0 * (double)c->layout->n / PER_HOST;
    return bytes + share + (taciti_shard_is_over_host(c) ? share / HOSTS : 0);
}

static void ask_strategy(taciti_comm *comm, void *context) {
    trial *t = context;
    taciti_layout layout;
    taciti_strategy_memory m;
    taciti_strategy_figures figures;
    const taciti_exchange_options exchange = {.wire = {"f32"}, .scheme = TACITI_SCHEME_AUTO};
    if (taciti_comm_rank(comm) != 0) return;
    CHECK(taciti_profile_layout(&PROFILE, BUCKET_BYTES, &layout) == TACIT_OK);
    CHECK(taciti_layout_seal_units(&layout, BUCKET_BYTES) == TACIT_OK);
    const taciti_strategy_context c = {.comm = comm,
                                       .layout = &layout,
                                       .options = &t->options,
                                       .compression = setup_of(t),
                                       .exchange_options = &exchange,
                                       .optim_options = &g.settings.optim};
    taciti_shard_memory(&c, 1, &m);
    const size_t own = m.moments / taciti_optim_bytes_per_float(&g.settings.optim);
    t->memory = (double)(m.parameters + m.gradients + m.moments) + memory_beside(t, &c, own);
    CHECK(taciti_shard_describe(&c, NULL, &figures) == TACIT_OK);
    for (size_t i = 0; i < figures.traffic_count; i++)
        if (strcmp(figures.traffic[i].where, "between hosts") == 0) t->between += (double)figures.traffic[i].bytes;
    taciti_layout_destroy(&layout);
}

static void prices_are_what_the_strategy_says_itself(void **state) {
    static const int HOST_OF[RANKS] = {0, 0, 1, 1, 2, 2};
    enum {
        F32 = TACITI_SHARD_F32,
        BF16 = TACITI_SHARD_BF16,
        ALL = TACITI_SHARD_OVER_ALL,
        HOST = TACITI_SHARD_OVER_HOST
    };
    trial trials[] = {{"shard 3 gather f32 f32", {3, F32, ALL, false}, "", "", 0, 0},
                      {"shard 3 gather bf16 f32", {3, BF16, ALL, false}, "", "", 0, 0},
                      {"shard 2 gather f32 f32", {2, F32, ALL, false}, "", "", 0, 0},
                      {"shard 3 over host f32", {3, F32, HOST, false}, "", "", 0, 0},
                      {"shard 2 over host f32", {2, F32, HOST, false}, "", "", 0, 0},
                      {"shard 1 over host f32", {1, F32, HOST, false}, "", "", 0, 0},
                      {"shard 3 secondary gather f32 f32", {3, F32, ALL, true}, "", "", 0, 0},
                      {"shard 3 secondary gather bf16 f32", {3, BF16, ALL, true}, "", "", 0, 0},
                      {"shard 3 over host auto int4", {3, F32, HOST, false}, "int4", "", 0, 0},
                      {"shard 2 auto int4, gather int4", {2, F32, ALL, false}, "int4", "int4", 0, 0},
                      {"shard 3 secondary auto int4, gather int8", {3, F32, ALL, true}, "int4", "int8", 0, 0}};
    const taciti_comm_options options = test_comm_options(false);
    (void)state;
    make();
    test_hosts(HOST_OF);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        trial *t = &trials[i];
        taciti_method *method = &find_label(t->label)->method;
        method->compression.adapts = method->gather.adapts = false;
        test_world_run(RANKS, &options, ask_strategy, t);
        const taciti_prediction p = predict(t->label);
        if (!(fabs(p.memory_bytes / t->memory - 1) < 0.002))
            fail_msg("%s: %.0f bytes instead of %.0f", t->label, p.memory_bytes, t->memory);
        if (!(fabs(p.nic_bytes / (PER_HOST * t->between) - 1) < 0.01))
            fail_msg("%s: %.0f bytes on the wire instead of %.0f", t->label, p.nic_bytes, PER_HOST * t->between);
    }
    test_hosts(NULL);
}

/* Parameters of stage 3 besides the units in memory: 1 / PH, with secondary parts and over hosts 1 / P; moments 1 / PH,
 * over hosts 1 / P. */
static void moments_and_parameters_are_shares(void **state) {
    (void)state;
    make();
    const double n = (double)g.layout.n, all = predict("shard 3 gather f32 f32").memory_bytes,
                 secondary = predict("shard 3 secondary gather f32 f32").memory_bytes,
                 host = predict("shard 3 over host f32").memory_bytes;
    const double stage1 = predict("shard 1 gather f32 f32").memory_bytes,
                 host1 = predict("shard 1 over host f32").memory_bytes;
    const double more = 1.0 / PER_HOST - 1.0 / RANKS,
                 per_float = (double)taciti_optim_bytes_per_float(&g.settings.optim);
    const double rounding = 16 * per_float * (double)g.layout.bucket_count; /* parts are multiples of 16 floats */
    assert_true(fabs(host1 - stage1 - more * per_float * n) <= rounding);
    assert_true(secondary > all && secondary - all <= more * 4 * n * 1.001);
    assert_true(host > secondary && host - all <= more * (8 + per_float) * n * 1.001);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_stage, close_stage)
    const struct CMUnitTest tests[] = {
        TEST(rows_are_there_where_hosts_have_several_ranks_and_as_many),
        TEST(what_is_configured_is_marked_also_on_uneven_hosts),
        TEST(flags_are_what_to_type),
        TEST(replicas_send_what_dp_sends),
        TEST(secondary_parts_gather_once_between_hosts),
        TEST(gathers_inside_hosts_take_their_time),
        TEST(prices_are_what_the_strategy_says_itself),
        TEST(moments_and_parameters_are_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
