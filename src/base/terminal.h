/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a person watch this stream?
 */
#ifndef TACITI_BASE_TERMINAL_H
#define TACITI_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* True when the stream ends on a terminal that can rewrite a line. Open MPI gives its ranks a pseudo-terminal whatever
 * mpirun's own output is, so under it the launcher's output decides. Any thread. */
bool taciti_terminal_live(FILE *stream);

#endif
