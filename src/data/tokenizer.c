/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

enum { BYTES = 256, PATH_BYTES = 4096 };

tacit_status taciti_tokenizer_byte(taciti_tokenizer **out) {
    taciti_tokenizer *tokenizer = taciti_calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) return TACIT_E_MEMORY;
    tokenizer->vocabulary = BYTES;
    for (size_t i = 0; i < BYTES; i++) tokenizer->bytes[i] = (char)i;
    *out = tokenizer;
    return TACIT_OK;
}

tacit_status taciti_tokenizer_bpe(const char *vocab_path, const char *merges_path, taciti_tokenizer **out) {
    taciti_tokenizer *tokenizer = taciti_calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) return TACIT_E_MEMORY;
    const tacit_status status = taciti_bpe_load(vocab_path, merges_path, &tokenizer->bpe);
    if (status != TACIT_OK) {
        taciti_free(tokenizer);
        return status;
    }
    tokenizer->is_bpe = true;
    tokenizer->vocabulary = tokenizer->bpe.vocabulary;
    *out = tokenizer;
    return TACIT_OK;
}

tacit_status taciti_tokenizer_load(const char *vocab_path, taciti_tokenizer **out) {
    char merges_path[PATH_BYTES];
    const char *slash = strrchr(vocab_path, '/');
    const int folder = slash == NULL ? 0 : (int)(slash + 1 - vocab_path);
    if (snprintf(merges_path, sizeof merges_path, "%.*smerges.txt", folder, vocab_path) >= PATH_BYTES)
        return taciti_fail(TACIT_E_DATA, "%s: the path is too long", vocab_path);
    return taciti_tokenizer_bpe(vocab_path, merges_path, out);
}

void taciti_tokenizer_destroy(taciti_tokenizer *tokenizer) {
    if (tokenizer != NULL) taciti_bpe_destroy(&tokenizer->bpe);
    taciti_free(tokenizer);
}

int32_t taciti_tokenizer_vocabulary(const taciti_tokenizer *tokenizer) { return tokenizer->vocabulary; }

tacit_status taciti_tokenizer_encode(const taciti_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                                     size_t *count) {
    taciti_encoder *encoder = NULL;
    tacit_status status = taciti_encoder_create(tokenizer, &encoder);
    if (status != TACIT_OK) return status;
    const taciti_window window = {.text = text, .bytes = bytes, .stop = bytes, .final = true};
    taciti_ids made = {0};
    size_t used = 0;
    status = taciti_encoder_feed(encoder, &window, &made, &used);
    taciti_encoder_destroy(encoder);
    int32_t *all = status == TACIT_OK ? taciti_calloc(*count + made.count, sizeof *all) : NULL;
    if (all != NULL) {
        if (*count != 0) memcpy(all, *ids, *count * sizeof *all);
        if (made.count != 0) memcpy(all + *count, made.ids, made.count * sizeof *all);
        taciti_free(*ids);
        *ids = all;
        *count += made.count;
    }
    taciti_ids_destroy(&made);
    return status == TACIT_OK && all == NULL ? TACIT_E_MEMORY : status;
}

const char *taciti_tokenizer_piece(const taciti_tokenizer *tokenizer, int32_t id, size_t *bytes) {
    if (id < 0 || id >= tokenizer->vocabulary) return NULL;
    if (!tokenizer->is_bpe) {
        *bytes = 1;
        return &tokenizer->bytes[id];
    }
    const size_t *at = tokenizer->bpe.offsets + id;
    *bytes = at[1] - at[0];
    return tokenizer->bpe.pieces + at[0];
}
