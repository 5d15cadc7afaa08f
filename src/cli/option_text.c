/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/option_text.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "train/train.h"

const taciti_settings *taciti_cli_settings(void) {
    static taciti_train_settings settings;
    if (settings.job.config.count == 0) (void)taciti_train_settings_init(&settings);
    return &settings.job;
}

const taciti_config *taciti_cli_options(void) { return &taciti_cli_settings()->config; }

bool taciti_option_accepted(const char *keys, const taciti_place *place) {
    static const char REGISTERED[] = "registered.", CODECS[] = "codecs.";
    char key[TACITI_KEY_BYTES];
    if (keys == NULL || *keys == '\0') return keys != NULL;
    (void)taciti_place_key(place, key);
    for (const char *word = keys; *word != '\0'; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        const bool section = word[length - 1] == '.';
        if (strncmp(word, REGISTERED, length) == 0 && taciti_settings_registered(place->table)) return true;
        if (strncmp(word, CODECS, length) == 0 && taciti_settings_of_codec(place->table)) return true;
        if (strncmp(key, word, length) == 0 && (section || key[length] == '\0')) return true;
        word += length;
    }
    return false;
}

enum { LONG_LIST = 40 }; /* bytes; longer ones are in `tacit info options --json` and in the completion */

/* Names of types in `info options`, and what stands for a value. */
static const struct {
    const char *name, *argument;
} TYPES[] = {
    [TACITI_OPTION_BOOL] = {"bool", ""},     [TACITI_OPTION_INT] = {"int", "N"},
    [TACITI_OPTION_REAL] = {"real", "X"},    [TACITI_OPTION_BYTES] = {"bytes", "SIZE"},
    [TACITI_OPTION_ENUM] = {"enum", ""},     [TACITI_OPTION_NAME] = {"name", "NAME"},
    [TACITI_OPTION_TEXT] = {"text", "TEXT"}, [TACITI_OPTION_LIST] = {"list", "TEXT ..."},
};

void taciti_option_usage(const taciti_place *place, char *out, size_t size) {
    char key[TACITI_KEY_BYTES];
    char choices[TACITI_CHOICES_BYTES];
    const taciti_option *option = place->option;
    const char *argument = TYPES[option->type].argument;
    const bool is_short = strlen(taciti_option_choices(option, choices)) < LONG_LIST;
    if (option->type == TACITI_OPTION_ENUM) argument = option->choices;
    if (option->type == TACITI_OPTION_NAME && is_short) argument = choices;
    (void)snprintf(out, size, "--%s%s%s", taciti_place_key(place, key), *argument == '\0' ? "" : " ", argument);
}

void taciti_option_range(const taciti_option *option, char *out, size_t size) {
    char min[TACITI_REAL_BYTES], max[TACITI_REAL_BYTES];
    *out = '\0';
    if (!taciti_option_bounded(option)) return;
    taciti_real_format(option->min, min);
    taciti_real_format(option->max, max);
    if (option->max >= TACITI_UNBOUNDED)
        (void)snprintf(out, size, "at least %s", min);
    else
        (void)snprintf(out, size, "%s%s..%s", option->zero ? "0, " : "", min, max);
}

void taciti_option_explain(const taciti_place *place, char *out, size_t size) {
    char range[2 * TACITI_REAL_BYTES + 16], needs[TACITI_NEEDS_BYTES];
    const taciti_option *option = place->option;
    taciti_option_range(option, range, sizeof range);
    (void)taciti_settings_needs(place, needs);
    (void)snprintf(out, size, "%s (%s%s%s%sdefault %s%s%s)", option->help, option->unit == NULL ? "" : option->unit,
                   option->unit == NULL ? "" : "; ", range, *range == '\0' ? "" : "; ",
                   *option->fallback == '\0' ? "none" : option->fallback, *needs == '\0' ? "" : "; needs ", needs);
}

void taciti_option_shorten(const taciti_place *place, char *out, size_t size) {
    const taciti_option *option = place->option;
    const char *end = strstr(option->help, "; ");
    const int length = (int)(end == NULL ? strlen(option->help) : (size_t)(end - option->help));
    const bool named = *option->fallback != '\0';
    (void)snprintf(out, size, "%.*s%s%s%s", length, option->help, named ? " (" : "", option->fallback,
                   named ? ")" : "");
}

json_t *taciti_option_json(const taciti_place *place) {
    char key[TACITI_KEY_BYTES], choice[TACITI_CHOICE_BYTES], needs[TACITI_NEEDS_BYTES];
    const taciti_option *option = place->option;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:b}", "key", taciti_place_key(place, key), "type",
        TYPES[option->type].name, "default", option->fallback, "unit", option->unit == NULL ? "" : option->unit, "help",
        option->help, "needs", taciti_settings_needs(place, needs), "expert",
        (option->flags & TACITI_OPTION_EXPERT) != 0, "identity", (option->flags & TACITI_OPTION_NO_DIGEST) == 0);
    if (taciti_option_bounded(option))
        (void)json_object_set_new(object, "least", json_real(option->zero ? 0 : option->min));
    if (taciti_option_bounded(option) && option->max < TACITI_UNBOUNDED)
        (void)json_object_set_new(object, "most", json_real(option->max));
    if (taciti_option_choice(option, 0, choice)) {
        json_t *choices = json_array();
        for (int i = 0; taciti_option_choice(option, i, choice); i++)
            (void)json_array_append_new(choices, json_string(choice));
        (void)json_object_set_new(object, "choices", choices);
    }
    return object;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The index-th option of a table; false behind the last. */
static bool option_at(const taciti_option_table *table, size_t index, taciti_place *out) {
    for (size_t i = 0; table != NULL && taciti_config_at(taciti_cli_options(), i, out); i++)
        if (out->table == table && index-- == 0) return true;
    return false;
}

json_t *taciti_table_json(const taciti_option_table *table) {
    json_t *list = json_array();
    taciti_place place;
    for (size_t i = 0; option_at(table, i, &place); i++) (void)json_array_append_new(list, taciti_option_json(&place));
    return list;
}

void taciti_table_print(const taciti_option_table *table) {
    taciti_place place;
    char usage[TACITI_OPTION_TEXT_BYTES], text[TACITI_OPTION_TEXT_BYTES];
    for (size_t i = 0; option_at(table, i, &place); i++) {
        taciti_option_usage(&place, usage, sizeof usage);
        taciti_option_explain(&place, text, sizeof text);
        printf("%11s %s: %s\n", "", usage, text);
    }
}
