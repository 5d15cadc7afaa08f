/* SPDX-License-Identifier: Apache-2.0
 *
 * bucket x codec x topology: the weighted means of gossip. In a round of groups every group makes an all-reduce of its
 * own (allreduce.h), host-aware as the dense one; groups do not disturb each other. In a round of edges every rank
 * sends its array to those it has edges to and adds up what arrives, in ascending order of ranks. So all members of a
 * group hold the same bits, and nothing depends on what arrived first.
 *
 * The caller keeps its own parameters x and hands over a copy, in which the result arrives:
 *
 *   buffer = x;  begin(buffer, bucket, round);  ... compute ...  wait(bucket);  y = keep x + share buffer
 *
 * Members that share one of several hosts mix in f32 on any wire (taciti_mix_codec(), demand.h).
 *
 * With a lossy codec nothing is lost: the encoding error of a payload is added to the result of the rank that encoded
 * it, so the sum over all ranks is the one of exact mixing (up to f32 rounding). Members of a group then differ by what
 * each of them keeps, even when they were equal before: the rank that sends the sum of n members
 * keeps up to n times the rounding of a mean. Only where the sum of equal numbers is exact they stay equal (a power of
 * two of members, none summed inside of a host; edges, up to f32).
 */
#ifndef TACITI_EXCHANGE_MIX_H
#define TACITI_EXCHANGE_MIX_H

#include "exchange/exchange.h"
#include "topo/topo.h"

typedef struct taciti_mix taciti_mix;

/* Borrows comm, layout and topology (of as many ranks). Only wire, scheme and lanes of the options are read.
 * Workspaces of all rounds of the period are made here and shared between rounds; nothing is allocated later.
 * Collective. */
tacit_status taciti_mix_create(taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                               const taciti_exchange_options *options, taciti_mix **out);
/* The same with any codec instead of the wire's. Every encoding gets setting 0 and the codec's first state. */
tacit_status taciti_mix_create_encoded(taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                                       const taciti_exchange_options *options, const taciti_encoding *encoding,
                                       taciti_mix **out);
void taciti_mix_destroy(taciti_mix *mix);

/* Starts one bucket of mix number `number` (round number % period); the same sequence of (bucket, number) on all ranks,
 * each bucket at most once under way. flat is not touched until taciti_mix_wait(). Owner thread, never blocks. */
tacit_status taciti_mix_begin(taciti_mix *mix, float *flat, size_t bucket, int64_t number);
tacit_status taciti_mix_wait(taciti_mix *mix, size_t bucket);

/* y = keep x + share buffer; an idle rank has keep 1 and share 0, and its buffer is then not read or written. */
typedef struct taciti_mix_weights {
    float keep, share;
} taciti_mix_weights;
taciti_mix_weights taciti_mix_weights_of(const taciti_mix *mix, int64_t number);

/* Bytes that this rank sends, and that all ranks of its host together send to other hosts, in that mix of all buckets:
 * the formulas that the byte counters are checked against; the maximum if the codec does not fix the size. */
uint64_t taciti_mix_bytes(const taciti_mix *mix, int64_t number);
uint64_t taciti_mix_nic_bytes(const taciti_mix *mix, int64_t number);

/* Bytes of workspace before it exists, for the memory prediction; 0 when there is no memory to tell. */
size_t taciti_mix_predict_bytes(const taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                                const taciti_exchange_options *options);

#endif
