/* SPDX-License-Identifier: Apache-2.0
 *
 * What each file of a family of topologies gives to the list in topo.c.
 */
#ifndef TACITI_TOPO_FAMILY_H
#define TACITI_TOPO_FAMILY_H

#include "topo/draft.h"

/* Hosts as positions see them: host h has the positions first[h] .. first[h + 1] - 1. */
typedef struct taciti_host_positions {
    int count;
    const int *first; /* [count + 1] */
} taciti_host_positions;

/* Adds the rounds. Refuses sizes that the family cannot have, with both values; memory is the draft's business. */
typedef tacit_status taciti_family_draw(const taciti_topo_request *request, const taciti_host_positions *hosts,
                                        taciti_draft *draft);

taciti_family_draw taciti_family_aer, taciti_family_base_k, taciti_family_complete, taciti_family_exp,
    taciti_family_exp_directed, taciti_family_exp_static, taciti_family_file, taciti_family_one_peer_ring,
    taciti_family_random, taciti_family_ring, taciti_family_torus;

/* Shared by the exponential families: the smallest k with 2^k >= count. */
int taciti_log2_ceil(int count);

/* Rounds in which `count` places meet in pairs at the distances 1, 2, 4, ...: log2(count) of them for a power of two,
 * where place i meets i XOR 2^m; twice as many else. */
int taciti_matchings(int count);
/* partner[i]: whom place i meets in matching m; i itself when it is left over. */
void taciti_matching(int count, int m, int *partner);

#endif
