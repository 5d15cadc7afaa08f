/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: what every step of a method waits for besides its transfers.
 */
#ifndef TACITI_PLAN_WAITS_H
#define TACITI_PLAN_WAITS_H

#include "plan/links.h"

/* Short messages about what encodings have seen, which a method that adapts sends in dense steps as well, and handing
 * over between computing and messages. */
double taciti_plan_waits_s(const taciti_scene *scene, const taciti_method *method, const taciti_links *links);

#endif
