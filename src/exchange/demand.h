/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange asks of a cluster's links: the cost formulas of exchange/, beside the code that they describe and
 * checked against its byte counters. Pure arithmetic on ranks and hosts; no communicator.
 */
#ifndef TACITI_EXCHANGE_DEMAND_H
#define TACITI_EXCHANGE_DEMAND_H

#include "exchange/arrangement.h"
#include "topo/topo.h"

/* For one array. */
typedef struct taciti_demand {
    double host_bytes;  /* that the busiest link of a host carries, per direction */
    double local_bytes; /* most that one rank sends to ranks of its own host */
    int wire_turns;     /* messages between hosts that wait for each other: latency */
    int local_turns;    /* the same inside a host */
} taciti_demand;

/* All-reduce of an array whose payload has `wire_bytes` (f32: `f32_bytes`) among these members, nobody else sending. */
taciti_demand taciti_allreduce_demand(const taciti_where *where, const int *members, size_t count,
                                      taciti_placement placement, size_t wire_bytes, size_t f32_bytes);

/* One round of a topology as `rank` sees it: the links are those of the hosts that its group (or its neighbours) use,
 * and they carry what all ranks of those hosts send in that round. All zero when the rank is idle. */
taciti_demand taciti_mix_demand(const taciti_where *where, const taciti_topology *topology, size_t round, int rank,
                                taciti_placement placement, size_t wire_bytes, size_t f32_bytes);

/* Bytes that the link of the busiest host carries in a round, per direction: over a period its mean is what `tacit
 * info topologies` prints in model sizes. */
double taciti_mix_nic_bytes_of(const taciti_where *where, const taciti_topology *topology, size_t round,
                               taciti_placement placement, size_t wire_bytes);

#endif
