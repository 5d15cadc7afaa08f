/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a file, counting and hashing (XXH3-128) its bytes, and syncs it at the end. Any thread, one at a time; not
 * collective.
 */
#ifndef TACITI_CKPT_SINK_H
#define TACITI_CKPT_SINK_H

#include <xxhash.h>

#include "tacit/tacit.h"

enum { TACITI_DIGEST_BYTES = 33 }; /* 32 hexadecimal digits and the final zero */

typedef struct taciti_sink {
    int fd;
    char *path; /* owned */
    uint64_t bytes;
    XXH3_state_t *state;   /* owned */
    unsigned char *encode; /* block for conversions; owned */
} taciti_sink;

/* Creates or truncates `path`. */
tacit_status taciti_sink_open(const char *path, taciti_sink *out);

/* Appends bytes. Returns E_IO, with the path and the system's reason, if the disk is full. */
tacit_status taciti_sink_bytes(taciti_sink *sink, const void *bytes, size_t count);

/* Appends n floats, unchanged or rounded to bf16 (half != 0). */
tacit_status taciti_sink_floats(taciti_sink *sink, const float *x, size_t n, int half);

/* Syncs and closes. On failure the file is removed. */
tacit_status taciti_sink_finish(taciti_sink *sink, uint64_t *bytes, char digest[TACITI_DIGEST_BYTES]);

/* Closes and removes an unfinished file; does nothing after taciti_sink_finish(). */
void taciti_sink_abandon(taciti_sink *sink);

/* XXH3-128 as hexadecimal, of a block and of a whole file. */
void taciti_digest_block(const void *bytes, size_t count, char digest[TACITI_DIGEST_BYTES]);
tacit_status taciti_digest_file(const char *path, uint64_t *bytes, char digest[TACITI_DIGEST_BYTES]);

#endif
