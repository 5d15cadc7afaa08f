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

#include "base/log.h"
#include "base/memory.h"
#include "codec/trial.h"
#include "plan/reuse.h"
#include "plan/test_predict.h"

static char g_line[2048];

static void keep_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)snprintf(g_line, sizeof g_line, "%s", line);
}

/* ---- dense ------------------------------------------------------------------------------------------------------- */

/* One channel, in order: bucket k may go after (k + 1) / 4 of backward. Two latencies and 2 (N - 1) / N of the bytes.
 */
static void dense_is_the_formula_of_the_paper(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, GIGABIT, "");
    const double c = 2 * 100e-6 + 1.5 * BUCKET_BYTES * 8 / 1e9; /* 50 ms: the link never rests */
    taciti_prediction p = predict(&s);
    assert_near(p.step_s, FORWARD_S + BACKWARD_S / 4 + 4 * c + UPDATE_S, 1e-6);
    assert_near(p.compute_s, COMPUTE_S, 1e-9);
    assert_near(p.exposed_s, p.step_s - p.compute_s, 1e-9);
    assert_near(p.transfer_s, 4 * c, 1e-6);
    assert_near(p.nic_bytes, 1.5 * ALL_BYTES, 1e-9);
    s.method.overlap = false;
    assert_near(predict(&s).step_s, COMPUTE_S + 4 * c, 1e-6);
    s.scene.between_bit_per_s = 100e9; /* now only the last bucket shows */
    s.method.overlap = true;
    assert_near(predict(&s).exposed_s, 2 * 100e-6 + 1.5 * BUCKET_BYTES * 8 / 100e9, 1e-6);
    close_stage(&s);
}

static void duplex_counts_before_the_line_of_two_ranks(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 2, 1, GIGABIT ", \"host_gbit_per_s\": 0.8, \"duplex_gbit_per_s\": 0.5", "");
    assert_near(predict(&s).transfer_s, 4 * (2 * 100e-6 + BUCKET_BYTES * 8 / 0.5e9), 1e-6);
    close_stage(&s);
    open_stage(&s, 4, 1, GIGABIT ", \"incast_gbit_per_s\": 0.25", ""); /* three hosts send to one */
    assert_near(predict(&s).transfer_s, 4 * (2 * 100e-6 + 1.5 * BUCKET_BYTES * 8 / 0.25e9), 1e-6);
    close_stage(&s);
}

static void hosts_send_each_byte_once(void **state) {
    (void)state;
    stage one, four;
    open_stage(&one, 4, 1, GIGABIT INSIDE, "");
    open_stage(&four, 4, 4, GIGABIT INSIDE, "");
    assert_near(predict(&four).nic_bytes, predict(&one).nic_bytes, 1e-9);
    assert_near(predict(&four).step_s, predict(&one).step_s, 0.01);
    close_stage(&one);
    close_stage(&four);
}

/* Threads that wait for a core: in every step that waits for all ranks, whatever is exchanged, and not computing. */
static void handing_over_is_in_every_dense_step(void **state) {
    (void)state;
    stage with, without;
    open_stage(&without, 4, 1, GIGABIT, "");
    open_stage(&with, 4, 1, GIGABIT, ", \"compute\": {\"cv\": 0, \"hand_over_us\": 3000}");
    const taciti_prediction a = predict(&with), b = predict(&without);
    assert_near(a.step_s, b.step_s + 0.003, 1e-9);
    assert_near(a.compute_s, b.compute_s, 1e-9);
    assert_near(a.cost_s[TACITI_BOTTLENECK_LATENCY], b.cost_s[TACITI_BOTTLENECK_LATENCY] + 0.003, 1e-9);
    with.method.library = without.method.library = TACITI_LIBRARY_RING;
    assert_near(predict(&with).step_s, predict(&without).step_s, 1e-9);
    with.method.library = without.method.library = TACITI_LIBRARY_OURS;
    mix(&with, TACITI_ORDER_AWC, "complete"); /* handed over in the step before */
    mix(&without, TACITI_ORDER_AWC, "complete");
    assert_near(predict(&with).step_s, predict(&without).step_s, 1e-9);
    close_stage(&with);
    close_stage(&without);
}

/* Messages of a compressed sum, two of the last bucket that show, and of what ranks tell each other afterwards: to rank
 * 0 and along a tree of two steps. A dense sum has its own measurements for that. */
static void a_busy_latency_is_that_of_compressed_sums(void **state) {
    (void)state;
    stage idle, busy;
    open_stage(&idle, 4, 1, "\"between\": {\"latency_us\": 100, \"gbit_per_s\": 100}", "");
    open_stage(&busy, 4, 1, "\"between\": {\"latency_us\": 100, \"gbit_per_s\": 100}, \"busy_latency_us\": 400", "");
    assert_near(predict(&busy).step_s, predict(&idle).step_s, 1e-9);
    taciti_plan_compression efsign = {.encoding = {.codec = taciti_codec_find("efsign"), .way = TACITI_WAY_SCATTER}};
    void *options = NULL;
    assert_int_equal(taciti_codec_defaults(efsign.encoding.codec, &options), TACIT_OK);
    efsign.encoding.options = options;
    busy.method.compression = idle.method.compression = efsign;
    assert_near(predict(&busy).step_s, predict(&idle).step_s + (2 + 3) * 300e-6, 1e-9);
    taciti_free(options);
    close_stage(&idle);
    close_stage(&busy);
}

/* ---- gossip ------------------------------------------------------------------------------------------------------ */

static void awc_hides_what_fits_into_a_step(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, "\"between\": {\"latency_us\": 10, \"gbit_per_s\": 10}", "");
    mix(&s, TACITI_ORDER_AWC, "complete");
    taciti_prediction p = predict(&s); /* 20 ms of transfers */
    assert_near(p.step_s, COMPUTE_S, 1e-9);
    assert_true(p.exposed_s < 1e-9 && p.bottleneck == TACITI_BOTTLENECK_COMPUTE);
    mix(&s, TACITI_ORDER_ATC, "complete");
    const double c = 2 * 10e-6 + 1.5 * BUCKET_BYTES * 8 / 10e9;
    assert_near(predict(&s).step_s, COMPUTE_S + 4 * c - 3 * UPDATE_S / 4, 1e-6); /* later updates hide */
    s.scene.between_bit_per_s = 1e9;
    mix(&s, TACITI_ORDER_AWC, "complete");
    p = predict(&s);
    assert_near(p.step_s, p.transfer_s, 0.01); /* the channel never rests */
    assert_true(p.bottleneck == TACITI_BOTTLENECK_LINK);
    close_stage(&s);
}

static void rare_exchanges_and_short_payloads_send_less(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, GIGABIT, "");
    const double dense = predict(&s).nic_bytes;
    s.method.wire = taciti_codec_find("bf16");
    assert_near(predict(&s).nic_bytes, dense / 2, 1e-9);
    s.method.wire = taciti_codec_find("f32");
    s.method.order = TACITI_ORDER_ATC; /* local SGD */
    s.method.every = 8;
    assert_near(predict(&s).nic_bytes, dense / 8, 1e-9);
    assert_near(predict(&s).step_s, COMPUTE_S + (4 * (2 * 100e-6 + 1.5 * BUCKET_BYTES * 8 / 1e9) - 3e-3) / 8, 1e-6);
    close_stage(&s);
}

static void without_overlap_transfers_are_waited_for(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, GIGABIT, "");
    mix(&s, TACITI_ORDER_AWC, "complete");
    s.method.overlap = false;
    const taciti_prediction p = predict(&s);
    assert_near(p.step_s, COMPUTE_S + p.transfer_s, 1e-6);
    mix(&s, TACITI_ORDER_ATC, "complete");
    assert_near(predict(&s).step_s, p.step_s, 1e-6);
    close_stage(&s);
}

/* Lanes share the work of an all-reduce; along edges every rank encodes and adds for itself. */
static void codecs_work_for_as_much_as_they_are_given(void **state) {
    (void)state;
    static const char slow_codec[] = ", \"compression\": [{\"codec\": \"f32\", \"factor\": 1, \"encode_ns\": 4, "
                                     "\"decode_ns\": 40, \"add_ns\": 40, \"bytes\": 4}]";
    const double alone = 4 * BUCKET_BYTES * 2 / 0.1e9;
    stage s;
    open_stage(&s, 2, 2, "\"between\": {\"latency_us\": 0, \"gbit_per_s\": 1000}", slow_codec);
    assert_near(predict(&s).transfer_s, alone / 2, 1e-6);
    for (int asked = 0; asked <= 2; asked++) /* the method's lanes count before the scene's */
        for (int own = 0; own <= 2; own++) {
            s.scene.placement.lanes = asked;
            s.method.lanes = own;
            assert_near(predict(&s).transfer_s, alone / ((own > 0 ? own : asked) == 1 ? 1 : 2), 1e-6);
        }
    s.scene.placement.lanes = s.method.lanes = 0;
    mix(&s, TACITI_ORDER_AWC, "exp-static");
    assert_near(predict(&s).transfer_s, alone, 1e-6);
    close_stage(&s);
}

/* Each pair of hosts has two rounds, in one of which it uses its links. With whole rounds they would rest in every
 * second step; half of the buckets take the other round. */
static void alternating_exponential_ring_halves_what_a_link_carries(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 8, 4, "\"between\": {\"latency_us\": 100, \"gbit_per_s\": 0.25}" INSIDE, "");
    mix(&s, TACITI_ORDER_AWC, "aer");
    const double two_buckets = 2 * (2 * 100e-6 + BUCKET_BYTES * 8 / 0.25e9);
    assert_near(predict(&s).step_s, two_buckets, 0.03);
    assert_near(predict(&s).transfer_s, two_buckets, 0.03);
    close_stage(&s);
    open_stage(&s, 8, 4, GIGABIT INSIDE, "");
    mix(&s, TACITI_ORDER_AWC, "aer");
    const double joint = 4 * (2 * 100e-6 + BUCKET_BYTES * 8 / 1e9);
    const taciti_prediction p = predict(&s);
    assert_near(p.step_s, COMPUTE_S, 1e-6); /* joint / 2 is less */
    s.topology.alternates = false;
    assert_near(predict(&s).step_s, (joint + COMPUTE_S) / 2, 0.03);
    s.method.topology = NULL;
    s.method.order = TACITI_ORDER_DENSE;
    assert_true(predict(&s).step_s > 2 * p.step_s); /* 1.75 of the bytes in every round, and less time to hide them */
    close_stage(&s);
}

/* ---- properties for every topology
 * ------------------------------------------------------------------------------------- */

static void every_topology_obeys(int hosts, int per_host) {
    static const taciti_order orders[] = {TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    stage s;
    open_stage(&s, hosts, per_host, GIGABIT INSIDE, ", \"compute\": {\"cv\": 0.1}");
    s.options = (taciti_plan_options){.seed = 3, .cv = -1};
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++) {
        const bool any_size = strcmp(kind->name, "file") == 0 || strcmp(kind->name, "base-k") == 0;
        taciti_topology possible = {0};
        const bool made = make_topology(&s, kind->name, &possible) == TACIT_OK;
        assert_true(made || !any_size);
        if (!made) continue;
        taciti_topology_destroy(&possible);
        for (size_t o = 0; o < 2; o++) {
            mix(&s, orders[o], kind->name);
            double before = 0;
            for (double rate = 1e11; rate > 1e7; rate /= 10) {
                s.scene.between_bit_per_s = hosts > 1 ? rate : 0;
                const taciti_prediction p = predict(&s);
                assert_true(p.step_s >= before); /* more bandwidth is never slower */
                assert_true(p.low_s <= p.step_s && p.step_s <= p.high_s);
                assert_true(p.exposed_s >= 0 && p.nic_bytes >= 0);
                assert_true(hosts > 1 || p.nic_bytes == 0);
                before = p.step_s;
            }
        }
    }
    close_stage(&s);
}

static void laws_hold_for_all_topologies(void **state) {
    (void)state;
    static const int ranks[] = {2, 3, 4, 5, 7, 8};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        every_topology_obeys(ranks[i], 1);
        every_topology_obeys(1, ranks[i]);
    }
    every_topology_obeys(4, 2);
}

static void one_rank_waits_for_nobody(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 1, 1, "", "");
    static const taciti_order orders[] = {TACITI_ORDER_DENSE, TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    for (size_t o = 0; o < 3; o++) {
        s.method.order = orders[o];
        const taciti_prediction p = predict(&s);
        assert_near(p.step_s, COMPUTE_S, 1e-9);
        assert_true(p.nic_bytes == 0 && p.transfer_s == 0);
    }
    close_stage(&s);
}

static void the_same_answer_twice(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 2, GIGABIT INSIDE, ", \"compute\": {\"cv\": 0.2}");
    s.options.cv = -1;
    mix(&s, TACITI_ORDER_AWC, "exp");
    const taciti_prediction a = predict(&s), b = predict(&s);
    assert_memory_equal(&a.step_s, &b.step_s, sizeof a.step_s);
    assert_memory_equal(&a.high_s, &b.high_s, sizeof a.high_s);
    s.options.seed++;
    const taciti_prediction c = predict(&s);
    assert_memory_not_equal(&a.step_s, &c.step_s, sizeof a.step_s);
    close_stage(&s);
}

/* ---- what was measured ------------------------------------------------------------------------------------------- */

#define TIMING(bytes, seconds)                                                                                         \
    "{\"collective\": \"all_reduce\", \"group\": \"world\", \"by\": \"tacit\", \"bytes\": " #bytes                     \
    ", \"seconds\": " #seconds ", \"spread\": 0.04}"

static void measured_collectives_scale_transfers(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, GIGABIT, ", \"collectives\": [" TIMING(4194304, 0.10106) "]");
    const double described = 2 * 100e-6 + 1.5 * BUCKET_BYTES * 8 / 1e9;
    const taciti_prediction p = predict(&s);
    assert_true(p.calibrated);
    assert_near(p.transfer_s, 4 * 0.10106, 1e-6); /* twice what the links would allow */
    assert_near(p.link_error, 0.03 + 0.04 / 2, 1e-9);
    assert_true(described < 0.0507);
    close_stage(&s);
    /* between two sizes: a fifth of the way from 1 to 16 MiB */
    open_stage(&s, 4, 1, GIGABIT, ", \"collectives\": [" TIMING(16777216, 0.60420) ", " TIMING(1048576, 0.012783) "]");
    assert_near(predict(&s).transfer_s, 4 * (0.012783 + (0.60420 - 0.012783) / 5), 1e-6);
    close_stage(&s);
}

/* Predictions and rates that share results read the measured rows once. */
static void measured_collectives_are_described_once(void **state) {
    (void)state;
    static const double RATES[] = {1e8, 1e9, 1e10};
    double before[3], after[3];
    stage s;
    taciti_reuse reuse = {0};
    open_stage(&s, 4, 1, GIGABIT, ", \"collectives\": [" TIMING(4194304, 0.10106) "]");
    s.options.reuse = &reuse;
    const double step_s = predict(&s).step_s;
    assert_int_equal(taciti_predict_rates(&s.scene, &s.method, &s.options, RATES, 3, before), TACIT_OK);
    s.cluster.timings[0].seconds *= 2;
    assert_true(predict(&s).step_s == step_s);
    assert_int_equal(taciti_predict_rates(&s.scene, &s.method, &s.options, RATES, 3, after), TACIT_OK);
    assert_memory_equal(before, after, sizeof before);
    s.options.reuse = NULL;
    assert_true(predict(&s).step_s > step_s);
    taciti_reuse_destroy(&reuse);
    close_stage(&s);
}

/* 6 ms for 4 KiB are a busy machine's, not the link's: nothing for an array a thousand times as long. */
static void short_arrays_say_nothing_of_long_ones(void **state) {
    (void)state;
    const double described = 4 * (2 * 100e-6 + 1.5 * BUCKET_BYTES * 8 / 1e9);
    stage s;
    open_stage(&s, 4, 1, GIGABIT, ", \"collectives\": [" TIMING(4096, 0.006) "]");
    taciti_prediction p = predict(&s);
    assert_false(p.calibrated);
    assert_near(p.transfer_s, described, 1e-6);
    assert_near(p.link_error, 0.10, 1e-9);
    close_stage(&s);
    /* nor does it bend what lies between: the way from 6 ms to the exact time of 64 MiB is a line */
    open_stage(&s, 4, 1, GIGABIT, ", \"collectives\": [" TIMING(4096, 0.006) ", " TIMING(67108864, 0.805506) "]");
    p = predict(&s);
    assert_true(p.calibrated);
    assert_near(p.transfer_s, described + 4 * 0.0055, 0.01);
    close_stage(&s);
}

static void others_collectives_do_not_count(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, GIGABIT,
               ", \"collectives\": [{\"collective\": \"all_reduce\", \"group\": \"world\", \"by\": \"mpi-ring\", "
               "\"bytes\": 4194304, \"seconds\": 9}, {\"collective\": \"all_to_all\", \"group\": \"world\", \"by\": "
               "\"tacit\", \"bytes\": 4194304, \"seconds\": 9}]");
    assert_false(predict(&s).calibrated);
    assert_near(predict(&s).transfer_s, 4 * (2 * 100e-6 + 1.5 * BUCKET_BYTES * 8 / 1e9), 1e-6);
    close_stage(&s);
}

/* Where nobody knows how evenly ranks compute, the range holds a cv of 0.1; who says so, or measures it, gets what it
 * costs. */
static void an_unknown_cv_widens_the_range(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 8, 1, GIGABIT, "");
    s.scene.between_bit_per_s = 1000e9;
    s.options.cv = -1;
    const taciti_prediction unknown = predict(&s);
    assert_near(unknown.step_s, COMPUTE_S, 0.01);
    assert_near(unknown.uneven_s, COMPUTE_S + 1.42 * 0.1 * (FORWARD_S + BACKWARD_S), 0.01); /* e_8 = 1.42 */
    assert_true(unknown.high_s > 1.09 * unknown.uneven_s);
    s.options.cv = 0;
    const taciti_prediction even = predict(&s);
    assert_true(even.uneven_s == 0 && even.high_s < 1.15 * even.step_s);
    close_stage(&s);
}

static void serial_work_is_in_every_step(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, GIGABIT, "");
    const double without = predict(&s).step_s;
    s.method.serial_s = 0.02;
    assert_near(predict(&s).step_s, without + 0.02, 1e-9);
    close_stage(&s);
}

/* ---- causes and verdicts ----------------------------------------------------------------------------------------- */

static void bottlenecks_are_named(void **state) {
    (void)state;
    static const struct {
        const char *links;
        double cv;
        taciti_bottleneck name;
    } rows[] = {
        {"\"between\": {\"latency_us\": 10, \"gbit_per_s\": 100}", 0, TACITI_BOTTLENECK_COMPUTE},
        {"\"between\": {\"latency_us\": 10, \"gbit_per_s\": 0.1}", 0, TACITI_BOTTLENECK_LINK},
        {"\"between\": {\"latency_us\": 100000, \"gbit_per_s\": 100}", 0, TACITI_BOTTLENECK_LATENCY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        stage s;
        open_stage(&s, 4, 1, rows[i].links, "");
        s.options.cv = rows[i].cv;
        assert_string_equal(taciti_bottleneck_name(predict(&s).bottleneck), taciti_bottleneck_name(rows[i].name));
        close_stage(&s);
    }
    stage s;
    const double slow[4] = {1, 1, 1, 5};
    open_stage(&s, 4, 1, rows[0].links, "");
    s.scene.slow = slow;
    const taciti_prediction p = predict(&s);
    assert_true(p.bottleneck == TACITI_BOTTLENECK_STRAGGLERS);
    assert_near(p.cost_s[TACITI_BOTTLENECK_STRAGGLERS], 4 * (FORWARD_S + BACKWARD_S), 0.01);
    close_stage(&s);
}

static void nothing_pays_against_itself(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, GIGABIT, "");
    const taciti_prediction p = predict(&s);
    const taciti_verdict v = taciti_verdict_of(&p, &p);
    assert_near(v.speedup, 1, 1e-12);
    assert_near(v.low, 1 - TACITI_PLAN_MODEL_ERROR_UNMEASURED, 1e-12);
    assert_near(v.high, 1 + TACITI_PLAN_MODEL_ERROR_UNMEASURED, 1e-12);
    assert_false(v.pays);
    close_stage(&s);
}

static void gossip_pays_on_slow_links_and_not_on_fast_ones(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 1, GIGABIT, "");
    for (int fast = 0; fast <= 1; fast++) {
        s.scene.between_bit_per_s = fast ? 400e9 : 2e9;
        s.method =
            (taciti_method){.order = TACITI_ORDER_DENSE, .wire = taciti_codec_find("f32"), .overlap = true, .every = 1};
        const taciti_prediction dense = predict(&s);
        mix(&s, TACITI_ORDER_AWC, "complete");
        const taciti_prediction gossip = predict(&s);
        const taciti_verdict v = taciti_verdict_of(&dense, &gossip);
        assert_true(v.low <= v.speedup && v.speedup <= v.high);
        assert_true(v.pays == !fast);
    }
    close_stage(&s);
}

/* Ranks of a host that are in different rounds at the same time share its link, too. */
static void a_step_is_as_long_as_the_bytes_of_a_host_need(void **state) {
    (void)state;
    for (int hosts = 2; hosts <= 7; hosts++)
        for (int slower = 0; slower <= 1; slower++) {
            stage s;
            open_stage(&s, hosts, hosts + slower, GIGABIT, ", \"compute\": {\"cv\": 0}");
            if (slower) s.scene.between_bit_per_s = 1e8;
            const double byte_s = slower ? 8 / s.scene.between_bit_per_s : taciti_plan_wire_beta_s(&s.cluster);
            for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++)
                for (int order = TACITI_ORDER_AWC; order <= TACITI_ORDER_ATC; order++) {
                    double rate = s.scene.between_bit_per_s, alone;
                    mix(&s, (taciti_order)order, kind->name);
                    const taciti_prediction p = predict(&s);
                    assert_true(p.step_s >= p.nic_bytes * byte_s * (1 - 1e-9));
                    assert_true(p.low_s <= p.step_s && p.step_s <= p.high_s);
                    if (!slower) continue;
                    assert_int_equal(taciti_predict_rates(&s.scene, &s.method, &s.options, &rate, 1, &alone), TACIT_OK);
                    assert_true(fabs(alone - p.step_s) <= 1e-12 * p.step_s);
                }
            close_stage(&s);
        }
}

/* ---- where ranks are, and refusals ------------------------------------------------------------------------------- */

static void ranks_fill_hosts_in_order(void **state) {
    (void)state;
    static const char text[] = "{\"format\": \"tacit-cluster-1\", \"hosts\": 3, \"ranks_per_host\": [2, 1, 2], "
                               "\"links\": {" GIGABIT "}}";
    static const int expected[8] = {0, 0, 1, 2, 2, 3, 3, 4};
    taciti_cluster cluster;
    assert_int_equal(taciti_cluster_parse("c.json", text, sizeof text - 1, &cluster), TACIT_OK);
    for (int ranks = 1; ranks <= 8; ranks++) {
        taciti_hosts hosts;
        assert_int_equal(taciti_cluster_hosts(&cluster, ranks, &hosts), TACIT_OK);
        assert_int_equal(hosts.ranks, ranks);
        assert_int_equal(hosts.count, expected[ranks - 1] + 1);
        assert_memory_equal(hosts.host_of, expected, (size_t)ranks * sizeof *expected);
        taciti_hosts_destroy(&hosts);
    }
    taciti_cluster_destroy(&cluster);
}

/* More hosts than the file has are like its own from the first on; one more than the most stands for any more. */
static void ranks_of_hosts_are_those_of_the_file_again(void **state) {
    (void)state;
    int ranks_per_host[] = {3, 1, 5};
    const taciti_cluster c = {.hosts = 3, .ranks_per_host = ranks_per_host};
    int sum = 0;
    for (int hosts = 0; hosts <= 20; sum += ranks_per_host[hosts++ % 3])
        for (int max = 0; max <= 70; max++)
            assert_int_equal(taciti_cluster_ranks_on(&c, hosts, max), sum <= max ? sum : max + 1);
    assert_int_equal(taciti_cluster_ranks_on(&c, INT64_MAX, 1000), 1001);
}

static void what_is_unknown_is_refused(void **state) {
    (void)state;
    stage s;
    taciti_prediction p;
    open_stage(&s, 1, 2, "\"inside\": {\"latency_us\": 1, \"gbit_per_s\": 64}", "");
    int two_hosts[2] = {0, 1};
    const taciti_hosts apart = {.ranks = 2, .count = 2, .host_of = two_hosts};
    s.scene.hosts = &apart;
    assert_int_equal(taciti_predict(&s.scene, &s.method, &s.options, &p), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "links.between"));
    s.scene.hosts = &s.hosts;
    mix(&s, TACITI_ORDER_AWC, "one-peer-ring");
    assert_int_equal(s.topology.period, 1);
    s.method.every = TACITI_PLAN_PERIOD_MAX;
    assert_int_equal(taciti_predict(&s.scene, &s.method, &s.options, &p), TACIT_OK);
    s.method.every++;
    assert_int_equal(taciti_predict(&s.scene, &s.method, &s.options, &p), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "1 x 16385 steps, and a plan simulates at most 16384"));
    s.method.every = 1000000000; /* most of localsgd.every */
    assert_int_equal(taciti_predict(&s.scene, &s.method, &s.options, &p), TACIT_E_CONFIG);
    s.method.every = 1;
    s.profile.in_flops = true;
    assert_int_equal(taciti_predict(&s.scene, &s.method, &s.options, &p), TACIT_E_CONFIG);
    assert_non_null(strstr(g_line, "compute.rate"));
    close_stage(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_is_the_formula_of_the_paper),
        cmocka_unit_test(duplex_counts_before_the_line_of_two_ranks),
        cmocka_unit_test(hosts_send_each_byte_once),
        cmocka_unit_test(handing_over_is_in_every_dense_step),
        cmocka_unit_test(a_busy_latency_is_that_of_compressed_sums),
        cmocka_unit_test(awc_hides_what_fits_into_a_step),
        cmocka_unit_test(rare_exchanges_and_short_payloads_send_less),
        cmocka_unit_test(without_overlap_transfers_are_waited_for),
        cmocka_unit_test(codecs_work_for_as_much_as_they_are_given),
        cmocka_unit_test(alternating_exponential_ring_halves_what_a_link_carries),
        cmocka_unit_test(laws_hold_for_all_topologies),
        cmocka_unit_test(one_rank_waits_for_nobody),
        cmocka_unit_test(the_same_answer_twice),
        cmocka_unit_test(measured_collectives_scale_transfers),
        cmocka_unit_test(measured_collectives_are_described_once),
        cmocka_unit_test(short_arrays_say_nothing_of_long_ones),
        cmocka_unit_test(others_collectives_do_not_count),
        cmocka_unit_test(an_unknown_cv_widens_the_range),
        cmocka_unit_test(serial_work_is_in_every_step),
        cmocka_unit_test(bottlenecks_are_named),
        cmocka_unit_test(nothing_pays_against_itself),
        cmocka_unit_test(gossip_pays_on_slow_links_and_not_on_fast_ones),
        cmocka_unit_test(a_step_is_as_long_as_the_bytes_of_a_host_need),
        cmocka_unit_test(ranks_fill_hosts_in_order),
        cmocka_unit_test(ranks_of_hosts_are_those_of_the_file_again),
        cmocka_unit_test(what_is_unknown_is_refused),
    };
    taciti_log_set_sink(keep_line, NULL, TACITI_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
