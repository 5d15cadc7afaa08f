/* SPDX-License-Identifier: Apache-2.0
 *
 * Who talks to whom, with which weight: pure mathematics on integers and doubles, no communication. A topology is data:
 * a period of rounds, each a set of groups of ranks that average with given weights.
 */
#ifndef TACITI_TOPO_TOPO_H
#define TACITI_TOPO_TOPO_H

#include <stddef.h>

#include "tacit/tacit.h"

/* rank `from` contributes `weight` of its value to rank `to`. Self-weights are edges with from == to. */
typedef struct taciti_edge {
    int from, to;
    double weight;
} taciti_edge;

typedef struct taciti_round {
    const taciti_edge *edges;
    size_t count;
} taciti_round;

typedef struct taciti_topology {
    const char *name;
    int ranks;
    const taciti_round *rounds;
    size_t period; /* step t uses rounds[t % period] */
} taciti_topology;

#endif
