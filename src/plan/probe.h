/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the cluster that the ranks of a communicator are on: what `tacit probe` writes as cluster.json. How each
 * figure is measured is told in docs/cluster.md.
 */
#ifndef TACITI_PLAN_PROBE_H
#define TACITI_PLAN_PROBE_H

#include <stdbool.h>

#include "comm/comm.h"
#include "plan/cluster.h"

typedef struct taciti_probe_options {
    double seconds; /* for everything; what would take longer is skipped, with a note */
    bool quick;     /* fewer sizes and rounds */
    bool natives;   /* the MPI library's own all-reduces, too */
} taciti_probe_options;

/* Collective, submitting thread. Every rank receives the same description. Progress is logged. Returns owned; outputs
 * are written only on success. */
tacit_status taciti_probe_run(taciti_comm *comm, const taciti_probe_options *options, taciti_cluster *out);

#endif
