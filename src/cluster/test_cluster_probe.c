/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "cluster/probe.h"
#include "codec/codec.h"
#include "comm/test_engine.h"

static const taciti_cluster_timing *find(const taciti_cluster *c, taciti_collective collective,
                                         taciti_group_kind group) {
    for (size_t i = 0; i < c->timing_count; i++)
        if (c->timings[i].collective == collective && c->timings[i].group == group) return &c->timings[i];
    return NULL;
}

/* A rate that exists is known, or there is a reason why not; one that does not exist is unknown. */
static bool known(double beta_s_per_byte, bool exists, bool doubtful) {
    return beta_s_per_byte > 0 ? exists : !exists || doubtful;
}

/* Whether the group says something that no other group does. */
static bool is_measured(taciti_collective collective, taciti_group_kind group, int ranks, int hosts) {
    const bool several = ranks > hosts && hosts > 1;
    if (collective == TACITI_COLLECTIVE_ALL_TO_ALL) return group == TACITI_GROUP_WORLD && ranks > 1;
    switch (group) {
    case TACITI_GROUP_WORLD: return ranks > 1;
    case TACITI_GROUP_HOST: return several;
    case TACITI_GROUP_PAIR: return hosts > 1 && ranks > 2;
    case TACITI_GROUP_TWO_HOSTS: return several && hosts > 2;
    case TACITI_GROUP_KINDS: break;
    }
    return false;
}

/* At three factors, for codecs that select. */
static bool has_compression(const taciti_cluster *c, const taciti_codec *codec) {
    size_t count = 0;
    for (size_t i = 0; i < c->compression_count; i++) {
        const taciti_cluster_compression *found = &c->compressions[i];
        if (strcmp(found->codec, codec->name) != 0) continue;
        CHECK(found->bytes > 0 && (found->factor > 1) == codec->selects);
        count++;
    }
    CHECK(count == 0 || count == (codec->selects ? 3 : 1));
    return count > 0;
}

/* All that exists was measured, the rest was left out, and the reader takes the description. */
static void check_cluster(const taciti_cluster *c, int ranks, int per_host) {
    const int hosts = (ranks + per_host - 1) / per_host;
    taciti_cluster again;
    CHECK(c->hosts == hosts && taciti_cluster_ranks(c) == ranks);
    CHECK((c->between.alpha_s >= 0 && c->between.beta_s_per_byte > 0) == (hosts > 1));
    /* On a busy machine memory can look infinitely fast, or time be short; then a note says so. */
    const bool doubtful = c->note_count > 0;
    CHECK(known(c->inside.beta_s_per_byte, ranks > 1 && per_host > 1, doubtful));
    CHECK(known(c->host_beta_s_per_byte, hosts > 1 && per_host > 1, doubtful));
    CHECK(known(c->duplex_beta_s_per_byte, hosts > 1, doubtful));
    CHECK(known(c->incast_beta_s_per_byte, hosts > 2, doubtful));
    CHECK(c->compute_cv >= 0 && c->compute_lag1 <= 1 && (c->compute_rank_spread >= 0) == (ranks > 1));
    CHECK(c->compute_core_share > 0 && c->compute_core_share <= 1);
    CHECK(c->memory_gib > 0 && c->memory_gib <= (double)taciti_available_bytes() / 0x1p30 * 2); /* others come and go */
    CHECK((c->busy_alpha_s >= 0) == (ranks > 1) && (c->hand_over_s >= 0) == (ranks > 1));
    for (size_t i = 0; taciti_codec_dense_name(i) != NULL; i++)
        CHECK(i < c->compression_count && strcmp(c->compressions[i].codec, taciti_codec_dense_name(i)) == 0);
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        CHECK(doubtful || has_compression(c, *codec));
    for (int i = 0; i < TACITI_COLLECTIVES; i++)
        for (int g = 0; g < TACITI_GROUP_KINDS; g++)
            CHECK((find(c, (taciti_collective)i, (taciti_group_kind)g) != NULL) ==
                  is_measured((taciti_collective)i, (taciti_group_kind)g, ranks, hosts));
    char *text = taciti_cluster_format(c);
    CHECK(text != NULL && taciti_cluster_parse("probe", text, strlen(text), &again) == TACIT_OK);
    char *twice = taciti_cluster_format(&again);
    CHECK(strcmp(text, twice) == 0);
    taciti_free(twice);
    taciti_free(text);
    taciti_cluster_destroy(&again);
}

enum { ATTEMPTS = 5 };

static int g_per_host;

static void probe(taciti_comm *comm, void *context) {
    (void)context;
    taciti_probe_options options = {.seconds = 1, .quick = true, .natives = true};
    taciti_cluster cluster;
    tacit_status status = TACIT_E_DATA; /* disturbed: asks for more time, on all ranks alike */
    for (int attempt = 0; attempt < ATTEMPTS && status == TACIT_E_DATA; attempt++, options.seconds *= 2)
        status = taciti_probe_run(comm, &options, &cluster);
    CHECK(status == TACIT_OK);
    check_cluster(&cluster, taciti_comm_size(comm), g_per_host);
    taciti_cluster_destroy(&cluster);
}

static void run(int ranks, int per_host) {
    const taciti_comm_options options = test_comm_options(true);
    g_per_host = per_host < ranks ? per_host : ranks;
    test_ranks_per_host(per_host);
    test_world_run(ranks, &options, probe, NULL);
    test_ranks_per_host(0);
}

static void test_one_rank(void **state) {
    (void)state;
    run(1, 1);
}

static void test_one_host(void **state) {
    (void)state;
    run(3, 3);
}

static void test_one_rank_per_host(void **state) {
    (void)state;
    run(2, 1);
    run(3, 1);
}

static void test_unequal_hosts(void **state) {
    (void)state;
    run(5, 2);
    run(7, 3);
}

static void show(void *context, taciti_log_level level, const char *line) {
    (void)context;
    if (level >= TACITI_LOG_WARN) (void)fprintf(stderr, "%s\n", line);
}

int main(void) {
    taciti_log_set_sink(show, NULL, TACITI_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_one_rank_per_host),
        cmocka_unit_test(test_unequal_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
