/* SPDX-License-Identifier: Apache-2.0
 *
 * The groups of a kind (cluster/cluster.h) on given hosts, as a topology of one round. Probe and planner use the same
 * groups.
 */
#ifndef TACITI_CLUSTER_GROUPING_H
#define TACITI_CLUSTER_GROUPING_H

#include "cluster/cluster.h"
#include "exchange/arrangement.h"
#include "topo/topo.h"

typedef struct taciti_grouping {
    taciti_topology topology; /* of one round of groups; points into this object, which must stay in place */
    taciti_round round;
    int *members;  /* owned */
    size_t *first; /* owned */
} taciti_grouping;

/* Creates the groups of two members or more; there may be none. Returns owned; `out` must not move. */
tacit_status taciti_grouping_create(const taciti_hosts *hosts, taciti_group_kind kind, taciti_grouping *out);
void taciti_grouping_destroy(taciti_grouping *grouping); /* {0} is fine */

/* Returns the group of a rank, ascending, borrowed; count 0 if it is in none. */
taciti_members taciti_grouping_of(const taciti_grouping *grouping, int rank);

#endif
