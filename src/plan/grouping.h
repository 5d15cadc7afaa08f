/* SPDX-License-Identifier: Apache-2.0
 *
 * The groups of a kind (plan/cluster.h) on some hosts, as a topology of one round: what the probe runs and what the
 * planner describes are the same groups.
 */
#ifndef TACITI_PLAN_GROUPING_H
#define TACITI_PLAN_GROUPING_H

#include "exchange/arrangement.h"
#include "plan/cluster.h"
#include "topo/topo.h"

typedef struct taciti_grouping {
    taciti_topology topology; /* of one round of groups; points into this object, which must stay in place */
    taciti_round round;
    int *members;  /* owned */
    size_t *first; /* owned */
} taciti_grouping;

/* No groups where the kind has none of two members or more. Returns owned; `out` must not move. */
tacit_status taciti_grouping_create(const taciti_hosts *hosts, taciti_group_kind kind, taciti_grouping *out);
void taciti_grouping_destroy(taciti_grouping *grouping); /* {0} is fine */

/* The group of a rank: ascending; count 0 when it is in none. Borrows. */
taciti_members taciti_grouping_of(const taciti_grouping *grouping, int rank);

#endif
