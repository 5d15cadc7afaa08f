/* SPDX-License-Identifier: Apache-2.0 */
#include "data/pretoken.h"

#include <stdint.h>

#include "base/text.h"

enum { OTHER, LETTER, NUMBER, SPACE, MORE }; /* the first four are those of the table */

#include "data/unicode_tables.h"

static int kind_of_code(uint32_t code) {
    size_t low = 0, high = sizeof RUNS / sizeof *RUNS;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (RUNS[middle] / 4 <= code)
            low = middle;
        else
            high = middle;
    }
    return (int)(RUNS[low] % 4);
}

static int kind_of_ascii(unsigned char byte) {
    const unsigned char lower = byte | 0x20;
    if (lower >= 'a' && lower <= 'z') return LETTER;
    if (byte >= '0' && byte <= '9') return NUMBER;
    return byte == ' ' || (byte >= 9 && byte <= 13) ? SPACE : OTHER;
}

/* Returns the kind of the character at text, and its bytes (at least 1). MORE: it may go on behind the end. */
static int kind_of(const unsigned char *text, size_t bytes, bool final, size_t *length) {
    if (bytes == 0) return MORE;
    *length = 1;
    if (text[0] < 0x80) return kind_of_ascii(text[0]);
    uint32_t code;
    const size_t n = taciti_utf8_decode((const char *)text, bytes, &code);
    if (n > bytes) return final ? OTHER : MORE;
    if (n == 0) return OTHER;
    *length = n;
    return kind_of_code(code);
}

/* Returns the bytes of the contraction at the apostrophe text[0], or 0; *more: they cannot be known yet. */
static size_t contraction_bytes(const unsigned char *text, size_t bytes, bool final, bool *more) {
    *more = !final && bytes < 2;
    if (bytes < 2) return 0;
    const unsigned char a = text[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (a != 'r' && a != 'v' && a != 'l') return 0;
    *more = !final && bytes < 3;
    if (bytes < 3) return 0;
    return text[2] == (a == 'l' ? 'l' : 'e') ? 3 : 0;
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
        const size_t length = contraction_bytes(t, bytes, final, &more);
        if (length != 0 || more) return length;
    }
    const size_t start = t[0] == ' ' ? 1 : 0;
    size_t length = 0;
    const int kind = kind_of(t + start, bytes - start, final, &length);
    if (kind == MORE && !final) return 0;
    if (kind == SPACE || kind == MORE) return space_end(t, bytes, final);
    size_t end = start; /* of the run of characters of this kind */
    int next;
    while ((next = kind_of(t + end, bytes - end, final, &length)) == kind) end += length;
    return next == MORE && !final ? 0 : end;
}
