/* SPDX-License-Identifier: Apache-2.0 */
#include "data/pretoken.h"

#include <stdint.h>

enum { OTHER, LETTER, NUMBER, SPACE, MORE };

#include "data/unicode_tables.h"

static int kind_of_code(uint32_t code) {
    size_t low = 0, high = sizeof unicode_ranges / sizeof unicode_ranges[0];
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (unicode_ranges[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    const bool inside = low < sizeof unicode_ranges / sizeof unicode_ranges[0] && unicode_ranges[low].first <= code;
    return inside ? unicode_ranges[low].kind : OTHER;
}

static int kind_of_ascii(unsigned char byte) {
    const unsigned char lower = byte | 0x20;
    if (lower >= 'a' && lower <= 'z') return LETTER;
    if (byte >= '0' && byte <= '9') return NUMBER;
    return byte == ' ' || (byte >= 9 && byte <= 13) ? SPACE : OTHER;
}

/* Bytes that a sequence with this first byte has; 0: none begins with it. */
static size_t sequence_bytes(unsigned char first) {
    if (first >= 0xc2 && first <= 0xdf) return 2;
    if (first >= 0xe0 && first <= 0xef) return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* Second bytes are narrower after some first bytes: no overlong forms, surrogates or codes above U+10FFFF. */
static bool second_fits(unsigned char first, unsigned char second) {
    const unsigned char min = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char max = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= min && second <= max;
}

/* Kind of the non-ASCII character at text, and its bytes. */
static int kind_of_sequence(const unsigned char *text, size_t bytes, bool final, size_t *length) {
    *length = 1;
    const size_t n = sequence_bytes(text[0]);
    if (n == 0) return OTHER;
    uint32_t code = text[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (i == bytes) return final ? OTHER : MORE;
        if (i == 1 ? !second_fits(text[0], text[1]) : (text[i] & 0xc0) != 0x80) return OTHER;
        code = code << 6 | (text[i] & 0x3fu);
    }
    *length = n;
    return kind_of_code(code);
}

/* Kind of the character at text, and its bytes (at least 1). MORE: it may go on behind the end. */
static int kind_of(const unsigned char *text, size_t bytes, bool final, size_t *length) {
    if (bytes == 0) return MORE;
    *length = 1;
    return text[0] < 0x80 ? kind_of_ascii(text[0]) : kind_of_sequence(text, bytes, final, length);
}

/* Bytes of the contraction at the apostrophe text[0], or 0; *more when that cannot be known yet. */
static size_t contraction(const unsigned char *text, size_t bytes, bool final, bool *more) {
    *more = !final && bytes < 2;
    if (bytes < 2) return 0;
    const unsigned char a = text[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (a != 'r' && a != 'v' && a != 'l') return 0;
    *more = !final && bytes < 3;
    if (bytes < 3) return 0;
    return text[2] == (a == 'l' ? 'l' : 'e') ? 3 : 0;
}

/* End of the run of characters of one kind that begins at `at`; 0: not yet known. */
static size_t run_end(const unsigned char *text, size_t at, size_t bytes, bool final, int kind) {
    size_t length = 0;
    int next;
    while ((next = kind_of(text + at, bytes - at, final, &length)) == kind) at += length;
    return next == MORE && !final ? 0 : at;
}

/* White space before something else leaves its last character to it. */
static size_t space_end(const unsigned char *text, size_t bytes, bool final) {
    size_t at = 0, last = 0, length = 0;
    int next;
    while ((next = kind_of(text + at, bytes - at, final, &length)) == SPACE) {
        last = at;
        at += length;
    }
    if (next == MORE) return final ? at : 0;
    return last == 0 ? at : last;
}

size_t taciti_pretoken(const char *text, size_t bytes, bool final) {
    const unsigned char *t = (const unsigned char *)text;
    if (t[0] == '\'') {
        bool more;
        const size_t length = contraction(t, bytes, final, &more);
        if (length != 0 || more) return length;
    }
    const size_t start = t[0] == ' ' ? 1 : 0;
    size_t length = 0;
    const int kind = kind_of(t + start, bytes - start, final, &length);
    if (kind == MORE && !final) return 0;
    if (kind == SPACE || kind == MORE) return space_end(t, bytes, final);
    return run_end(t, start, bytes, final, kind);
}
