/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: the operations of a step of a method whose ranks own parts (plan/parts.h).
 */
#ifndef TACITI_PLAN_PARTS_STEP_H
#define TACITI_PLAN_PARTS_STEP_H

#include "plan/parts.h"

/* How many ranks divide a model's updates. */
tacit_status taciti_parts_owners(const taciti_scene *scene, const taciti_method *method, int *out);

/* Fills in the operations of a step as the network and the strategy make it. update_s: seconds at its end. out: with
 * its job_count. */
tacit_status taciti_parts_build_step(const taciti_scene *scene, const taciti_method *method, double update_s,
                                     taciti_parts_plan *out);

#endif
