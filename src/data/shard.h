/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects the format of a data file and validates its header before any token is read.
 *
 *   text   any bytes; one token per byte
 *   llmc   256 x int32 little-endian header {20240520, 1, tokens, 0 ...}, then uint16 tokens; the file's size must
 *          be exactly that
 *   u16    uint16 tokens and nothing else (nanoGPT's train.bin)
 *
 * auto: a file with llm.c's magic is llmc. A ".bin" without it is u16, unless bytes 12..1023 are all zero as in llm.c's
 * header: that is a shard with a damaged or unknown magic and is refused. Everything else is text.
 */
#ifndef TACITI_DATA_SHARD_H
#define TACITI_DATA_SHARD_H

#include "data/tokens.h"

enum {
    TACITI_SHARD_MAGIC = 20240520,
    TACITI_SHARD_VERSION = 1,
    TACITI_SHARD_HEADER_BYTES = 1024,
};

/* Opens `path`. *found receives the detected format (TACITI_DATA_TEXT, ...). The segment owns the file; text becomes a
 * segment of bytes. The message of E_DATA names the file, what was expected and what was found. */
tacit_status taciti_shard_open(const char *path, int *found, taciti_segment *out);

/* Fills the header of a shard of `tokens` <= INT32_MAX tokens. */
void taciti_shard_header(uint64_t tokens, unsigned char header[TACITI_SHARD_HEADER_BYTES]);

#endif
