/* SPDX-License-Identifier: Apache-2.0
 *
 * The libraries that the program is linked with or, MPI, opens. The linker refuses to start it with one of another
 * interface.
 */
#ifndef TACITI_CLI_LIBRARIES_H
#define TACITI_CLI_LIBRARIES_H

#include <stddef.h>

enum { TACITI_LIBRARIES = 8 };

typedef struct taciti_linked_library {
    const char *name;  /* "oneDNN" */
    char version[128]; /* at run time */
} taciti_linked_library;

/* Fills `out` and returns the number of libraries. Needs no launcher and does not start MPI. */
size_t taciti_libraries(taciti_linked_library out[TACITI_LIBRARIES]);

#endif
