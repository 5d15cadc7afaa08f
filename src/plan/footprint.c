/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/footprint.h"

#include <math.h>

#include "exchange/async.h"
#include "plan/compressed.h"
#include "plan/links.h"

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Sets *out to the bytes of the sum of n floats over all ranks on the busiest host's link; plain: not compressed. */
static tacit_status nic_bytes_of(const taciti_scene *s, const taciti_method *method, size_t n, bool plain,
                                 double *out) {
    taciti_price sum;
    TACITI_TRY(taciti_plan_price(s, method, plain ? &TACITI_PLAN_DENSE : &method->compression, TACITI_PHASE_ALL_REDUCE,
                                 n, &sum));
    if (method->library == TACITI_LIBRARY_RING)
        *out = taciti_links_ring(s->hosts->ranks, s->hosts->count, sum.length.wire_bytes).host_bytes;
    else
        *out = sum.busiest *
               taciti_allreduce_demand(s->hosts, NULL, 0, s->placement, sum.length.wire_bytes, sum.length.f32_bytes)
                   .host_bytes;
    return TACIT_OK;
}

/* The bytes of the busiest host if nobody is late. */
static double async_bytes_of(const taciti_scene *s, const taciti_method *method) {
    double busiest = 0;
    for (int host = 0; host < s->hosts->count; host++)
        busiest = fmax(busiest, (double)taciti_async_nic_bytes(method->topology, host, s->layout->n, s->hosts));
    return busiest;
}

tacit_status taciti_plan_nic_bytes(const taciti_scene *s, const taciti_method *method, const taciti_rounds *rounds,
                                   double *out) {
    const size_t every = method->every > 0 ? (size_t)method->every : 1;
    const taciti_stretches *stretches = rounds->stretches;
    const bool async = method->order == TACITI_ORDER_ASYNC;
    double sum = async ? async_bytes_of(s, method) : rounds->nic_bytes;
    for (size_t i = 0; i < stretches->length_count && method->topology == NULL; i++) {
        double bytes = 0;
        TACITI_TRY(nic_bytes_of(s, method, stretches->lengths[i], stretches->plain[i], &bytes));
        sum += (double)stretches->buckets[i] * bytes;
    }
    *out = sum * (1 + method->also_mixed) / (double)every;
    return TACIT_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Sets *out to the memory of a rank that owns parts. */
static tacit_status memory_of_parts(const taciti_scene *s, const taciti_method *method, taciti_strategy_memory *out) {
    taciti_parts parts = method->parts;
    taciti_arrangement arrangement;
    TACITI_TRY(taciti_plan_arrange(s, method, &arrangement));
    parts.coded = method->gather.encoding.codec != NULL;
    parts.memory(&parts, s->layout, s->optim, &arrangement, out);
    taciti_arrangement_destroy(&arrangement);
    return TACIT_OK;
}

tacit_status taciti_plan_memory_bytes(const taciti_scene *s, const taciti_method *method, double *out) {
    const size_t n = s->layout->n;
    size_t residuals;
    taciti_strategy_memory m = {
        .parameters = n * sizeof(float), .gradients = n * sizeof(float), .copy16 = n * sizeof(taciti_bf16)};
    *out = 0;
    if (s->optim == NULL) return TACIT_OK;
    TACITI_TRY(taciti_plan_residual_bytes(s, method, &residuals));
    m.moments = n * taciti_optim_bytes_per_float(s->optim);
    if (method->order == TACITI_ORDER_PARTS) TACITI_TRY(memory_of_parts(s, method, &m));
    const size_t neighbours = method->order == TACITI_ORDER_ASYNC ? taciti_async_neighbours(method->topology) : 0;
    const size_t arrays = (method->arrays + 2 * neighbours) * n * sizeof(float);
    *out = (double)(m.parameters + m.gradients + m.moments + residuals + arrays + (s->bf16 ? m.copy16 : 0));
    return TACIT_OK;
}

bool taciti_plan_fits(const taciti_scene *s, double bytes) {
    const double gib = s->cluster->memory_gib;
    return !(gib > 0) || bytes * taciti_hosts_sizes(s->hosts).max <= gib * 0x1p30;
}
