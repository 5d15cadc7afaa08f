/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cluster.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

const char *const taciti_collective_names[TACITI_COLLECTIVES] = {
    [TACITI_COLLECTIVE_ALL_REDUCE] = "all_reduce",
    [TACITI_COLLECTIVE_ALL_TO_ALL] = "all_to_all",
};

const char *const taciti_group_kind_names[TACITI_GROUP_KINDS] = {
    [TACITI_GROUP_WORLD] = "world",
    [TACITI_GROUP_HOST] = "host",
    [TACITI_GROUP_PAIR] = "pair",
    [TACITI_GROUP_TWO_HOSTS] = "two-hosts",
};

taciti_cluster taciti_cluster_unknown(void) {
    const taciti_link_cost link = {.alpha_s = -1, .beta_s_per_byte = -1, .fit_error = -1};
    return (taciti_cluster){.inside = link,
                            .between = link,
                            .host_beta_s_per_byte = -1,
                            .duplex_beta_s_per_byte = -1,
                            .incast_beta_s_per_byte = -1,
                            .busy_alpha_s = -1,
                            .compute_cv = -1,
                            .compute_lag1 = -2,
                            .compute_rank_spread = -1,
                            .compute_core_share = -1,
                            .hand_over_s = -1};
}

int taciti_cluster_ranks(const taciti_cluster *cluster) {
    int ranks = 0;
    for (int i = 0; i < cluster->hosts; i++) ranks += cluster->ranks_per_host[i];
    return ranks;
}

int taciti_cluster_max_ranks_per_host(const taciti_cluster *cluster) {
    int max = 0;
    for (int i = 0; i < cluster->hosts; i++)
        if (cluster->ranks_per_host[i] > max) max = cluster->ranks_per_host[i];
    return max;
}

int taciti_cluster_ranks_on(const taciti_cluster *cluster, int64_t hosts, int max) {
    int ranks = 0;
    for (int64_t h = 0; h < hosts && ranks <= max; h++) ranks += cluster->ranks_per_host[h % cluster->hosts];
    return ranks <= max ? ranks : max + 1;
}

tacit_status taciti_cluster_hosts(const taciti_cluster *cluster, int ranks, taciti_hosts *out) {
    int host = 0, used = 0;
    TACITI_TRY(taciti_hosts_create(ranks, out));
    for (int r = 0; r < ranks; r++) {
        if (used == cluster->ranks_per_host[host % cluster->hosts]) {
            host++;
            used = 0;
        }
        out->host_of[r] = host;
        used++;
    }
    out->count = host + 1;
    return TACIT_OK;
}

void taciti_cluster_destroy(taciti_cluster *cluster) {
    for (size_t i = 0; i < cluster->note_count; i++) taciti_free(cluster->notes[i]);
    taciti_free(cluster->notes);
    taciti_free(cluster->ranks_per_host);
    taciti_free(cluster->timings);
    taciti_free(cluster->compressions);
    *cluster = (taciti_cluster){0};
}

const taciti_cluster_compression *taciti_cluster_format_speed(const taciti_cluster *cluster, const char *name) {
    for (size_t i = 0; i < cluster->compression_count; i++)
        if (strcmp(cluster->compressions[i].codec, name) == 0) return &cluster->compressions[i];
    return NULL;
}

/* ---- growing ----------------------------------------------------------------------------------------------------- */

tacit_status taciti_cluster_add_timing(taciti_cluster *cluster, const taciti_cluster_timing *timing) {
    taciti_cluster_timing *list = taciti_with_room(cluster->timings, cluster->timing_count, sizeof *list);
    if (list == NULL) return TACIT_E_MEMORY;
    cluster->timings = list;
    list[cluster->timing_count++] = *timing;
    return TACIT_OK;
}

tacit_status taciti_cluster_add_compression(taciti_cluster *cluster, const taciti_cluster_compression *compression) {
    taciti_cluster_compression *list =
        taciti_with_room(cluster->compressions, cluster->compression_count, sizeof *list);
    if (list == NULL) return TACIT_E_MEMORY;
    cluster->compressions = list;
    list[cluster->compression_count++] = *compression;
    return TACIT_OK;
}

tacit_status taciti_cluster_add_note(taciti_cluster *cluster, const char *format, ...) {
    char text[TACITI_CLUSTER_NOTE_BYTES];
    char **list = taciti_with_room(cluster->notes, cluster->note_count, sizeof *list);
    if (list == NULL) return TACIT_E_MEMORY;
    cluster->notes = list;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    list[cluster->note_count] = taciti_strdup(text);
    if (list[cluster->note_count] == NULL) return TACIT_E_MEMORY;
    cluster->note_count++;
    return TACIT_OK;
}
