/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts of --hosts, and the command that starts ranks on one of them.
 */
#ifndef TACITI_CLI_REMOTE_H
#define TACITI_CLI_REMOTE_H

#include "tacit/tacit.h"

enum { TACITI_REMOTE_NAME_BYTES = 256 };

typedef struct taciti_remote_host {
    char name[TACITI_REMOTE_NAME_BYTES]; /* as the remote shell takes it: "b", "me@b", "fe80::1" */
    int first, ranks;                    /* first: the lowest rank there */
} taciti_remote_host;

typedef struct taciti_remote_hosts {
    taciti_remote_host *at; /* [count], owned */
    int count, ranks;       /* ranks: of all hosts */
} taciti_remote_hosts;

/* Parses "a,me@b:2,[fe80::1]:4"; per_host is the number of ranks of a host that has no number. Returns E_CONFIG, which
 * names the word that is refused. {0} is fine to destroy. */
tacit_status taciti_remote_parse(const char *list, int per_host, taciti_remote_hosts *out);
void taciti_remote_destroy(taciti_remote_hosts *hosts);

/* Writes a port of this host where its ranks can meet, "b:23456": drawn, since nobody can ask it. */
enum { TACITI_REMOTE_MEET_BYTES = TACITI_REMOTE_NAME_BYTES + 16 };
tacit_status taciti_remote_meet(const taciti_remote_host *host, char out[TACITI_REMOTE_MEET_BYTES]);

/* Returns the line that a shell of the host is to run: in this folder, with this environment's LD_LIBRARY_PATH and
 * TACIT_ variables, this program with `words` (ends with NULL) behind TACITI_RANKS_SERVE and its three numbers. Owned,
 * of malloc(); NULL, and logged, if that fails. */
char *taciti_remote_command(const taciti_remote_host *host, int ranks, char **words);

#endif
