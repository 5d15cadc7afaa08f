/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: sums over all ranks beside mixes (taciti_common_sums). A step of such a method is the mean
 * over a run: of its dense steps at the start, and of the others, among them those that send signals.
 */
#ifndef TACITI_PLAN_COMMON_H
#define TACITI_PLAN_COMMON_H

#include "plan/plan.h"

/* Returns whether the method has such sums on these ranks. */
bool taciti_plan_has_common(const taciti_scene *scene, const taciti_method *method);

/* The dense methods whose steps and whose sums those are: of gradients at the start, and of signals. */
taciti_method taciti_plan_start_method(const taciti_method *method);
taciti_method taciti_plan_signal_method(const taciti_method *method);

/* Makes the prediction of a method's mixes that of the whole run. */
void taciti_plan_add_common(const taciti_scene *scene, const taciti_method *method, const taciti_prediction *start,
                            const taciti_prediction *signals, taciti_prediction *mixes);

#endif
