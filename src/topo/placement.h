/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: assigns ranks to the positions of a topology. It starts host by host and then swaps ranks where this
 * lowers the traffic between hosts.
 */
#ifndef TACITI_TOPO_PLACEMENT_H
#define TACITI_TOPO_PLACEMENT_H

#include "topo/family.h"

typedef struct taciti_seating {
    int *rank_at;                /* [ranks] by position; owns the block of all three */
    int *host_at;                /* [ranks] by position */
    int *first;                  /* [hosts + 1] positions of a host */
    taciti_host_positions hosts; /* for families: `first` again */
} taciti_seating;

/* Fills the positions host by host, the ranks of a host in ascending order. Refuses host numbers out of range. */
tacit_status taciti_seating_create(const taciti_topo_request *request, taciti_seating *out);
void taciti_seating_destroy(taciti_seating *seating);

/* Swaps ranks of different hosts as long as this lowers the traffic of the busiest host's link, summed over the rounds.
 * A mean across H hosts costs each of them 2 (H - 1) / H arrays, an edge between hosts one array. Deterministic. Does
 * nothing if one pass over all pairs would take more than about 10^8 operations. */
tacit_status taciti_seating_improve(const taciti_draft *draft, taciti_seating *seating);

#endif
