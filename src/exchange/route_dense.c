/* SPDX-License-Identifier: Apache-2.0
 *
 * The route of sums that are not compressed: floats in the number format exchange.wire.
 */
#include "exchange/route_payload.h"

static tacit_status accept_encoding(const taciti_encoding *encoding) {
    (void)encoding;
    return TACIT_OK;
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
    .pieces = true,
    .probed = true,
    .check = accept_encoding,
    .describe = taciti_route_describe_wire,
    .open = taciti_route_reduce_open,
    .run = taciti_route_reduce_run,
    .bytes = taciti_route_reduce_bytes,
    .expected_bytes = taciti_route_reduce_expected_bytes,
    .price = price_sum,
};
