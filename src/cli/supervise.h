/* SPDX-License-Identifier: Apache-2.0
 *
 * One watcher per rank. A launcher reports a killed rank as 137 and names nobody, and a dead process cannot speak; so
 * under a launcher with more than one rank the process splits in two: the child works, the parent, which the launcher
 * knows, waits and tells what became of it.
 *
 *   the worker exits           the watcher exits with the same code
 *   a signal kills the worker  one line: rank, host, pid, signal, step and what it was doing; exit code 5
 *   the launcher signals       TERM, INT, HUP, QUIT, USR1 and USR2 are passed on; a worker that dies of one of them is
 *                              no culprit
 *   the watcher is killed      the system kills the worker
 *
 * TACIT_SUPERVISE=0 leaves the process whole.
 */
#ifndef TACITI_CLI_SUPERVISE_H
#define TACITI_CLI_SUPERVISE_H

#include "comm/witness.h"

/* Call before MPI and before any thread. Returns in the worker, with the page to hand to taciti_comm_attach(); NULL
 * when the process was left whole. */
taciti_witness *taciti_supervise(void);

#endif
