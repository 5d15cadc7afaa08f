/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the cluster that the ranks of a communicator are on: what `tacit probe` writes as cluster.json.
 * docs/cluster.md describes each measurement.
 */
#ifndef TACITI_CLUSTER_PROBE_H
#define TACITI_CLUSTER_PROBE_H

#include <stdbool.h>

#include "cluster/cluster.h"
#include "comm/comm.h"

typedef struct taciti_probe_options {
    double seconds; /* total time; measurements that would exceed it are skipped, with a note */
    bool quick;     /* fewer sizes and rounds */
    bool natives;   /* also measure the MPI library's all-reduces */
} taciti_probe_options;

/* Measures the cluster. Every rank receives the same description. Logs its progress. Returns owned; writes *out only on
 * success. Collective, submitting thread. */
tacit_status taciti_probe_run(taciti_comm *comm, const taciti_probe_options *options, taciti_cluster *out);

#endif
