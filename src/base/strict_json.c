/* SPDX-License-Identifier: Apache-2.0 */
#include "base/strict_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

enum { FOUND_BYTES = 64, FOUND_SHOWN = 40, NAMES_BYTES = 256 };

/* The last key before this place, in quotes and with words around it; nothing when there is none. */
static void name_key(const char *text, size_t end, char out[FOUND_BYTES + 32]) {
    *out = '\0';
    for (size_t i = 0; i < end; i++) {
        if (text[i] != '"') continue;
        const size_t begin = ++i;
        while (i < end && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
        size_t after = i + 1;
        while (after < end && (text[after] == ' ' || text[after] == '\n' || text[after] == '\t')) after++;
        if (after < end && text[after] == ':' && i - begin < FOUND_BYTES)
            (void)snprintf(out, FOUND_BYTES + 32, ", after the key \"%.*s\"", (int)(i - begin), text + begin);
    }
}

static tacit_status status_of(const taciti_strict_reader *reader) {
    return reader->status == TACIT_OK ? TACIT_E_CONFIG : reader->status;
}

tacit_status taciti_strict_parse(const taciti_strict_reader *reader, const char *text, size_t bytes, json_t **out) {
    json_error_t error = {0};
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        char key[FOUND_BYTES + 32];
        const size_t end = error.position < 0 ? 0 : (size_t)error.position;
        name_key(text, end < bytes ? end : bytes, key);
        return taciti_fail(status_of(reader), "%s:%d:%d: not JSON: %s%s", reader->file, error.line, error.column,
                           error.text, key);
    }
    *out = root;
    return TACIT_OK;
}

tacit_status taciti_strict_load(const taciti_strict_reader *reader, size_t limit, json_t **out) {
    char *text = NULL;
    size_t bytes = 0;
    TACITI_TRY(taciti_file_read(reader->file, limit, &text, &bytes));
    const tacit_status status = taciti_strict_parse(reader, text, bytes, out);
    taciti_free(text);
    return status;
}

/* ---- where we are ------------------------------------------------------------------------------------------------ */

size_t taciti_strict_enter(taciti_strict_reader *reader, const char *name) {
    const size_t length = strlen(reader->path);
    taciti_text_add(reader->path, sizeof reader->path, "%s%.64s", length == 0 ? "" : ".", name);
    return length;
}

size_t taciti_strict_enter_item(taciti_strict_reader *reader, size_t index) {
    const size_t length = strlen(reader->path);
    taciti_text_add(reader->path, sizeof reader->path, "[%zu]", index);
    return length;
}

void taciti_strict_leave(taciti_strict_reader *reader, size_t length) { reader->path[length] = '\0'; }

static const char *place_of(const taciti_strict_reader *reader) {
    return *reader->path == '\0' ? "the file" : reader->path;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Returns the value as it stands in the file, shortened. */
static const char *show_value(const json_t *value, char out[FOUND_BYTES]) {
    char quoted[TACITI_QUOTED_BYTES];
    if (json_is_object(value) || json_is_array(value)) return json_is_object(value) ? "an object" : "a list";
    if (json_is_string(value)) {
        taciti_quote(json_string_value(value), quoted);
        const bool cut = strlen(quoted) > FOUND_SHOWN;
        (void)snprintf(out, FOUND_BYTES, "%.*s%s", (int)FOUND_SHOWN, quoted, cut ? "...\"" : "");
        return out;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    (void)snprintf(out, FOUND_BYTES, "%.40s", text == NULL ? "unreadable" : text);
    free(text);
    return out;
}

tacit_status taciti_strict_refuse(const taciti_strict_reader *reader, const json_t *value, const char *legal) {
    char text[FOUND_BYTES];
    if (value == NULL)
        return taciti_fail(status_of(reader), "%s: %s is missing; give %s", reader->file, place_of(reader), legal);
    return taciti_fail(status_of(reader), "%s: %s is %s; give %s", reader->file, place_of(reader),
                       show_value(value, text), legal);
}

static tacit_status refuse_unknown(const taciti_strict_reader *reader, const char *name,
                                   const taciti_strict_field *fields) {
    char quoted[TACITI_QUOTED_BYTES], names[NAMES_BYTES] = "";
    taciti_nearest nearest = {0};
    for (const taciti_strict_field *f = fields; f->name != NULL; f++) {
        taciti_text_add(names, sizeof names, "%s%s", *names == '\0' ? "" : ", ", f->name);
        taciti_nearest_offer(&nearest, name, f->name);
    }
    return taciti_fail(status_of(reader), "%s: %s%sunknown field %s%s; legal here: %s", reader->file, reader->path,
                       *reader->path == '\0' ? "" : ": ", taciti_quote(name, quoted), nearest.hint, names);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

tacit_status taciti_strict_object(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *fields,
                                  const char *legal, void *out) {
    json_t *object = NULL; /* jansson iterates over objects that it could change */
    if (!json_is_object(value)) return taciti_strict_refuse(reader, value, legal);
    memcpy(&object, &value, sizeof object);
    for (void *at = json_object_iter(object); at != NULL && !reader->open; at = json_object_iter_next(object, at)) {
        const taciti_strict_field *f = fields;
        while (f->name != NULL && strcmp(f->name, json_object_iter_key(at)) != 0) f++;
        if (f->name == NULL) return refuse_unknown(reader, json_object_iter_key(at), fields);
    }
    for (const taciti_strict_field *f = fields; f->name != NULL; f++) {
        const json_t *member = json_object_get(value, f->name);
        const size_t length = taciti_strict_enter(reader, f->name);
        if (member == NULL && f->required) return taciti_strict_refuse(reader, NULL, f->legal);
        if (member != NULL) TACITI_TRY(f->read(reader, member, f, (char *)out + f->offset));
        taciti_strict_leave(reader, length);
    }
    return TACIT_OK;
}

/* JSON has no NaN and no infinity, and jansson refuses what overflows. */
tacit_status taciti_strict_real(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    const double number = json_number_value(value) + 0.0; /* -0.0 becomes 0: it would not survive being written */
    if (!json_is_number(value) || !(number >= field->min && number <= field->max))
        return taciti_strict_refuse(reader, value, field->legal);
    memcpy(out, &number, sizeof number);
    return TACIT_OK;
}

tacit_status taciti_strict_integer(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                   void *out) {
    const json_int_t x = json_integer_value(value);
    if (!json_is_integer(value) || (double)x < field->min || (double)x > field->max)
        return taciti_strict_refuse(reader, value, field->legal);
    *(int64_t *)out = (int64_t)x;
    return TACIT_OK;
}

tacit_status taciti_strict_size(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    int64_t x = 0;
    TACITI_TRY(taciti_strict_integer(reader, value, field, &x));
    *(size_t *)out = (size_t)x;
    return TACIT_OK;
}

tacit_status taciti_strict_count(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                 void *out) {
    int64_t x = 0;
    TACITI_TRY(taciti_strict_integer(reader, value, field, &x));
    *(int *)out = (int)x;
    return TACIT_OK;
}

tacit_status taciti_strict_flag(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    if (!json_is_boolean(value)) return taciti_strict_refuse(reader, value, field->legal);
    *(bool *)out = json_boolean_value(value);
    return TACIT_OK;
}

tacit_status taciti_strict_literal(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                   void *out) {
    (void)out;
    const size_t bytes = json_string_length(value);
    if (!json_is_string(value) || bytes + 2 != strlen(field->legal) ||
        memcmp(json_string_value(value), field->legal + 1, bytes) != 0)
        return taciti_strict_refuse(reader, value, field->legal);
    return TACIT_OK;
}

tacit_status taciti_strict_text(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    const size_t bytes = json_string_length(value);
    if (!json_is_string(value) || (double)bytes < field->min || (double)bytes >= field->max)
        return taciti_strict_refuse(reader, value, field->legal);
    memcpy(out, json_string_value(value), bytes + 1);
    return TACIT_OK;
}

tacit_status taciti_strict_name(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    for (const char *text = json_string_value(value); text != NULL && *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f) return taciti_strict_refuse(reader, value, field->legal);
    return taciti_strict_text(reader, value, field, out);
}

tacit_status taciti_strict_nested(taciti_strict_reader *reader, const json_t *value, const taciti_strict_field *field,
                                  void *out) {
    return taciti_strict_object(reader, value, field->fields, field->legal, out);
}
