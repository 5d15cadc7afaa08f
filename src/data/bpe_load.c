/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads vocab.json and merges.txt. Their strings show each byte as one printable character: 33..126, 161..172 and
 * 174..255 as themselves, the others as U+0100 and up, in order.
 */
#include "data/bpe.h"

#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "base/text.h"

/* GPT-2's files have 1.0 and 0.5 MB; these limits only keep a wrong file from filling the memory. */
enum { FILE_BYTES = 256 << 20, MAX_TOKENS = 1 << 24, SHOWN_BYTES = 40, BYTE_CODES = 256 + 68 };

/* While loading: string -> id, and the byte of each shown character. */
typedef struct loader {
    const char *vocab_path, *merges_path;
    int32_t byte_of_code[BYTE_CODES]; /* -1: not a shown byte */
    int32_t *slots;                   /* hash table of ids, -1: empty; owned */
    size_t mask;
    taciti_bpe *bpe; /* being filled */
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

/* The slot of these bytes: holds their id, or -1. */
static int32_t *slot_of(const loader *l, const char *bytes, size_t count) {
    for (size_t slot = (size_t)XXH3_64bits(bytes, count) & l->mask;; slot = (slot + 1) & l->mask) {
        const int32_t id = l->slots[slot];
        const size_t *at = l->bpe->offsets + (id < 0 ? 0 : id);
        if (id < 0 || (at[1] - at[0] == count && memcmp(l->bpe->pieces + at[0], bytes, count) == 0))
            return &l->slots[slot];
    }
}

/* ---- vocab.json ------------------------------------------------------------------------------------------------ */

/* Sorts the object's keys by id: keys[id]. */
static tacit_status keys_by_id(const loader *l, json_t *root, const char **keys, size_t n) {
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value) {
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

static tacit_status index_pieces(loader *l) {
    size_t slots = 1024;
    while (slots < 2 * (size_t)l->bpe->vocabulary) slots *= 2;
    l->mask = slots - 1;
    l->slots = taciti_calloc(slots, sizeof *l->slots);
    if (l->slots == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < slots; i++) l->slots[i] = -1;
    const taciti_bpe *bpe = l->bpe;
    for (int32_t id = 0; id < bpe->vocabulary; id++)
        *slot_of(l, bpe->pieces + bpe->offsets[id], bpe->offsets[id + 1] - bpe->offsets[id]) = id;
    for (size_t b = 0; b < 256; b++) {
        const char one = (char)b;
        l->bpe->byte_ids[b] = *slot_of(l, &one, 1);
        if (l->bpe->byte_ids[b] < 0)
            return taciti_fail(TACIT_E_DATA, "%s: there is no token for the byte 0x%02zx; all 256 are needed",
                               l->vocab_path, b);
    }
    return TACIT_OK;
}

static tacit_status read_vocab(loader *l, json_t *root) {
    const size_t n = json_object_size(root);
    if (!json_is_object(root) || n < 256 || n > MAX_TOKENS)
        return taciti_fail(TACIT_E_DATA, "%s: %zu tokens; expected is an object of 256 to %d {\"token\": id}",
                           l->vocab_path, n, MAX_TOKENS);
    const char **keys = taciti_calloc(n, sizeof *keys);
    if (keys == NULL) return TACIT_E_MEMORY;
    tacit_status status = keys_by_id(l, root, keys, n);
    if (status == TACIT_OK) status = fill_pieces(l, keys, n);
    taciti_free(keys);
    return status == TACIT_OK ? index_pieces(l) : status;
}

static tacit_status load_vocab(loader *l) {
    const taciti_strict_reader reader = {.file = l->vocab_path, .status = TACIT_E_DATA};
    json_t *root = NULL;
    TACITI_TRY(taciti_strict_load(&reader, FILE_BYTES, &root));
    const tacit_status status = read_vocab(l, root);
    json_decref(root);
    return status;
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
    size_t a = 0, b = 0;
    if (!unmap_text(l, text, left, buffer, &a) || !unmap_text(l, space + 1, right, buffer + a, &b))
        return fail_merge(l, line, text, bytes, "a character stands for no byte");
    const int32_t ids[] = {*slot_of(l, buffer, a), *slot_of(l, buffer + a, b), *slot_of(l, buffer, a + b)};
    if (ids[0] < 0 || ids[1] < 0)
        return fail_merge(l, line, text, bytes, "a side of the pair is no token of the vocabulary");
    if (ids[2] < 0) return fail_merge(l, line, text, bytes, "the merged pair is no token of the vocabulary");
    size_t slot = (size_t)(taciti_bpe_find(l->bpe, ids[0], ids[1]) - l->bpe->merges);
    if (l->bpe->merges[slot].rank != TACITI_BPE_NO_RANK)
        return fail_merge(l, line, text, bytes, "the pair comes twice");
    l->bpe->merges[slot] =
        (taciti_bpe_merge){.left = ids[0], .right = ids[1], .merged = ids[2], .rank = (uint32_t)line};
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
    taciti_free(l.slots);
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
