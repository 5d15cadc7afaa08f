/* SPDX-License-Identifier: Apache-2.0 */
#include "data/shard.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/data.h"

static uint32_t load32(const unsigned char *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

void taciti_shard_header(uint64_t tokens, unsigned char header[TACITI_SHARD_HEADER_BYTES]) {
    const uint32_t words[] = {TACITI_SHARD_MAGIC, TACITI_SHARD_VERSION, (uint32_t)tokens};
    memset(header, 0, TACITI_SHARD_HEADER_BYTES);
    for (size_t b = 0; b < sizeof words; b++) header[b] = (unsigned char)(words[b / 4] >> (8 * (b % 4)));
}

/* `head` holds the first `count` bytes of the file. */
static int recognise_format(const char *path, const unsigned char *head, size_t count) {
    if (count >= 4 && load32(head) == TACITI_SHARD_MAGIC) return TACITI_DATA_LLMC;
    if (!taciti_text_ends_with(path, ".bin")) return TACITI_DATA_TEXT;
    if (count < TACITI_SHARD_HEADER_BYTES) return TACITI_DATA_U16;
    for (size_t i = 12; i < TACITI_SHARD_HEADER_BYTES; i++)
        if (head[i] != 0) return TACITI_DATA_U16;
    return TACITI_DATA_LLMC;
}

static tacit_status check_llmc(const char *path, const unsigned char *head, size_t bytes, taciti_segment *out) {
    if (bytes < TACITI_SHARD_HEADER_BYTES)
        return taciti_fail(TACIT_E_DATA, "%s: truncated: %zu bytes, but a llm.c header alone has %d", path, bytes,
                           TACITI_SHARD_HEADER_BYTES);
    const uint32_t magic = load32(head), version = load32(head + 4), tokens = load32(head + 8);
    if (magic != TACITI_SHARD_MAGIC)
        return taciti_fail(TACIT_E_DATA, "%s: magic number %" PRIu32 ", but a llm.c token file begins with %d", path,
                           magic, TACITI_SHARD_MAGIC);
    if (version != TACITI_SHARD_VERSION)
        return taciti_fail(TACIT_E_DATA, "%s: llm.c version %" PRIu32 ", but only version %d (uint16 tokens) is read",
                           path, version, TACITI_SHARD_VERSION);
    const uint64_t expected = TACITI_SHARD_HEADER_BYTES + 2 * (uint64_t)tokens;
    if (bytes != expected)
        return taciti_fail(TACIT_E_DATA,
                           "%s: the header says %" PRIu32 " tokens, which is %" PRIu64
                           " bytes, but the file has %zu; copy or make it again",
                           path, tokens, expected, bytes);
    if (tokens == 0) return taciti_fail(TACIT_E_DATA, "%s: the header says 0 tokens", path);
    out->offset_bytes = TACITI_SHARD_HEADER_BYTES;
    out->width_bytes = 2;
    out->tokens = tokens;
    return TACIT_OK;
}

static tacit_status check_file(const char *path, int format, const unsigned char *head, size_t bytes,
                               taciti_segment *out) {
    if (bytes == 0) return taciti_fail(TACIT_E_DATA, "%s: the file is empty", path);
    if (format == TACITI_DATA_LLMC) return check_llmc(path, head, bytes, out);
    out->width_bytes = format == TACITI_DATA_U16 ? 2 : 1;
    out->tokens = bytes / out->width_bytes;
    if (bytes % out->width_bytes == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "%s: %zu bytes, an odd number, cannot be a file of uint16 tokens", path, bytes);
}

tacit_status taciti_shard_open(const char *path, int *found, taciti_segment *out) {
    taciti_segment segment = {.view = {.fd = -1}};
    TACITI_TRY(taciti_view_open(path, &segment.view));
    const size_t bytes = segment.view.bytes;
    unsigned char head[TACITI_SHARD_HEADER_BYTES] = {0};
    const size_t count = bytes < sizeof head ? bytes : sizeof head;
    tacit_status status = taciti_view_read(&segment.view, 0, count, head);
    const int format = recognise_format(path, head, count);
    if (status == TACIT_OK) status = check_file(path, format, head, bytes, &segment);
    if (status == TACIT_OK && (segment.name = taciti_strdup(path)) == NULL) status = TACIT_E_MEMORY;
    if (status != TACIT_OK) {
        taciti_segment_destroy(&segment);
        return status;
    }
    *found = format;
    *out = segment;
    return TACIT_OK;
}
