/* SPDX-License-Identifier: Apache-2.0
 *
 * --ranks N: the program starts its own ranks on this machine, where no launcher did.
 */
#ifndef TACITI_CLI_RANKS_H
#define TACITI_CLI_RANKS_H

#include "tacit/tacit.h"

enum { TACITI_RANKS_MAX = 1024 };

/* In the table of every verb that may run on several ranks. */
#define TACITI_RANKS_FLAG                                                                                              \
    { "--ranks", NULL, "N", "start N ranks on this machine, without a launcher" }

/* Takes "--ranks N" or "--ranks=N" out of the words of a verb; of several the last one counts. *argc and argv lose
 * them. *ranks is 0 if there are none. Returns E_USAGE or E_CONFIG for a number that is refused. */
tacit_status taciti_ranks_take(int *argc, char **argv, int *ranks);

/* Starts this program `ranks` times with these words (argv ends with NULL) and waits for all processes. Each finds in
 * its environment RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, as under torchrun, and in TACIT_COMM_MEET a
 * folder of their own where they meet. Signals are passed on. When a process fails the others have 20 s to say what
 * they see; then they are ended. Returns the exit code of the first that failed, or 0. Call before threads are
 * started. */
int taciti_ranks_run(int ranks, char **argv);

#endif
