/* SPDX-License-Identifier: Apache-2.0
 *
 * One watcher per rank. A launcher reports a killed rank as 137 and names nobody, and a dead process cannot speak; so
 * under a launcher with more than one rank the process splits in two: the child works, the parent, which the launcher
 * knows, waits and tells what became of it.
 *
 *   the worker exits           the watcher exits with the same code
 *   a signal kills the worker  one line: rank, host, pid, signal, step and what it was doing; exit code 5
 *   the worker is stopped      its peers name it; where they do not hear it (before the ranks have met, after their
 *                              goodbye) the watcher names and kills it after comm.timeout
 *   the worker does not end    after MPI was shut down: the watcher names and kills it
 *   a rank is stopped before   it has a watcher: the first watcher of its host names it after comm.timeout, and ends
 *   the launcher signals       TERM, INT, HUP, QUIT, USR1 and USR2 are passed on; a worker that dies of one of them
 *                              is no culprit
 *   the watcher is killed      the worker names it and ends; the launcher reports the watcher's 137
 *   the watcher is stopped     the worker names it after comm.timeout and ends, and the job with it
 *
 * TACIT_SUPERVISE=0 leaves the process whole.
 */
#ifndef TACITI_COMM_SUPERVISE_H
#define TACITI_COMM_SUPERVISE_H

#include "comm/witness.h"

/* Call before MPI and before any thread. Returns in the worker, with the page to hand to taciti_comm_attach(); NULL
 * when the process was left whole. timeout_s is comm.timeout. */
taciti_witness *taciti_supervise(double timeout_s);

/* The last thing that a process does before it exits: a watcher that is stopped would never see its worker's end. Fine
 * without a watcher. */
void taciti_supervise_finish(void);

#endif
