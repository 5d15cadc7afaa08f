/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration as canonical JSON: the record in checkpoints and metrics, and what the digest is taken of.
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/text.h"

/* RFC 8259: only quote, backslash and control bytes must be escaped; the texts are valid UTF-8. */
static void write_text(FILE *out, const char *text) {
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            (void)fprintf(out, "\\%c", c);
        } else if (c < 0x20) {
            (void)fprintf(out, "\\u%04x", c);
        } else {
            (void)fputc(c, out);
        }
    }
    (void)fputc('"', out);
}

static void write_integer(FILE *out, const void *value) {
    int64_t number = 0;
    memcpy(&number, value, sizeof number);
    (void)fprintf(out, "%" PRId64, number);
}

static void write_real(FILE *out, const void *value) {
    double number = 0;
    char text[TACITI_REAL_BYTES];
    memcpy(&number, value, sizeof number);
    taciti_real_format(number, text);
    (void)fputs(text, out);
}

static void write_choice(FILE *out, const taciti_option *option, const void *value) {
    int index = 0;
    char choice[TACITI_CHOICE_BYTES] = "";
    memcpy(&index, value, sizeof index);
    (void)taciti_option_choice(option, index, choice);
    write_text(out, choice);
}

static void write_list(FILE *out, const void *value) {
    taciti_list list;
    memcpy(&list, value, sizeof list);
    (void)fputc('[', out);
    for (size_t i = 0; i < list.count; i++) {
        if (i > 0) (void)fputs(", ", out);
        write_text(out, list.items[i]);
    }
    (void)fputc(']', out);
}

static void write_value(FILE *out, const taciti_option *option, const void *value) {
    bool answer = false;
    switch (option->type) {
    case TACITI_OPTION_BOOL:
        memcpy(&answer, value, sizeof answer);
        (void)fputs(answer ? "true" : "false", out);
        break;
    case TACITI_OPTION_INT:
    case TACITI_OPTION_BYTES: write_integer(out, value); break;
    case TACITI_OPTION_REAL: write_real(out, value); break;
    case TACITI_OPTION_ENUM: write_choice(out, option, value); break;
    case TACITI_OPTION_NAME:
    case TACITI_OPTION_TEXT: write_text(out, ((const taciti_text *)value)->text); break;
    case TACITI_OPTION_LIST: write_list(out, value); break;
    }
}

static void write_config(FILE *out, const taciti_config *config, int digest_only) {
    taciti_place place;
    char key[TACITI_KEY_BYTES];
    const char *separator = "";
    (void)fputc('{', out);
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) {
        if (digest_only && (place.option->flags & TACITI_OPTION_NO_DIGEST) != 0) continue;
        (void)fputs(separator, out);
        write_text(out, taciti_place_key(&place, key));
        (void)fputs(": ", out);
        write_value(out, place.option, place.value);
        separator = ", ";
    }
    (void)fputc('}', out);
}

char *taciti_config_json(const taciti_config *config, int digest_only) {
    char *text = NULL, *copy = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out != NULL) {
        write_config(out, config, digest_only);
        const int wrong = ferror(out);
        if (fclose(out) == 0 && !wrong) copy = taciti_strdup(text);
    }
    free(text); /* NOLINT: of open_memstream, not ours */
    if (copy == NULL) (void)taciti_fail(TACIT_E_MEMORY, "out of memory for the text of the configuration");
    return copy;
}
