/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration as text: canonical JSON, which is the record in checkpoints and metrics and what the digest is taken
 * of, and YAML, which the program reads back.
 */
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/option_value.h"
#include "base/text.h"

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

typedef struct request {
    const taciti_config *config;
    int digest_only;
    bool only_changed;
} request;

static void write_json(FILE *out, const void *object) {
    const request *r = object;
    taciti_place place;
    char key[TACITI_KEY_BYTES];
    const char *separator = "";
    (void)fputc('{', out);
    for (size_t i = 0; taciti_config_at(r->config, i, &place); i++) {
        if (r->digest_only && (place.option->flags & TACITI_OPTION_NO_DIGEST) != 0) continue;
        (void)fputs(separator, out);
        taciti_json_quote(out, taciti_place_key(&place, key));
        (void)fputs(": ", out);
        taciti_value_write(out, place.option, place.value, taciti_json_quote);
        separator = ", ";
    }
    (void)fputc('}', out);
}

static char *text_of(taciti_text_writer *write, const request *r) {
    char *text = taciti_text_of(write, r);
    if (text == NULL) (void)taciti_fail(TACIT_E_MEMORY, "out of memory for the text of the configuration");
    return text;
}

char *taciti_config_json(const taciti_config *config, int digest_only) {
    return text_of(write_json, &(request){.config = config, .digest_only = digest_only});
}

json_t *taciti_config_values(const taciti_config *config, int digest_only) {
    char *text = taciti_config_json(config, digest_only);
    json_t *values = text == NULL ? NULL : json_loads(text, 0, NULL);
    taciti_free(text);
    return values;
}

/* ---- YAML -------------------------------------------------------------------------------------------------------- */

/* Whether YAML takes the text for a word without quotes. */
static bool is_word(const char *text) {
    static const char ALL[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_/0123456789.-";
    return *text != '\0' && strspn(text, ALL) == strlen(text) && strspn(text, "0123456789.-") == 0 &&
           strcmp(text, "null") != 0;
}

/* Control characters, line breaks and the byte order mark are not allowed as themselves. */
static bool is_escaped(uint32_t code) {
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0xfeff ||
           code == 0xfffe || code == 0xffff;
}

static void write_yaml_text(FILE *out, const char *text) {
    uint32_t code = 0;
    if (is_word(text)) {
        (void)fputs(text, out);
        return;
    }
    (void)fputc('"', out);
    for (size_t bytes; *text != '\0'; text += bytes) {
        bytes = taciti_utf8_decode(text, SIZE_MAX, &code);
        if (is_escaped(code))
            (void)fprintf(out, "\\u%04X", (unsigned)code);
        else
            (void)fprintf(out, "%s%.*s", code == '"' || code == '\\' ? "\\" : "", (int)bytes, text);
    }
    (void)fputc('"', out);
}

static void write_yaml(FILE *out, const void *object) {
    const request *r = object;
    const char *section = "";
    taciti_place place;
    for (size_t i = 0; taciti_config_at(r->config, i, &place); i++) {
        const bool typed = place.given != NULL && *place.given == TACITI_GIVEN_TYPED;
        if (r->only_changed && !typed && taciti_place_is_default(&place)) continue;
        if (strcmp(section, place.table->section) != 0) (void)fprintf(out, "%s:\n", place.table->section);
        section = place.table->section;
        (void)fprintf(out, "%s%s: ", *section == '\0' ? "" : "  ", place.option->key);
        taciti_value_write(out, place.option, place.value, write_yaml_text);
        (void)fputc('\n', out);
    }
}

char *taciti_config_yaml(const taciti_config *config, bool only_changed) {
    return text_of(write_yaml, &(request){.config = config, .only_changed = only_changed});
}
