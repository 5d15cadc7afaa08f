/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: what a method needs besides time, bytes on the busiest link and memory.
 */
#ifndef TACITI_PLAN_FOOTPRINT_H
#define TACITI_PLAN_FOOTPRINT_H

#include "plan/rounds.h"

/* Bytes per step of all buckets on the busiest host's link: of one all-reduce, or on average over the mixes of a
 * period. Not for order PARTS. */
tacit_status taciti_plan_nic_bytes(const taciti_scene *scene, const taciti_method *method, const taciti_rounds *rounds,
                                   double *out);

/* Bytes of a rank's flat arrays, residuals included; what activations and buffers take is on top. 0: unknown. */
tacit_status taciti_plan_memory_bytes(const taciti_scene *scene, const taciti_method *method, double *out);

/* Returns whether arrays of this size on every rank fit a host, as far as its memory is known. */
bool taciti_plan_fits(const taciti_scene *scene, double bytes);

#endif
