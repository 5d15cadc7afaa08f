/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/test_rounds.h"

#include <stdio.h>
#include <string.h>

void test_topology_start(test_topology *t, const char *name, int ranks, bool directed) {
    memset(t, 0, sizeof *t);
    (void)snprintf(t->topology.name, sizeof t->topology.name, "%s", name);
    t->topology.ranks = ranks;
    t->topology.directed = directed;
    t->topology.rounds = t->rounds;
}

void test_topology_add_groups(test_topology *t, const int *group_of) {
    const int ranks = t->topology.ranks;
    taciti_round *round = &t->rounds[t->topology.period];
    test_round *s = &t->storage[t->topology.period++];
    bool taken[TEST_MAX_RANKS] = {false};
    size_t at = 0;
    for (int lowest = 0; lowest < ranks; lowest++) { /* groups ascend by their lowest rank */
        const size_t begin = at;
        for (int r = lowest; r < ranks; r++) {
            if (group_of[lowest] < 0 || taken[r] || group_of[r] != group_of[lowest]) continue;
            taken[r] = true;
            s->members[at++] = r;
        }
        if (at - begin < 2) {
            at = begin;
            continue;
        }
        s->first[round->groups++] = begin;
        s->first[round->groups] = at;
    }
    for (int r = 0; r < ranks; r++) s->self[r] = 1; /* a round without groups is one of no edges */
    round->members = s->members;
    round->first = s->first;
    if (round->groups == 0) round->self = s->self;
}

void test_topology_add_matrix(test_topology *t, const double *w) {
    const int ranks = t->topology.ranks;
    taciti_round *round = &t->rounds[t->topology.period];
    test_round *s = &t->storage[t->topology.period++];
    for (int to = 0; to < ranks; to++)
        for (int from = 0; from < ranks; from++) {
            const double weight = w[to * ranks + from];
            if (to == from)
                s->self[to] = weight;
            else if (weight != 0)
                s->edges[round->edge_count++] = (taciti_edge){.from = from, .to = to, .weight = weight};
        }
    round->edges = s->edges;
    round->self = s->self;
}

void test_topology_of_groups(test_topology *t, int ranks) {
    int all[TEST_MAX_RANKS] = {0}, pairs[TEST_MAX_RANKS], second[TEST_MAX_RANKS], three[TEST_MAX_RANKS];
    for (int r = 0; r < ranks; r++) {
        pairs[r] = r / 2;
        second[r] = r % 2;
        three[r] = (ranks - 1 - r) / 3;
    }
    test_topology_start(t, "groups", ranks, false);
    test_topology_add_groups(t, all);
    test_topology_add_groups(t, pairs);
    test_topology_add_groups(t, second);
    test_topology_add_groups(t, three);
}

/* Column by column: each rank keeps 1/2 or all, the rest goes in equal parts to some ranks of which `goes` decides. */
typedef bool edge_test(int ranks, int from, int to, int parameter);

static void add_columns(test_topology *t, edge_test *goes, int parameter) {
    const int ranks = t->topology.ranks;
    double w[TEST_MAX_RANKS * TEST_MAX_RANKS] = {0};
    for (int from = 0; from < ranks; from++) {
        int count = 0;
        for (int to = 0; to < ranks; to++) count += to != from && goes(ranks, from, to, parameter);
        for (int to = 0; to < ranks; to++)
            if (to != from && goes(ranks, from, to, parameter)) w[to * ranks + from] = 0.5 / count;
        w[from * ranks + from] = count == 0 ? 1 : 0.5;
    }
    test_topology_add_matrix(t, w);
}

static bool is_next(int ranks, int from, int to, int parameter) {
    (void)parameter;
    return to == (from + 1) % ranks || from == (to + 1) % ranks;
}

static bool is_other(int ranks, int from, int to, int parameter) {
    (void)ranks;
    (void)parameter;
    return from != to;
}

static bool is_shifted(int ranks, int from, int to, int by) { return to == (from + by) % ranks; }

static bool is_odd_one(int ranks, int from, int to, int parameter) {
    (void)parameter;
    return from != ranks - 1 && to != ranks - 1 && (from * 7 + to * 3) % 4 < 2;
}

void test_topology_of_edges(test_topology *t, int ranks) {
    test_topology_start(t, "edges", ranks, true);
    add_columns(t, is_next, 0);
    add_columns(t, is_other, 0);
    for (int by = 1; by < ranks; by *= 2) add_columns(t, is_shifted, by);
    add_columns(t, is_odd_one, 0);
}

double test_weight(const taciti_topology *topology, size_t round, int to, int from) {
    const taciti_round *r = &topology->rounds[round];
    for (size_t g = 0; g < r->groups; g++) {
        bool has_to = false, has_from = false;
        for (size_t m = r->first[g]; m < r->first[g + 1]; m++) {
            has_to = has_to || r->members[m] == to;
            has_from = has_from || r->members[m] == from;
        }
        if (has_to && has_from) return 1.0 / (double)(r->first[g + 1] - r->first[g]);
    }
    for (size_t e = 0; e < r->edge_count; e++)
        if (r->edges[e].to == to && r->edges[e].from == from) return r->edges[e].weight;
    if (to != from) return 0;
    return r->self != NULL ? r->self[to] : 1;
}
