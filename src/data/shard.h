/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises a data file and checks everything its header promises before a token is read.
 *
 *   text   any bytes; one token per byte
 *   llmc   256 x int32 little-endian header {20240520, 1, tokens, 0 ...}, then uint16 tokens; the file's size must
 *          be exactly that
 *   u16    uint16 tokens and nothing else (nanoGPT's train.bin)
 *
 * auto: llm.c's magic decides; else ".bin" is u16, unless its bytes 12..1023 are all zero as in llm.c's header: then it
 * is a shard of a damaged or different magic, which is refused rather than read as tokens. Everything else is text.
 */
#ifndef TACITI_DATA_SHARD_H
#define TACITI_DATA_SHARD_H

#include "data/tokens.h"

enum {
    TACITI_SHARD_MAGIC = 20240520,
    TACITI_SHARD_VERSION = 1,
    TACITI_SHARD_HEADER_BYTES = 1024,
};

/* Opens `path` as `format` (TACITI_DATA_AUTO, ...). *found receives what it is, never AUTO. The segment owns the file;
 * text becomes a segment of bytes. E_DATA names the file, what was expected and what is there. */
tacit_status taciti_shard_open(const char *path, int format, int *found, taciti_segment *out);

/* Fills the header of a shard of `tokens` <= INT32_MAX tokens. */
void taciti_shard_header(uint64_t tokens, unsigned char header[TACITI_SHARD_HEADER_BYTES]);

#endif
