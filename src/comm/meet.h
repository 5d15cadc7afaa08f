/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ranks of the TCP engine meet.
 *
 *   comm.meet             HOST:PORT of rank 0, or a folder that all ranks see; tacit --ranks makes one
 *   not set, torchrun     MASTER_ADDR and the port after MASTER_PORT, which torchrun itself holds; a MASTER_PORT that
 *                         cannot be is refused
 *   not set, one host     a folder of this job below /tmp
 *   not set, else         refused
 */
#ifndef TACITI_COMM_MEET_H
#define TACITI_COMM_MEET_H

#include "comm/bootstrap.h"
#include "comm/comm.h"
#include "comm/launcher.h"

enum { TACITI_MEET_BYTES = 512 };

typedef struct taciti_meeting_place {
    taciti_bootstrap store;
    bool by_port;                  /* else in a folder */
    const char *origin;            /* of a port, for messages: "comm.meet" */
    char place[TACITI_MEET_BYTES]; /* "10.0.0.1:29501", "/tmp/tacit-0-1234" */
    char local[TACITI_MEET_BYTES]; /* the address by which this rank reaches the place; "": not known */
} taciti_meeting_place;

/* Finds the place, without touching it. E_CONFIG, logged by rank 0 of the launcher, if there is none. */
tacit_status taciti_meet_find(const taciti_comm_options *options, const taciti_launcher *launcher,
                              taciti_meeting_place *out);

/* Opens the store at the place. All ranks close it when they are connected. key: as in taciti_tcp_request. */
tacit_status taciti_meet_open(const taciti_comm_options *options, const taciti_launcher *launcher,
                              const taciti_seal_key *key, taciti_meeting_place *out);
void taciti_meet_close(taciti_meeting_place *meeting);

#endif
