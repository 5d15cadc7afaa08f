/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks meet. Each listens, publishes its record in the bootstrap store, connects to the ranks below it and accepts
 * those above it. Both sides of a connection say hello with the cookie of the run, which rank 0 has drawn. A record may
 * be one of an earlier run, so what fails is tried again with a fresh record until the time is over.
 *
 * With a key, records and hellos prove it, and the caller confirms: its hello could be a recorded one, but its second
 * proof covers the random numbers of the answer. Without a key, who can read the network or the store learns the cookie
 * and may join.
 *
 * Until all of that has come and is right, a connection is a stranger's: TACITI_HELLO_BYTES of it and a proof are read,
 * it has 5 s, and at most TACITI_TCP_STRANGERS_MAX of them are looked at at a time. Each reason to refuse one is logged
 * once.
 */
#ifndef TACITI_COMM_TCP_CONNECT_H
#define TACITI_COMM_TCP_CONNECT_H

#include "comm/engine_tcp.h"
#include "comm/tcp_peer.h"

enum { TACITI_TCP_STRANGERS_MAX = 64 };

/* Opens the links of peers[size], all closed, but this rank's own, until end_ns of the monotonic clock, and sets the
 * names of the peers. After an error all are closed. Collective. */
tacit_status taciti_tcp_connect(const taciti_tcp_request *request, int64_t end_ns, taciti_tcp_peer *peers);

#endif
