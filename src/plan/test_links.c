/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds of transfers: two rates at once, an efficiency for each kind of group, all-reduces of other libraries.
 */
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
#include "cluster/grouping.h"
#include "plan/links.h"

enum { BYTES = 4 << 20 };
static const double MiB4 = BYTES;

typedef struct stage {
    taciti_cluster cluster;
    taciti_hosts hosts;
    taciti_links links;
} stage;

static void open_stage(stage *s, int hosts, int per_host, const char *links, const char *more) {
    char text[2048];
    memset(s, 0, sizeof *s);
    (void)snprintf(text, sizeof text,
                   "{\"format\": \"tacit-cluster-1\", \"hosts\": %d, \"ranks_per_host\": %d, \"links\": {%s}%s}", hosts,
                   per_host, links, more);
    assert_int_equal(taciti_cluster_parse("c.json", text, strlen(text), &s->cluster), TACIT_OK);
    assert_int_equal(taciti_cluster_hosts(&s->cluster, hosts * per_host, &s->hosts), TACIT_OK);
    const taciti_scene scene = {.cluster = &s->cluster, .hosts = &s->hosts};
    assert_int_equal(taciti_links_create(&scene, &s->links), TACIT_OK);
}

static void close_stage(stage *s) {
    taciti_links_destroy(&s->links);
    taciti_cluster_destroy(&s->cluster);
    taciti_hosts_destroy(&s->hosts);
}

static void assert_near(double value, double expected) {
    if (!(fabs(value - expected) <= 1e-6 * fabs(expected))) fail_msg("%.9g instead of %.9g", value, expected);
}

static taciti_transfer_time time_of_bytes(const stage *s, const taciti_transfer *transfer, size_t bytes) {
    taciti_transfer t = *transfer;
    t.price.length.f32_bytes = bytes;
    t.codec = taciti_codec_find("f32");
    return taciti_links_time(&s->links, &t);
}

static taciti_transfer_time time_of(const stage *s, const taciti_transfer *transfer) {
    return time_of_bytes(s, transfer, BYTES);
}

/* The busiest of the groups of this kind, all at once. */
static taciti_transfer_time time_of_kind_and_bytes(const stage *s, taciti_group_kind kind, size_t bytes) {
    taciti_topology g;
    taciti_demand demands[64];
    assert_int_equal(taciti_grouping_create(&s->hosts, kind, &g), TACIT_OK);
    assert_true(g.rounds[0].groups > 0);
    const taciti_length length = {bytes, bytes};
    assert_int_equal(taciti_mix_demands(&s->hosts, &g, 0, (taciti_placement){0}, &length, 1, demands), TACIT_OK);
    const taciti_members members = taciti_members_of(&g.rounds[0], 0);
    const taciti_transfer t = {
        .demand = demands[members.ranks[0]], .hosts = demands[members.ranks[0]].hosts, .ranks = (int)members.count};
    taciti_topology_destroy(&g);
    return time_of_bytes(s, &t, bytes);
}

static taciti_transfer_time time_of_kind(const stage *s, taciti_group_kind kind) {
    return time_of_kind_and_bytes(s, kind, BYTES);
}

#define RATES(between, duplex)                                                                                         \
    "\"between\": {\"latency_us\": 0, \"gbit_per_s\": " #between "}, \"duplex_gbit_per_s\": " #duplex

/* 4 MiB over 8 Gbit/s are 4.2 ms; 10 ms of encoding. */
static void encoding_hides_behind_the_wire_once_the_pipeline_is_full(void **state) {
    (void)state;
    const double wire_s = MiB4 * 8 / 8e9, own_s = 10e-3;
    stage s;
    open_stage(&s, 2, 1, RATES(8, 8), "");
    for (size_t fillings = 1; fillings <= 8; fillings *= 2) {
        const taciti_transfer t = {.hosts = 2,
                                   .ranks = 2,
                                   .demand = {.host_bytes = MiB4, .flow_bytes = MiB4},
                                   .compressed = true,
                                   .price = {{.wire_bytes = BYTES}, .codec_s = own_s, .fillings = fillings}};
        assert_near(time_of(&s, &t).bytes_s, own_s + wire_s / (double)fillings);
    }
    close_stage(&s);
}

static void the_slower_of_a_flow_and_a_host_counts(void **state) {
    (void)state;
    const taciti_transfer t = {.hosts = 2, .ranks = 8, .demand = {.host_bytes = 4 * MiB4, .flow_bytes = MiB4}};
    stage s;
    open_stage(&s, 2, 4, RATES(8, 24), ""); /* four flows of 8 fill 24 */
    assert_near(time_of(&s, &t).bytes_s, 4 * MiB4 * 8 / 24e9);
    const taciti_transfer lane = {.hosts = 2, .ranks = 8, .demand = {.host_bytes = MiB4, .flow_bytes = MiB4}};
    assert_near(time_of(&s, &lane).bytes_s, MiB4 * 8 / 8e9);
    close_stage(&s);
    open_stage(&s, 2, 1, RATES(8, 10), ""); /* a host's only rank is no slower than its host */
    const taciti_transfer alone = {.hosts = 2, .ranks = 2, .demand = {.host_bytes = MiB4, .flow_bytes = MiB4}};
    assert_near(time_of(&s, &alone).bytes_s, MiB4 * 8 / 10e9);
    close_stage(&s);
}

#define TIMING(group, by, bytes, seconds)                                                                              \
    "{\"collective\": \"all_reduce\", \"group\": \"" group "\", \"by\": \"" by "\", \"bytes\": " #bytes                \
    ", \"seconds\": " #seconds "}"

/* 4 hosts of 2 ranks at 1 Gbit/s. A pair takes 67.1 ms for 4 MiB with the other one beside it, two hosts
 * take 33.6, all 50.3. */
static void every_kind_of_group_has_its_own_efficiency(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 4, 2, RATES(1, 1), ", \"collectives\": [" TIMING("world", "tacit", 4194304, 0.10066330) "]");
    const taciti_transfer_time world = time_of_kind(&s, TACITI_GROUP_WORLD), pair = time_of_kind(&s, TACITI_GROUP_PAIR);
    assert_near(world.bytes_s, 0.10066330); /* twice what the links allow */
    assert_near(pair.bytes_s, 2 * MiB4 * 8 / 1e9);
    assert_true(world.calibrated && !pair.calibrated);
    assert_near(pair.error, 0.10 + 1); /* it may lose what the world loses */
    close_stage(&s);
    open_stage(&s, 4, 2, RATES(1, 1),
               ", \"collectives\": [" TIMING("pair", "tacit", 4194304, 0.08) ", " TIMING("two-hosts", "tacit", 4194304,
                                                                                         0.04) "]");
    assert_near(time_of_kind(&s, TACITI_GROUP_PAIR).bytes_s, 0.08);
    assert_near(time_of_kind(&s, TACITI_GROUP_TWO_HOSTS).bytes_s, 0.04);
    assert_near(time_of_kind(&s, TACITI_GROUP_WORLD).bytes_s, 1.5 * MiB4 * 8 / 1e9);
    assert_near(time_of_kind(&s, TACITI_GROUP_PAIR).error, 0.03);
    close_stage(&s);
}

/* The pairs of the larger hosts take longest, and are what was measured: 4 share a link of 1 Gbit/s. */
static void the_busiest_group_is_the_measured_one(void **state) {
    static const char TEXT[] =
        "{\"format\": \"tacit-cluster-1\", \"hosts\": 4, \"ranks_per_host\": [1, 1, 4, 4], \"links\": "
        "{" RATES(1, 1) "}, \"collectives\": [" TIMING("pair", "tacit", 4194304, 0.13421773) "]}";
    taciti_cluster cluster;
    taciti_hosts hosts;
    taciti_links links;
    (void)state;
    assert_int_equal(taciti_cluster_parse("c.json", TEXT, sizeof TEXT - 1, &cluster), TACIT_OK);
    assert_int_equal(taciti_cluster_hosts(&cluster, 10, &hosts), TACIT_OK);
    const taciti_scene scene = {.cluster = &cluster, .hosts = &hosts};
    assert_int_equal(taciti_links_create(&scene, &links), TACIT_OK);
    assert_int_equal(links.measured_count[TACITI_GROUP_PAIR], 1);
    assert_near(links.measured[TACITI_GROUP_PAIR]->described_s, 4 * MiB4 * 8 / 1e9); /* e is 1 */
    taciti_links_destroy(&links);
    taciti_hosts_destroy(&hosts);
    taciti_cluster_destroy(&cluster);
}

/* The largest description of all, on four ranks. */
static void what_was_not_measured_takes_no_memory(void **state) {
    static const char TEXT[] =
        "{\"format\": \"tacit-cluster-1\", \"hosts\": 100000, \"ranks_per_host\": 10000, \"links\": {" RATES(1, 1) "}}";
    taciti_cluster cluster;
    taciti_hosts hosts;
    taciti_links links;
    (void)state;
    assert_int_equal(taciti_cluster_parse("c.json", TEXT, sizeof TEXT - 1, &cluster), TACIT_OK);
    assert_int_equal(taciti_cluster_hosts(&cluster, 4, &hosts), TACIT_OK);
    const taciti_scene scene = {.cluster = &cluster, .hosts = &hosts};
    const size_t before_bytes = taciti_peak_resident_bytes();
    assert_int_equal(taciti_links_create(&scene, &links), TACIT_OK);
    assert_true(taciti_peak_resident_bytes() - before_bytes < (size_t)256 << 20);
    taciti_links_destroy(&links);
    taciti_hosts_destroy(&hosts);
    taciti_cluster_destroy(&cluster);
}

/* Up to twice the measured hosts the error is that of the measurement. */
static void a_far_larger_world_is_not_a_measured_one(void **state) {
    (void)state;
    taciti_transfer world = {.ranks = 8, .hosts = 8, .demand = {.host_bytes = MiB4, .flow_bytes = MiB4}};
    stage s;
    open_stage(&s, 4, 1, RATES(1, 1), ", \"collectives\": [" TIMING("world", "tacit", 4194304, 0.10066330) "]");
    const taciti_transfer_time twice = time_of(&s, &world);
    assert_true(twice.calibrated);
    assert_near(twice.error, 0.03);
    world.ranks = world.hosts = 9;
    const taciti_transfer_time more = time_of(&s, &world);
    assert_false(more.calibrated);
    assert_near(more.error, 0.10 + 1); /* the measured world takes twice what the links allow */
    assert_near(more.bytes_s, twice.bytes_s);
    close_stage(&s);
}

/* Two hosts are the world of two hosts; with one rank each they are a pair as well. */
static void kinds_that_are_the_same_share_a_measurement(void **state) {
    (void)state;
    stage s;
    open_stage(&s, 2, 2, RATES(1, 1), ", \"collectives\": [" TIMING("world", "tacit", 4194304, 0.05) "]");
    assert_near(time_of_kind(&s, TACITI_GROUP_TWO_HOSTS).bytes_s, 0.05);
    assert_false(time_of_kind(&s, TACITI_GROUP_PAIR).calibrated);
    close_stage(&s);
    open_stage(&s, 4, 1, RATES(1, 1), ", \"collectives\": [" TIMING("two-hosts", "tacit", 4194304, 0.05) "]");
    assert_near(time_of_kind(&s, TACITI_GROUP_PAIR).bytes_s, 0.05);
    assert_false(time_of_kind(&s, TACITI_GROUP_WORLD).calibrated);
    close_stage(&s);
}

/* 4 hosts of 2: 14 hops of which 8 cross, 14 / 8 of the array through every link. */
static void a_ring_crosses_each_link_once(void **state) {
    (void)state;
    const taciti_transfer ring = {.hosts = 4, .ranks = 8, .library = TACITI_LIBRARY_RING};
    stage s;
    open_stage(&s, 4, 2,
               "\"between\": {\"latency_us\": 100, \"gbit_per_s\": 1}, \"inside\": {\"latency_us\": 10, "
               "\"gbit_per_s\": 8}",
               "");
    const taciti_transfer_time time = time_of(&s, &ring);
    assert_near(time.bytes_s, 1.75 * MiB4 * 8 / 1e9);
    assert_near(time.latency_s, 8 * 100e-6 + 6 * 10e-6);
    close_stage(&s);
    open_stage(&s, 4, 2, RATES(100, 100) ", \"inside\": {\"latency_us\": 0, \"gbit_per_s\": 8}", "");
    assert_near(time_of(&s, &ring).bytes_s, 1.75 * MiB4 * 8 / 8e9); /* memory is its slowest part */
    close_stage(&s);
}

static void a_measured_library_takes_what_the_file_says(void **state) {
    (void)state;
    const taciti_transfer theirs = {.hosts = 4, .ranks = 4, .library = TACITI_LIBRARY_MEASURED, .by = "nccl"};
    stage s;
    open_stage(
        &s, 4, 1, RATES(1, 1),
        ", \"collectives\": [" TIMING("world", "nccl", 2097152, 0.1) ", " TIMING("world", "nccl", 6291456, 0.3) "]");
    assert_near(time_of(&s, &theirs).bytes_s, 0.2);
    assert_near(time_of_kind(&s, TACITI_GROUP_WORLD).bytes_s, 1.5 * MiB4 * 8 / 1e9); /* ours is not theirs */
    close_stage(&s);
    open_stage(&s, 4, 1, RATES(1, 1), ", \"collectives\": [" TIMING("world", "nccl", 1048576, 0.1) "]");
    assert_near(time_of(&s, &theirs).bytes_s, 0.4);
    close_stage(&s);
}

/* Rows in any order, with any spread: a measured size takes what was measured, theirs and ours; a size between is on
 * the line; shorter ones of theirs take as long as the shortest. */
static void a_measured_size_takes_what_was_measured(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        double seconds, spread;
    } rows[] = {{4096, 0.004, 0.5}, {1024, 0.003, 0}, {65536, 0.008, 0.25}};
    const taciti_transfer theirs = {.hosts = 4, .ranks = 4, .library = TACITI_LIBRARY_MEASURED, .by = "nccl"};
    char list[1024] = "";
    size_t used = 0;
    stage s;
    for (int r = 0; r < 6; r++)
        used += (size_t)snprintf(list + used, sizeof list - used,
                                 "%s{\"collective\": \"all_reduce\", \"group\": \"world\", \"by\": \"%s\", "
                                 "\"bytes\": %zu, \"seconds\": %g, \"spread\": %g}",
                                 r > 0 ? ", " : ", \"collectives\": [", r < 3 ? "nccl" : "tacit", rows[r % 3].bytes,
                                 rows[r % 3].seconds, rows[r % 3].spread);
    (void)snprintf(list + used, sizeof list - used, "]");
    open_stage(&s, 4, 1, RATES(1, 1), list);
    for (int r = 0; r < 3; r++) {
        const taciti_transfer_time a = time_of_bytes(&s, &theirs, rows[r].bytes),
                                   b = time_of_kind_and_bytes(&s, TACITI_GROUP_WORLD, rows[r].bytes);
        assert_near(a.bytes_s + a.latency_s, rows[r].seconds);
        assert_near(b.bytes_s + b.latency_s, rows[r].seconds);
        assert_near(a.error, 0.03 + rows[r].spread / 2);
        assert_near(b.error, 0.03 + rows[r].spread / 2);
        assert_true(a.calibrated && b.calibrated);
    }
    assert_near(time_of_bytes(&s, &theirs, 2560).bytes_s, 0.0035);
    assert_near(time_of_bytes(&s, &theirs, 4).bytes_s, 0.003);
    assert_near(time_of_bytes(&s, &theirs, 4).error, 0.03);
    assert_near(time_of_bytes(&s, &theirs, 131072).bytes_s, 0.016);
    assert_near(time_of_bytes(&s, &theirs, 131072).error, 0.155);
    close_stage(&s);
}

/* Up to 16 times below the shortest and above the longest measured size, and not a byte farther. */
static void a_measurement_speaks_up_to_sixteen_times_away(void **state) {
    (void)state;
    stage s;
    open_stage(
        &s, 4, 1, RATES(1, 1),
        ", \"collectives\": [" TIMING("world", "tacit", 4096, 0.01) ", " TIMING("world", "tacit", 8192, 0.03) "]");
    static const struct {
        size_t bytes;
        bool speaks;
    } at[] = {{255, false}, {256, true}, {16 * 8192, true}, {16 * 8192 + 1, false}};
    stage described;
    open_stage(&described, 4, 1, RATES(1, 1), "");
    for (int i = 0; i < 4; i++) {
        const size_t nearest = i < 2 ? 4096 : 8192;
        const double expected = time_of_kind_and_bytes(&described, TACITI_GROUP_WORLD, at[i].bytes).bytes_s,
                     there = time_of_kind_and_bytes(&described, TACITI_GROUP_WORLD, nearest).bytes_s;
        const taciti_transfer_time time = time_of_kind_and_bytes(&s, TACITI_GROUP_WORLD, at[i].bytes);
        assert_int_equal(time.calibrated, at[i].speaks);
        assert_near(time.bytes_s, expected * (at[i].speaks ? (i < 2 ? 0.01 : 0.03) / there : 1));
    }
    close_stage(&described);
    close_stage(&s);
}

/* An all-to-all of 4 KiB among 4 ranks: three messages. 100 us of latency, 3 KiB at 1 Gbit/s, the rest are messages. */
static void messages_of_compressed_sums_take_their_time(void **state) {
    (void)state;
    stage s;
    const double bytes_s = 0.75 * 4096 * 8 / 1e9, handled_s = 3 * 50e-6;
    char more[256];
    (void)snprintf(more, sizeof more,
                   ", \"collectives\": [{\"collective\": \"all_to_all\", \"group\": \"world\", \"by\": \"tacit\", "
                   "\"bytes\": 4096, \"seconds\": %.17g}]",
                   100e-6 + bytes_s + handled_s);
    open_stage(&s, 4, 1,
               "\"between\": {\"latency_us\": 20, \"gbit_per_s\": 1}, \"busy_latency_us\": 100, "
               "\"duplex_gbit_per_s\": 1, \"host_gbit_per_s\": 1",
               more);
    taciti_transfer t = {.demand = {.host_bytes = 1e6, .flow_bytes = 1e6, .wire_hops = 2},
                         .hosts = 4,
                         .ranks = 4,
                         .price = {{4 << 20, 4 << 20}, .codec_s = 0.004, .fillings = 1, .messages = 10},
                         .codec = taciti_codec_find("f32"),
                         .compressed = true};
    assert_near(taciti_links_time(&s.links, &t).latency_s, 2 * 100e-6);
    assert_near(taciti_links_time(&s.links, &t).bytes_s, 0.008 + 0.004); /* they hide behind the wire */
    t.price.messages = 1000;
    assert_near(taciti_links_time(&s.links, &t).bytes_s, 0.004 + 1000 * 50e-6 + 0.004);
    t.compressed = false; /* what was measured of dense arrays has them */
    assert_near(taciti_links_time(&s.links, &t).latency_s, 2 * 20e-6);
    assert_near(taciti_links_messages_s(&s.links, &s.hosts, 3, 1e6), 3 * 100e-6 + 0.008);
    close_stage(&s);
}

/* The links of a host are those measured both ways at once, else one way, else what two ranks reach; none without. */
static void the_closest_measurement_of_a_host_counts(void **state) {
    (void)state;
    taciti_cluster c = taciti_cluster_unknown();
    assert_true(taciti_plan_wire_beta_s(&c) == 0);
    c.host_beta_s_per_byte = 2;
    c.duplex_beta_s_per_byte = 3;
    assert_true(taciti_plan_wire_beta_s(&c) == 0);
    c.between = (taciti_link_cost){.alpha_s = 0, .beta_s_per_byte = 1};
    assert_true(taciti_plan_wire_beta_s(&c) == 3);
    c.duplex_beta_s_per_byte = -1;
    assert_true(taciti_plan_wire_beta_s(&c) == 2);
    c.host_beta_s_per_byte = -1;
    assert_true(taciti_plan_wire_beta_s(&c) == 1);
    taciti_cluster_destroy(&c);
}

static void groups_of_a_kind_are_whole_hosts_or_partners(void **state) {
    (void)state;
    int host_of[7] = {0, 0, 0, 1, 1, 2, 2}; /* the last host has no partner */
    const taciti_hosts hosts = {7, 3, host_of};
    taciti_topology g;
    assert_int_equal(taciti_grouping_create(&hosts, TACITI_GROUP_PAIR, &g), TACIT_OK);
    assert_int_equal(g.rounds[0].groups, 2);
    const taciti_members second = taciti_grouping_of(&g, 4);
    assert_true(second.count == 2 && second.ranks[0] == 1 && second.ranks[1] == 4);
    assert_int_equal(taciti_grouping_of(&g, 2).count, 0);
    taciti_topology_destroy(&g);
    assert_int_equal(taciti_grouping_create(&hosts, TACITI_GROUP_TWO_HOSTS, &g), TACIT_OK);
    assert_true(g.rounds[0].groups == 1 && taciti_grouping_of(&g, 3).count == 5 &&
                taciti_grouping_of(&g, 6).count == 0);
    taciti_topology_destroy(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoding_hides_behind_the_wire_once_the_pipeline_is_full),
        cmocka_unit_test(the_slower_of_a_flow_and_a_host_counts),
        cmocka_unit_test(every_kind_of_group_has_its_own_efficiency),
        cmocka_unit_test(the_busiest_group_is_the_measured_one),
        cmocka_unit_test(what_was_not_measured_takes_no_memory),
        cmocka_unit_test(a_far_larger_world_is_not_a_measured_one),
        cmocka_unit_test(kinds_that_are_the_same_share_a_measurement),
        cmocka_unit_test(a_ring_crosses_each_link_once),
        cmocka_unit_test(a_measured_library_takes_what_the_file_says),
        cmocka_unit_test(a_measured_size_takes_what_was_measured),
        cmocka_unit_test(a_measurement_speaks_up_to_sixteen_times_away),
        cmocka_unit_test(messages_of_compressed_sums_take_their_time),
        cmocka_unit_test(the_closest_measurement_of_a_host_counts),
        cmocka_unit_test(groups_of_a_kind_are_whole_hosts_or_partners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
