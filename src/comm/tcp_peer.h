/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages between this rank and one peer, over the connection of the pair.
 *
 *   up to TACITI_FRAME_EAGER_BYTES  sent at once, while the peer has room for it (its window); if no receive is posted
 *                                   yet, the peer keeps a copy
 *   longer, or no room              announced by ASK; when the receive is posted the peer answers GO, and the payload
 *                                   goes in chunks straight from the sender's array into the receiver's
 *
 * EAGER and ASK frames go in the order of the sends, which is the order in which receives of the same tag match. Chunks
 * of several messages take turns. A short message of another tag therefore waits for a chunk, never for a long message.
 * A peer can make this rank keep a bounded amount: a window of eager messages and ASKED_MAX announcements. Whoever
 * exceeds that, or breaks the protocol otherwise, is lost.
 */
#ifndef TACITI_COMM_TCP_PEER_H
#define TACITI_COMM_TCP_PEER_H

#include "comm/tcp_link.h"

enum { TACITI_TCP_ASKED_MAX = 1 << 16 };

/* A send, a receive, a message that nobody has received yet, or a frame to be sent. */
typedef struct taciti_tcp_message {
    struct taciti_tcp_message *next;  /* in its list */
    struct taciti_tcp_message *older; /* of all that were allocated */
    struct taciti_tcp_peer *peer;
    taciti_frame frame; /* send, control frame: what announces it. Message not received yet: what announced it */
    int tag;
    bool is_control; /* nobody waits for it */
    bool done;
    char *bytes;    /* borrowed from the caller */
    char *copy;     /* message not received yet: its payload; owned */
    size_t count;   /* send: length; receive: room */
    size_t total;   /* receive: length of the message */
    size_t wanted;  /* how many bytes the receiver takes */
    size_t claimed; /* how many of them have begun to move ... */
    size_t moved;   /* ... and have moved */
    uint64_t number;
} taciti_tcp_message;

typedef struct taciti_tcp_list {
    taciti_tcp_message *first, *last;
} taciti_tcp_list;

/* All messages, and those that are not in use. */
typedef struct taciti_tcp_pool {
    taciti_tcp_message *newest, *spare;
} taciti_tcp_pool;

typedef struct taciti_tcp_peer {
    int rank;
    taciti_tcp_link link;   /* its memory and socket are owned */
    taciti_tcp_pool *pool;  /* borrowed */
    taciti_tcp_list out;    /* announcements and control frames to be written */
    taciti_tcp_list asking; /* sends that wait for GO */
    taciti_tcp_list sending;
    taciti_tcp_list posted;
    taciti_tcp_list unexpected;
    taciti_tcp_list arriving;       /* receives that were answered with GO */
    uint64_t out_number, in_number; /* announcements so far */
    size_t window_used, asked;      /* of this rank's announcements, at the peer */
    size_t window_held, asked_held; /* of the peer's announcements, here */
    size_t credit;                  /* freed part of the window that the peer has not been told of */
    bool lost, said_goodbye, heard_goodbye;
    int abort_code;                  /* the peer ends the job; -1: no */
    char why[TACITI_TCP_WHY_BYTES];  /* why it was lost */
    char name[TACITI_TCP_WHY_BYTES]; /* "rank 3 (10.0.0.1:4711)" */
} taciti_tcp_peer;

/* Post a message; *out is to be released with taciti_tcp_message_release() when it is done. Return E_MEMORY, or
 * E_INTERNAL if TACITI_TCP_ASKED_MAX sends wait for their receives. */
tacit_status taciti_tcp_peer_send(taciti_tcp_peer *peer, int tag, const void *bytes, size_t count,
                                  taciti_tcp_message **out);
tacit_status taciti_tcp_peer_receive(taciti_tcp_peer *peer, int tag, void *bytes, size_t count,
                                     taciti_tcp_message **out);
void taciti_tcp_message_release(taciti_tcp_message *message);

/* Queues ABORT or GOODBYE. */
tacit_status taciti_tcp_peer_tell(taciti_tcp_peer *peer, taciti_frame_kind kind, uint64_t value);

/* Reads what has arrived. Loses the peer if that cannot be, or if it ends the job. */
void taciti_tcp_peer_read(taciti_tcp_peer *peer);

/* Writes until the connection takes no more, or others should have their turn. */
void taciti_tcp_peer_write(taciti_tcp_peer *peer);

/* True if frames wait for the connection. */
bool taciti_tcp_peer_wants_out(const taciti_tcp_peer *peer);

/* Closes the connection. Messages that are not done never will be. */
void taciti_tcp_peer_lose(taciti_tcp_peer *peer, const char *why);

/* Frees all messages, those of callers too. */
void taciti_tcp_pool_destroy(taciti_tcp_pool *pool);

#endif
