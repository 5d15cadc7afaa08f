/* SPDX-License-Identifier: Apache-2.0
 *
 * Small things about text: numbers that do not depend on the locale, quoting for messages, UTF-8, and the nearest of
 * several words. Any thread, no failure beyond the return value.
 */
#ifndef TACITI_BASE_TEXT_H
#define TACITI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole text is a decimal integer ("-12") that fits, or false. */
bool taciti_integer_parse(const char *text, int64_t *out);

/* The whole text is a finite decimal number ("1", "-0.5", "3e-4"), or false: hexadecimal, "inf" and "nan" are not. */
bool taciti_real_parse(const char *text, double *out);

/* A decimal text that reads back as the same double, with the fewest digits, and with an exponent where that is much
 * shorter; valid JSON for every finite value. */
enum { TACITI_REAL_BYTES = 32 };
void taciti_real_format(double value, char out[TACITI_REAL_BYTES]);

/* `text` in double quotes for a message: control bytes become '?', long texts end in "...". */
enum { TACITI_QUOTED_BYTES = 80 };
const char *taciti_quote(const char *text, char out[TACITI_QUOTED_BYTES]);

/* True when the text is valid UTF-8 (no surrogates, no overlong forms). */
bool taciti_utf8_valid(const char *text);

/* Edits (insert, delete, replace, swap of neighbours) between two words; words over 63 bytes count as SIZE_MAX. */
size_t taciti_edit_distance(const char *a, const char *b);

/* Whether `distance` edits of `word` are few enough to be a slip of the hand. */
bool taciti_edit_close(const char *word, size_t distance);

#endif
