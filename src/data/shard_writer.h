/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a stream of ids as numbered llm.c shards folder/name_part_000000.bin, ... They have temporary names until
 * publish(), so a failure leaves nothing behind.
 */
#ifndef TACITI_DATA_SHARD_WRITER_H
#define TACITI_DATA_SHARD_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

enum { TACITI_SHARD_BUFFER_BYTES = 1 << 16 };

typedef struct taciti_shard_writer {
    const char *folder, *name, *part; /* borrows */
    uint64_t shard_tokens;            /* maximum per shard */
    uint64_t tokens, shards;          /* written, begun */
    uint64_t in_shard;                /* tokens in the open one */
    int fd;                           /* of the open shard, or -1 */
    size_t buffered_bytes;
    unsigned char buffer[TACITI_SHARD_BUFFER_BYTES];
} taciti_shard_writer;

/* Refuses a folder that holds shards of this name and part. */
tacit_status taciti_shard_writer_open(const char *folder, const char *name, const char *part, uint64_t shard_tokens,
                                      taciti_shard_writer *out);

/* Appends ids < 65536. */
tacit_status taciti_shard_writer_append(taciti_shard_writer *writer, const int32_t *ids, size_t count);

/* Completes the last shard and syncs it to disk. */
tacit_status taciti_shard_writer_finish(taciti_shard_writer *writer);

/* Renames all shards to their final names; the caller syncs the folder. */
tacit_status taciti_shard_writer_publish(taciti_shard_writer *writer);

/* Closes and removes all shards. */
void taciti_shard_writer_discard(taciti_shard_writer *writer);

#endif
