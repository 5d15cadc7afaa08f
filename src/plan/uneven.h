/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* Inside of the planner: how unevenly payloads fall on their owners where one threshold selects in the whole model.
 *
 *   s   standard deviation of a tensor's gradient; T: the threshold
 *   p   share of a tensor's elements that a step sends:  p = s^2 / (s^2 + T^2)
 *
 * With error feedback, what an element has not sent adds up until it reaches T. For independent gradients of mean 0,
 * Wald's second identity (A. Wald, "On cumulative sums of random variables", Ann. Math. Statist. 15(3), 1944) is
 * E[v^2] = s^2 E[steps] for the v that is sent. v^2 is about T^2 where s is far below T, and v is one gradient where s
 * is far above it; T^2 + s^2 has both limits, and p = 1 / E[steps]. T is such that the model sends n / factor elements.
 *
 * The scales s are those that emulated compute draws, so a plan and a measurement of emulated compute know the same
 * ones. The scales of a training run are not known before it: as far apart, but of other tensors.
 */
/* clang-format on */
#ifndef TACITI_PLAN_UNEVEN_H
#define TACITI_PLAN_UNEVEN_H

#include "plan/plan.h"

/* Sets sent[i], of tensors of n[i] floats with the scale s[i] > 0, to the share of elements that a step sends, so that
 * it is `share` of all elements. 0 < share <= 1. */
void taciti_uneven_shares(const double *s, const size_t *n, size_t count, double share, double *sent);

/* Sets *out to the bytes of the busiest host's link, per direction, of a scattered sum of the whole model, relative to
 * those of even payloads. seed: of emulated compute. The method has a codec that sums by owners. */
tacit_status taciti_uneven_load(const taciti_scene *scene, const taciti_method *method, int64_t seed, double *out);

/* Finds method->compression.busiest where payloads are uneven, and the ends of the range as factors of transfers: even
 * payloads, and TACITI_PLAN_UNEVEN. The range is that of the link of the first compressed bucket, which is even where
 * all send to all. */
tacit_status taciti_uneven_range(const taciti_scene *scene, taciti_method *method, int64_t seed, double *even,
                                 double *uneven);

#endif
