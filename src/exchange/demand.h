/* SPDX-License-Identifier: Apache-2.0
 *
 * What an exchange asks of a cluster's links: the cost formulas of exchange/, beside the code that they describe and
 * checked against its byte counters. Pure arithmetic on ranks and hosts; no communicator. Any thread. They need a
 * little memory for a moment; where there is none (logged), the answer is zero.
 */
#ifndef TACITI_EXCHANGE_DEMAND_H
#define TACITI_EXCHANGE_DEMAND_H

#include "codec/codec.h"
#include "exchange/arrangement.h"
#include "topo/topo.h"

/* For one array. */
typedef struct taciti_demand {
    double host_bytes;  /* that the busiest link of a host carries, per direction */
    double flow_bytes;  /* max that one rank sends to other hosts, or receives from them; short arrays (small.h): 0 */
    double local_bytes; /* max that one rank sends to ranks of its own host */
    int wire_hops;      /* messages between hosts that wait for each other: latency */
    int local_hops;     /* the same inside a host */
    int hosts;          /* of the group; of a rank and those it has edges to and from: 1, 2, or 3 for more */
    int lanes;          /* ranks of a host that share the encoding; 0 along edges: every rank encodes its own */
} taciti_demand;

/* Length of an array in bytes: as it travels, and as it is. */
typedef struct taciti_length {
    size_t wire_bytes, f32_bytes;
} taciti_length;

/* All-reduce of an array whose payload has `wire_bytes` (f32: `f32_bytes`) among these members, nobody else sending. */
taciti_demand taciti_allreduce_demand(const taciti_hosts *hosts, const int *members, size_t count,
                                      taciti_placement placement, size_t wire_bytes, size_t f32_bytes);

/* One round of a topology, for arrays of these lengths, each alone: out[count][ranks] as each rank sees it: the links
 * are those of the hosts that its group (or its neighbours) use, and they carry what all ranks of those hosts send in
 * that round. All zero when the rank is idle. In one pass over members and edges. */
tacit_status taciti_mix_demands(const taciti_hosts *hosts, const taciti_topology *topology, size_t round,
                                taciti_placement placement, const taciti_length *lengths, size_t count,
                                taciti_demand *out);

/* Bytes that the link of the busiest host carries in a round, per direction, for a long array (short ones take
 * another way, small.h). */
double taciti_mix_nic_bytes_of(const taciti_hosts *hosts, const taciti_topology *topology, size_t round,
                               taciti_placement placement, size_t wire_bytes);

/* The same on average over a period, of the host for which that is most: what `tacit info topologies` and plans tell in
 * model sizes. Less than the mean of the rounds where hosts are busy in turns: aer has 1 and 1/2. */
double taciti_mix_nic_bytes_mean(const taciti_hosts *hosts, const taciti_topology *topology, taciti_placement placement,
                                 size_t wire_bytes);

/* The members of one group of a round; and how such a group is arranged: groups that share links share their flows as
 * well, unless the number of lanes was asked for (arrangement.h). */
taciti_members taciti_members_of(const taciti_round *round, size_t group);
bool taciti_members_cross(const taciti_hosts *hosts, taciti_members members, int host); /* some are on it, some not */
taciti_placement taciti_mix_placement(const taciti_hosts *hosts, const taciti_round *round, taciti_members members,
                                      taciti_placement requested);

/* How a group's arrays travel: in f32 when all its members share one of several hosts, where no wire is to be spared
 * and rounding would only cost. On a single host the wire's codec is used, so that what it does can be seen there. */
const taciti_codec *taciti_mix_codec(const taciti_hosts *hosts, taciti_members members, const taciti_codec *wire);

#endif
