/* SPDX-License-Identifier: Apache-2.0
 *
 * Who meets whom in the rounds of a topology, and what ranks must remember of each other to mix differences
 * (reference.h). Pure computation. Any thread.
 */
#ifndef TACITI_EXCHANGE_MIX_WAYS_H
#define TACITI_EXCHANGE_MIX_WAYS_H

#include "codec/codec.h"
#include "exchange/arrangement.h"
#include "topo/topo.h"

/* Sets out[ranks], one per rank: the number of its group; in a round of edges the only other rank that it meets, along
 * one edge in each direction; SEVERAL for any other edges; NOBODY without either. One pass over groups and edges. */
enum { TACITI_MEETS_NOBODY = -1, TACITI_MEETS_SEVERAL = -2 };
void taciti_round_partners(const taciti_round *round, int ranks, int *out);

/* Returns the members of this rank's group or, in a round of edges, of its pair, which are written to `pair`. ranks
 * NULL: it meets nobody. */
taciti_members taciti_round_members(const taciti_round *round, const int *partners, int rank, int pair[2]);

/* Whether this rank and one other meet nobody else in a round of edges. */
static inline bool taciti_partners_are_pair(const int *partners, int rank) {
    return partners[rank] >= 0 && partners[partners[rank]] == rank;
}

/* Whether PowerGossip mixes it: every rank meets a group, or one other with the weight that the other gives it. */
bool taciti_mix_takes_power(const taciti_topology *topology);

/* For groups, whose ranks are listed. */
bool taciti_members_equal(taciti_members a, taciti_members b);

/* Returns E_CONFIG, with what to type: this rank meets others in more than TACITI_REFERENCES_MAX ways. */
tacit_status taciti_mix_refuse_ways(const taciti_topology *topology, int rank);

/* Refuses a topology on which a rank meets others in more ways than that when this codec encodes differences; NULL:
 * PowerGossip. Sets *arrays to the flat arrays of f32 that the references of a rank take, of the rank that has the
 * largest number; 0 for PowerGossip. Not collective. */
tacit_status taciti_mix_check_ways(const taciti_hosts *hosts, const taciti_topology *topology,
                                   taciti_placement requested, const taciti_codec *codec, size_t *arrays);

#endif
