/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of gossip whose mixes are not one exchange of the parameters per step, against values worked out by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "exchange/async.h"
#include "plan/reuse.h"
#include "plan/test_predict.h"

#define FAST "\"between\": {\"latency_us\": 0, \"gbit_per_s\": 1000}"
#define TEN_GIGABIT "\"between\": {\"latency_us\": 0, \"gbit_per_s\": 10}"

/* The mean step is that of the steps per second of all: 3 fast ranks make 3 / C of them, the slow one 1 / (5 C). */
static void who_waits_for_nobody_makes_steps_of_its_own_length(void **state) {
    (void)state;
    const double slow[4] = {1, 1, 5, 1};
    static const char *const GRAPHS[] = {"base-k", "ring", "complete"};
    for (size_t g = 0; g < sizeof GRAPHS / sizeof *GRAPHS; g++) {
        stage s;
        open_stage(&s, 4, 1, TEN_GIGABIT, "");
        mix(&s, TACITI_ORDER_ASYNC, GRAPHS[g]);
        taciti_prediction p = predict(&s);
        assert_near(p.step_s, COMPUTE_S, 1e-12);
        assert_true(p.exposed_s < 1e-12 && p.bottleneck == TACITI_BOTTLENECK_COMPUTE);
        s.scene.slow = slow;
        p = predict(&s);
        const double slow_s = 5 * (FORWARD_S + BACKWARD_S) + UPDATE_S;
        assert_near(p.step_s, 4 / (3 / COMPUTE_S + 1 / slow_s), 1e-12);
        assert_near(p.cost_s[TACITI_BOTTLENECK_STRAGGLERS], p.step_s - COMPUTE_S, 1e-9);
        s.options.cv = 0.2; /* differences of a step are its own matter */
        assert_near(predict(&s).step_s, p.step_s, 1e-12);
        close_stage(&s);
    }
}

/* A ring of 4 sends to two neighbours; on a hundredth of the link there are fewer mixes, and steps are no longer. */
static void a_slow_link_carries_fewer_mixes_of_who_waits_for_nobody(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, TEN_GIGABIT, "");
    mix(&s, TACITI_ORDER_ASYNC, "ring");
    const taciti_prediction fast = predict(&s);
    assert_near(fast.nic_bytes, 2 * ALL_BYTES, 1e-12);
    s.scene.between_bit_per_s = 1e8;
    const taciti_prediction slow = predict(&s);
    assert_near(slow.step_s, fast.step_s, 1e-12);
    assert_near(slow.nic_bytes, COMPUTE_S * s.scene.between_bit_per_s / 8, 1e-9);
    close_stage(&s);
}

/* On a ring each of the two ranks of a host has one neighbour on another host. */
static void bytes_between_hosts_are_those_of_the_busiest(void **state) {
    (void)state;
    for (int hosts = 2; hosts <= 4; hosts++) {
        stage s;
        open_stage(&s, hosts, 2, FAST INSIDE, "");
        mix(&s, TACITI_ORDER_ASYNC, "ring");
        assert_near(predict(&s).nic_bytes, 2 * ALL_BYTES, 1e-12);
        mix(&s, TACITI_ORDER_ASYNC, "complete");
        assert_near(predict(&s).nic_bytes, 2.0 * (2 * hosts - 2) * ALL_BYTES, 1e-12);
        close_stage(&s);
    }
}

/* Both ranks of an edge offer, whichever way it points. */
static void every_partner_gets_an_offer(void **state) {
    (void)state;
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++)
        for (int ranks = 2; ranks <= 7; ranks++) {
            const taciti_topo_request request = {.name = kind->name, .ranks = ranks, .seed = 1};
            taciti_topology t;
            if (strcmp(kind->name, "file") == 0 || taciti_topology_create(&request, &t) != TACIT_OK) continue;
            for (int rank = 0; rank < ranks; rank++) {
                uint64_t offers = 0;
                for (size_t r = 0; r < t.period; r++)
                    for (int peer = 0; peer < ranks; peer++)
                        offers +=
                            peer != rank &&
                            taciti_topology_weight(&t, r, rank, peer) + taciti_topology_weight(&t, r, peer, rank) > 0;
                assert_int_equal(taciti_async_bytes(&t, rank, t.period, NULL), offers * sizeof(float));
            }
            taciti_topology_destroy(&t);
        }
}

/* Two arrays for each neighbour. */
static void offers_take_memory(void **state) {
    (void)state;
    const taciti_optim_options sgd = {.name = TACITI_OPTIM_SGD};
    stage s;
    open_stage(&s, 6, 1, TEN_GIGABIT, "");
    s.scene.optim = &sgd;
    mix(&s, TACITI_ORDER_AWC, "ring");
    const double without = predict(&s).memory_bytes;
    mix(&s, TACITI_ORDER_ASYNC, "ring");
    assert_near(predict(&s).memory_bytes, without + 4 * ALL_BYTES, 1e-12);
    mix(&s, TACITI_ORDER_ASYNC, "complete");
    assert_near(predict(&s).memory_bytes, without + 10 * ALL_BYTES, 1e-12);
    close_stage(&s);
}

/* On a link that never rests a step is its bytes, and a tracker doubles these. Under atc it travels while the next step
 * computes. */
static void a_tracker_is_mixed_with_the_parameters(void **state) {
    (void)state;
    static const taciti_order ORDERS[] = {TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    for (size_t o = 0; o < sizeof ORDERS / sizeof *ORDERS; o++)
        for (int overlap = 0; overlap <= 1; overlap++)
            for (int fast = 0; fast <= 1; fast++) {
                stage s;
                open_stage(&s, 4, 1, fast ? FAST : TEN_GIGABIT, "");
                s.scene.between_bit_per_s = fast ? 0 : 1e8;
                s.method.overlap = overlap;
                mix(&s, ORDERS[o], "ring");
                const taciti_prediction one = predict(&s);
                s.method.also_mixed = 1;
                const taciti_prediction two = predict(&s);
                const double hidden_s = !overlap                        ? 0
                                        : fast                          ? one.transfer_s
                                        : ORDERS[o] == TACITI_ORDER_AWC ? 0
                                                                        : FORWARD_S + BACKWARD_S;
                assert_near(two.nic_bytes, 2 * one.nic_bytes, 1e-12);
                assert_near(two.transfer_s, 2 * one.transfer_s, 1e-12);
                assert_near(two.step_s - one.step_s + hidden_s, one.transfer_s, 1e-9);
                close_stage(&s);
            }
}

/* Mixes in f32 travel in buckets of methods that do not compress, and so do the sums beside them; mixes that are
 * compressed have a codec's. */
static void common_sums_have_the_buckets_of_their_mixes(void **state) {
    (void)state;
    stage s;
    taciti_layout one;
    open_stage(&s, 4, 1, GIGABIT, "");
    assert_int_equal(taciti_profile_layout(&s.profile, (size_t)1 << 30, &one), TACIT_OK);
    assert_int_equal(one.bucket_count, 1);
    mix(&s, TACITI_ORDER_AWC, "exp");
    s.method.common = (taciti_common_sums){.every = 1, .codec = taciti_codec_find("int8"), .start = 0.5};
    const taciti_prediction before = predict(&s);
    s.scene.coded = &one;
    assert_near(predict(&s).step_s, before.step_s, 1e-12);
    s.method.common.every = 0;
    s.method.common.start = 0;
    s.method.wire = taciti_codec_find("int4");
    const taciti_prediction coded = predict(&s);
    s.scene.coded = NULL;
    assert_true(fabs(predict(&s).transfer_s - coded.transfer_s) > 1e-9);
    taciti_layout_destroy(&one);
    close_stage(&s);
}

/* A rank holds them beside the arrays of mixes, in two versions: of its own gradient, and of its fourth of the sums. */
static void residuals_of_the_start_take_memory(void **state) {
    (void)state;
    const taciti_optim_options adam = {.name = TACITI_OPTIM_ADAMW};
    stage s;
    open_stage(&s, 4, 1, GIGABIT, "");
    mix(&s, TACITI_ORDER_AWC, "exp");
    s.scene.optim = &adam;
    s.method.common = (taciti_common_sums){.every = 24, .codec = taciti_codec_find("int8")};
    const double mixes = predict(&s).memory_bytes;
    s.method.common.start = 0.25;
    const double all = predict(&s).memory_bytes, added = (all - mixes) / (double)s.scene.layout->n;
    assert_near(added, 2 * (4 + 4 / 4), 0.01);
    s.cluster.memory_gib = 0.5 * (mixes + all) / 0x1p30;
    assert_false(predict(&s).fits);
    s.method.common.start = 0;
    assert_true(predict(&s).fits);
    close_stage(&s);
}

/* A plan looks at the same methods with jitter and without. */
static void sums_that_are_kept_have_their_jitter(void **state) {
    (void)state;
    stage s;
    taciti_reuse reuse = {0};
    open_stage(&s, 4, 1, GIGABIT, "");
    mix(&s, TACITI_ORDER_AWC, "exp");
    s.method.common = (taciti_common_sums){.every = 24, .codec = taciti_codec_find("int8"), .start = 0.5};
    const double even_s = predict(&s).step_s;
    s.options.reuse = &reuse;
    s.options.cv = 0.2;
    assert_true(predict(&s).step_s > 1.01 * even_s);
    s.options.cv = 0;
    assert_near(predict(&s).step_s, even_s, 1e-12);
    s.options.reuse = NULL;
    taciti_reuse_destroy(&reuse);
    close_stage(&s);
}

/* At the cluster's own rate a curve has the step of the table, with all that beside mixes makes it longer. */
static void curves_pass_through_the_table(void **state) {
    (void)state;
    for (int order = TACITI_ORDER_AWC; order <= TACITI_ORDER_ATC; order++)
        for (int every = 1; every <= 2; every++)
            for (int overlap = 0; overlap <= 1; overlap++) {
                stage s;
                double step_s;
                open_stage(&s, 4, 1, GIGABIT, ", \"compute\": {\"cv\": 0, \"hand_over_us\": 3000}");
                mix(&s, (taciti_order)order, "exp");
                s.method.every = every;
                s.method.overlap = overlap;
                s.method.also_mixed = 1;
                s.method.common = (taciti_common_sums){.every = 3, .codec = taciti_codec_find("int8"), .start = 0.25};
                const double rate = 8 / taciti_plan_wire_beta_s(&s.cluster);
                assert_int_equal(taciti_predict_rates(&s.scene, &s.method, &s.options, &rate, 1, &step_s), TACIT_OK);
                assert_near(step_s, predict(&s).step_s, 1e-9);
                close_stage(&s);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_for_nobody_makes_steps_of_its_own_length),
        cmocka_unit_test(a_slow_link_carries_fewer_mixes_of_who_waits_for_nobody),
        cmocka_unit_test(bytes_between_hosts_are_those_of_the_busiest),
        cmocka_unit_test(every_partner_gets_an_offer),
        cmocka_unit_test(offers_take_memory),
        cmocka_unit_test(a_tracker_is_mixed_with_the_parameters),
        cmocka_unit_test(common_sums_have_the_buckets_of_their_mixes),
        cmocka_unit_test(residuals_of_the_start_take_memory),
        cmocka_unit_test(sums_that_are_kept_have_their_jitter),
        cmocka_unit_test(curves_pass_through_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
