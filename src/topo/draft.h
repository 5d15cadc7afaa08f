/* SPDX-License-Identifier: Apache-2.0
 *
 * A topology while it is made: rounds over *positions* 0 .. ranks - 1, which become ranks at the end. A family adds
 * means and edges, closes the round, and goes on with the next. What can fail is memory alone, and that is remembered:
 * the family need not look after each call.
 */
#ifndef TACITI_TOPO_DRAFT_H
#define TACITI_TOPO_DRAFT_H

#include "topo/topo.h"

/* Matrices are stochastic, and weights are those of a mean, within this. */
#define TACITI_TOPO_TOLERANCE 1e-9

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
    bool directed;
    tacit_status status;      /* of everything so far */
    taciti_grown rounds;      /* taciti_draft_round; the last one is open */
    taciti_grown group_sizes; /* size_t */
    taciti_grown members;     /* int */
    taciti_grown edges;       /* taciti_edge */
    taciti_grown selves;      /* double */
    double *self;             /* [ranks] of the open round; NaN: what the edges leave of 1 */
    int *leader, *size;       /* [ranks] workspace */
} taciti_draft;

tacit_status taciti_draft_create(int ranks, taciti_draft *out);
void taciti_draft_destroy(taciti_draft *draft);

/* These positions take their mean; one alone stays idle. Disjoint from the others of the round. */
void taciti_draft_mean(taciti_draft *draft, const int *members, size_t count);
void taciti_draft_pair(taciti_draft *draft, int a, int b);
/* Several edges between the same two add up; to == from is dropped, for what is kept is the rest. */
void taciti_draft_edge(taciti_draft *draft, int to, int from, double weight);
/* What a position keeps, when it is not simply the rest of 1. */
void taciti_draft_self(taciti_draft *draft, int position, double weight);

/* Ends the round. A round that consists of means is stored as groups, however it was written. */
void taciti_draft_close(taciti_draft *draft);

size_t taciti_draft_period(const taciti_draft *draft);
const taciti_draft_round *taciti_draft_at(const taciti_draft *draft, size_t round);
const int *taciti_draft_members(const taciti_draft *draft, const taciti_draft_round *round);
const size_t *taciti_draft_sizes(const taciti_draft *draft, const taciti_draft_round *round);
const taciti_edge *taciti_draft_edges(const taciti_draft *draft, const taciti_draft_round *round);

/* The topology, position p taken by rank_at[p]. name, ranks, directed, rounds, period, position are set. */
tacit_status taciti_draft_finish(const taciti_draft *draft, const int *rank_at, const char *name, taciti_topology *out);

#endif
