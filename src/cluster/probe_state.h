/* SPDX-License-Identifier: Apache-2.0
 *
 * The state shared by the parts of the probe. Every rank fills the same description: a measurement of one rank is
 * broadcast before it is used, so all ranks make the same decisions.
 */
#ifndef TACITI_CLUSTER_PROBE_STATE_H
#define TACITI_CLUSTER_PROBE_STATE_H

#include "cluster/probe.h"
#include "exchange/arrangement.h"

typedef struct taciti_probe {
    taciti_comm *comm;
    const taciti_probe_options *options;
    taciti_cluster *cluster;
    int rank, size, hosts;
    taciti_arrangement by_host; /* all ranks; owned */
    int64_t begin_ns;
} taciti_probe;

/* The i-th rank of a host, and how many there are. */
static inline int taciti_probe_rank(const taciti_probe *probe, int host, int i) {
    return taciti_arrangement_rank(&probe->by_host, host, i);
}
static inline int taciti_probe_host_size(const taciti_probe *probe, int host) {
    return taciti_arrangement_local_size(&probe->by_host, host);
}

/* Computes the seconds until this share of the total time is used up, by rank 0's clock. Collective. */
tacit_status taciti_probe_left(taciti_probe *probe, double share, double *out_s);

/* Logs a line of progress: "what (3 of 60 s)". */
void taciti_probe_say(const taciti_probe *probe, const char *what);

/* Runs a job on all ranks and waits. Collective. */
tacit_status taciti_probe_job(taciti_probe *probe, taciti_job *job);

/* The parts, in order. Each should end when this share of the total time has passed. Collective. */
tacit_status taciti_probe_codecs(taciti_probe *probe, double formats_until, double compressions_until);
tacit_status taciti_probe_compute(taciti_probe *probe, double share);
tacit_status taciti_probe_links(taciti_probe *probe, double share);
tacit_status taciti_probe_latency(taciti_probe *probe); /* takes a second at most */
tacit_status taciti_probe_collectives(taciti_probe *probe, double share);

#endif
