/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/pretoken.h"

enum { BYTES = TACITI_BYTE_TOKENS, PATH_BYTES = 4096 };

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
    tokenizer->is_bpe = true;
    tokenizer->vocabulary = tokenizer->bpe.vocabulary;
    if (status == TACIT_OK)
        *out = tokenizer;
    else
        taciti_free(tokenizer);
    return status;
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

/* ---- encoders -------------------------------------------------------------------------------------------------- */

/* The cache of words: direct-mapped, so it neither grows nor needs a policy. Text is Zipfian: nearly all words hit. */
enum { CACHE_SLOTS = 1 << 15, CACHE_BYTES = 27, CACHE_IDS = 9, WINDOW_BYTES = 1 << 20 };

typedef struct cached {
    int32_t ids[CACHE_IDS];
    unsigned char count;
    unsigned char bytes; /* 0: empty */
    char word[CACHE_BYTES - 1];
} cached;

struct taciti_encoder {
    const taciti_tokenizer *tokenizer; /* borrows */
    taciti_bpe_scratch scratch;
    cached *cache; /* NULL for bytes; owned */
};

tacit_status taciti_encoder_create(const taciti_tokenizer *tokenizer, taciti_encoder **out) {
    taciti_encoder *encoder = taciti_calloc(1, sizeof *encoder);
    if (encoder == NULL) return TACIT_E_MEMORY;
    encoder->tokenizer = tokenizer;
    if (tokenizer->is_bpe && (encoder->cache = taciti_calloc(CACHE_SLOTS, sizeof *encoder->cache)) == NULL) {
        taciti_free(encoder);
        return TACIT_E_MEMORY;
    }
    *out = encoder;
    return TACIT_OK;
}

void taciti_encoder_destroy(taciti_encoder *encoder) {
    if (encoder == NULL) return;
    taciti_bpe_scratch_destroy(&encoder->scratch);
    taciti_free(encoder->cache);
    taciti_free(encoder);
}

void taciti_ids_destroy(taciti_ids *ids) {
    taciti_free(ids->ids);
    *ids = (taciti_ids){0};
}

/* Makes room for `more` ids. */
static tacit_status ids_reserve(taciti_ids *ids, size_t more) {
    int32_t *larger = taciti_reserve(ids->ids, ids->count, more, sizeof *larger, &ids->capacity);
    if (larger == NULL) return TACIT_E_MEMORY;
    ids->ids = larger;
    return TACIT_OK;
}

/* Appends the ids of one piece. */
static tacit_status encode_piece(taciti_encoder *encoder, const char *text, size_t bytes, taciti_ids *ids) {
    TACITI_TRY(ids_reserve(ids, bytes));
    int32_t *out = ids->ids + ids->count;
    cached *slot = NULL;
    if (bytes < CACHE_BYTES) {
        slot = &encoder->cache[XXH3_64bits(text, bytes) % CACHE_SLOTS];
        if (slot->bytes == bytes && memcmp(slot->word, text, bytes) == 0) {
            memcpy(out, slot->ids, slot->count * sizeof *out);
            ids->count += slot->count;
            return TACIT_OK;
        }
    }
    size_t count = 0;
    TACITI_TRY(taciti_bpe_merge_piece(&encoder->tokenizer->bpe, &encoder->scratch, text, bytes, out, &count));
    ids->count += count;
    if (slot != NULL && count <= CACHE_IDS) {
        slot->count = (unsigned char)count;
        slot->bytes = (unsigned char)bytes;
        memcpy(slot->word, text, bytes);
        memcpy(slot->ids, out, count * sizeof *out);
    }
    return TACIT_OK;
}

static tacit_status feed_bytes(const taciti_window *window, taciti_ids *ids, size_t *used) {
    const size_t n = window->stop < window->bytes ? window->stop : window->bytes;
    TACITI_TRY(ids_reserve(ids, n));
    for (size_t i = 0; i < n; i++) ids->ids[ids->count++] = (unsigned char)window->text[i];
    *used = n;
    return TACIT_OK;
}

tacit_status taciti_encoder_feed(taciti_encoder *encoder, const taciti_window *window, taciti_ids *ids, size_t *used) {
    if (!encoder->tokenizer->is_bpe) return feed_bytes(window, ids, used);
    size_t at = 0;
    while (at < window->bytes && at < window->stop) {
        const size_t bytes = taciti_pretoken(window->text + at, window->bytes - at, window->final);
        if (bytes > TACITI_PIECE_BYTES || (bytes == 0 && window->bytes - at > TACITI_PIECE_BYTES))
            return taciti_fail(TACIT_E_DATA,
                               "%s: byte %" PRIu64 ": more than %zu letters, digits, signs or spaces without a "
                               "boundary; is this text?",
                               window->name == NULL ? "text to tokenize" : window->name, window->offset_bytes + at,
                               TACITI_PIECE_BYTES);
        if (bytes == 0) break;
        TACITI_TRY(encode_piece(encoder, window->text + at, bytes, ids));
        at += bytes;
    }
    *used = at;
    return TACIT_OK;
}

tacit_status taciti_tokenizer_encode(const taciti_tokenizer *tokenizer, const char *text, size_t bytes, int32_t **ids,
                                     size_t *count) {
    taciti_encoder *encoder = NULL;
    TACITI_TRY(taciti_encoder_create(tokenizer, &encoder));
    const taciti_window window = {.text = text, .bytes = bytes, .stop = bytes, .final = true};
    taciti_ids all = {.ids = *ids, .count = *count, .capacity = *count};
    size_t used = 0;
    tacit_status status = ids_reserve(&all, 0);
    if (status == TACIT_OK) status = taciti_encoder_feed(encoder, &window, &all, &used);
    taciti_encoder_destroy(encoder);
    if (status == TACIT_OK)
        *count = all.count;
    else if (*count == 0)
        taciti_ids_destroy(&all);
    *ids = all.ids;
    return status;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Reads ahead up to `room` bytes at `at`, encodes, hands over; *used receives the bytes done. */
static tacit_status encode_window(taciti_encoder *encoder, const taciti_file_range *range, uint64_t at, char *buffer,
                                  size_t room, taciti_ids *ids, size_t *used) {
    const uint64_t left = range->view->bytes - at;
    const taciti_window window = {.text = buffer,
                                  .bytes = left < room ? (size_t)left : room,
                                  .stop = (size_t)(range->stop - at),
                                  .final = left <= room,
                                  .name = range->view->path,
                                  .offset_bytes = at};
    TACITI_TRY(taciti_view_read(range->view, (size_t)at, window.bytes, buffer));
    ids->count = 0;
    return taciti_encoder_feed(encoder, &window, ids, used);
}

tacit_status taciti_encode_file(taciti_encoder *encoder, const taciti_file_range *range, taciti_ids_sink *sink,
                                void *context, uint64_t *reached) {
    size_t room = WINDOW_BYTES;
    char *buffer = taciti_calloc(room, 1);
    if (buffer == NULL) return TACIT_E_MEMORY;
    taciti_ids ids = {0};
    tacit_status status = TACIT_OK;
    uint64_t at = range->from;
    while (status == TACIT_OK && at < range->stop) {
        size_t used = 0;
        status = encode_window(encoder, range, at, buffer, room, &ids, &used);
        if (status == TACIT_OK && used == 0) { /* one piece fills the window: feed() ends this at its limit */
            room *= 2;
            taciti_free(buffer);
            buffer = taciti_calloc(room, 1);
            if (buffer == NULL) status = TACIT_E_MEMORY;
            continue;
        }
        at += used;
        if (status == TACIT_OK) status = sink(context, ids.ids, ids.count, at);
    }
    taciti_ids_destroy(&ids);
    taciti_free(buffer);
    if (status == TACIT_OK) *reached = at;
    return status;
}
