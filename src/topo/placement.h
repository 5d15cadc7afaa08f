/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank takes which position: host by host, then better where swapping helps.
 */
#ifndef TACITI_TOPO_PLACEMENT_H
#define TACITI_TOPO_PLACEMENT_H

#include "topo/family.h"

typedef struct taciti_seating {
    int *rank_at;                /* [ranks] by position */
    int *host_at;                /* [ranks] by position */
    int *first;                  /* [hosts + 1] positions of a host */
    taciti_host_positions hosts; /* for families: `first` again */
    int *block;                  /* owns all of it */
} taciti_seating;

/* Positions filled host by host, ranks of a host ascending. Refuses numbers of hosts that cannot be. */
tacit_status taciti_seating_create(const taciti_topo_request *request, taciti_seating *out);
void taciti_seating_destroy(taciti_seating *seating);

/* Swaps ranks of different hosts as long as that lowers what the busiest host's link carries, summed over the rounds; a
 * mean across H hosts costs each of them 2 (H - 1) / H arrays, an edge across hosts one. Always the same answer;
 * nothing is tried when one pass over all pairs would take more than some 10^8 steps. */
tacit_status taciti_seating_improve(const taciti_draft *draft, taciti_seating *seating);

#endif
