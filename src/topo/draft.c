/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/draft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* ---- growing ----------------------------------------------------------------------------------------------------- */

/* Room for `count` items more; NULL, and the draft's status says so, when there is none. */
static void *grow_array(taciti_draft *draft, taciti_grown *array, size_t size, size_t count) {
    if (draft->status != TACIT_OK) return NULL;
    void *items = taciti_reserve(array->items, array->count, count, size, &array->room);
    if (items == NULL) {
        draft->status = TACIT_E_MEMORY;
        return NULL;
    }
    array->items = items;
    array->count += count;
    return (char *)items + (array->count - count) * size;
}

static taciti_draft_round *open_round(taciti_draft *draft) {
    return (taciti_draft_round *)draft->rounds.items + draft->rounds.count - 1;
}

static void begin_round(taciti_draft *draft) {
    taciti_draft_round *round = grow_array(draft, &draft->rounds, sizeof *round, 1);
    if (round == NULL) return;
    *round = (taciti_draft_round){.group_at = draft->group_sizes.count,
                                  .member_at = draft->members.count,
                                  .edge_at = draft->edges.count,
                                  .self_at = SIZE_MAX};
    for (int i = 0; i < draft->ranks; i++) draft->self[i] = (double)NAN;
}

tacit_status taciti_draft_create(int ranks, taciti_draft *out) {
    taciti_draft draft = {.ranks = ranks, .status = TACIT_OK};
    draft.self = taciti_calloc((size_t)ranks, sizeof *draft.self);
    draft.leader = taciti_calloc((size_t)ranks, 4 * sizeof *draft.leader);
    if (draft.self == NULL || draft.leader == NULL) {
        taciti_draft_destroy(&draft);
        return TACIT_E_MEMORY;
    }
    draft.size = draft.leader + ranks;
    draft.places = draft.size + ranks;
    begin_round(&draft);
    if (draft.status != TACIT_OK) {
        taciti_draft_destroy(&draft);
        return TACIT_E_MEMORY;
    }
    *out = draft;
    return TACIT_OK;
}

void taciti_draft_destroy(taciti_draft *draft) {
    taciti_free(draft->rounds.items);
    taciti_free(draft->group_sizes.items);
    taciti_free(draft->members.items);
    taciti_free(draft->edges.items);
    taciti_free(draft->selves.items);
    taciti_free(draft->self);
    taciti_free(draft->leader);
    *draft = (taciti_draft){0};
}

/* ---- adding ------------------------------------------------------------------------------------------------------ */

int taciti_rank_order(const void *a, const void *b) {
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int taciti_edge_order(const void *a, const void *b) {
    const taciti_edge *x = a, *y = b;
    return x->to != y->to ? (x->to > y->to) - (x->to < y->to) : (x->from > y->from) - (x->from < y->from);
}

void taciti_draft_mean(taciti_draft *draft, const int *members, size_t count) {
    if (count < 2) return;
    size_t *size = grow_array(draft, &draft->group_sizes, sizeof *size, 1);
    int *place = grow_array(draft, &draft->members, sizeof *place, count);
    if (size == NULL || place == NULL) return;
    *size = count;
    memcpy(place, members, count * sizeof *place);
    qsort(place, count, sizeof *place, taciti_rank_order);
    open_round(draft)->groups++;
    open_round(draft)->members += count;
}

void taciti_draft_pair(taciti_draft *draft, int a, int b) {
    const int pair[2] = {a, b};
    taciti_draft_mean(draft, pair, 2);
}

void taciti_draft_edge(taciti_draft *draft, int to, int from, double weight) {
    taciti_edge *edge = grow_array(draft, &draft->edges, sizeof *edge, 1);
    if (edge == NULL) return;
    *edge = (taciti_edge){.to = to, .from = from, .weight = weight};
    open_round(draft)->edges++;
}

void taciti_draft_self(taciti_draft *draft, int position, double weight) { draft->self[position] = weight; }

/* ---- closing ----------------------------------------------------------------------------------------------------- */

/* The means of the round as edges, so that the round is all edges. */
static void means_to_edges(taciti_draft *draft) {
    const taciti_draft_round before = *open_round(draft);
    size_t at = before.member_at;
    for (size_t g = 0; g < before.groups; g++) {
        const size_t count = ((const size_t *)draft->group_sizes.items)[before.group_at + g];
        const int *members = (const int *)draft->members.items + at;
        for (size_t i = 0; i < count * count; i++)
            if (i / count != i % count)
                taciti_draft_edge(draft, members[i / count], members[i % count], 1.0 / (double)count);
        at += count;
    }
    draft->group_sizes.count = before.group_at;
    draft->members.count = before.member_at;
    open_round(draft)->groups = open_round(draft)->members = 0;
}

/* Sorts the edges and adds up those between the same two. Loops are dropped: what a position keeps is what the others
 * leave of 1, unless it was set. */
static void merge_edges(taciti_draft *draft, double *kept) {
    taciti_draft_round *round = open_round(draft);
    taciti_edge *edges = (taciti_edge *)draft->edges.items + round->edge_at;
    size_t count = 0;
    if (round->edges > 0) qsort(edges, round->edges, sizeof *edges, taciti_edge_order);
    for (int i = 0; i < draft->ranks; i++) kept[i] = 1;
    for (size_t e = 0; e < round->edges; e++) {
        if (edges[e].to == edges[e].from || edges[e].weight == 0) continue;
        kept[edges[e].to] -= edges[e].weight;
        if (count > 0 && taciti_edge_order(&edges[count - 1], &edges[e]) == 0)
            edges[count - 1].weight += edges[e].weight;
        else
            edges[count++] = edges[e];
    }
    for (int i = 0; i < draft->ranks; i++)
        if (!isnan(draft->self[i])) kept[i] = draft->self[i];
    draft->edges.count = round->edge_at + count;
    round->edges = count;
}

static bool is_close(double a, double b) { return fabs(a - b) <= TACITI_TOPO_TOLERANCE; }

/* Whether the round is nothing but means: everybody hears all others of a set, each with the same weight. Leaves for
 * every position the lowest of its set in `leader`, and how many have that one as theirs in `size`. */
static bool only_means(taciti_draft *draft, const double *kept) {
    const taciti_draft_round *round = open_round(draft);
    const taciti_edge *edges = taciti_draft_edges(draft, round);
    for (int i = 0; i < draft->ranks; i++) draft->leader[i] = i;
    for (size_t e = 0; e < round->edges; e++)
        if (edges[e].from < draft->leader[edges[e].to]) draft->leader[edges[e].to] = edges[e].from;
    memset(draft->size, 0, (size_t)draft->ranks * sizeof *draft->size);
    for (int i = 0; i < draft->ranks; i++) draft->size[draft->leader[i]]++;
    for (size_t e = 0; e < round->edges; e++) {
        const int leader = draft->leader[edges[e].to];
        if (draft->leader[edges[e].from] != leader || !is_close(edges[e].weight, 1.0 / draft->size[leader]))
            return false;
    }
    for (int i = 0; i < draft->ranks; i++)
        if (!is_close(kept[i], 1.0 / draft->size[draft->leader[i]])) return false;
    /* edges stay inside of sets, and there are as many as there can be */
    size_t complete = 0;
    for (int i = 0; i < draft->ranks; i++) complete += (size_t)(draft->size[draft->leader[i]] - 1);
    return complete == round->edges;
}

/* The sets that only_means() found. Sets of one position are left out. */
static void edges_to_means(taciti_draft *draft) {
    enum { ALONE = -1 };
    taciti_draft_round *round = open_round(draft);
    draft->edges.count = round->edge_at;
    round->edges = 0;
    for (int i = 0; i < draft->ranks; i++) {
        if (draft->size[i] == 1) draft->leader[i] = ALONE;
        if (draft->size[i] < 2) continue;
        round->groups++;
        round->members += (size_t)draft->size[i];
    }
    size_t *group = grow_array(draft, &draft->group_sizes, sizeof *group, round->groups);
    int *members = grow_array(draft, &draft->members, sizeof *members, round->members), at = 0;
    if (group == NULL || members == NULL) return;
    int *next = draft->size; /* where the next member of a leader's set goes */
    for (int i = 0; i < draft->ranks; i++) {
        const int size = draft->size[i];
        if (size < 2) continue;
        *group++ = (size_t)size;
        next[i] = at;
        at += size;
    }
    for (int i = 0; i < draft->ranks; i++)
        if (draft->leader[i] != ALONE) members[next[draft->leader[i]]++] = i;
}

void taciti_draft_close(taciti_draft *draft) {
    if (draft->status != TACIT_OK) return;
    if (open_round(draft)->edges > 0) means_to_edges(draft);
    if (draft->status == TACIT_OK && open_round(draft)->groups == 0) {
        const size_t at = draft->selves.count;
        double *kept = grow_array(draft, &draft->selves, sizeof *kept, (size_t)draft->ranks);
        if (kept == NULL) return;
        merge_edges(draft, kept);
        if (open_round(draft)->edges > 0 && only_means(draft, kept)) {
            draft->selves.count = at;
            edges_to_means(draft);
        } else {
            open_round(draft)->self_at = at;
        }
    }
    begin_round(draft);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

size_t taciti_draft_period(const taciti_draft *draft) { return draft->rounds.count - 1; }

const taciti_draft_round *taciti_draft_at(const taciti_draft *draft, size_t round) {
    return (const taciti_draft_round *)draft->rounds.items + round;
}

const int *taciti_draft_members(const taciti_draft *draft, const taciti_draft_round *round) {
    return (const int *)draft->members.items + round->member_at;
}

const size_t *taciti_draft_sizes(const taciti_draft *draft, const taciti_draft_round *round) {
    return (const size_t *)draft->group_sizes.items + round->group_at;
}

const taciti_edge *taciti_draft_edges(const taciti_draft *draft, const taciti_draft_round *round) {
    return (const taciti_edge *)draft->edges.items + round->edge_at;
}

/* ---- from positions to ranks ------------------------------------------------------------------------------------- */

/* Where the parts of the topology's one block are; moved along as rounds take theirs. */
typedef struct parts {
    taciti_edge *edges;
    double *self;
    size_t *first;
    int *members;
} parts;

/* Groups ascend by their lowest rank. */
static void put_groups(const taciti_draft *draft, const taciti_draft_round *from, const int *rank_at, parts *free_parts,
                       taciti_round *to) {
    const size_t *sizes = taciti_draft_sizes(draft, from);
    const int *members = taciti_draft_members(draft, from);
    int *out = free_parts->members;
    int *start = draft->leader, *length = draft->size; /* of the group with this lowest rank; length 0: none */
    for (int i = 0; i < draft->ranks; i++) length[i] = 0;
    for (size_t g = 0, at = 0; g < from->groups; at += sizes[g++]) {
        int lowest = rank_at[members[at]];
        for (size_t i = 1; i < sizes[g]; i++)
            if (rank_at[members[at + i]] < lowest) lowest = rank_at[members[at + i]];
        start[lowest] = (int)at;
        length[lowest] = (int)sizes[g];
    }
    size_t *first = free_parts->first;
    size_t done = 0, group = 0;
    for (int lowest = 0; lowest < draft->ranks; lowest++) {
        if (length[lowest] == 0) continue;
        const size_t count = (size_t)length[lowest];
        first[group++] = done;
        for (size_t i = 0; i < count; i++) out[done + i] = rank_at[members[(size_t)start[lowest] + i]];
        qsort(out + done, count, sizeof *out, taciti_rank_order);
        done += count;
    }
    first[group] = done;
    *to = (taciti_round){.members = out, .first = first, .groups = group};
    free_parts->members += done;
    free_parts->first += group + 1;
}

static void put_edges(const taciti_draft *draft, const taciti_draft_round *from, const int *rank_at, parts *free_parts,
                      taciti_round *to) {
    const taciti_edge *edges = taciti_draft_edges(draft, from);
    const double *self = (const double *)draft->selves.items + from->self_at;
    for (size_t e = 0; e < from->edges; e++)
        free_parts->edges[e] =
            (taciti_edge){.to = rank_at[edges[e].to], .from = rank_at[edges[e].from], .weight = edges[e].weight};
    if (from->edges > 0) qsort(free_parts->edges, from->edges, sizeof *edges, taciti_edge_order);
    for (int p = 0; p < draft->ranks; p++) free_parts->self[rank_at[p]] = self[p];
    *to = (taciti_round){.edges = free_parts->edges, .edge_count = from->edges, .self = free_parts->self};
    free_parts->edges += from->edges;
    free_parts->self += draft->ranks;
}

tacit_status taciti_draft_finish(const taciti_draft *draft, const int *rank_at, const char *name,
                                 taciti_topology *out) {
    if (draft->status != TACIT_OK) return draft->status;
    const size_t period = taciti_draft_period(draft), ranks = (size_t)draft->ranks;
    const size_t bytes = period * sizeof(taciti_round) + draft->edges.count * sizeof(taciti_edge) +
                         draft->selves.count * sizeof(double) + (draft->group_sizes.count + period) * sizeof(size_t) +
                         (draft->members.count + ranks) * sizeof(int);
    taciti_round *rounds = taciti_calloc(1, bytes);
    if (rounds == NULL) return TACIT_E_MEMORY;
    /* from the strictest alignment to the laxest */
    parts free_parts = {.edges = (taciti_edge *)(void *)(rounds + period)};
    free_parts.self = (double *)(void *)(free_parts.edges + draft->edges.count);
    free_parts.first = (size_t *)(void *)(free_parts.self + draft->selves.count);
    free_parts.members = (int *)(void *)(free_parts.first + draft->group_sizes.count + period);
    int *position = free_parts.members + draft->members.count;
    for (size_t r = 0; r < period; r++) {
        const taciti_draft_round *round = taciti_draft_at(draft, r);
        if (round->self_at == SIZE_MAX)
            put_groups(draft, round, rank_at, &free_parts, &rounds[r]);
        else
            put_edges(draft, round, rank_at, &free_parts, &rounds[r]);
    }
    for (int p = 0; p < draft->ranks; p++) position[rank_at[p]] = p;
    *out = (taciti_topology){.ranks = draft->ranks,
                             .directed = draft->directed,
                             .alternates = draft->alternates && period % 2 == 0,
                             .rounds = rounds,
                             .period = period,
                             .position = position};
    (void)snprintf(out->name, sizeof out->name, "%s", name);
    return TACIT_OK;
}
