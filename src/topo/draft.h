/* SPDX-License-Identifier: Apache-2.0
 *
 * Builder of a topology: rounds over *positions* 0 .. ranks - 1, which are assigned to ranks at the end. A family adds
 * means and edges, closes the round and continues with the next one. The only possible failure is lack of memory; the
 * builder records it, so a family need not check every call.
 */
#ifndef TACITI_TOPO_DRAFT_H
#define TACITI_TOPO_DRAFT_H

#include "topo/topo.h"

/* Tolerance for "rows and columns sum to 1" and "the weights are those of a mean". */
#define TACITI_TOPO_TOLERANCE 1e-9

/* Hosts as positions see them: host h has the positions first[h] .. first[h + 1] - 1. */
typedef struct taciti_host_positions {
    int count;
    const int *first; /* [count + 1] */
} taciti_host_positions;

typedef struct taciti_draft_round {
    size_t group_at, groups; /* in group_size */
    size_t member_at, members;
    size_t edge_at, edges;
    size_t self_at; /* SIZE_MAX: a round of groups */
} taciti_draft_round;

/* An array that grows. */
typedef struct taciti_grown {
    void *items;
    size_t count, room;
} taciti_grown;

typedef struct taciti_draft {
    int ranks;
    bool directed, alternates;
    tacit_status status;                /* of everything so far */
    taciti_grown rounds;                /* taciti_draft_round; the last one is open */
    taciti_grown group_sizes;           /* size_t */
    taciti_grown members;               /* int */
    taciti_grown edges;                 /* taciti_edge */
    taciti_grown selves;                /* double */
    double *self;                       /* [ranks] of the open round; NaN: 1 - sum of the edges */
    int *leader, *size;                 /* [ranks] workspace */
    int *places;                        /* [2 ranks] workspace of the family */
    const taciti_host_positions *hosts; /* set by who lets a family draw; borrows */
} taciti_draft;

tacit_status taciti_draft_create(int ranks, taciti_draft *out);
void taciti_draft_destroy(taciti_draft *draft);

/* Replaces the values of these positions by their mean. A single position stays idle. The sets of a round must be
 * disjoint. */
void taciti_draft_mean(taciti_draft *draft, const int *members, size_t count);
void taciti_draft_pair(taciti_draft *draft, int a, int b);
/* Adds an edge. Several edges between the same two positions add up; to == from is ignored, because the diagonal is the
 * rest of 1. */
void taciti_draft_edge(taciti_draft *draft, int to, int from, double weight);
/* Sets the diagonal weight of a position, if it is not the rest of 1. */
void taciti_draft_self(taciti_draft *draft, int position, double weight);

/* Ends the round. A round that consists of means is stored as groups, even if it was written as edges. */
void taciti_draft_close(taciti_draft *draft);

size_t taciti_draft_period(const taciti_draft *draft);
const taciti_draft_round *taciti_draft_at(const taciti_draft *draft, size_t round);
const int *taciti_draft_members(const taciti_draft *draft, const taciti_draft_round *round);
const size_t *taciti_draft_sizes(const taciti_draft *draft, const taciti_draft_round *round);
const taciti_edge *taciti_draft_edges(const taciti_draft *draft, const taciti_draft_round *round);

/* Orders of ranks and of edges by (to, from), as a topology has them. For qsort() and bsearch(). */
int taciti_rank_order(const void *a, const void *b);
int taciti_edge_order(const void *a, const void *b);

/* Creates the topology with position p assigned to rank_at[p]. Sets all fields. */
tacit_status taciti_draft_finish(const taciti_draft *draft, const int *rank_at, const char *name, taciti_topology *out);

#endif
