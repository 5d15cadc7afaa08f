/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration as canonical JSON: the record in checkpoints and metrics, and what the digest is taken of.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/option.h"
#include "base/text.h"

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
    taciti_json_quote(out, choice);
}

static void write_list(FILE *out, const void *value) {
    taciti_list list;
    memcpy(&list, value, sizeof list);
    (void)fputc('[', out);
    for (size_t i = 0; i < list.count; i++) {
        if (i > 0) (void)fputs(", ", out);
        taciti_json_quote(out, list.items[i]);
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
    case TACITI_OPTION_TEXT: taciti_json_quote(out, ((const taciti_text *)value)->text); break;
    case TACITI_OPTION_LIST: write_list(out, value); break;
    }
}

typedef struct request {
    const taciti_config *config;
    int digest_only;
} request;

static void write_config(FILE *out, const void *object) {
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
        write_value(out, place.option, place.value);
        separator = ", ";
    }
    (void)fputc('}', out);
}

char *taciti_config_json(const taciti_config *config, int digest_only) {
    char *text = taciti_text_of(write_config, &(request){config, digest_only});
    if (text == NULL) (void)taciti_fail(TACIT_E_MEMORY, "out of memory for the text of the configuration");
    return text;
}

json_t *taciti_config_values(const taciti_config *config, int digest_only) {
    char *text = taciti_config_json(config, digest_only);
    json_t *values = text == NULL ? NULL : json_loads(text, 0, NULL);
    taciti_free(text);
    return values;
}
