/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the planner: what a compressed sum over all ranks sends and computes. The routes say it (exchange/route.h);
 * this file has the seconds per float of the cluster file (`compression`). A selector looks at every float and does
 * something for each that it keeps, so they are lines in the share that is kept, 1 / factor: between the factors of the
 * file, and beyond its smallest one. All ranks encode at the same time, so a rank that has a part of a core takes as
 * much longer (`compute.core_share`).
 *
 * Where one threshold selects in the whole model, wire bytes of sums by owners are those of the busiest host's link
 * (taciti_plan_compression.busiest, plan/uneven.h).
 */
#ifndef TACITI_PLAN_COMPRESSED_H
#define TACITI_PLAN_COMPRESSED_H

#include "exchange/route.h"
#include "plan/plan.h"

/* No compression. */
static const taciti_plan_compression TACITI_PLAN_DENSE = {.adapts = false};

/* How ranks are arranged for the method's sums; as rank 0 sees it, which the caller destroys. */
taciti_placement taciti_plan_placement(const taciti_scene *scene, const taciti_method *method);
tacit_status taciti_plan_arrange(const taciti_scene *scene, const taciti_method *method, taciti_arrangement *out);

/* The setup of the route of that compression, as rank 0 sees it; codec NULL: of dense sums. Borrows. */
taciti_route_setup taciti_plan_setup(const taciti_scene *scene, const taciti_method *method,
                                     const taciti_plan_compression *compression);

/* The price of a phase of the sum of n > 0 floats over all ranks through that compression, on this cluster. Returns
 * E_MEMORY if memory is exhausted. */
tacit_status taciti_plan_price(const taciti_scene *scene, const taciti_method *method,
                               const taciti_plan_compression *compression, taciti_phase phase, size_t n,
                               taciti_price *out);

/* The phase in which order PARTS sums gradients. Replicas sum all of it between hosts. */
static inline taciti_phase taciti_plan_reduce_phase(const taciti_method *method) {
    return method->parts.replicas ? TACITI_PHASE_REDUCE_TO_LANES : TACITI_PHASE_REDUCE_SCATTER;
}

/* Bytes that rank 0 keeps of its encodings from step to step: residuals, momenta, estimates, states. No other rank
 * keeps more. */
tacit_status taciti_plan_residual_bytes(const taciti_scene *scene, const taciti_method *method, size_t *out);

/* Makes the demand of the dense all-reduce of sum->length the demand of the sum. */
static inline void taciti_compressed_demand(const taciti_price *sum, taciti_demand *demand) {
    if (demand->wire_hops > 0) demand->wire_hops = sum->wire_hops;
    demand->host_bytes *= sum->busiest;
    demand->flow_bytes *= sum->busiest;
}

#endif
