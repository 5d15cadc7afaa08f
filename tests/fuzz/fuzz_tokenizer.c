/* SPDX-License-Identifier: Apache-2.0
 *
 * vocab.json, merges.txt and a text, parted by bytes 0. What a tokenizer makes of a text can be turned back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/data.h"
#include "fuzz.h"

static void check_text(const taciti_tokenizer *tokenizer, const uint8_t *text, size_t bytes) {
    int32_t *ids = NULL;
    size_t count = 0, at = 0;
    if (taciti_tokenizer_encode(tokenizer, (const char *)text, bytes, &ids, &count) != TACIT_OK) abort();
    for (size_t i = 0; i < count; i++) {
        size_t length = 0;
        const char *piece = taciti_tokenizer_piece(tokenizer, ids[i], &length);
        if (piece == NULL || length > bytes - at || memcmp(text + at, piece, length) != 0) abort();
        at += length;
    }
    if (at != bytes) abort();
    taciti_free(ids);
}

static size_t length_to_zero(const uint8_t *data, size_t size) {
    const uint8_t *zero = size == 0 ? NULL : memchr(data, 0, size);
    return zero == NULL ? size : (size_t)(zero - data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > FUZZ_INPUT_MAX) return 0;
    const size_t vocab = length_to_zero(data, size), after = vocab < size ? vocab + 1 : size;
    const size_t merges = length_to_zero(data + after, size - after);
    const size_t text = after + merges < size ? after + merges + 1 : size;
    taciti_tokenizer *tokenizer = NULL;
    const char *vocab_path = fuzz_file_of(0, data, vocab), *merges_path = fuzz_file_of(1, data + after, merges);
    if (taciti_tokenizer_bpe(vocab_path, merges_path, &tokenizer) != TACIT_OK) return 0;
    check_text(tokenizer, data + text, size - text);
    taciti_tokenizer_destroy(tokenizer);
    return 0;
}

/* The character that shows byte b. */
static size_t show(unsigned b, unsigned *next, char *out) {
    const bool shown = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const unsigned code = shown ? b : (*next)++;
    size_t n = 0;
    if (code == '"' || code == '\\') out[n++] = '\\';
    if (code < 0x80) {
        out[n++] = (char)code;
    } else {
        out[n++] = (char)(0xc0 | code >> 6);
        out[n++] = (char)(0x80 | (code & 0x3f));
    }
    return n;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char *const merges[] = {"#version: 0.2\nt h\nth e\n", "", "t h\n"};
    static const char *const texts[] = {"the theme of that\n", "\xff\xc3\xa4 1234  x'll", "thththe"};
    if (i >= 3) return 0;
    size_t at = 0;
    unsigned next = 256;
    at += (size_t)sprintf((char *)out, "{");
    for (unsigned b = 0; b < 256; b++) {
        out[at++] = '"';
        at += show(b, &next, (char *)out + at);
        at += (size_t)sprintf((char *)out + at, "\":%u,", b);
    }
    at += (size_t)sprintf((char *)out + at, "\"th\":256,\"the\":257}") + 1;
    at += (size_t)sprintf((char *)out + at, "%s", merges[i]) + 1;
    memcpy(out + at, texts[i], strlen(texts[i]));
    return at + strlen(texts[i]);
}
