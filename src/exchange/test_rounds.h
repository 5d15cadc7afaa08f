/* SPDX-License-Identifier: Apache-2.0
 *
 * Topologies written down by hand for the tests of mixing, so that they depend on no generator.
 */
#ifndef TACITI_EXCHANGE_TEST_ROUNDS_H
#define TACITI_EXCHANGE_TEST_ROUNDS_H

#include "topo/topo.h"

enum { TEST_MAX_RANKS = 16, TEST_MAX_ROUNDS = 16 };

typedef struct test_round {
    int members[TEST_MAX_RANKS];
    size_t first[TEST_MAX_RANKS + 1];
    taciti_edge edges[TEST_MAX_RANKS * TEST_MAX_RANKS];
    double self[TEST_MAX_RANKS];
} test_round;

typedef struct test_topology {
    taciti_topology topology;
    taciti_round rounds[TEST_MAX_ROUNDS];
    test_round storage[TEST_MAX_ROUNDS];
} test_topology;

/* An empty one; rounds are appended. Points into itself: stays in arrangement. */
void test_topology_start(test_topology *t, const char *name, int ranks, bool directed);

/* Rank r belongs to group group_of[r]; negative, or alone in its group: idle. */
void test_topology_add_groups(test_topology *t, const int *group_of);

/* w[to * ranks + from]. */
void test_topology_add_matrix(test_topology *t, const double *w);

/* One group of all; pairs (0,1)(2,3)..; every second rank; blocks of three: four rounds of groups. */
void test_topology_of_groups(test_topology *t, int ranks);

/* A ring; everybody with everybody as edges; shifts by 1, 2, 4, .. (directed); a matrix in which ranks have unequal
 * numbers of neighbours, and one none (directed). */
void test_topology_of_edges(test_topology *t, int ranks);

/* W[to][from] from the data itself. */
double test_weight(const taciti_topology *topology, size_t round, int to, int from);

#endif
