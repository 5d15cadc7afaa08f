/* SPDX-License-Identifier: Apache-2.0
 *
 * --ranks N: the program starts its own ranks on this machine, where no launcher did. --hosts a,b:2 starts them on
 * other hosts over ssh, or another command of the same form (--rsh).
 *
 * On each host a process starts the ranks there and watches them. Its standard input is the line to the starter:
 * signals and a beat every second come through it, and when it ends, or is silent for 30 s, the ranks are told to end
 * as by SIGTERM. So nothing stays behind when the starter dies or its host is cut off.
 */
#ifndef TACITI_CLI_RANKS_H
#define TACITI_CLI_RANKS_H

#include "tacit/tacit.h"

enum { TACITI_RANKS_MAX = 1024 };

/* In the table of every verb that may run on several ranks. */
#define TACITI_RANKS_FLAGS                                                                                             \
    {"--ranks", NULL, "N", "start N ranks on this machine, without a launcher; with --hosts, N on each host"},         \
        {"--hosts", NULL, "LIST",                                                                                      \
         "start ranks on other hosts, as a,b:2: so many as the colon or --ranks says, else one"},                      \
    {                                                                                                                  \
        "--rsh", NULL, "COMMAND", "what runs words on a host: COMMAND HOST WORDS (default " TACITI_RSH ")"             \
    }

/* A host that does not answer is given up, and nobody waits for a password. */
#define TACITI_RSH "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ServerAliveInterval=10"

typedef struct taciti_ranks {
    int ranks;         /* 0: not given */
    const char *hosts; /* NULL: not given */
    const char *rsh;   /* words, separated by blanks */
} taciti_ranks;

/* Takes --ranks, --hosts and --rsh, each as "--ranks N" or "--ranks=N", out of the words of a verb; of several the last
 * one counts. *argc and argv lose them. Returns E_USAGE or E_CONFIG for what is refused. */
tacit_status taciti_ranks_take(int *argc, char **argv, taciti_ranks *out);

/* Starts this program once for each rank with these words (argv ends with NULL) and waits for all processes. Each finds
 * in its environment RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, as under torchrun, in TACIT_COMM_MEET a place
 * to meet (a folder of their own; with hosts a port of the first one, unless it is set), and TACIT_STARTER. On other
 * hosts the program has the same path and runs in the same folder, with LD_LIBRARY_PATH and all TACIT_ variables of
 * this one.
 *
 * Signals are passed on. When a process fails the others have 5 s to say what they see; then they are ended. Returns
 * the exit code of the first that failed, or 0. Call before threads are started. */
int taciti_ranks_run(const taciti_ranks *wanted, char **argv);

/* The same on one of the hosts: argv is the program, TACITI_RANKS_SERVE, the first rank here, their number, the number
 * of all ranks, and the words of the verb. */
#define TACITI_RANKS_SERVE "_ranks"
int taciti_ranks_serve(int argc, char **argv);

#endif
