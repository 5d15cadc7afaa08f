/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes of the same job on this host, as the system shows them: children of the same launcher.
 */
#ifndef TACITI_BASE_SIBLING_H
#define TACITI_BASE_SIBLING_H

#include <stdbool.h>
#include <sys/types.h>

/* True while a process is stopped (SIGSTOP, a debugger); false when it cannot be seen. */
bool taciti_process_is_stopped(pid_t pid);

/* A process of the job that is stopped, with its rank (-1: unknown), when this process is the one to tell: the first of
 * those on this host that are not stopped. */
bool taciti_sibling_find_stopped(pid_t *pid, int *rank);

#endif
