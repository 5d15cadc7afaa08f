/* SPDX-License-Identifier: Apache-2.0 */
#include "data/text.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/tokenizer.h"

/* Ids packed as little-endian numbers of width_bytes. */
typedef struct packed {
    unsigned char *bytes; /* owned */
    size_t count, capacity, width_bytes;
} packed;

static tacit_status pack(void *context, const int32_t *ids, size_t count, uint64_t bytes_done) {
    (void)bytes_done;
    packed *p = context;
    if (p->capacity - p->count < count) {
        const size_t capacity = p->count + count + p->capacity / 2;
        unsigned char *grown = taciti_calloc(capacity, p->width_bytes);
        if (grown == NULL) return TACIT_E_MEMORY;
        if (p->count != 0) memcpy(grown, p->bytes, p->count * p->width_bytes);
        taciti_free(p->bytes);
        p->bytes = grown;
        p->capacity = capacity;
    }
    unsigned char *out = p->bytes + p->count * p->width_bytes;
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < p->width_bytes; b++) *out++ = (unsigned char)((uint32_t)ids[i] >> (8 * b));
    p->count += count;
    return TACIT_OK;
}

static tacit_status encode_memory(const taciti_tokenizer *tokenizer, const taciti_segment *segment, packed *out) {
    int32_t *ids = NULL;
    size_t count = 0;
    TACITI_TRY(
        taciti_tokenizer_encode(tokenizer, (const char *)segment->memory, (size_t)segment->tokens, &ids, &count));
    const tacit_status status = pack(out, ids, count, segment->tokens);
    taciti_free(ids);
    return status;
}

static tacit_status encode_view(const taciti_tokenizer *tokenizer, const taciti_segment *segment, packed *out) {
    taciti_encoder *encoder = NULL;
    TACITI_TRY(taciti_encoder_create(tokenizer, &encoder));
    const taciti_file_range range = {.view = &segment->view, .stop = segment->view.bytes};
    uint64_t reached = 0;
    const tacit_status status = taciti_encode_file(encoder, &range, pack, out, &reached);
    taciti_encoder_destroy(encoder);
    return status;
}

tacit_status taciti_text_encode(const taciti_tokenizer *tokenizer, taciti_segment *segment) {
    packed out = {.width_bytes = taciti_tokenizer_vocabulary(tokenizer) <= 1 << 16 ? 2 : 4};
    const tacit_status status =
        segment->memory != NULL ? encode_memory(tokenizer, segment, &out) : encode_view(tokenizer, segment, &out);
    if (status != TACIT_OK) {
        taciti_free(out.bytes);
        return status;
    }
    taciti_view_close(&segment->view);
    taciti_free(segment->memory);
    segment->memory = out.bytes;
    segment->width_bytes = out.width_bytes;
    segment->offset_bytes = 0;
    segment->tokens = out.count;
    return TACIT_OK;
}
