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

#endif
