/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/data.h"

enum { BYTES = 256 };

struct taciti_tokenizer {
    int32_t vocabulary;
    char bytes[BYTES]; /* the piece of id i is bytes[i] */
};

tacit_status taciti_tokenizer_byte(taciti_tokenizer **out) {
    taciti_tokenizer *tokenizer = taciti_calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) return TACIT_E_MEMORY;
    tokenizer->vocabulary = BYTES;
    for (size_t i = 0; i < BYTES; i++) {
        const unsigned char byte = (unsigned char)i;
        memcpy(&tokenizer->bytes[i], &byte, 1);
    }
    *out = tokenizer;
    return TACIT_OK;
}

void taciti_tokenizer_destroy(taciti_tokenizer *tokenizer) { taciti_free(tokenizer); }

int32_t taciti_tokenizer_vocabulary(const taciti_tokenizer *tokenizer) { return tokenizer->vocabulary; }

tacit_status taciti_tokenizer_encode(const taciti_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                                     size_t *count) {
    (void)tokenizer;
    if (bytes > SIZE_MAX - *count) return taciti_fail(TACIT_E_MEMORY, "%zu + %zu ids overflow", *count, bytes);
    int32_t *grown = taciti_calloc(*count + bytes, sizeof *grown);
    if (grown == NULL) return TACIT_E_MEMORY;
    if (*count != 0) memcpy(grown, *ids, *count * sizeof *grown);
    for (size_t i = 0; i < bytes; i++) grown[*count + i] = (unsigned char)text[i];
    taciti_free(*ids);
    *ids = grown;
    *count += bytes;
    return TACIT_OK;
}

const char *taciti_tokenizer_piece(const taciti_tokenizer *tokenizer, int32_t id, size_t *bytes) {
    if (id < 0 || id >= tokenizer->vocabulary) return NULL;
    *bytes = 1;
    return &tokenizer->bytes[id];
}
