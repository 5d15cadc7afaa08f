/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the other processes of this job on this host: the children of the same launcher.
 */
#ifndef TACITI_BASE_SIBLING_H
#define TACITI_BASE_SIBLING_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns true if the process is stopped (SIGSTOP or a debugger), false if it runs or cannot be inspected. */
bool taciti_process_is_stopped(pid_t pid);

/* Finds a stopped process of the job and its rank (-1 if unknown). Returns true only on one process per host, the first
 * that is not stopped, so that the event is reported once. */
bool taciti_sibling_find_stopped(pid_t *pid, int *rank);

/* Returns how many processes this parent has that have not ended; 0 also where the system does not tell. */
int taciti_sibling_count(pid_t parent);

#endif
