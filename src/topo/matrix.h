/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixing matrices from a file: numbers only, whatever they mean. Row = the rank that receives, column = the one that
 * gives.
 */
#ifndef TACITI_TOPO_MATRIX_H
#define TACITI_TOPO_MATRIX_H

#include <stddef.h>

#include "tacit/tacit.h"

typedef struct taciti_matrices {
    int ranks;
    size_t count;
    double *values; /* [count][ranks][ranks]; owned */
} taciti_matrices;

enum { TACITI_MATRICES_MAX = 65536 };

/* NumPy's format if the bytes begin with its mark, else numbers separated by commas. `bytes` has one zero byte more
 * than `count`. E_DATA names file and line, or what the header says, and what was expected. */
tacit_status taciti_matrices_parse(const char *file, const char *bytes, size_t count, int ranks, taciti_matrices *out);
void taciti_matrices_destroy(taciti_matrices *matrices); /* {0} is fine */

/* The two readers behind it; all values are finite afterwards. */
tacit_status taciti_matrices_parse_csv(const char *file, const char *bytes, size_t count, int ranks,
                                       taciti_matrices *out);
tacit_status taciti_matrices_parse_npy(const char *file, const unsigned char *bytes, size_t count, int ranks,
                                       taciti_matrices *out);

#endif
