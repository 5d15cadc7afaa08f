/* SPDX-License-Identifier: Apache-2.0
 *
 * A sequence of tokens composed of files and memory blocks, end to end. Files are read on demand, so the sequence may
 * be larger than memory. A file that is truncated causes an error, not a signal.
 */
#ifndef TACITI_DATA_TOKENS_H
#define TACITI_DATA_TOKENS_H

#include <xxhash.h>

#include "base/file.h"

typedef struct taciti_segment {
    uint64_t first;        /* position of its first token in the sequence */
    uint64_t tokens;       /* >= 1 */
    size_t offset_bytes;   /* of the first token in the file */
    size_t width_bytes;    /* of a token: 1, 2 or 4; little-endian */
    taciti_view view;      /* of the file; .fd == -1: the tokens are in memory */
    unsigned char *memory; /* owned, or NULL */
    char *name;            /* for messages; owned */
} taciti_segment;

typedef struct taciti_tokens {
    taciti_segment *segments; /* owned */
    size_t count;
    uint64_t total;
} taciti_tokens;

void taciti_tokens_destroy(taciti_tokens *tokens); /* {0} is fine */

/* Appends a segment and sets its `first`. Takes what the segment owns, even on failure. */
tacit_status taciti_tokens_append(taciti_tokens *tokens, taciti_segment *segment);
void taciti_segment_destroy(taciti_segment *segment);

/* Copies tokens [first, first + count). Returns E_DATA and names the token if an id is >= limit. Any thread. */
tacit_status taciti_tokens_read(const taciti_tokens *tokens, uint64_t first, size_t count, int64_t limit, int32_t *out);

/* Adds sizes and contents (over 2 MiB: the first and last MiB) of all segments to the hash. *largest, initially -1,
 * receives the largest id read. */
tacit_status taciti_tokens_digest(const taciti_tokens *tokens, XXH3_state_t *hash, int64_t *largest);

#endif
