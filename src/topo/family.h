/* SPDX-License-Identifier: Apache-2.0
 *
 * The function that each family of topologies provides to the list in topo.c.
 */
#ifndef TACITI_TOPO_FAMILY_H
#define TACITI_TOPO_FAMILY_H

#include "topo/draft.h"

/* Adds the rounds to the draft. Refuses sizes that the family does not support; the message names both values. The
 * draft records a lack of memory. It need not close a round that is the only one. */
typedef tacit_status taciti_family_draw(const taciti_topo_request *request, taciti_draft *draft);

taciti_family_draw taciti_family_aer, taciti_family_base_k, taciti_family_complete, taciti_family_exp,
    taciti_family_exp_directed, taciti_family_exp_static, taciti_family_file, taciti_family_one_peer_ring,
    taciti_family_random, taciti_family_ring, taciti_family_torus;

/* Shared by the exponential families: the smallest k with 2^k >= count. */
int taciti_log2_ceil(int count);

/* Number of rounds in which `count` positions meet in pairs at distances 1, 2, 4, ...: log2(count) for a power of two,
 * where position i meets i XOR 2^m; otherwise twice as many. */
int taciti_matchings(int count);
/* Sets partner[i] to the partner of position i in matching m, or to i if it has none. */
void taciti_matching(int count, int m, int *partner);

/* ---- check.c: what a topology must be ---------------------------------------------------------------------------- */

/* Checks that information from every rank eventually reaches all others. Otherwise returns E_CONFIG and names two ranks
 * that never agree. */
tacit_status taciti_topology_check_reach(const taciti_topology *topology);

/* For a topology that has passed the check above: checks that the product of its rounds is primitive, that is, has no
 * second eigenvalue of modulus 1, so that repeated mixing brings all ranks to the mean. Otherwise returns E_CONFIG and
 * names the eigenvalue. Weights within the tolerance of the sums count as 0. */
tacit_status taciti_topology_check_agreement(const taciti_topology *topology);

#endif
