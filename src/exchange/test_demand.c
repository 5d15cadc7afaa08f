/* SPDX-License-Identifier: Apache-2.0
 *
 * The formulas are compared with the byte counters.
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
#include "comm/test_engine.h"
#include "exchange/demand.h"
#include "exchange/exchange.h"
#include "exchange/mix.h"
#include "exchange/test_layout.h"
#include "exchange/test_rounds.h"
#include "exchange/test_wire.h"
#include "topo/test_matrix_file.h"
#include "topo/topo.h"

/* The thread sanitizer makes a message thirty times slower; there the corners have to do. */
#if defined(__SANITIZE_THREAD__)
enum { STEP = 3 };
#else
enum { STEP = 1 };
#endif

static const taciti_placement AUTO = {.scheme = TACITI_SCHEME_AUTO};

static taciti_hosts hosts_by_size(int host_of[TEST_MAX_RANKS], int hosts, int per_host) {
    for (int r = 0; r < hosts * per_host; r++) host_of[r] = r / per_host;
    return (taciti_hosts){.ranks = hosts * per_host, .count = hosts, .host_of = host_of};
}

static bool make(const char *name, const taciti_hosts *hosts, taciti_topology *out) {
    const char *path = "test_demand_matrix.csv";
    const bool is_file = strcmp(name, "file") == 0;
    if (is_file) assert_true(test_matrix_write(path, hosts->ranks));
    const taciti_topo_request request = {
        .name = name, .ranks = hosts->ranks, .hosts = hosts, .seed = 3, .file = is_file ? path : NULL};
    const bool made = taciti_topology_create(&request, out) == TACIT_OK;
    if (is_file) assert_int_equal(remove(path), 0);
    return made;
}

/* Returns the demand of a round as one rank sees it. */
static taciti_demand demand_of(const taciti_hosts *hosts, const taciti_topology *topology, size_t round, int rank,
                               size_t bytes) {
    taciti_demand all[TEST_MAX_RANKS];
    CHECK(taciti_mix_demands(hosts, topology, round, AUTO, &(taciti_length){bytes, bytes}, 1, all) == TACIT_OK);
    return all[rank];
}

/* ---- in model sizes ---------------------------------------------------------------------------------------------- */
/* Bytes of the busiest link in a round, for a model of 1 MiB: in models. */
static double models(const char *name, const taciti_hosts *hosts, size_t round) {
    taciti_topology topology;
    assert_true(make(name, hosts, &topology));
    const size_t bytes = 1 << 20;
    const double answer = taciti_mix_nic_bytes_of(hosts, &topology, round % topology.period, AUTO, bytes);
    taciti_topology_destroy(&topology);
    return answer / (double)bytes;
}

static double mean_models(const char *name, const taciti_hosts *hosts) {
    taciti_topology topology;
    assert_true(make(name, hosts, &topology));
    const double answer = taciti_mix_nic_bytes_mean(hosts, &topology, AUTO, 1 << 20);
    taciti_topology_destroy(&topology);
    return answer / (1 << 20);
}

/* Returns the number of ranks whose links carry `wanted` models of 1 MiB in a round. */
static int ranks_with(const char *name, const taciti_hosts *hosts, size_t round, double wanted) {
    taciti_topology topology;
    int count = 0;
    assert_true(make(name, hosts, &topology));
    for (int r = 0; r < hosts->ranks; r++) {
        const taciti_demand d = demand_of(hosts, &topology, round % topology.period, r, 1 << 20);
        count += d.host_bytes == wanted * (1 << 20);
    }
    taciti_topology_destroy(&topology);
    return count;
}

static void sixteen_ranks_on_four_hosts(void **state) {
    (void)state;
    int host_of[TEST_MAX_RANKS];
    const taciti_hosts hosts = hosts_by_size(host_of, 4, 4);
    const taciti_demand dense = taciti_allreduce_demand(&hosts, NULL, 16, AUTO, 1 << 20, 1 << 20);
    assert_true(dense.host_bytes == 1.5 * (1 << 20));
    assert_true(dense.wire_hops == 2 && dense.local_hops == 2);
    assert_true(dense.flow_bytes == dense.host_bytes / 2); /* two lanes share a host's bytes */
    assert_true(models("complete", &hosts, 0) == 1.5);
    assert_true(mean_models("complete", &hosts) == 1.5);
    assert_true(mean_models("exp", &hosts) == 2.0);
    /* AER: in every round two hosts meet, all their ranks together, and the other two have a local round. */
    assert_true(models("aer", &hosts, 0) == 1.0 && mean_models("aer", &hosts) == 0.5);
    for (size_t round = 0; round < 4; round++) {
        assert_int_equal(ranks_with("aer", &hosts, round, 1.0), 8);
        assert_int_equal(ranks_with("aer", &hosts, round, 0.0), 8);
    }
    int local = 0, across = 0;
    for (size_t round = 0; round < 4; round++) {
        local += models("exp", &hosts, round) == 0;
        across += models("exp", &hosts, round) == 4.0;
    }
    assert_int_equal(local, 2);
    assert_int_equal(across, 2);
}

static void demand_of_a_rank_is_that_of_its_links(void **state) {
    (void)state;
    int host_of[TEST_MAX_RANKS];
    const taciti_hosts hosts = hosts_by_size(host_of, 2, 4);
    test_topology *made = taciti_calloc(1, sizeof *made);
    test_topology_start(made, "hand", 8, false);
    test_topology_add_groups(made, (const int[8]){0, 0, 1, 2, 1, 2, -1, -1}); /* one local pair, two across */
    const size_t bytes = 1 << 20;
    const taciti_demand local = demand_of(&hosts, &made->topology, 0, 0, bytes);
    const taciti_demand across = demand_of(&hosts, &made->topology, 0, 2, bytes);
    const taciti_demand idle = demand_of(&hosts, &made->topology, 0, 7, bytes);
    assert_true(local.host_bytes == 0 && local.local_bytes == (double)bytes && local.wire_hops == 0);
    assert_int_equal(local.local_hops, 2);
    assert_true(across.flow_bytes == (double)bytes && local.flow_bytes == 0);
    assert_true(across.host_bytes == 2.0 * (double)bytes && across.local_bytes == 0 && across.wire_hops == 2);
    assert_true(idle.host_bytes == 0 && idle.local_bytes == 0 && idle.wire_hops == 0 && idle.local_hops == 0);
    taciti_demand all[TEST_MAX_RANKS]; /* a wire of half the bytes is for what crosses it */
    CHECK(taciti_mix_demands(&hosts, &made->topology, 0, AUTO, &(taciti_length){bytes / 2, bytes}, 1, all) == TACIT_OK);
    assert_true(all[0].local_bytes == (double)bytes && all[2].host_bytes == (double)bytes);
    const taciti_demand empty = demand_of(&hosts, &made->topology, 0, 2, 0);
    assert_true(empty.host_bytes == 0 && empty.wire_hops == 0);
    taciti_free(made);
}

static void a_rank_sends_its_host_what_the_lanes_leave(void **state) {
    (void)state;
    int host_of[TEST_MAX_RANKS];
    const taciti_hosts two = hosts_by_size(host_of, 2, 4);
    const double f32 = 1 << 20;
    /* one lane: it gives the result to three; four: each gets and gives three quarters */
    const taciti_demand one = taciti_allreduce_demand(
        &two, NULL, 8, (taciti_placement){.scheme = TACITI_SCHEME_HOSTS, .lanes = 1}, 1 << 19, 1 << 20);
    assert_true(one.local_bytes == 3 * f32 && one.host_bytes == f32 / 2);
    const taciti_demand four = taciti_allreduce_demand(&two, NULL, 8, AUTO, 1 << 19, 1 << 20);
    assert_true(four.local_bytes == 1.5 * f32 && four.host_bytes == f32 / 2);
    const taciti_demand flat = taciti_allreduce_demand(
        &two, NULL, 8, (taciti_placement){.scheme = TACITI_SCHEME_FLAT, .lanes = 0}, 1 << 20, 1 << 20);
    assert_true(flat.local_bytes == 2 * 3 * f32 / 8 && flat.host_bytes == 4 * 2 * 4 * f32 / 8);
    assert_true(flat.wire_hops == 2 && flat.local_hops == 0);
}

/* Edges between hosts of 2, 1, 1 and 3 ranks; rank 6 has none. Bytes: 3 arrays leave host 0, 2 reach host 3. A rank
 * waits for the busier end of its edges. */
static void edges_load_the_links_of_both_ends(void **state) {
    (void)state;
    enum { RANKS = 7 };
    int host_of[] = {0, 0, 1, 2, 3, 3, 3};
    static const int HOSTS[] = {3, 2, 2, 2, 3, 1, 1};
    static const double FLOWS[] = {2, 2, 2, 2, 2, 0, 0}, LOCAL[] = {1, 1, 1, 1, 1, 1, 0};
    static const double LINKS[] = {3, 3, 3, 2, 3, 0, 0};
    const taciti_hosts hosts = {.ranks = RANKS, .count = 4, .host_of = host_of};
    double w[RANKS * RANKS] = {0};
    for (int r = 0; r < RANKS; r++) w[r * RANKS + r] = 0.5;
    static const int EDGES[][2] = {{0, 1}, {0, 2}, {0, 4}, {3, 4}, {1, 2}, {4, 5}}; /* from, to */
    for (size_t e = 0; e < sizeof EDGES / sizeof *EDGES; e++) w[EDGES[e][1] * RANKS + EDGES[e][0]] = 0.25;
    test_topology *made = taciti_calloc(1, sizeof *made);
    test_topology_start(made, "hand", RANKS, true);
    test_topology_add_matrix(made, w);
    for (int r = 0; r < RANKS; r++) {
        const taciti_demand d = demand_of(&hosts, &made->topology, 0, r, 1000);
        const bool across = LINKS[r] > 0;
        if (d.hosts != HOSTS[r] || d.wire_hops != across || d.local_hops != (r < 2 || r == 4 || r == 5) ||
            d.lanes != 0 || d.host_bytes != 1000 * LINKS[r] || d.flow_bytes != 1000 * FLOWS[r] ||
            d.local_bytes != 1000 * LOCAL[r])
            fail_msg("rank %d: %d hosts, link %g, flow %g, local %g, hops %d and %d", r, d.hosts, d.host_bytes,
                     d.flow_bytes, d.local_bytes, d.wire_hops, d.local_hops);
    }
    taciti_free(made);
}

/* Hosts of 1, 5, 2, 3, ... ranks. */
static taciti_hosts uneven_hosts(int host_of[TEST_MAX_RANKS], int ranks) {
    static const int sizes[] = {1, 5, 2, 3};
    int host = 0, used = 0;
    for (int r = 0; r < ranks; r++, used++) {
        if (used == sizes[host % 4]) {
            host++;
            used = 0;
        }
        host_of[r] = host;
    }
    return (taciti_hosts){.ranks = ranks, .count = host + 1, .host_of = host_of};
}

/* A round in one pass over its members says what each group by itself does. */
static void a_pass_over_a_round_is_group_by_group(void **state) {
    (void)state;
    int host_of[TEST_MAX_RANKS], groups = 0;
    const taciti_hosts hosts = uneven_hosts(host_of, TEST_MAX_RANKS);
    const taciti_length lengths[] = {{1 << 20, 1 << 21}, {40, 40}};
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++) {
        taciti_topology topology;
        if (strcmp(kind->name, "file") == 0 || !make(kind->name, &hosts, &topology)) continue;
        for (size_t r = 0; r < topology.period; r++) {
            const taciti_round *round = &topology.rounds[r];
            taciti_demand all[2 * TEST_MAX_RANKS];
            CHECK(taciti_mix_demands(&hosts, &topology, r, AUTO, lengths, 2, all) == TACIT_OK);
            for (size_t g = 0; g < round->groups; g++, groups++) {
                const taciti_members members = taciti_members_of(round, g);
                const taciti_placement placement = taciti_mix_placement(&hosts, round, members, AUTO);
                const bool local = taciti_mix_codec(&hosts, members, NULL) != NULL;
                for (size_t i = 0; i < 2; i++) {
                    const taciti_demand *d = &all[i * TEST_MAX_RANKS + (size_t)members.ranks[0]];
                    const taciti_demand alone = taciti_allreduce_demand(
                        &hosts, members.ranks, members.count, placement,
                        local ? lengths[i].f32_bytes : lengths[i].wire_bytes, lengths[i].f32_bytes);
                    assert_int_equal(d->lanes, alone.lanes);
                    assert_int_equal(d->hosts == 1, local);
                    assert_true(d->local_bytes == alone.local_bytes && d->flow_bytes == alone.flow_bytes);
                    assert_int_equal(d->wire_hops, alone.wire_hops);
                    assert_int_equal(d->local_hops, alone.local_hops);
                    assert_true(d->host_bytes >= alone.host_bytes * (1 - 1e-12)); /* others share the link */
                }
            }
        }
        taciti_topology_destroy(&topology);
    }
    assert_true(groups > 20);
}

/* ---- counted ----------------------------------------------------------------------------------------------------- */
typedef struct trial {
    const taciti_topology *topology;
    taciti_hosts hosts;
    taciti_placement placement;
    int wire;
} trial;

/* Pairs of ranks here and elsewhere that may talk in that round, of the busiest host. */
static size_t pairs_of(const trial *t, size_t round) {
    size_t max = 0;
    for (int host = 0; host < t->hosts.count; host++) {
        size_t pairs = 0;
        for (int a = 0; a < t->hosts.ranks; a++)
            for (int b = 0; b < t->hosts.ranks; b++)
                pairs += t->hosts.host_of[a] == host && t->hosts.host_of[b] != host &&
                         test_weight(t->topology, round, a, b) > 0;
        if (pairs > max) max = pairs;
    }
    return max;
}

/* Bytes that the link of this rank's host has carried since `before`, in the busier direction; *max: the busiest link.
 */
static double counted(taciti_comm *comm, const taciti_hosts *hosts, taciti_comm_counters before, double *max) {
    const taciti_comm_counters now = taciti_comm_count(comm);
    const uint64_t mine[2] = {now.away_bytes_sent - before.away_bytes_sent,
                              now.away_bytes_received - before.away_bytes_received};
    uint64_t all[TEST_MAX_RANKS][2] = {{0}}, sums[TEST_MAX_RANKS][2] = {{0}};
    double of_host[TEST_MAX_RANKS] = {0};
    CHECK(taciti_comm_allgather(comm, mine, sizeof mine, all) == TACIT_OK);
    for (int r = 0; r < hosts->ranks; r++)
        for (int way = 0; way < 2; way++) sums[hosts->host_of[r]][way] += all[r][way];
    *max = 0;
    for (int h = 0; h < hosts->count; h++) {
        of_host[h] = fmax((double)sums[h][0], (double)sums[h][1]);
        *max = fmax(*max, of_host[h]);
    }
    return of_host[hosts->host_of[taciti_comm_rank(comm)]];
}

static void compare(taciti_comm *comm, void *context) {
    const trial *t = context;
    const int rank = taciti_comm_rank(comm);
    taciti_layout layout;
    static const size_t SIZES[] = {30011, 12000, 700, 17};
    test_layout(SIZES, 4, 64000, &layout);
    const taciti_exchange_options options = {.wire = test_wire(t->wire), .scheme = (int)t->placement.scheme};
    const taciti_codec *codec = taciti_exchange_wire(&options);
    taciti_mix *mix = NULL;
    CHECK(taciti_mix_create(comm, &layout, t->topology, &options, NULL, &mix) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x);
    for (size_t round = 0; round < t->topology->period; round++) {
        const bool edges = t->topology->rounds[round].groups == 0;
        const double pair = edges ? 0 : 2 * 48 * (double)codec->bound(codec, NULL, 1) * (double)pairs_of(t, round);
        double told = 0;
        for (size_t b = 0; b < layout.bucket_count; b++) {
            const size_t n = layout.buckets[b].n;
            const taciti_comm_counters before = taciti_comm_count(comm);
            CHECK(taciti_mix_begin(mix, x, b, (int64_t)round) == TACIT_OK);
            CHECK(taciti_mix_wait(mix, x, b, (int64_t)round) == TACIT_OK);
            double max = 0, real = 0;
            const double mine = counted(comm, &t->hosts, before, &real);
            taciti_demand all[TEST_MAX_RANKS];
            const taciti_length length = {codec->bound(codec, NULL, n), n * sizeof(float)};
            CHECK(taciti_mix_demands(&t->hosts, t->topology, round, t->placement, &length, 1, all) == TACIT_OK);
            for (int r = 0; r < t->hosts.ranks; r++) max = fmax(max, all[r].host_bytes);
            CHECK(fabs(max - real) <= pair);
            CHECK(all[rank].host_bytes == 0 || mine <= all[rank].host_bytes + pair);
            told += max;
        }
        const double bound = pair * (double)layout.bucket_count;
        const double whole =
            taciti_mix_nic_bytes_of(&t->hosts, t->topology, round, t->placement, codec->bound(codec, NULL, layout.n));
        CHECK(edges || whole <= told + bound + 1e-6 * told); /* short arrays ask for more than a share of a model */
        CHECK(!edges || whole == told);
    }
    taciti_free(x);
    taciti_mix_destroy(mix);
    taciti_layout_destroy(&layout);
}

/* Every topology that these hosts can have; returns how many these are. */
static int compare_all(taciti_hosts hosts, taciti_scheme scheme) {
    int tried = 0;
    test_hosts(hosts.host_of);
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++) {
        taciti_topology topology;
        const bool any_size = strcmp(kind->name, "file") == 0 || strcmp(kind->name, "base-k") == 0;
        trial t = {.topology = &topology, .hosts = hosts, .placement = {.scheme = scheme}};
        const bool made = make(kind->name, &t.hosts, &topology);
        assert_true(made || !any_size);
        if (!made) continue;         /* sizes that a topology cannot have */
        topology.alternates = false; /* a bucket of mix `round` is in that round */
        taciti_comm_options options = test_comm_options(false);
        options.segment_bytes = 16384;
        for (t.wire = 0; t.wire < 2; t.wire++) test_world_run(t.hosts.ranks, &options, compare, &t);
        taciti_topology_destroy(&topology);
        tried++;
    }
    test_hosts(NULL);
    return tried;
}

static void formulas_are_what_counters_count(void **state) {
    (void)state;
    int host_of[TEST_MAX_RANKS], tried = 0;
    for (int hosts = 1; hosts <= 4; hosts += STEP)
        for (int per_host = 1; per_host <= 4; per_host += STEP)
            tried += compare_all(hosts_by_size(host_of, hosts, per_host), TACITI_SCHEME_AUTO);
    assert_true(tried > 100 / (STEP * STEP));
}

static void so_they_are_on_uneven_hosts_by_every_scheme(void **state) {
    (void)state;
    int host_of[TEST_MAX_RANKS];
    for (int ranks = 3; ranks <= 11; ranks += 4 * STEP)
        for (int scheme = TACITI_SCHEME_AUTO; scheme <= TACITI_SCHEME_HOSTS; scheme++)
            assert_true(compare_all(uneven_hosts(host_of, ranks), (taciti_scheme)scheme) > 4);
}

/* Four pairs across one link have a quarter of its flows each; pairs within hosts do not count. */
static void groups_that_share_a_link_share_its_flows(void **state) {
    (void)state;
    int host_of[TEST_MAX_RANKS];
    static const int pairs[] = {0, 4, 1, 5, 2, 6, 3, 7}, some_members[] = {0, 4, 1, 2, 3, 5, 6, 7};
    static const size_t by_two[] = {0, 2, 4, 6, 8}, mixed[] = {0, 2, 5, 8};
    const taciti_hosts hosts = hosts_by_size(host_of, 2, 4);
    const taciti_round all = {.groups = 4, .first = by_two, .members = pairs},
                       some = {.groups = 3, .first = mixed, .members = some_members};
    for (size_t g = 0; g < all.groups; g++)
        CHECK(taciti_mix_placement(&hosts, &all, taciti_members_of(&all, g), AUTO).lanes == TACITI_FLOWS / 4);
    CHECK(taciti_mix_placement(&hosts, &some, taciti_members_of(&some, 0), AUTO).lanes == TACITI_FLOWS);
    CHECK(taciti_mix_placement(&hosts, &some, taciti_members_of(&some, 1), AUTO).lanes == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_ranks_on_four_hosts),
        cmocka_unit_test(demand_of_a_rank_is_that_of_its_links),
        cmocka_unit_test(a_rank_sends_its_host_what_the_lanes_leave),
        cmocka_unit_test(edges_load_the_links_of_both_ends),
        cmocka_unit_test(a_pass_over_a_round_is_group_by_group),
        cmocka_unit_test(groups_that_share_a_link_share_its_flows),
        cmocka_unit_test(formulas_are_what_counters_count),
        cmocka_unit_test(so_they_are_on_uneven_hosts_by_every_scheme),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
