/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix for topology `file`, for the tests of other folders: a ring whose edges have unequal weights, symmetric and
 * doubly stochastic for any number of ranks.
 */
#ifndef TACITI_TOPO_TEST_MATRIX_FILE_H
#define TACITI_TOPO_TEST_MATRIX_FILE_H

#include <stdbool.h>
#include <stdio.h>

static inline double test_matrix_edge(int i) { return 0.1 + 0.05 * (i % 4); }

/* W[to][from] */
static inline double test_matrix_weight(int ranks, int to, int from) {
    if (ranks == 1) return 1;
    const int before = (to + ranks - 1) % ranks;
    if (to == from) return 1 - test_matrix_edge(to) - test_matrix_edge(before);
    double weight = from == (to + 1) % ranks ? test_matrix_edge(to) : 0;
    if (from == before) weight += test_matrix_edge(before);
    return weight;
}

/* Whether the file could be written. */
static inline bool test_matrix_write(const char *path, int ranks) {
    FILE *file = fopen(path, "w");
    if (file == NULL) return false;
    for (int to = 0; to < ranks; to++)
        for (int from = 0; from < ranks; from++)
            (void)fprintf(file, "%.17g%c", test_matrix_weight(ranks, to, from), from + 1 < ranks ? ',' : '\n');
    return fclose(file) == 0;
}

#endif
