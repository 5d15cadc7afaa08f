/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict reader for JSON, whether people or programs wrote it. A table describes the fields of an object and their
 * legal values. An error message names the file, the line (of a syntax error) or the path of the field
 * ("layers[3].backward_s"), the value found, the legal values and, for an unknown field, the nearest known one. Any
 * thread. Errors are logged and returned as the reader's status.
 */
#ifndef TACITI_BASE_STRICT_JSON_H
#define TACITI_BASE_STRICT_JSON_H

#include <jansson.h>

#include "tacit/tacit.h"

/* Current position in the document, for messages. Initialise with {.file = "profile.json"}. */
enum { TACITI_STRICT_PATH_BYTES = 160 };
typedef struct taciti_strict_reader {
    const char *file;    /* borrows */
    tacit_status status; /* of an error; TACIT_OK: E_CONFIG */
    bool open;           /* unknown fields are ignored: a later version may write more */
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
    double min, max;                   /* of numbers; of texts: bytes, `max` includes the final zero */
    const char *legal;                 /* for messages: "a number above 0" */
    const taciti_strict_field *fields; /* of an object within (taciti_strict_nested) */
};

/* Parses the text; refuses an object with a duplicate key. Returns owned; release with json_decref(). */
tacit_status taciti_strict_parse(const taciti_strict_reader *reader, const char *text, size_t bytes, json_t **out);

/* Reads and parses the file, which has at most `limit` bytes. */
tacit_status taciti_strict_load(const taciti_strict_reader *reader, size_t limit, json_t **out);

/* Reads an object described by `fields` into the struct at `out`, to which the offsets refer. An optional field that is
 * absent leaves its member unchanged. `legal` describes the object in messages. */
tacit_status taciti_strict_object(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *fields,
                                  const char *legal, void *out);

/* Readers of values. */
taciti_strict_read taciti_strict_real;    /* a double in [min, max] */
taciti_strict_read taciti_strict_integer; /* an int64_t in [min, max], an integer in JSON */
taciti_strict_read taciti_strict_size;    /* the same as size_t */
taciti_strict_read taciti_strict_count;   /* the same as int */
taciti_strict_read taciti_strict_flag;    /* a bool */
taciti_strict_read taciti_strict_text;    /* a string of [min, max) bytes */
taciti_strict_read taciti_strict_name;    /* the same, without control characters */
taciti_strict_read taciti_strict_literal; /* the string that `legal` shows in quotes; nothing is written */
taciti_strict_read taciti_strict_nested;  /* an object with field->fields, whose offsets count from `out` */

/* Logs "PATH is FOUND; give LEGAL", or with value NULL "PATH is missing; give LEGAL", and returns the status. */
tacit_status taciti_strict_refuse(const taciti_strict_reader *reader, const json_t *value, const char *legal);

/* Extend the current path by a field or an item, and return the old length; `leave` restores it. */
size_t taciti_strict_enter(taciti_strict_reader *reader, const char *name);
size_t taciti_strict_enter_item(taciti_strict_reader *reader, size_t index);
void taciti_strict_leave(taciti_strict_reader *reader, size_t length);

#endif
