/* SPDX-License-Identifier: Apache-2.0
 *
 * What this program is linked with, and whether that is what it was compiled for.
 */
#ifndef TACITI_CLI_LIBRARIES_H
#define TACITI_CLI_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>

enum { TACITI_LIBRARIES = 8, TACITI_LIBRARY_TEXT_BYTES = 128 };

typedef struct taciti_linked_library {
    const char *name;                         /* "oneDNN" */
    char version[TACITI_LIBRARY_TEXT_BYTES];  /* at run time */
    char compiled[TACITI_LIBRARY_TEXT_BYTES]; /* of the header; "" when the library does not say */
    bool fits;                                /* false: the two have incompatible interfaces */
} taciti_linked_library;

/* Fills all of them; returns how many. Works without a launcher and does not start MPI. */
size_t taciti_libraries(taciti_linked_library out[TACITI_LIBRARIES]);

#endif
