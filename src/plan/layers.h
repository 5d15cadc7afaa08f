/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: compress.layers. Methods that compress have buckets of their own, in which what is compressed
 * and what is not lie apart.
 */
#ifndef TACITI_PLAN_LAYERS_H
#define TACITI_PLAN_LAYERS_H

#include "plan/plan.h"

/* Sets the scene's layout to the one that this method exchanges. Where nothing is left to compress, the method becomes
 * dense. */
void taciti_plan_choose_layout(taciti_scene *scene, taciti_method *method);

#endif
