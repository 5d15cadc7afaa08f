/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection of the TCP engine: frames waiting to be written, and what has been read. The layer above decides which
 * frame goes next and where a payload goes to; this one makes as few system calls and copies as possible.
 *
 *   out  up to TACITI_TCP_OUT_FRAMES frames, one of them a chunk of a long message, leave in one sendmsg(). So a short
 *        message waits for one chunk and for what the system holds back, never for a whole long message.
 *   in   a header and short payloads are read into the stage; a long payload is read to where it belongs, and the
 *        same readv() takes the header of the next frame.
 *
 * With memory that both ranks share (tcp_memory.h) the bytes go through it, without system calls.
 *
 * With a session (seal.h) a frame is sealed into memory of the connection when it is put, and a payload is opened where
 * it was read to: it must not be believed before the event PAYLOAD.
 */
#ifndef TACITI_COMM_TCP_LINK_H
#define TACITI_COMM_TCP_LINK_H

#include <stdbool.h>

#include "comm/tcp_frame.h"
#include "comm/tcp_memory.h"
#include "tacit/tacit.h"

enum { TACITI_TCP_OUT_FRAMES = 8, TACITI_TCP_STAGE_BYTES = 32 << 10, TACITI_TCP_WHY_BYTES = 128 };

typedef struct taciti_tcp_out {
    uint8_t header[TACITI_FRAME_HEADER_BYTES + TACITI_SEAL_TAG_BYTES];
    const char *payload; /* borrowed until it has been written; sealed: in link->sealed */
    size_t bytes;        /* of the payload, without its tag */
    void *owner;         /* told when the frame has been written; NULL: nobody */
    bool is_chunk;
} taciti_tcp_out;

typedef struct taciti_tcp_link {
    int fd; /* -1: closed */
    uint32_t epoch;
    taciti_seal *seal;         /* NULL: frames are not sealed; owned */
    uint8_t *sealed;           /* payloads of the frames to be written; owned */
    taciti_tcp_memory *memory; /* carries the bytes in place of the connection; owned; NULL: none */
    bool ended;                /* memory: the connection has ended, what it was to carry has been written */
    bool watches_out;          /* the engine waits until the connection takes more */
    uint64_t system_calls;     /* to write and read, in all */
    char why[TACITI_TCP_WHY_BYTES];

    taciti_tcp_out out[TACITI_TCP_OUT_FRAMES]; /* a ring */
    int out_first, out_count;
    bool out_has_chunk;
    bool out_blocked;   /* the system took less than was offered */
    bool out_broken;    /* the system takes nothing any more; a read will find the end */
    size_t out_written; /* bytes of the first frame that are gone */
    uint32_t out_number;

    uint8_t *stage; /* [TACITI_TCP_STAGE_BYTES]; owned */
    size_t stage_begin, stage_end;
    char *payload; /* where the payload under way begins; NULL: none is */
    char *sink;    /* where the rest of it goes */
    size_t sink_bytes;
    bool in_long;     /* the payload of the last frame was long, so the next one probably is */
    bool in_drained;  /* nothing more to read now */
    size_t in_budget; /* bytes that may still be read before others have their turn */
    uint32_t in_number;
    void *in_message; /* for the layer above: the message whose payload is under way */
    taciti_frame in_frame;
} taciti_tcp_link;

/* Takes a connected socket that does not block, and the session; after an error both are still the caller's. */
tacit_status taciti_tcp_link_create(int fd, uint32_t epoch, taciti_seal *seal, taciti_tcp_link *out);
void taciti_tcp_link_close(taciti_tcp_link *link); /* {.fd = -1} is fine */

/* Memory: takes what rang the bell. */
void taciti_tcp_link_hear(taciti_tcp_link *link);

/* ---- out --------------------------------------------------------------------------------------------------------- */
bool taciti_tcp_link_has_room(const taciti_tcp_link *link, taciti_frame_kind kind);

/* Needs room. The payload is borrowed until `owner` is told. */
void taciti_tcp_link_put(taciti_tcp_link *link, const taciti_frame *frame, const void *payload, void *owner);

/* Offers the frames to the system once. Calls written(owner, bytes of payload) for each frame that is gone. Returns
 * false if nothing can be written any more; then `why` says why. */
bool taciti_tcp_link_flush(taciti_tcp_link *link, void (*written)(void *owner, size_t bytes));

/* ---- in ---------------------------------------------------------------------------------------------------------- */
typedef enum taciti_tcp_event {
    TACITI_TCP_NOTHING, /* all that has arrived is dealt with */
    TACITI_TCP_FRAME,   /* link->in_frame; if it has bytes, call taciti_tcp_link_sink() next */
    TACITI_TCP_PAYLOAD, /* the payload of link->in_frame is complete */
    TACITI_TCP_CLOSED,  /* the peer has closed the connection between two frames */
    TACITI_TCP_LOST,    /* `why` says why */
} taciti_tcp_event;

/* The connection has something to read: calls of receive() follow until they return NOTHING. */
void taciti_tcp_link_is_readable(taciti_tcp_link *link);
taciti_tcp_event taciti_tcp_link_receive(taciti_tcp_link *link);
void taciti_tcp_link_sink(taciti_tcp_link *link, void *to, size_t bytes);

#endif
