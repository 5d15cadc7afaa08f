/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads vocab.json and merges.txt. Their strings show each byte as one printable character: 33..126, 161..172 and
 * 174..255 as themselves, the others as U+0100 and up, in order.
 */
#include "data/bpe.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "base/text.h"

/* GPT-2's files have 1.0 and 0.5 MB; these limits only keep a wrong file from filling the memory. */
enum { FILE_BYTES = 256 << 20, MAX_TOKENS = 1 << 24, SHOWN_BYTES = 40, BYTE_CODES = 256 + 68 };

typedef struct loader {
    const char *vocab_path, *merges_path;
    int32_t byte_of_code[BYTE_CODES]; /* of each shown character; -1: not a shown byte */
    json_t *vocab;                    /* shown string -> id; owned */
    taciti_bpe *bpe;                  /* being filled */
} loader;

static void map_bytes(loader *l) {
    for (size_t c = 0; c < BYTE_CODES; c++) l->byte_of_code[c] = -1;
    size_t next = 256;
    for (int32_t b = 0; b < 256; b++) {
        const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        l->byte_of_code[shown ? (size_t)b : next++] = b;
    }
}

/* Turns shown characters back into bytes; they never take more room. False when a character stands for no byte. */
static bool unmap_text(const loader *l, const char *shown, size_t count, char *out, size_t *out_count) {
    size_t n = 0;
    for (size_t i = 0, bytes; i < count; i += bytes) {
        uint32_t code;
        bytes = taciti_utf8_decode(shown + i, count - i, &code);
        if (bytes == 0 || bytes > count - i || code >= BYTE_CODES || l->byte_of_code[code] < 0) return false;
        out[n++] = (char)l->byte_of_code[code];
    }
    *out_count = n;
    return true;
}

/* The id of a token as vocab.json shows it, or -1. */
static int32_t id_of(const loader *l, const char *shown) {
    const json_t *id = json_object_get(l->vocab, shown);
    return id == NULL ? -1 : (int32_t)json_integer_value(id);
}

/* ---- vocab.json ------------------------------------------------------------------------------------------------ */

/* Sorts the object's keys by id: keys[id]. */
static tacit_status keys_by_id(const loader *l, const char **keys, size_t n) {
    const char *key;
    json_t *value;
    json_object_foreach(l->vocab, key, value) {
        const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= (json_int_t)n)
            return taciti_fail(TACIT_E_DATA, "%s: the id of \"%.*s\" must be an integer of 0 to %zu (%zu tokens)",
                               l->vocab_path, SHOWN_BYTES, key, n - 1, n);
        if (keys[id] != NULL)
            return taciti_fail(TACIT_E_DATA, "%s: id %" JSON_INTEGER_FORMAT " belongs to both \"%.*s\" and \"%.*s\"",
                               l->vocab_path, id, SHOWN_BYTES, keys[id], SHOWN_BYTES, key);
        keys[id] = key;
    }
    return TACIT_OK; /* n keys, n distinct ids below n: no id is missing */
}

static tacit_status fill_pieces(const loader *l, const char *const *keys, size_t n) {
    size_t total = 0;
    for (size_t id = 0; id < n; id++) total += strlen(keys[id]);
    taciti_bpe *bpe = l->bpe;
    bpe->pieces = taciti_calloc(total, 1);
    bpe->offsets = taciti_calloc(n + 1, sizeof *bpe->offsets);
    if (bpe->pieces == NULL || bpe->offsets == NULL) return TACIT_E_MEMORY;
    size_t at = 0;
    for (size_t id = 0; id < n; id++) {
        size_t count = 0;
        if (*keys[id] == '\0' || !unmap_text(l, keys[id], strlen(keys[id]), bpe->pieces + at, &count))
            return taciti_fail(TACIT_E_DATA,
                               "%s: token %zu, \"%.*s\", is empty or has a character that stands for no byte; "
                               "is this the vocab.json of a byte-level BPE such as GPT-2's?",
                               l->vocab_path, id, SHOWN_BYTES, keys[id]);
        at += count;
        bpe->offsets[id + 1] = at;
    }
    bpe->vocabulary = (int32_t)n;
    return TACIT_OK;
}

static tacit_status find_byte_ids(const loader *l) {
    taciti_bpe *bpe = l->bpe;
    for (size_t b = 0; b < 256; b++) bpe->byte_ids[b] = -1;
    for (int32_t id = 0; id < bpe->vocabulary; id++)
        if (bpe->offsets[id + 1] - bpe->offsets[id] == 1)
            bpe->byte_ids[(unsigned char)bpe->pieces[bpe->offsets[id]]] = id;
    for (size_t b = 0; b < 256; b++)
        if (bpe->byte_ids[b] < 0)
            return taciti_fail(TACIT_E_DATA, "%s: there is no token for the byte 0x%02zx; all 256 are needed",
                               l->vocab_path, b);
    return TACIT_OK;
}

static tacit_status load_vocab(loader *l) {
    const taciti_strict_reader reader = {.file = l->vocab_path, .status = TACIT_E_DATA};
    TACITI_TRY(taciti_strict_load(&reader, FILE_BYTES, &l->vocab));
    const size_t n = json_object_size(l->vocab);
    if (!json_is_object(l->vocab) || n < 256 || n > MAX_TOKENS)
        return taciti_fail(TACIT_E_DATA, "%s: %zu tokens; expected is an object of 256 to %d {\"token\": id}",
                           l->vocab_path, n, MAX_TOKENS);
    const char **keys = taciti_calloc(n, sizeof *keys);
    if (keys == NULL) return TACIT_E_MEMORY;
    tacit_status status = keys_by_id(l, keys, n);
    if (status == TACIT_OK) status = fill_pieces(l, keys, n);
    taciti_free(keys);
    return status == TACIT_OK ? find_byte_ids(l) : status;
}

/* ---- merges.txt ------------------------------------------------------------------------------------------------ */

static tacit_status fail_merge(const loader *l, size_t line, const char *text, size_t bytes, const char *why) {
    return taciti_fail(TACIT_E_DATA, "%s:%zu: \"%.*s\": %s", l->merges_path, line,
                       (int)(bytes < SHOWN_BYTES ? bytes : SHOWN_BYTES), text, why);
}

/* One line "left right"; `buffer` has room for its bytes. */
static tacit_status add_merge(const loader *l, size_t line, const char *text, size_t bytes, char *buffer) {
    const char *space = memchr(text, ' ', bytes);
    const size_t left = space == NULL ? 0 : (size_t)(space - text), right = bytes - left - (left != 0);
    if (left == 0 || right == 0 || memchr(space + 1, ' ', right) != NULL)
        return fail_merge(l, line, text, bytes, "expected are two tokens with one space between them");
    size_t count = 0;
    if (!unmap_text(l, text, left, buffer, &count) || !unmap_text(l, space + 1, right, buffer, &count))
        return fail_merge(l, line, text, bytes, "a character stands for no byte");
    taciti_bpe_merge merge = {.rank = (uint32_t)line};
    (void)snprintf(buffer, bytes, "%.*s", (int)left, text);
    merge.left = id_of(l, buffer);
    (void)snprintf(buffer + left, bytes - left, "%.*s", (int)right, space + 1);
    merge.right = id_of(l, buffer + left);
    merge.merged = id_of(l, buffer);
    if (merge.left < 0 || merge.right < 0)
        return fail_merge(l, line, text, bytes, "a side of the pair is no token of the vocabulary");
    if (merge.merged < 0) return fail_merge(l, line, text, bytes, "the merged pair is no token of the vocabulary");
    const size_t slot = (size_t)(taciti_bpe_find(l->bpe, merge.left, merge.right) - l->bpe->merges);
    if (l->bpe->merges[slot].rank != TACITI_BPE_NO_RANK)
        return fail_merge(l, line, text, bytes, "the pair comes twice");
    l->bpe->merges[slot] = merge;
    return TACIT_OK;
}

static tacit_status make_table(taciti_bpe *bpe, size_t merges) {
    size_t slots = 1024;
    while (slots < 2 * merges) slots *= 2;
    bpe->merges = taciti_calloc(slots, sizeof *bpe->merges);
    if (bpe->merges == NULL) return TACIT_E_MEMORY;
    bpe->mask = slots - 1;
    for (size_t i = 0; i < slots; i++) bpe->merges[i].rank = TACITI_BPE_NO_RANK;
    return TACIT_OK;
}

static tacit_status read_merges(const loader *l, const char *text, size_t bytes, char *buffer) {
    size_t line = 1;
    for (size_t at = 0; at < bytes; line++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end == NULL ? bytes - at : (size_t)(end - text) - at;
        const size_t next = at + length + 1;
        if (length > 0 && text[at + length - 1] == '\r') length--; /* no token has a raw carriage return */
        const bool version = line == 1 && length >= 8 && memcmp(text + at, "#version", 8) == 0;
        const bool last_empty = length == 0 && next >= bytes;
        if (!version && !last_empty) TACITI_TRY(add_merge(l, line, text + at, length, buffer));
        at = next;
    }
    return TACIT_OK;
}

static tacit_status load_merges(const loader *l) {
    char *text = NULL;
    size_t bytes = 0, lines = 1;
    TACITI_TRY(taciti_file_read(l->merges_path, FILE_BYTES, &text, &bytes));
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    char *buffer = taciti_calloc(bytes, 1);
    tacit_status status = buffer == NULL ? TACIT_E_MEMORY : make_table(l->bpe, lines);
    if (status == TACIT_OK) status = read_merges(l, text, bytes, buffer);
    taciti_free(buffer);
    taciti_free(text);
    return status;
}

tacit_status taciti_bpe_load(const char *vocab_path, const char *merges_path, taciti_bpe *out) {
    taciti_bpe bpe = {0};
    loader l = {.vocab_path = vocab_path, .merges_path = merges_path, .bpe = &bpe};
    map_bytes(&l);
    tacit_status status = load_vocab(&l);
    if (status == TACIT_OK) status = load_merges(&l);
    json_decref(l.vocab);
    if (status == TACIT_OK)
        *out = bpe;
    else
        taciti_bpe_destroy(&bpe);
    return status;
}

void taciti_bpe_destroy(taciti_bpe *bpe) {
    taciti_free(bpe->pieces);
    taciti_free(bpe->offsets);
    taciti_free(bpe->merges);
    *bpe = (taciti_bpe){0};
}
