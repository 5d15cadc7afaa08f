/* SPDX-License-Identifier: Apache-2.0
 *
 * The weighted means of gossip, for buckets with any codec and topology. In a round of groups, each group runs its own
 * all-reduce (allreduce.h); like the dense one it uses the hosts of the members. In a round of edges, every rank sends
 * its array along its edges and adds the arriving arrays in ascending order of ranks. So all members of a group hold
 * the same bits, and the result does not depend on the order of arrival.
 *
 * The caller keeps its parameters x and passes a copy, which receives the result:
 *
 *   buffer = x;  begin(buffer, bucket, round);  ... compute ...  wait(bucket);  y = keep x + share buffer
 *
 * With taciti_mix_form.differences, codecs that lose much can be used: what they encode is the difference to what the
 * receivers know (reference.h).
 *
 * A group within one of several hosts mixes in f32 whatever the wire (taciti_mix_codec(), demand.h).
 *
 * A lossy codec preserves the sum over all ranks, up to f32 rounding: the encoding error of a payload is added to the
 * result of the rank that encoded it. So members of a group differ afterwards by their encoding errors, even if they
 * were equal before: the rank that sends the sum of n members keeps up to n times the rounding error of a mean. They
 * stay equal only if the sum of equal numbers is exact: with a power of two of members, none of which are added inside
 * a host, and on edges up to f32 rounding.
 */
#ifndef TACITI_EXCHANGE_MIX_H
#define TACITI_EXCHANGE_MIX_H

#include "exchange/exchange.h"
#include "tensor/state.h"
#include "topo/topo.h"

typedef struct taciti_mix taciti_mix;

/* How arrays travel. */
typedef struct taciti_mix_form {
    taciti_encoding
        encoding;     /* of a codec of class SUM or GATHER, at its `expected` setting; codec NULL: exchange.wire */
    size_t power;     /* above 0: PowerGossip with this number of columns (power.h) instead of the encoding; for
                         topologies that taciti_mix_takes_power() */
    bool differences; /* encoded are differences to what the receivers know: an array of memory for each of this
                         rank's groups, two for a round of edges, and one more */
} taciti_mix_form;

/* Borrows comm, layout and topology, which has as many ranks as comm. Reads only wire, scheme and lanes of the options.
 * form NULL: arrays travel in exchange.wire. Allocates the workspaces, which all rounds share; nothing is allocated
 * later. Returns E_CONFIG for differences on more than TACITI_REFERENCES_MAX groups of a rank. Collective. */
tacit_status taciti_mix_create(taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                               const taciti_exchange_options *options, const taciti_mix_form *form, taciti_mix **out);
void taciti_mix_destroy(taciti_mix *mix);

/* Starts one bucket of mix `number`, whose round is that of taciti_topology_round(). All ranks start the same sequence
 * of (bucket, number); a bucket must not be under way. The bucket of `flat` must not be accessed until
 * taciti_mix_wait() has returned. Submitting thread. With a communication thread, does not block; without one, the
 * bucket holds the result on return. */
tacit_status taciti_mix_begin(taciti_mix *mix, float *flat, size_t bucket, int64_t number);
/* Blocks until the bucket of that mix has arrived; `flat` then holds what the weights apply to. Submitting thread. */
tacit_status taciti_mix_wait(taciti_mix *mix, float *flat, size_t bucket, int64_t number);

/* Tells a mix of differences that all ranks have this flat array, and know it; NULL: that they know nothing.
 * PowerGossip forgets its factors. Before the first begin. */
void taciti_mix_set_references(taciti_mix *mix, const float *flat);
/* Lists what ranks know of each other, for checkpoints; between a wait and the next begin, or while a mix is under way,
 * which then starts again. `prefix` tells the mixes of a run apart. */
void taciti_mix_list(taciti_mix *mix, const char *prefix, taciti_state *out);

/* y = keep x + share buffer. An idle rank has keep 1 and share 0; its buffer is neither read nor written. */
typedef struct taciti_mix_weights {
    float keep, share;
} taciti_mix_weights;
taciti_mix_weights taciti_mix_weights_of(const taciti_mix *mix, size_t bucket, int64_t number);

/* Payload bytes that this rank sends in that mix of all buckets; the maximum if the codec's payloads vary in size.
 * Tests compare them with the byte counters. */
uint64_t taciti_mix_bytes(const taciti_mix *mix, int64_t number);

/* Payload bytes that this rank has sent in the last mix with such a number, whole periods apart, that was waited for;
 * before the first one taciti_mix_bytes(). Submitting thread. */
uint64_t taciti_mix_sent(const taciti_mix *mix, int64_t number);

/* Predicts the bytes of workspace that create will allocate; 0 if the memory for the prediction is missing. */
size_t taciti_mix_predict_bytes(const taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                                const taciti_exchange_options *options, const taciti_mix_form *form);

#endif
