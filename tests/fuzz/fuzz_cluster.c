/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.json.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cluster/cluster.h"
#include "fuzz.h"

/* What was accepted must be legal, and written and read back as the same. */
static void check_round_trip(const taciti_cluster *cluster) {
    taciti_cluster again;
    char *text = taciti_cluster_format(cluster);
    if (text == NULL || taciti_cluster_parse("again", text, strlen(text), &again) != TACIT_OK) abort();
    char *twice = taciti_cluster_format(&again);
    if (twice == NULL || strcmp(text, twice) != 0) abort();
    if (taciti_cluster_ranks(cluster) != taciti_cluster_ranks(&again)) abort();
    if (taciti_cluster_ranks(cluster) < cluster->hosts || cluster->hosts < 1) abort();
    if (cluster->hosts > 1 && !(cluster->between.alpha_s >= 0 && cluster->between.beta_s_per_byte > 0)) abort();
    for (size_t i = 0; i < cluster->timing_count; i++)
        if (!(cluster->timings[i].seconds > 0) || cluster->timings[i].bytes == 0) abort();
    taciti_free(twice);
    taciti_free(text);
    taciti_cluster_destroy(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    taciti_cluster cluster;
    if (taciti_cluster_parse("cluster", (const char *)data, size, &cluster) == TACIT_OK) {
        check_round_trip(&cluster);
        taciti_cluster_destroy(&cluster);
    }
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"format\":\"tacit-cluster-1\",\"hosts\":8,\"ranks_per_host\":4,"
        "\"links\":{\"between\":{\"latency_us\":25,\"gbit_per_s\":24.7}}}",
        "{\"format\":\"tacit-cluster-1\",\"hosts\":1,\"ranks_per_host\":[1],\"links\":{}}",
        "{\"format\":\"tacit-cluster-1\",\"name\":\"a\",\"source\":\"b\",\"notes\":[\"c\",\"\\u00e4\"],\"hosts\":2,"
        "\"ranks_per_host\":[2,1],\"links\":{\"between\":{\"latency_us\":0.5,\"gbit_per_s\":1e-3,\"fit_error\":0.1},"
        "\"inside\":{\"latency_us\":1,\"gbit_per_s\":61.3},\"host_gbit_per_s\":1,\"duplex_gbit_per_s\":2,"
        "\"incast_gbit_per_s\":3},\"collectives\":[{\"collective\":\"all_reduce\",\"group\":\"world\",\"by\":\"tacit\","
        "\"bytes\":4096,\"seconds\":0.25,\"spread\":0.1},{\"collective\":\"all_to_all\",\"group\":\"pair\",\"by\":"
        "\"x\",\"bytes\":1,\"seconds\":1e-6}],\"compression\":[{\"codec\":\"f32\",\"factor\":1,"
        "\"encode_ns\":1,\"decode_ns\":2,\"add_ns\":2,\"bytes\":4}],"
        "\"compute\":{\"cv\":0.02,\"lag1\":-0.5,\"rank_spread\":0}}",
    };
    if (i >= sizeof seeds / sizeof seeds[0]) return 0;
    memcpy(out, seeds[i], strlen(seeds[i]));
    return strlen(seeds[i]);
}
