/* SPDX-License-Identifier: Apache-2.0
 *
 * The route of sums that are not compressed: floats in the number format exchange.wire.
 */
#include "exchange/route_payload.h"

static tacit_status accept_encoding(const taciti_encoding *encoding) {
    (void)encoding;
    return TACIT_OK;
}

static tacit_status describe_route(taciti_route *route) {
    const taciti_encoding wire = {.codec = route->setup.wire};
    return taciti_route_describe_way(&route->setup, &wire, false, &route->reduce);
}

static tacit_status run_bucket(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task,
                               taciti_residual *residual) {
    (void)residual; /* it is flushed: x contains it */
    return taciti_allreduce_run(&route->reduce, x, n, task, NULL);
}

static tacit_status price_sum(const taciti_route_setup *setup, taciti_phase phase, size_t n, taciti_rates_at *rates,
                              const void *context, taciti_price *out) {
    (void)phase;
    (void)rates;
    (void)context;
    *out = (taciti_price){
        .length = {.wire_bytes = setup->wire->bound(setup->wire, NULL, n), .f32_bytes = n * sizeof(float)},
        .busiest = 1};
    return TACIT_OK;
}

const taciti_route_verbs taciti_route_dense = {
    .phases = true,
    .probed = true,
    .check = accept_encoding,
    .describe = describe_route,
    .workspace_bytes = taciti_route_reduce_workspace_bytes,
    .memory_bytes = taciti_route_no_memory_bytes,
    .open = taciti_route_reduce_open,
    .run = run_bucket,
    .bytes = taciti_route_reduce_bytes,
    .nic_bytes = taciti_route_reduce_nic_bytes,
    .expected_bytes = taciti_route_reduce_expected_bytes,
    .price = price_sum,
};
