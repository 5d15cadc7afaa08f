/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes JSON text without a tree: one object per line, numbers independent of the locale. Values that JSON cannot
 * represent (NaN, infinities) are omitted, never written as null or 0.
 */
#ifndef TACITI_REPORT_JSON_H
#define TACITI_REPORT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TACITI_JSON_NUMBER_BYTES = 32 };

/* Formats nine significant digits, which preserve any float, with "." as the decimal point in every locale. Returns the
 * length, or 0 and "" if the value is not finite. */
size_t taciti_json_number(double value, char out[TACITI_JSON_NUMBER_BYTES]);

/* One object under construction in a buffer of the caller. */
typedef struct taciti_json {
    char *text; /* borrows; always ends with a zero byte */
    size_t count, capacity;
    bool overflow; /* a member did not fit: the text must not be used */
} taciti_json;

void taciti_json_begin(taciti_json *json, char *buffer, size_t capacity); /* writes "{" */
void taciti_json_real(taciti_json *json, const char *key, double value);  /* left out when not finite */
void taciti_json_int(taciti_json *json, const char *key, int64_t value);
void taciti_json_uint(taciti_json *json, const char *key, uint64_t value);
void taciti_json_text(taciti_json *json, const char *key, const char *value); /* escapes; bytes >= 128 as they are */
void taciti_json_members(taciti_json *json, const char *members);             /* "" is fine; newlines become blanks */
void taciti_json_wall_time(taciti_json *json, const char *key, int64_t wall_ns); /* seconds, three decimals */
void taciti_json_end(taciti_json *json);                                         /* writes "}\n" */

#endif
