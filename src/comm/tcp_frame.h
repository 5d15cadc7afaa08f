/* SPDX-License-Identifier: Apache-2.0
 *
 * What the TCP engine writes on its connections and publishes in the bootstrap store. These structs travel as they lie
 * in memory: the machine is little-endian (ckpt/sink.c insists). No byte is believed before all of a header has been
 * checked; a refusal is a text that says why.
 *
 *   hello   128 bytes, first in each direction: the cookie of the run, who speaks, to whom
 *   frame   a header of 40 bytes, and up to TACITI_FRAME_CHUNK_BYTES of payload
 *   record  256 bytes in the store: where a rank listens
 *
 * With a key (seal.h) hello and record carry a proof of it; header and payload are sealed, each followed by its tag.
 *
 * Frames are numbered by connection and direction, and messages by the announcements from a rank to its peer.
 *
 * The payload has no checksum: TCP's own covers it, or its tag.
 */
#ifndef TACITI_COMM_TCP_FRAME_H
#define TACITI_COMM_TCP_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "comm/seal.h"

enum {
    TACITI_FRAME_HEADER_BYTES = 40,
    TACITI_FRAME_EAGER_BYTES = 64 << 10,  /* maximum length of a message that is sent without asking */
    TACITI_FRAME_CHUNK_BYTES = 256 << 10, /* maximum part of a long message in one frame */
    TACITI_FRAME_WINDOW_BYTES = 2 << 20,  /* eager messages that a rank keeps for a peer before they are received */
    TACITI_FRAME_CREDIT_BYTES = 256 << 10 /* freed part of the window that is worth a frame */
};

typedef enum taciti_frame_kind {
    TACITI_FRAME_EAGER = 1, /* a whole message */
    TACITI_FRAME_ASK,       /* announces a long message; value: its length */
    TACITI_FRAME_GO,        /* the receive of `message` is posted; value: how many bytes of it to send */
    TACITI_FRAME_CHUNK,     /* a part of `message`; value: its offset */
    TACITI_FRAME_CREDIT,    /* value: bytes of the window that are free again */
    TACITI_FRAME_ABORT,     /* the sender ends the job; value: exit code */
    TACITI_FRAME_GOODBYE,   /* nothing follows, and that is no failure */
} taciti_frame_kind;

/* The end of a header; tcp_frame.c has its beginning. */
typedef struct taciti_frame taciti_frame;
struct taciti_frame {
    taciti_frame_kind kind;
    int tag;
    uint32_t bytes;
    uint64_t message, value;
} __attribute__((packed));

/* Returns the part of the window that an eager message takes: memory is needed for short ones as well. */
static inline size_t taciti_frame_cost(size_t bytes) { return bytes + 64; }

void taciti_frame_write(const taciti_frame *frame, uint32_t epoch, uint32_t number,
                        uint8_t out[TACITI_FRAME_HEADER_BYTES]);

/* Returns NULL, or why the header is refused; then *out is not written. */
const char *taciti_frame_read(const uint8_t in[TACITI_FRAME_HEADER_BYTES], uint32_t epoch, uint32_t number,
                              taciti_frame *out);

/* ---- hello ------------------------------------------------------------------------------------------------------- */
enum { TACITI_HELLO_BYTES = 128, TACITI_COOKIE_BYTES = 16 };

typedef struct taciti_hello {
    uint8_t magic[8], cookie[TACITI_COOKIE_BYTES];
    uint32_t epoch;
    int from, to, size;
    taciti_cipher cipher; /* of the caller: its best; of the answer: what is used */
    uint32_t zeros[3];
    uint8_t random[TACITI_SEAL_RANDOM_BYTES]; /* with a key, as the proof */
    uint8_t proof[TACITI_SEAL_PROOF_BYTES];   /* of all before it */
    uint64_t checksum;                        /* of all before it */
} taciti_hello;

_Static_assert(sizeof(taciti_hello) == TACITI_HELLO_BYTES, "no gaps");

/* Sets magic, proof and checksum. key: NULL without one. before: the proof of the hello that this one answers; NULL: it
 * is the first. */
void taciti_hello_complete(taciti_hello *hello, const taciti_seal_key *key, const uint8_t *before);

/* Returns true while `n` bytes (up to TACITI_HELLO_BYTES) may be the beginning of a hello. */
int taciti_hello_may_begin(const uint8_t *bytes, size_t n);

/* Returns NULL, or why the hello is refused. `expected` has the cookie, epoch and size of this run and this rank in
 * `to`; `from` comes from the hello and is in range. */
const char *taciti_hello_read(const uint8_t in[TACITI_HELLO_BYTES], const taciti_hello *expected,
                              const taciti_seal_key *key, const uint8_t *before, taciti_hello *out);

/* ---- record ------------------------------------------------------------------------------------------------------ */
enum { TACITI_RECORD_BYTES = 256, TACITI_RECORD_ADDRESSES = 4, TACITI_TCP_HOST_BYTES = 16, TACITI_LOCAL_BYTES = 24 };

typedef struct taciti_tcp_address {
    uint8_t family;    /* 4 or 6 */
    uint8_t bytes[16]; /* an address of family 4 takes four */
} taciti_tcp_address;

typedef struct taciti_tcp_record {
    uint8_t magic[8];
    uint8_t cookie[TACITI_COOKIE_BYTES]; /* that of rank 0 is the cookie of the run */
    uint8_t host[TACITI_TCP_HOST_BYTES]; /* equal on two ranks: they reach each other by Unix-domain sockets */
    char local[TACITI_LOCAL_BYTES];      /* name of the Unix-domain socket in the abstract namespace */
    uint32_t epoch;
    int rank, size;
    uint16_t port, zero;
    int addresses;
    uint32_t zeros[3];
    taciti_tcp_address address[TACITI_RECORD_ADDRESSES];
    uint8_t more_zeros[52];
    uint8_t proof[TACITI_SEAL_PROOF_BYTES]; /* with a key: of all before it */
    uint64_t checksum;                      /* of all before it */
} taciti_tcp_record;

_Static_assert(sizeof(taciti_tcp_record) == TACITI_RECORD_BYTES, "no gaps");

/* Sets magic, proof and checksum. key: NULL without one. */
void taciti_tcp_record_complete(taciti_tcp_record *record, const taciti_seal_key *key);

/* Returns NULL, or why the record is refused. */
const char *taciti_tcp_record_read(const uint8_t *in, size_t n, const taciti_seal_key *key, taciti_tcp_record *out);

#endif
