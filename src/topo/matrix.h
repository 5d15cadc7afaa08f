/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads mixing matrices from a file. The row is the receiving rank, the column the sending one. The values are checked
 * elsewhere.
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

/* The parsers of numbers separated by commas, where bytes[count] must be 0, and of NumPy's format. They refuse values
 * that are not finite. The message of E_DATA names the file, the line or the header's content, and what was expected.
 */
tacit_status taciti_matrices_parse_csv(const char *file, const char *bytes, size_t count, int ranks,
                                       taciti_matrices *out);
tacit_status taciti_matrices_parse_npy(const char *file, const unsigned char *bytes, size_t count, int ranks,
                                       taciti_matrices *out);

#endif
