/* SPDX-License-Identifier: Apache-2.0
 *
 * Strict YAML for configurations, over libyaml's event parser. The grammar that is accepted is
 *
 *   file     = nothing | { section ":" { key ":" value } | key ":" value }
 *   value    = scalar | sequence of scalars
 *
 * and everything YAML could add to it (anchors, aliases, tags, more documents, deeper nesting) is refused at the place
 * where it stands. The options' types decide what a plain scalar means, so `no` is a word where a word is expected.
 */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/option_value.h"
#include "base/text.h"

/* A configuration is written by hand; anything larger is another file by mistake. */
#define FILE_LIMIT_BYTES ((size_t)1 << 20)

enum { SCALAR_BYTES = 4096 };

typedef struct reader {
    const taciti_config *config;
    const char *path;
    yaml_parser_t parser;
    yaml_event_t event;
    size_t *key_lines;     /* by option index: line of the first appearance, 0 for none */
    size_t *section_lines; /* by section index */
} reader;

TACITI_PRINTF(3, 4) static tacit_status fail_at(const reader *r, yaml_mark_t mark, const char *format, ...) {
    char message[SCALAR_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return taciti_fail(TACIT_E_CONFIG, "%s:%zu:%zu: %s", r->path, mark.line + 1, mark.column + 1, message);
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static tacit_status fail_syntax(const reader *r) {
    const yaml_parser_t *p = &r->parser;
    if (p->error == YAML_MEMORY_ERROR) return taciti_fail(TACIT_E_MEMORY, "%s: out of memory", r->path);
    if (p->error == YAML_READER_ERROR)
        return taciti_fail(TACIT_E_CONFIG, "%s: byte %zu: %s", r->path, p->problem_offset, p->problem);
    if (*p->buffer.pointer == '\t' || strstr(p->problem, "tab character") != NULL)
        return fail_at(r, p->problem_mark, "tabs do not indent; use spaces");
    return fail_at(r, p->problem_mark, "%s%s%s", p->problem, p->context == NULL ? "" : " ",
                   p->context == NULL ? "" : p->context);
}

/* Replaces the current event by the next one. */
static tacit_status next_event(reader *r) {
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_syntax(r);
    const yaml_event_type_t type = r->event.type;
    const bool node =
        type == YAML_SCALAR_EVENT || type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT;
    /* All three begin with anchor and tag. */
    if (type == YAML_ALIAS_EVENT || (node && r->event.data.scalar.anchor != NULL))
        return fail_at(r, r->event.start_mark, "anchors and aliases are not allowed; write the value out");
    if (node && r->event.data.scalar.tag != NULL)
        return fail_at(r, r->event.start_mark, "tags are not allowed; the key decides the type");
    return TACIT_OK;
}

static const char *scalar_text(const reader *r) { return (const char *)r->event.data.scalar.value; }

static bool scalar_is_plain(const reader *r) { return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE; }

/* `key:` with nothing behind it, or YAML's words for nothing. */
static bool is_nothing(const reader *r) {
    if (r->event.type != YAML_SCALAR_EVENT || !scalar_is_plain(r)) return false;
    const char *text = scalar_text(r);
    return *text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

/* Texts are C strings further on. */
static tacit_status check_scalar(const reader *r) {
    if (strlen(scalar_text(r)) != r->event.data.scalar.length)
        return fail_at(r, r->event.start_mark, "a text must not contain a zero byte");
    return TACIT_OK;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static const char *name_type(taciti_option_type type) {
    switch (type) {
    case TACITI_OPTION_BOOL: return "true or false";
    case TACITI_OPTION_INT: return "a whole number";
    case TACITI_OPTION_REAL: return "a number";
    case TACITI_OPTION_BYTES: return "a size";
    case TACITI_OPTION_ENUM:
    case TACITI_OPTION_NAME: return "a word";
    case TACITI_OPTION_TEXT: return "a text";
    case TACITI_OPTION_LIST: return "a sequence of texts";
    }
    return "another value";
}

static void where_of(const reader *r, const taciti_place *place, char out[TACITI_WHERE_BYTES]) {
    char key[TACITI_KEY_BYTES];
    const yaml_mark_t mark = r->event.start_mark;
    (void)snprintf(out, TACITI_WHERE_BYTES, "%s:%zu:%zu: %s", r->path, mark.line + 1, mark.column + 1,
                   taciti_place_key(place, key));
}

static tacit_status fail_kind(const reader *r, const taciti_place *place, const char *found) {
    char where[TACITI_WHERE_BYTES];
    where_of(r, place, where);
    return taciti_fail(TACIT_E_CONFIG, "%s: expects %s, not %s", where, name_type(place->option->type), found);
}

static bool is_quotable(taciti_option_type type) {
    return type == TACITI_OPTION_TEXT || type == TACITI_OPTION_LIST || type == TACITI_OPTION_ENUM ||
           type == TACITI_OPTION_NAME;
}

static tacit_status read_scalar(reader *r, const taciti_place *place) {
    char where[TACITI_WHERE_BYTES];
    TACITI_TRY(check_scalar(r));
    if (is_nothing(r)) return fail_kind(r, place, "nothing; remove the key to keep its default");
    if (!scalar_is_plain(r) && !is_quotable(place->option->type))
        return fail_kind(r, place, "a quoted text; remove the quotes");
    where_of(r, place, where);
    if (place->option->type != TACITI_OPTION_LIST) return taciti_place_set(place, where, scalar_text(r));
    char *item = (char *)r->event.data.scalar.value;
    return taciti_place_set_list(place, where, &item, 1);
}

/* Grows `items` by one copy of the current scalar. */
static tacit_status append_item(const reader *r, char ***items, size_t *count) {
    TACITI_TRY(check_scalar(r));
    char **larger = taciti_with_room(*items, *count, sizeof *larger);
    if (larger == NULL) return TACIT_E_MEMORY;
    *items = larger;
    (*items)[*count] = taciti_strdup(scalar_text(r));
    if ((*items)[*count] == NULL) return TACIT_E_MEMORY;
    ++*count;
    return TACIT_OK;
}

static tacit_status read_sequence(reader *r, const taciti_place *place) {
    if (place->option->type != TACITI_OPTION_LIST) return fail_kind(r, place, "a sequence");
    char where[TACITI_WHERE_BYTES], **items = NULL;
    size_t count = 0;
    where_of(r, place, where);
    tacit_status status = next_event(r);
    while (status == TACIT_OK && r->event.type != YAML_SEQUENCE_END_EVENT) {
        if (r->event.type != YAML_SCALAR_EVENT || is_nothing(r)) {
            status = fail_kind(r, place, "an item of another kind");
            break;
        }
        status = append_item(r, &items, &count);
        if (status == TACIT_OK) status = next_event(r);
    }
    if (status == TACIT_OK) status = taciti_place_set_list(place, where, items, count);
    for (size_t i = 0; i < count; i++) taciti_free(items[i]);
    taciti_free(items);
    return status;
}

/* ---- keys ------------------------------------------------------------------------------------------------------ */

static tacit_status check_first(const reader *r, const char *name, size_t *line) {
    char quoted[TACITI_QUOTED_BYTES];
    if (*line == 0) {
        *line = r->event.start_mark.line + 1;
        return TACIT_OK;
    }
    return fail_at(r, r->event.start_mark, "%s was already given on line %zu", taciti_quote(name, quoted), *line);
}

/* `key` is a full key, or a section with a dot behind it; `name` is what the file says. */
static tacit_status fail_unknown(const reader *r, const char *key, const char *name, const taciti_nearest *nearest) {
    char quoted[TACITI_QUOTED_BYTES], text[TACITI_OLD_KEY_BYTES];
    const taciti_old_key *old = taciti_old_key_find(key);
    if (old != NULL) return fail_at(r, r->event.start_mark, "%s", taciti_old_key_text(old, key, text));
    return fail_at(r, r->event.start_mark, "unknown key %s%s", taciti_quote(name, quoted), nearest->hint);
}

/* The current event is a key's scalar; reads the key and its value. section "" is the top level. */
static tacit_status read_pair(reader *r, const char *section) {
    char key[TACITI_KEY_BYTES];
    taciti_place place;
    TACITI_TRY(check_scalar(r));
    const int length = snprintf(key, sizeof key, "%s%s%s", section, *section == '\0' ? "" : ".", scalar_text(r));
    const bool known = length > 0 && (size_t)length < sizeof key && taciti_config_find(r->config, key, &place);
    if (!known) {
        const taciti_nearest nearest = taciti_config_nearest(r->config, key);
        return fail_unknown(r, key, key, &nearest);
    }
    TACITI_TRY(check_first(r, key, &r->key_lines[place.index]));
    TACITI_TRY(next_event(r));
    const bool scalar = r->event.type == YAML_SCALAR_EVENT;
    if (!scalar && r->event.type != YAML_SEQUENCE_START_EVENT) return fail_kind(r, &place, "a mapping");
    TACITI_TRY(scalar ? read_scalar(r, &place) : read_sequence(r, &place));
    if (place.given != NULL) *place.given = TACITI_GIVEN_IN_FILE;
    return TACIT_OK;
}

static tacit_status read_section(reader *r, size_t index) {
    const char *section = r->config->sections[index].table->section;
    TACITI_TRY(check_first(r, section, &r->section_lines[index]));
    TACITI_TRY(next_event(r));
    if (is_nothing(r)) return TACIT_OK;
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return fail_at(r, r->event.start_mark, "%s: expects keys and values, indented on the following lines", section);
    TACITI_TRY(next_event(r));
    while (r->event.type != YAML_MAPPING_END_EVENT) {
        if (r->event.type != YAML_SCALAR_EVENT) return fail_at(r, r->event.start_mark, "a key must be a word");
        TACITI_TRY(read_pair(r, section));
        TACITI_TRY(next_event(r));
    }
    return TACIT_OK;
}

/* Refuses a section that there is no more, or like one: an old key below it, if there is one, says what to type. */
static tacit_status fail_section(reader *r, const char *name, const taciti_nearest *nearest) {
    char section[TACITI_KEY_BYTES], key[2 * TACITI_KEY_BYTES];
    (void)snprintf(section, sizeof section, "%.*s.", (int)sizeof section - 2, name);
    if (taciti_old_key_find(section) == NULL) return fail_unknown(r, section, name, nearest);
    TACITI_TRY(next_event(r));
    if (r->event.type == YAML_MAPPING_START_EVENT) TACITI_TRY(next_event(r));
    if (r->event.type != YAML_SCALAR_EVENT) return fail_unknown(r, section, name, nearest);
    (void)snprintf(key, sizeof key, "%s%.*s", section, TACITI_KEY_BYTES - 1, scalar_text(r));
    return fail_unknown(r, taciti_old_key_find(key) != NULL ? key : section, name, nearest);
}

/* A key at the top level: a section, a key of section "", or a mistake. */
static tacit_status read_top(reader *r) {
    taciti_place place;
    taciti_nearest nearest = {0};
    if (r->event.type != YAML_SCALAR_EVENT) return fail_at(r, r->event.start_mark, "a key must be a word");
    TACITI_TRY(check_scalar(r));
    const char *name = scalar_text(r), *dot = strchr(name, '.');
    for (size_t s = 0; s < r->config->count; s++) {
        const char *section = r->config->sections[s].table->section;
        if (*name != '\0' && strcmp(section, name) == 0) return read_section(r, s);
        taciti_nearest_offer(&nearest, name, section);
    }
    if (dot != NULL && taciti_config_find(r->config, name, &place))
        return fail_at(r, r->event.start_mark, "write \"%s\" as %s: {%s: ...}", name, place.table->section,
                       place.option->key);
    char section_key[TACITI_KEY_BYTES];
    (void)snprintf(section_key, sizeof section_key, "%.*s.", (int)sizeof section_key - 2, name);
    const bool like_section = *nearest.name != '\0' || taciti_old_key_find(section_key) != NULL;
    if (like_section && !taciti_config_find(r->config, name, &place)) return fail_section(r, name, &nearest);
    return read_pair(r, "");
}

/* ---- documents ------------------------------------------------------------------------------------------------- */

static tacit_status read_root(reader *r) {
    if (is_nothing(r)) return TACIT_OK;
    if (r->event.type != YAML_MAPPING_START_EVENT)
        return fail_at(r, r->event.start_mark, "expects sections such as `train:` with keys and values below them");
    TACITI_TRY(next_event(r));
    while (r->event.type != YAML_MAPPING_END_EVENT) {
        TACITI_TRY(read_top(r));
        TACITI_TRY(next_event(r));
    }
    return TACIT_OK;
}

static tacit_status read_stream(reader *r) {
    TACITI_TRY(next_event(r)); /* stream start */
    TACITI_TRY(next_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return TACIT_OK;
    TACITI_TRY(next_event(r)); /* behind document start */
    TACITI_TRY(read_root(r));
    TACITI_TRY(next_event(r)); /* document end */
    TACITI_TRY(next_event(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        return fail_at(r, r->event.start_mark, "only one document is allowed in a configuration");
    return TACIT_OK;
}

static tacit_status read_text(reader *r, const char *text, size_t bytes) {
    static const char mark[] = "\xef\xbb\xbf"; /* byte order mark of UTF-8 */
    const size_t skip = bytes >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
    if (!yaml_parser_initialize(&r->parser)) return taciti_fail(TACIT_E_MEMORY, "%s: out of memory", r->path);
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text + skip, bytes - skip);
    const tacit_status status = read_stream(r);
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
    return status;
}

tacit_status taciti_config_file(const taciti_config *config, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    const tacit_status found = taciti_file_read(path, FILE_LIMIT_BYTES, &text, &bytes);
    if (found != TACIT_OK) return found == TACIT_E_MEMORY ? found : TACIT_E_CONFIG;
    reader r = {.config = config, .path = path};
    size_t options = 0;
    for (taciti_place place; taciti_config_at(config, options, &place);) options++;
    r.key_lines = taciti_calloc(options, sizeof *r.key_lines);
    r.section_lines = taciti_calloc(config->count, sizeof *r.section_lines);
    const bool ready = r.key_lines != NULL && r.section_lines != NULL;
    const tacit_status status = ready ? read_text(&r, text, bytes) : TACIT_E_MEMORY;
    taciti_free(r.section_lines);
    taciti_free(r.key_lines);
    taciti_free(text);
    return status;
}
