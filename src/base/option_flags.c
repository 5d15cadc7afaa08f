/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration from the command line and the environment.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/option.h"
#include "base/option_value.h"
#include "base/text.h"

/* ---- flags ----------------------------------------------------------------------------------------------------- */

static bool is_flag(const char *word) { return strncmp(word, "--", 2) == 0; }

static tacit_status fail_unknown_flag(const taciti_config *config, const char *key) {
    char text[TACITI_OLD_KEY_BYTES];
    const char *bare = strncmp(key, "no-", 3) == 0 ? key + 3 : key;
    const taciti_old_key *old = taciti_old_key_find(bare);
    if (old != NULL) return taciti_fail(TACIT_E_USAGE, "--%s", taciti_old_key_text(old, bare, text));
    taciti_place place;
    if (taciti_config_find(config, bare, &place) && place.option->type == TACITI_OPTION_REAL)
        return taciti_fail(TACIT_E_USAGE, "--%s: %s takes a number; write --%s 0", key, bare, bare);
    const taciti_nearest nearest = taciti_config_nearest(config, key);
    const bool close = *nearest.name != '\0';
    char flag[TACITI_KEY_BYTES + 2], quoted[TACITI_QUOTED_BYTES];
    (void)snprintf(flag, sizeof flag, "--%s", key);
    return taciti_fail(TACIT_E_USAGE, "unknown option %s%s%s%s", taciti_quote(flag, quoted),
                       close ? "; did you mean \"--" : "", nearest.name, close ? "\"?" : "");
}

/* Finds the option of the flag; "--no-key" negates a BOOL. */
static bool find_flag(const taciti_config *config, const char *key, taciti_place *place, bool *negated) {
    *negated = false;
    if (taciti_config_find(config, key, place)) return true;
    if (strncmp(key, "no-", 3) != 0 || !taciti_config_find(config, key + 3, place)) return false;
    *negated = true;
    return place->option->type == TACITI_OPTION_BOOL;
}

/* A flag without "=": its value is in the following words, if any. Returns how many of them it takes. */
static tacit_status set_from_words(const taciti_place *place, const char *where, int words, char *const *argv,
                                   int *taken) {
    bool unused = false;
    int following = 0;
    while (following < words && !is_flag(argv[following])) following++;
    *taken = following > 0;
    if (place->option->type == TACITI_OPTION_BOOL) {
        *taken = following > 0 && taciti_boolean_parse(argv[0], &unused);
        return taciti_place_set(place, where, *taken ? argv[0] : "true");
    }
    if (following == 0) return taciti_fail(TACIT_E_USAGE, "%s: needs a value", where);
    if (place->option->type != TACITI_OPTION_LIST) return taciti_place_set(place, where, argv[0]);
    *taken = following;
    return taciti_place_set_list(place, where, argv, (size_t)following);
}

tacit_status taciti_config_flag(const taciti_config *config, int argc, char *const *argv, int *next) {
    char *word = argv[*next] + 2;
    const size_t length = strcspn(word, "=");
    char key[TACITI_KEY_BYTES], where[TACITI_KEY_BYTES + 2];
    (void)snprintf(key, sizeof key, "%.*s", (int)(length < sizeof key ? length : sizeof key), word);
    (void)snprintf(where, sizeof where, "--%s", key);
    taciti_place place;
    bool negated = false;
    int taken = 0;
    if (!find_flag(config, key, &place, &negated)) return fail_unknown_flag(config, key);
    if (negated && word[length] == '=') return taciti_fail(TACIT_E_USAGE, "%s: takes no value", where);
    if (negated) {
        TACITI_TRY(taciti_place_set(&place, where, "false"));
    } else if (word[length] == '=') {
        char *rest = word + length + 1;
        TACITI_TRY(place.option->type == TACITI_OPTION_LIST ? taciti_place_set_list(&place, where, &rest, *rest != '\0')
                                                            : taciti_place_set(&place, where, rest));
    } else {
        TACITI_TRY(set_from_words(&place, where, argc - *next - 1, argv + *next + 1, &taken));
    }
    *next += 1 + taken;
    return TACIT_OK;
}

/* ---- environment ----------------------------------------------------------------------------------------------- */

static bool has_known_section(const taciti_config *config, const char *name) {
    char prefix[TACITI_KEY_BYTES + 8];
    for (size_t s = 0; s < config->count; s++) {
        const char *section = config->sections[s].table->section;
        taciti_variable_name(section, prefix, sizeof prefix - 1);
        strcat(prefix, "_");
        if (*section != '\0' && strncmp(name, prefix, strlen(prefix)) == 0) return true;
    }
    return false;
}

/* Other programs and our tests may have variables of their own that begin as ours do: one is meant for us if it has one
 * of our sections, or nearly the name of a key. */
static tacit_status check_unknown_variable(const taciti_config *config, const char *name) {
    char text[TACITI_OLD_KEY_BYTES];
    const taciti_old_key *old = taciti_old_key_find(name);
    if (old != NULL) return taciti_fail(TACIT_E_CONFIG, "environment: %s", taciti_old_key_text(old, name, text));
    taciti_place place;
    taciti_nearest nearest = {0};
    const size_t prefix = strlen(TACITI_VARIABLE_PREFIX);
    char key[TACITI_KEY_BYTES], known[TACITI_KEY_BYTES + 8];
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) {
        taciti_variable_name(taciti_place_key(&place, key), known, sizeof known);
        taciti_nearest_offer(&nearest, name + prefix, known + prefix);
    }
    const bool close = *nearest.name != '\0';
    if (!close && !has_known_section(config, name)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "environment: unknown variable %s%s%s%s", name,
                       close ? "; did you mean " TACITI_VARIABLE_PREFIX : "; unset it or see `tacit info options`",
                       nearest.name, close ? "?" : "");
}

static tacit_status read_variable(const taciti_config *config, const char *name, const char *value) {
    taciti_place place;
    char key[TACITI_KEY_BYTES], known[TACITI_KEY_BYTES + 8];
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) {
        taciti_variable_name(taciti_place_key(&place, key), known, sizeof known);
        if (strcmp(name, known) == 0) return taciti_place_set(&place, name, value);
    }
    return check_unknown_variable(config, name);
}

tacit_status taciti_config_environment(const taciti_config *config) {
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (strncmp(*entry, TACITI_VARIABLE_PREFIX, strlen(TACITI_VARIABLE_PREFIX)) != 0) continue;
        char name[TACITI_KEY_BYTES + 8];
        const size_t length = strcspn(*entry, "=");
        if (length >= sizeof name || (*entry)[length] != '=') continue;
        memcpy(name, *entry, length);
        name[length] = '\0';
        TACITI_TRY(read_variable(config, name, *entry + length + 1));
    }
    return TACIT_OK;
}
