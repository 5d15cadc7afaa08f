/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that two ranks of one host share: a ring of bytes in each direction carries what their Unix-domain socket
 * would. The socket stays: it hands the memory over, it is the bell that wakes a rank that sleeps, and its end is the
 * end of the peer. A message costs two copies and, while both ranks are awake, no system call.
 *
 * Each end keeps its own counter and reads the other's, which it does not believe beyond the size of the ring: memory
 * that a peer spoils loses the peer, and nothing else. The memory is sealed against shrinking.
 */
#ifndef TACITI_COMM_TCP_MEMORY_H
#define TACITI_COMM_TCP_MEMORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "tacit/tacit.h"

enum { TACITI_TCP_RING_BYTES = 512 << 10 };

typedef struct taciti_tcp_ring taciti_tcp_ring;

/* A ring as one of its ends sees it: the one that writes it, or the one that reads it. */
typedef struct taciti_tcp_end {
    taciti_tcp_ring *ring;
    _Atomic uint64_t *mine, *theirs; /* counters of both ends, in the ring */
    uint64_t lead;                   /* how far this end may be before the other: by the size of the ring; a reader 0 */
    uint64_t moved, limit;           /* bytes that this end has moved; how far it may move, as last seen */
} taciti_tcp_end;

typedef struct taciti_tcp_memory {
    int bell; /* the socket; borrowed */
    taciti_tcp_ring *rings;
    taciti_tcp_end out, in;
} taciti_tcp_memory;

/* Makes the memory and sends it through `fd`, a connected Unix-domain socket. *out is NULL if it is not wanted or the
 * system refuses it; then *why says why, else it stays as it is. Does not block. E_PEER: the peer is gone. */
tacit_status taciti_tcp_memory_offer(int fd, bool wanted, taciti_tcp_memory **out, const char **why);

/* Takes what the peer offers, and answers. *out is NULL if that is nothing, or if this end cannot take it. *why as
 * above, and NULL if the peer offers nothing: it knows why. Waits until end_ns. */
tacit_status taciti_tcp_memory_accept(int fd, bool wanted, int64_t end_ns, taciti_tcp_memory **out, const char **why);

/* Hears the answer to an offer; *memory becomes NULL if the peer has not taken it. Waits until end_ns. */
tacit_status taciti_tcp_memory_confirm(int fd, int64_t end_ns, taciti_tcp_memory **memory);

void taciti_tcp_memory_destroy(taciti_tcp_memory *memory); /* NULL is fine */

/* Like writev() and readv() that do not block: the number of bytes, or -1 with errno EAGAIN, or EPROTO if the memory is
 * spoilt. Ring the bell of a peer that sleeps. */
ssize_t taciti_tcp_memory_write(taciti_tcp_memory *memory, const struct iovec *parts, int count);
ssize_t taciti_tcp_memory_read(taciti_tcp_memory *memory, const struct iovec *parts, int count);

/* True if there is something to read; if there is room worth a write. */
bool taciti_tcp_memory_has_bytes(const taciti_tcp_memory *memory);
bool taciti_tcp_memory_has_room(const taciti_tcp_memory *memory);

/* From now on the peer rings the bell when it writes and, if this end waits for room, when it has read. The caller
 * looks at the memory once more after this call, for the peer may have moved before it. */
void taciti_tcp_memory_sleep(taciti_tcp_memory *memory, bool for_room);
void taciti_tcp_memory_wake(taciti_tcp_memory *memory);

/* Takes what rang the bell. Returns false at the end of the peer. */
bool taciti_tcp_memory_hear(const taciti_tcp_memory *memory);

#endif
