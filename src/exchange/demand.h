/* SPDX-License-Identifier: Apache-2.0
 *
 * The traffic of an exchange on a cluster's links: the cost formulas of exchange/. Tests compare them with the byte
 * counters. Pure arithmetic on ranks and hosts, without a communicator. Any thread. The functions allocate temporary
 * memory; if that fails (logged), they return zero.
 */
#ifndef TACITI_EXCHANGE_DEMAND_H
#define TACITI_EXCHANGE_DEMAND_H

#include "codec/codec.h"
#include "exchange/arrangement.h"
#include "topo/topo.h"

/* For one array. */
typedef struct taciti_demand {
    double host_bytes;  /* traffic of the busiest host link, per direction */
    double flow_bytes;  /* maximum over ranks of what one sends to, or receives from, other hosts; short arrays
                           (small.h): 0 */
    double local_bytes; /* maximum over ranks of what one sends within its host */
    int wire_hops;      /* consecutive messages between hosts that depend on each other: latency */
    int local_hops;     /* the same inside a host */
    int hosts;          /* of the group; with edges, of a rank and its neighbours: 1, 2, or 3 for more */
    int lanes;          /* ranks of a host that share the encoding; 0 with edges: every rank encodes for itself */
} taciti_demand;

/* Length of an array in bytes: encoded, and in memory. */
typedef struct taciti_length {
    size_t wire_bytes, f32_bytes;
} taciti_length;

/* The demand of an all-reduce among these members, without other traffic, of an array with `wire_bytes` of payload and
 * `f32_bytes` in memory. */
taciti_demand taciti_allreduce_demand(const taciti_hosts *hosts, const int *members, size_t count,
                                      taciti_placement placement, size_t wire_bytes, size_t f32_bytes);

/* The demand of one round of a topology for arrays of these lengths, each exchanged alone: out[count][ranks], one entry
 * per rank. The links of an entry are those of the hosts of the rank's group or neighbours; they carry the traffic of
 * all ranks of these hosts in that round. All zero if the rank is idle. */
tacit_status taciti_mix_demands(const taciti_hosts *hosts, const taciti_topology *topology, size_t round,
                                taciti_placement placement, const taciti_length *lengths, size_t count,
                                taciti_demand *out);

/* Bytes that the link of the busiest host carries in a round, per direction, for an array that is not short (small.h).
 */
double taciti_mix_nic_bytes_of(const taciti_hosts *hosts, const taciti_topology *topology, size_t round,
                               taciti_placement placement, size_t wire_bytes);

/* The mean of that over a period, of the host with the largest mean; `tacit info topologies` and plans show it in model
 * sizes. It is less than the mean over rounds if different hosts are busy in different rounds: for aer 1/2 instead of
 * 1. */
double taciti_mix_nic_bytes_mean(const taciti_hosts *hosts, const taciti_topology *topology, taciti_placement placement,
                                 size_t wire_bytes);

/* The members of one group of a round, and their arrangement. Groups that share links divide the allowed flows among
 * them, unless the options set the number of lanes (arrangement.h). */
taciti_members taciti_members_of(const taciti_round *round, size_t group);
taciti_placement taciti_mix_placement(const taciti_hosts *hosts, const taciti_round *round, taciti_members members,
                                      taciti_placement requested);

/* Returns the codec of a group's arrays: f32 if there are several hosts and all members share one, because rounding
 * would save no traffic there. With a single host it is the wire's codec, so that its effect can be tested. */
const taciti_codec *taciti_mix_codec(const taciti_hosts *hosts, taciti_members members, const taciti_codec *wire);

#endif
