/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine over sockets of our own: TCP between hosts; inside a host memory that two ranks share, or Unix-domain
 * sockets where the system has none to share. It needs no library and no launcher, only a store where the ranks meet
 * (bootstrap.h).
 *
 *   engine_tcp.c   the engine's table: requests, progress, sleeping, close, abort, fork
 *   tcp_connect.c  how ranks meet: addresses, connections, the cookie that keeps others out
 *   tcp_peer.c     the messages of a pair of ranks
 *   tcp_link.c     the bytes of one connection
 *   tcp_memory.c   memory that a pair of ranks shares
 *   tcp_frame.c    the format of all of it
 *   seal.c         keys: proofs and sealed blocks
 *
 * A rank is connected to all others when its engine opens, so that whoever is missing is named then, and its port is
 * closed from then on: nobody can knock while a run goes on. An engine belongs to one epoch of membership; ranks that
 * leave or join open another one with the next epoch.
 */
#ifndef TACITI_COMM_ENGINE_TCP_H
#define TACITI_COMM_ENGINE_TCP_H

#include "comm/bootstrap.h"
#include "comm/comm.h"
#include "comm/seal.h"

typedef struct taciti_tcp_request {
    int rank, size;
    uint32_t epoch;             /* of the membership: ranks of another one are refused */
    taciti_bootstrap bootstrap; /* used until the open has returned on this rank */
    const char *interface;      /* name or address of the interface to listen on; NULL or "": all that are up */
    double start_s;             /* maximum time for all ranks to connect */
    double timeout_s;           /* the system gives a connection up whose data stay unacknowledged for twice this time,
                                 * so that heartbeats decide first; 0: 15 */
    const taciti_seal_key *key; /* NULL: connections are not sealed; used until the open has returned on this rank */
    bool only_tcp;              /* no Unix-domain sockets between ranks of one host */
    bool no_memory;             /* ranks of one host share none */
} taciti_tcp_request;

/* Connects to all ranks. Returns E_PEER, naming ranks that are missing, after start_s. Others may still read the store
 * then, until this rank has heard from all of them over the engine. Collective. */
tacit_status taciti_engine_tcp_open(const taciti_tcp_request *request, taciti_engine *out);

#endif
