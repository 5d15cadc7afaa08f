/* SPDX-License-Identifier: Apache-2.0
 *
 * The law of what one threshold sends of each tensor, and what it makes of the load of owners.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "codec/sketch.h"
#include "model/emulated.h"
#include "model/synthetic.h"
#include "plan/compressed.h"
#include "plan/uneven.h"

/* ---- the law ----------------------------------------------------------------------------------------------------- */

static void shares_add_up_and_grow_with_the_scale(void **state) {
    static const double s[] = {1e-5, 1e-3, 2e-3, 0.5}, wanted[] = {1e-6, 1e-3, 0.1, 0.2, 0.9, 1};
    static const size_t n[] = {1, 100000, 20000, 300};
    enum { COUNT = 4 };
    double sent[COUNT], all = 0;
    (void)state;
    for (size_t i = 0; i < COUNT; i++) all += (double)n[i];
    for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
        double sum = 0;
        taciti_uneven_shares(s, n, COUNT, wanted[w], sent);
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(sent[i] > 0 && sent[i] <= 1 && (i == 0 || sent[i] >= sent[i - 1]));
            sum += (double)n[i] * sent[i];
        }
        assert_true(fabs(sum / all - wanted[w]) < 1e-6 * wanted[w]);
    }
}

static void equal_scales_send_equal_shares(void **state) {
    static const double s[] = {3e-4, 3e-4, 3e-4};
    static const size_t n[] = {1, 1000, 7};
    double sent[3];
    (void)state;
    taciti_uneven_shares(s, n, 3, 0.05, sent);
    for (int i = 0; i < 3; i++) assert_true(fabs(sent[i] - 0.05) < 1e-6);
}

/* Steps per element sent, of residuals that add up normal gradients of standard deviation `s` until they reach 1. */
static double simulated_share(double s) {
    enum { STEPS = 200000 };
    double residual = 0, sent = 0;
    for (size_t t = 0; t < STEPS; t++) {
        residual += s * taciti_synthetic_normal(7, t);
        if (fabs(residual) < 1) continue;
        residual = 0;
        sent++;
    }
    return sent / STEPS;
}

/* Wald's identity: a step moves v^2 by s^2. The formula knows roughly how far the last step
 * is above the threshold, 1 here. */
static void the_law_is_that_of_residuals(void **state) {
    enum { COUNT = 6 };
    static const double s[COUNT] = {0.05, 0.1, 0.3, 1, 3, 10};
    static const size_t n[COUNT] = {100, 100, 100, 100, 100, 100};
    double law[COUNT], mean = 0;
    (void)state;
    for (size_t i = 0; i < COUNT; i++) mean += s[i] * s[i] / (s[i] * s[i] + 1) / COUNT;
    taciti_uneven_shares(s, n, COUNT, mean, law);
    for (size_t i = 0; i < COUNT; i++) {
        const double real = simulated_share(s[i]);
        if (!(law[i] > 0.95 * real && law[i] < 1.45 * real)) fail_msg("s = %g: %g instead of %g", s[i], law[i], real);
    }
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

enum { HOSTS = 8 };

typedef struct stage {
    taciti_layout layout;
    taciti_cluster cluster;
    int host_of[HOSTS];
    taciti_hosts hosts;
    taciti_scene scene;
    taciti_method method;
} stage;

/* Tensors of n floats each. */
static void open_stage(stage *s, int hosts, size_t tensors, size_t n, double factor) {
    const taciti_codec *codec = taciti_codec_find("topk");
    *s = (stage){.cluster = taciti_cluster_unknown(), .hosts = {.ranks = hosts, .count = hosts}};
    for (int h = 0; h < hosts; h++) s->host_of[h] = h;
    s->hosts.host_of = s->host_of;
    assert_int_equal(taciti_layout_create(tensors, &s->layout), TACIT_OK);
    for (size_t t = 0; t < tensors; t++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%zu", t);
        assert_int_equal(taciti_layout_append(&s->layout, name, 1, &n, true), TACIT_OK);
    }
    assert_int_equal(taciti_layout_seal(&s->layout, 25 << 20), TACIT_OK);
    s->method =
        (taciti_method){.wire = taciti_codec_find("f32"),
                        .compression = {.encoding = {.codec = codec, .expected = {.factor = factor}}, .uneven = true}};
    s->scene = (taciti_scene){.layout = &s->layout, .cluster = &s->cluster, .hosts = &s->hosts};
}

static void close_stage(stage *s) { taciti_layout_destroy(&s->layout); }

static double load_of(int hosts, size_t tensors, size_t n, double factor) {
    stage s;
    double load = 0;
    open_stage(&s, hosts, tensors, n, factor);
    assert_int_equal(taciti_uneven_load(&s.scene, &s.method, 1, &load), TACIT_OK);
    close_stage(&s);
    return load;
}

static void one_tensor_is_even(void **state) {
    static const int hosts[] = {2, 3, 5, 7, 8};
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        const double load = load_of(hosts[i], 1, 1 << 20, 10);
        assert_true(load > 0.99 && load < 1.01);
    }
}

/* Tensors as long as the ranges of owners are as uneven as can be; a link never carries more than all bytes there are.
 * Long arrays are many pieces, and every owner has a part of each. */
static void short_tensors_are_uneven_and_long_arrays_less(void **state) {
    stage s;
    double forth = 0;
    (void)state;
    const double few = load_of(HOSTS, 32, 16384, 10), many = load_of(HOSTS, 2048, 16384, 10);
    assert_true(few > 1.1 && few < HOSTS);
    assert_true(many > 1 && many < few);
    assert_true(load_of(HOSTS, 32, 16384, 1.01) < 1.05); /* nearly everything is sent */
    open_stage(&s, HOSTS, 32, 16384, 10);
    s.method.compression.encoding.back.factor =
        1000; /* hardly more than contributions, which the owner of most receives */
    assert_int_equal(taciti_uneven_load(&s.scene, &s.method, 1, &forth), TACIT_OK);
    assert_true(forth > (double)HOSTS / (HOSTS - 1)); /* no host sends more than all that it has */
    close_stage(&s);
    assert_true(load_of(HOSTS, 3, 5, 10) >= 1); /* fewer floats than owners */
    assert_true(load_of(1, 3, 5, 10) > 0);
}

static double bytes_of(double share, double n) {
    enum { MANY = 1 << 16 };
    const taciti_codec_call call = {.setting.factor = 1 / share};
    return taciti_codec_expected_bytes(taciti_codec_find("topk"), &call, MANY) / MANY * n;
}

/* Two hosts own every other tensor, four each. A host sends its contributions to the other's tensors and the sum of its
 * own, and it receives the same the other way round. The bytes that even tensors would send count as 1. */
static void the_busiest_link_is_that_of_the_owner_of_most(void **state) {
    enum { TENSORS = 8, LENGTH = 4096 };
    static const double factor = 10;
    double s[TENSORS], sent[TENSORS], owned[2] = {0}, back[2] = {0};
    size_t n[TENSORS];
    (void)state;
    for (size_t t = 0; t < TENSORS; t++) {
        s[t] = taciti_compute_magnitude(1, t);
        n[t] = LENGTH;
    }
    taciti_uneven_shares(s, n, TENSORS, 1 / factor, sent);
    for (size_t t = 0; t < TENSORS; t++) {
        owned[t % 2] += bytes_of(sent[t], LENGTH);
        back[t % 2] += bytes_of(sent[t], LENGTH); /* two contributions have more elements than the sum may send */
    }
    const double one = owned[1] + back[0], other = owned[0] + back[1];
    const double even = bytes_of(1 / factor, TENSORS * LENGTH);
    const double load = load_of(2, TENSORS, LENGTH, factor);
    assert_true(fabs(load - fmax(one, other) / even) < 1e-3);
}

/* The load becomes the bytes of the busiest link, and of nothing else. */
static void the_load_lies_on_the_link(void **state) {
    stage s;
    taciti_price even, uneven;
    taciti_demand demand = {.host_bytes = 100, .flow_bytes = 10, .local_bytes = 7, .wire_hops = 2};
    (void)state;
    open_stage(&s, HOSTS, 32, 16384, 10);
    s.method.compression.encoding.way = TACITI_WAY_SCATTER;
    assert_int_equal(
        taciti_plan_price(&s.scene, &s.method, &s.method.compression, TACITI_PHASE_ALL_REDUCE, s.layout.n, &even),
        TACIT_OK);
    s.method.compression.busiest = 1.5;
    assert_int_equal(
        taciti_plan_price(&s.scene, &s.method, &s.method.compression, TACITI_PHASE_ALL_REDUCE, s.layout.n, &uneven),
        TACIT_OK);
    assert_true(even.busiest > 0.999 && even.busiest < 1.001);
    assert_int_equal(even.length.wire_bytes, uneven.length.wire_bytes);
    taciti_compressed_demand(&uneven, &demand);
    assert_true(fabs(demand.host_bytes - 150) < 1e-9 && fabs(demand.flow_bytes - 15) < 1e-9);
    assert_true(fabs(demand.local_bytes - 7) < 1e-9);
    s.method.compression.encoding.way = TACITI_WAY_GATHER; /* everybody sends all to all */
    assert_int_equal(
        taciti_plan_price(&s.scene, &s.method, &s.method.compression, TACITI_PHASE_ALL_REDUCE, s.layout.n, &uneven),
        TACIT_OK);
    assert_true(uneven.busiest > 0.999 && uneven.busiest < 1.001);
    close_stage(&s);
}

/* A sketch without options is priced as one with the defaults, which are zeros. */
static void a_sketch_needs_no_options(void **state) {
    static const taciti_sketch_options DEFAULTS = {.ratio = 0};
    stage s;
    taciti_price sums[2];
    (void)state;
    open_stage(&s, 5, 7, 16401, 10);
    s.method.compression.encoding.codec = taciti_codec_find("sketch");
    for (int i = 0; i < 2; i++) {
        s.method.compression.encoding.options = i == 0 ? NULL : &DEFAULTS;
        assert_int_equal(taciti_plan_price(&s.scene, &s.method, &s.method.compression, TACITI_PHASE_ALL_REDUCE,
                                           s.layout.n, &sums[i]),
                         TACIT_OK);
    }
    assert_true(sums[0].length.wire_bytes > 0 && sums[0].length.wire_bytes == sums[1].length.wire_bytes);
    close_stage(&s);
}

/* ---- seconds of codecs ------------------------------------------------------------------------------------------- */

static double codec_s(stage *s, double factor) {
    taciti_price sum;
    s->method.compression.encoding.expected.factor = factor;
    s->method.compression.encoding.way = TACITI_WAY_GATHER; /* one encode, one decode and the others' additions */
    assert_int_equal(
        taciti_plan_price(&s->scene, &s->method, &s->method.compression, TACITI_PHASE_ALL_REDUCE, 1 << 20, &sum),
        TACIT_OK);
    return sum.codec_s / (1 << 20);
}

/* A pass over all floats, and something for each that is kept: 1 ns + 10 ns x share, and so on. */
static void seconds_are_lines_in_the_share_that_is_kept(void **state) {
    static const double measured[] = {100, 10}, planned[] = {2, 5, 10, 31, 100};
    stage s;
    (void)state;
    open_stage(&s, HOSTS, 1, 1 << 20, 10);
    for (size_t i = 0; i < 2; i++) {
        const double share = 1 / measured[i];
        const taciti_cluster_compression row = {.codec = "topk",
                                                .factor = measured[i],
                                                .encode_s = 1e-9 + 1e-8 * share,
                                                .decode_s = 1e-10 + 3e-9 * share,
                                                .add_s = 2e-9 * share,
                                                .bytes = 0.1};
        assert_int_equal(taciti_cluster_add_compression(&s.cluster, &row), TACIT_OK);
    }
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++) {
        const double expected = 1.1e-9 + (1.3e-8 + (HOSTS - 1) * 2e-9) / planned[i];
        assert_true(fabs(codec_s(&s, planned[i]) - expected) < 1e-6 * expected);
    }
    assert_true(codec_s(&s, 1000) > 0.99 * codec_s(&s, 100)); /* beyond the file its last row holds */
    const double alone = codec_s(&s, 10);
    s.cluster.compute_core_share = 0.25;
    assert_true(fabs(codec_s(&s, 10) - 4 * alone) < 1e-9 * alone);
    taciti_cluster_destroy(&s.cluster);
    close_stage(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_add_up_and_grow_with_the_scale),
        cmocka_unit_test(equal_scales_send_equal_shares),
        cmocka_unit_test(the_law_is_that_of_residuals),
        cmocka_unit_test(one_tensor_is_even),
        cmocka_unit_test(short_tensors_are_uneven_and_long_arrays_less),
        cmocka_unit_test(the_busiest_link_is_that_of_the_owner_of_most),
        cmocka_unit_test(the_load_lies_on_the_link),
        cmocka_unit_test(a_sketch_needs_no_options),
        cmocka_unit_test(seconds_are_lines_in_the_share_that_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
