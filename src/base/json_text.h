/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts: what functions write to a stream, and JSON. Any thread.
 */
#ifndef TACITI_BASE_JSON_TEXT_H
#define TACITI_BASE_JSON_TEXT_H

#include <jansson.h>
#include <stdio.h>

/* The text that `write` writes of the object. Returns owned; taciti_free(). NULL when memory is short. */
typedef void taciti_text_writer(FILE *out, const void *object);
char *taciti_text_of(taciti_text_writer *write, const void *object);

/* json_dumps() of a value that it takes (NULL is fine). Returns owned; taciti_free(). NULL when memory is short. */
char *taciti_json_dump(json_t *value, size_t flags);

/* Writes a text in quotes; "" for one that is not UTF-8. */
void taciti_json_quote(FILE *out, const char *text);

#endif
