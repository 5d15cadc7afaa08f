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

/* Creates the groups of two members or more; there may be none. Returns owned, taciti_topology_destroy(). */
tacit_status taciti_grouping_create(const taciti_hosts *hosts, taciti_group_kind kind, taciti_topology *out);

/* Returns the group of a rank, ascending, borrowed; count 0 if it is in none. */
taciti_members taciti_grouping_of(const taciti_topology *grouping, int rank);

#endif
