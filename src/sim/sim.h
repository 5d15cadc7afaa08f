/* SPDX-License-Identifier: Apache-2.0
 *
 * The same way of a gradient on a virtual clock. A simulation replaces the engine (comm/comm.h: isend, irecv, test,
 * clock) and the compute times; schedules, buckets and decisions are the ones that run on a real cluster.
 */
#ifndef TACITI_SIM_SIM_H
#define TACITI_SIM_SIM_H

#include <stddef.h>

#include "plan/plan.h"

/* A virtual cluster: `hosts` of `per_host` ranks; one link inside a host, one between hosts, shared by its ranks. */
typedef struct taciti_sim_cluster {
    int hosts, per_host;
    taciti_link_cost inside, between;
    double compute_cv; /* coefficient of variation of the compute time per step */
} taciti_sim_cluster;

#endif
