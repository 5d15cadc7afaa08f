/* SPDX-License-Identifier: Apache-2.0
 *
 * Cost formulas: what a step would take on a described cluster (plan/cluster.h) for a network with a compute profile
 * (model/profile.h). The formulas of a codec, an exchange or a strategy live beside the code they describe; this folder
 * only composes them.
 */
#ifndef TACITI_PLAN_PLAN_H
#define TACITI_PLAN_PLAN_H

#include "model/profile.h"
#include "plan/cluster.h"

/* What a planner predicts of one strategy. */
typedef struct taciti_prediction {
    double step_s, exposed_s;
    double nic_bytes; /* per host, direction and step */
} taciti_prediction;

/* The least time that the described links allow for a collective of `bytes` per rank, latency left out: for the world
 * and groups across hosts the bytes that must cross the busiest host's link, each array once per host where members
 * share one (both directions work at once); for groups inside of a host the bytes that a rank must send. 0 when no
 * message is needed or the link is unknown. Any thread. */
double taciti_cluster_bound_s(const taciti_cluster *cluster, taciti_collective collective, taciti_group_kind group,
                              size_t bytes);

#endif
