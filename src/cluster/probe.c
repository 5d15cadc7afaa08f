/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/probe.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/probe_state.h"

/* Share of the time after which each part should be done. */
static const double FORMATS_UNTIL = 0.03, CODECS_UNTIL = 0.1, COMPUTE_UNTIL = 0.17, LINKS_UNTIL = 0.46,
                    COLLECTIVES_UNTIL = 1;

static tacit_status describe_hosts(taciti_probe *probe) {
    taciti_cluster *cluster = probe->cluster;
    cluster->hosts = probe->hosts;
    cluster->ranks_per_host = taciti_calloc((size_t)probe->hosts, sizeof *cluster->ranks_per_host);
    if (cluster->ranks_per_host == NULL) return TACIT_E_MEMORY;
    for (int h = 0; h < probe->hosts; h++) cluster->ranks_per_host[h] = taciti_probe_host_size(probe, h);
    const taciti_engine *engine = taciti_comm_engine(probe->comm);
    (void)snprintf(cluster->source, sizeof cluster->source, "tacit probe %.16s%s, %.80s", tacit_version(),
                   probe->options->quick ? " --quick" : "", engine->library);
    return TACIT_OK;
}

tacit_status taciti_probe_run(taciti_comm *comm, const taciti_probe_options *options, taciti_cluster *out) {
    taciti_cluster cluster = taciti_cluster_unknown();
    const taciti_hosts *hosts = taciti_comm_hosts(comm);
    taciti_probe probe = {.comm = comm,
                          .options = options,
                          .cluster = &cluster,
                          .rank = taciti_comm_rank(comm),
                          .size = taciti_comm_size(comm),
                          .hosts = hosts->count,
                          .begin_ns = taciti_now_ns()};
    tacit_status status = taciti_arrangement_of(hosts, (taciti_members){0}, probe.rank,
                                                (taciti_placement){.scheme = TACITI_SCHEME_HOSTS}, &probe.by_host);
    if (status == TACIT_OK) status = describe_hosts(&probe);
    status = taciti_comm_agree(comm, status);
    if (status == TACIT_OK) status = taciti_probe_codecs(&probe, FORMATS_UNTIL, CODECS_UNTIL);
    if (status == TACIT_OK) status = taciti_probe_compute(&probe, COMPUTE_UNTIL);
    if (status == TACIT_OK && probe.size > 1) status = taciti_probe_links(&probe, LINKS_UNTIL);
    if (status == TACIT_OK && probe.size > 1) status = taciti_probe_latency(&probe);
    if (status == TACIT_OK && probe.size > 1) status = taciti_probe_collectives(&probe, COLLECTIVES_UNTIL);
    taciti_arrangement_destroy(&probe.by_host);
    if (status == TACIT_OK)
        *out = cluster;
    else
        taciti_cluster_destroy(&cluster);
    return status;
}
