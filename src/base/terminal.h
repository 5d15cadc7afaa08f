/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells whether a stream is an interactive terminal.
 */
#ifndef TACITI_BASE_TERMINAL_H
#define TACITI_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Returns true if the stream is a terminal that can rewrite a line. Open MPI gives its ranks a pseudo-terminal even
 * when mpirun's own output is redirected, so under mpirun the launcher's output decides. Any thread. */
bool taciti_terminal_live(FILE *stream);

/* Returns true if, besides, NO_COLOR is not set. */
bool taciti_terminal_colour(FILE *stream);

#endif
