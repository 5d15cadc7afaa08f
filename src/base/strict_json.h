/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict reading of JSON files that people write by hand. An object has a table of its fields; a field knows what is
 * legal. Whatever is wrong is refused with the file, the line (of a syntax error) or the path of the field
 * ("layers[3].backward_s"), what was found, what is legal, and for an unknown field the nearest legal one.
 * Any thread. Every function that returns a status has logged what it refuses, as E_CONFIG.
 */
#ifndef TACITI_BASE_STRICT_JSON_H
#define TACITI_BASE_STRICT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "tacit/tacit.h"

/* Where we are, for messages. Starts as {.file = "profile.json"}. */
enum { TACITI_STRICT_PATH_BYTES = 160 };
typedef struct taciti_strict_reader {
    const char *file; /* borrows */
    char path[TACITI_STRICT_PATH_BYTES];
} taciti_strict_reader;

typedef struct taciti_strict_field taciti_strict_field;

/* Checks a value and writes it at `out`. */
typedef tacit_status taciti_strict_read(taciti_strict_reader *reader, const json_t *value,
                                        const taciti_strict_field *field, void *out);

struct taciti_strict_field {
    const char *name; /* NULL ends a table */
    bool required;
    taciti_strict_read *read; /* writes at (char *)out + offset */
    size_t offset;
    double min, max;                   /* of numbers; of texts: bytes, with the final zero for `most` */
    const char *legal;                 /* for messages: "a number above 0" */
    const taciti_strict_field *fields; /* of an object within (taciti_strict_nested) */
};

/* Syntax, and no key twice in an object. Returns owned; json_decref(). */
tacit_status taciti_strict_parse(const char *file, const char *text, size_t bytes, json_t **out);

/* All fields of an object that is described by `fields`, into the struct that their offsets are of. What is optional
 * and absent stays as it is. `legal` describes the object. */
tacit_status taciti_strict_object(taciti_strict_reader *reader, json_t *value, const taciti_strict_field *fields,
                                  const char *legal, void *out);

/* Values. */
taciti_strict_read taciti_strict_real;   /* a double in [least, most] */
taciti_strict_read taciti_strict_text;   /* of [least, most) bytes */
taciti_strict_read taciti_strict_name;   /* the same, without control characters */
taciti_strict_read taciti_strict_nested; /* an object with field->fields, whose offsets count from `out` */

/* "PATH is FOUND; give LEGAL". */
tacit_status taciti_strict_refuse(const taciti_strict_reader *reader, const json_t *value, const char *legal);

/* Go down to a field or an item, and back up with what they returned. */
size_t taciti_strict_enter(taciti_strict_reader *reader, const char *name);
size_t taciti_strict_enter_item(taciti_strict_reader *reader, size_t index);
void taciti_strict_leave(taciti_strict_reader *reader, size_t length);

#endif
