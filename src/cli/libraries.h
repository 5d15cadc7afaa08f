/* SPDX-License-Identifier: Apache-2.0
 *
 * The libraries that the program is linked with, and whether they match the headers it was compiled with.
 */
#ifndef TACITI_CLI_LIBRARIES_H
#define TACITI_CLI_LIBRARIES_H

#include <stdbool.h>
#include <stddef.h>

enum { TACITI_LIBRARIES = 8, TACITI_LIBRARY_TEXT_BYTES = 128 };

typedef struct taciti_linked_library {
    const char *name;                         /* "oneDNN" */
    char version[TACITI_LIBRARY_TEXT_BYTES];  /* at run time */
    char compiled[TACITI_LIBRARY_TEXT_BYTES]; /* of the header; "" if unknown */
    bool fits;                                /* false: the two have incompatible interfaces */
} taciti_linked_library;

/* Fills `out` and returns the number of libraries. Needs no launcher and does not start MPI. */
size_t taciti_libraries(taciti_linked_library out[TACITI_LIBRARIES]);

#endif
