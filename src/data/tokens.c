/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokens.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* One system call brings at most this much; it lives on the stack. */
enum { BLOCK_BYTES = 16384 };

#define DIGEST_END_BYTES ((uint64_t)1 << 20)

void taciti_segment_destroy(taciti_segment *segment) {
    taciti_view_close(&segment->view);
    taciti_free(segment->memory);
    taciti_free(segment->name);
    *segment = (taciti_segment){.view = {.fd = -1}};
}

void taciti_tokens_destroy(taciti_tokens *tokens) {
    for (size_t i = 0; i < tokens->count; i++) taciti_segment_destroy(&tokens->segments[i]);
    taciti_free(tokens->segments);
    *tokens = (taciti_tokens){0};
}

tacit_status taciti_tokens_append(taciti_tokens *tokens, taciti_segment *segment) {
    taciti_segment *segments = taciti_with_room(tokens->segments, tokens->count, sizeof *segments);
    if (segments == NULL) {
        taciti_segment_destroy(segment);
        return TACIT_E_MEMORY;
    }
    tokens->segments = segments;
    segment->first = tokens->total;
    tokens->total += segment->tokens;
    tokens->segments[tokens->count++] = *segment;
    return TACIT_OK;
}

/* Index of the segment that holds `position` < total. */
static size_t segment_of(const taciti_tokens *tokens, uint64_t position) {
    size_t low = 0, high = tokens->count - 1;
    while (low < high) {
        const size_t middle = low + (high - low + 1) / 2;
        if (tokens->segments[middle].first <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static tacit_status read_bytes(const taciti_segment *segment, uint64_t token, size_t bytes, unsigned char *out) {
    const size_t at = (size_t)token * segment->width_bytes;
    if (segment->view.fd != -1) return taciti_view_read(&segment->view, segment->offset_bytes + at, bytes, out);
    memcpy(out, segment->memory + at, bytes);
    return TACIT_OK;
}

static int64_t decode_id(const unsigned char *bytes, size_t width_bytes) {
    int64_t id = 0;
    for (size_t b = 0; b < width_bytes; b++) id |= (int64_t)bytes[b] << (8 * b);
    return id;
}

/* Tokens [first, first + count) of one segment, count * width <= BLOCK_BYTES. */
static tacit_status read_block(const taciti_segment *segment, uint64_t first, size_t count, int64_t limit,
                               int32_t *out) {
    unsigned char block[BLOCK_BYTES];
    const size_t width = segment->width_bytes;
    TACITI_TRY(read_bytes(segment, first, count * width, block));
    int64_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t id = width == 2 ? block[2 * i] | block[2 * i + 1] << 8 : decode_id(block + width * i, width);
        largest = id > largest ? id : largest;
        out[i] = (int32_t)id;
    }
    if (largest < limit) return TACIT_OK;
    size_t i = 0;
    while (decode_id(block + width * i, width) < limit) i++;
    return taciti_fail(TACIT_E_DATA,
                       "%s: token %" PRIu64 " is %" PRId64 ", but the model's vocabulary has %" PRId64
                       " entries; set model.vocabulary to that of the data",
                       segment->name, first + i, decode_id(block + width * i, width), limit);
}

tacit_status taciti_tokens_read(const taciti_tokens *tokens, uint64_t first, size_t count, int64_t limit,
                                int32_t *out) {
    if (first > tokens->total || count > tokens->total - first)
        return taciti_fail(TACIT_E_INTERNAL, "tokens %" PRIu64 " + %zu asked for, %" PRIu64 " are there", first, count,
                           tokens->total);
    for (size_t done = 0; done < count;) {
        const taciti_segment *segment = &tokens->segments[segment_of(tokens, first + done)];
        const uint64_t at = first + done - segment->first, left = segment->tokens - at;
        size_t n = count - done;
        if (n > BLOCK_BYTES / segment->width_bytes) n = BLOCK_BYTES / segment->width_bytes;
        if (n > left) n = (size_t)left;
        TACITI_TRY(read_block(segment, at, n, limit, out + done));
        done += n;
    }
    return TACIT_OK;
}

static tacit_status digest_range(const taciti_segment *segment, uint64_t first, uint64_t end, XXH3_state_t *hash,
                                 int64_t *largest) {
    unsigned char block[BLOCK_BYTES];
    const size_t width = segment->width_bytes;
    for (uint64_t at = first; at < end;) {
        const uint64_t n = end - at < BLOCK_BYTES / width ? end - at : BLOCK_BYTES / width;
        TACITI_TRY(read_bytes(segment, at, (size_t)n * width, block));
        (void)XXH3_128bits_update(hash, block, (size_t)n * width);
        for (size_t i = 0; i < n; i++) {
            const int64_t id = decode_id(block + width * i, width);
            *largest = id > *largest ? id : *largest;
        }
        at += n;
    }
    return TACIT_OK;
}

static void digest_number(uint64_t number, XXH3_state_t *hash) {
    (void)XXH3_128bits_update(hash, &number, sizeof number);
}

tacit_status taciti_tokens_digest(const taciti_tokens *tokens, XXH3_state_t *hash, int64_t *largest) {
    digest_number(tokens->count, hash);
    for (size_t s = 0; s < tokens->count; s++) {
        const taciti_segment *segment = &tokens->segments[s];
        const uint64_t end = DIGEST_END_BYTES / segment->width_bytes, n = segment->tokens;
        digest_number(n, hash);
        digest_number(segment->width_bytes, hash);
        const bool whole = n <= 2 * end;
        TACITI_TRY(digest_range(segment, 0, whole ? n : end, hash, largest));
        if (!whole) TACITI_TRY(digest_range(segment, n - end, n, hash, largest));
    }
    return TACIT_OK;
}
