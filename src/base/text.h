/* SPDX-License-Identifier: Apache-2.0
 *
 * Text functions: locale-independent numbers, quoting for messages, UTF-8 validation, edit distance. Any thread.
 */
#ifndef TACITI_BASE_TEXT_H
#define TACITI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

/* Parses a decimal integer ("-12"). Returns false unless the whole text is one and fits. */
bool taciti_integer_parse(const char *text, int64_t *out);

/* Parses a finite decimal number ("1", "-0.5", "3e-4"). Returns false for anything else, such as hexadecimal, "inf" and
 * "nan". */
bool taciti_real_parse(const char *text, double *out);

/* Formats a double with the fewest digits that read back as the same value, with an exponent where that is much
 * shorter. Every finite value gives valid JSON. */
enum { TACITI_REAL_BYTES = 32 };
void taciti_real_format(double value, char out[TACITI_REAL_BYTES]);

/* Appends to the text in out[0 .. size), cut where that ends. */
void taciti_text_add(char *out, size_t size, const char *format, ...) TACITI_PRINTF(3, 4);

/* `text` in double quotes for a message: control bytes become '?', long texts end in "...". */
enum { TACITI_QUOTED_BYTES = 80 };
const char *taciti_quote(const char *text, char out[TACITI_QUOTED_BYTES]);

/* Decodes the UTF-8 sequence that begins at text[0 .. bytes), bytes >= 1. Returns its length; 0 if it is malformed (RFC
 * 3629: no surrogates, no overlong forms); a length above `bytes`, without a code, if it may go on behind the end. */
size_t taciti_utf8_decode(const char *text, size_t bytes, uint32_t *code);

bool taciti_text_ends_with(const char *text, const char *end);

/* Whether the value is one of those between bars: "128|true". */
bool taciti_text_among(const char *value, const char *values);

/* True when the text is valid UTF-8. */
bool taciti_utf8_valid(const char *text);

/* Returns the number of edits (insert, delete, replace, swap of neighbours) between two words, or SIZE_MAX if one is
 * longer than 63 bytes. */
size_t taciti_edit_distance(const char *a, const char *b);

/* Returns true if `distance` edits of `word` are few enough for a typing error. */
bool taciti_edit_close(const char *word, size_t distance);

/* The nearest to a mistyped word among the names that are offered; begin with {0}. */
enum { TACITI_NEAREST_BYTES = 64 };
typedef struct taciti_nearest {
    size_t distance;
    char name[TACITI_NEAREST_BYTES];      /* "": none is close */
    char hint[TACITI_NEAREST_BYTES + 32]; /* "; did you mean "NAME"?", or "" */
} taciti_nearest;

void taciti_nearest_offer(taciti_nearest *nearest, const char *word, const char *name);

/* The same with a distance of the caller's; takes the name however far away it is. */
void taciti_nearest_take(taciti_nearest *nearest, size_t distance, const char *name);

#endif
