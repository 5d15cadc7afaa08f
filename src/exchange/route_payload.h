/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the routes: what those have in common whose payloads travel by one all-reduce (taciti_route.reduce).
 */
#ifndef TACITI_EXCHANGE_ROUTE_PAYLOAD_H
#define TACITI_EXCHANGE_ROUTE_PAYLOAD_H

#include "exchange/route.h"

/* Describes the all-reduce of an encoding's payloads, by owners or (gather) from all to all. */
tacit_status taciti_route_describe_way(const taciti_route_setup *setup, const taciti_encoding *encoding, bool gather,
                                       taciti_allreduce *out);

/* Slots. */
tacit_status taciti_route_describe_wire(taciti_route *route); /* the all-reduce of floats in exchange.wire */
tacit_status taciti_route_reduce_open(taciti_route *route, taciti_comm *comm, void *workspace);
tacit_status taciti_route_reduce_run(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task,
                                     taciti_residual *residual);
tacit_status taciti_route_reduce_observe(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task);
uint64_t taciti_route_reduce_bytes(const taciti_route *route, size_t bucket, taciti_codec_setting setting);
double taciti_route_reduce_expected_bytes(const taciti_route *route, size_t bucket,
                                          const taciti_codec_setting *settings);

/* The mean of what each member sends of an array that one owner adds up in all pieces of the cut. */
typedef struct taciti_contribution {
    double bytes;
    size_t messages;
    int hops;
} taciti_contribution;
typedef taciti_contribution taciti_contribution_of(const taciti_encoding *encoding, const taciti_allreduce *reduce,
                                                   const taciti_cut *cut, double n);

/* The price of a phase by owners; reduce: described so. */
taciti_price taciti_route_price_by_owners(const taciti_route_setup *setup, const taciti_allreduce *reduce,
                                          taciti_phase phase, size_t n, taciti_rates_at *rates, const void *context,
                                          taciti_contribution_of *contribution);

#endif
