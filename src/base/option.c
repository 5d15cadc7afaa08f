/* SPDX-License-Identifier: Apache-2.0 */
#include "base/option.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/option_value.h"

const char *taciti_place_key(const taciti_place *place, char out[TACITI_KEY_BYTES]) {
    const char *section = place->table->section;
    (void)snprintf(out, TACITI_KEY_BYTES, "%s%s%s", section, *section == '\0' ? "" : ".", place->option->key);
    return out;
}

bool taciti_config_at(const taciti_config *config, size_t index, taciti_place *out) {
    size_t before = 0;
    for (size_t s = 0; s < config->count; s++) {
        const taciti_option_table *table = config->sections[s].table;
        if (index - before < table->count) {
            const taciti_option *option = &table->options[index - before];
            char *values = config->sections[s].values;
            taciti_given *given = config->sections[s].given;
            *out = (taciti_place){.table = table,
                                  .option = option,
                                  .value = values + option->offset,
                                  .given = given == NULL ? NULL : &given[index - before],
                                  .index = index};
            return true;
        }
        before += table->count;
    }
    return false;
}

bool taciti_config_find(const taciti_config *config, const char *key, taciti_place *out) {
    taciti_place place;
    char full[TACITI_KEY_BYTES];
    for (size_t i = 0; taciti_config_at(config, i, &place); i++)
        if (strcmp(taciti_place_key(&place, full), key) == 0) {
            *out = place;
            return true;
        }
    return false;
}

/* A default that its own table refuses is a defect of the table, whatever the parser called it. */
tacit_status taciti_config_defaults(const taciti_config *config) {
    taciti_place place;
    char key[TACITI_KEY_BYTES];
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) taciti_value_clear(place.option, place.value);
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) {
        const tacit_status status =
            taciti_value_set(place.option, taciti_place_key(&place, key), place.option->fallback, place.value);
        if (status == TACIT_E_CONFIG)
            return taciti_fail(TACIT_E_INTERNAL, "%s: the built-in default is not legal; please report it", key);
        TACITI_TRY(status);
        if (place.given != NULL) *place.given = TACITI_GIVEN_NOT;
    }
    return TACIT_OK;
}

static tacit_status fail_unknown(const taciti_config *config, const char *key, const char *origin) {
    char text[TACITI_OLD_KEY_BYTES], quoted[TACITI_QUOTED_BYTES];
    const bool alone = strcmp(origin, key) == 0; /* in the C interface a key has no other origin */
    const taciti_old_key *old = taciti_old_key_find(key);
    if (old != NULL)
        return taciti_fail(TACIT_E_CONFIG, "%s%s%s", alone ? "" : origin, alone ? "" : ": ",
                           taciti_old_key_text(old, key, text));
    const taciti_nearest nearest = taciti_config_nearest(config, key);
    if (alone) return taciti_fail(TACIT_E_CONFIG, "unknown key %s%s", taciti_quote(key, quoted), nearest.hint);
    return taciti_fail(TACIT_E_CONFIG, "%s: unknown key %s%s", origin, taciti_quote(key, quoted), nearest.hint);
}

tacit_status taciti_config_need(const taciti_config *config, const char *key, const char *origin, taciti_place *out) {
    return taciti_config_find(config, key, out) ? TACIT_OK : fail_unknown(config, key, origin);
}

tacit_status taciti_config_set(const taciti_config *config, const char *key, const char *value, const char *origin) {
    taciti_place place;
    TACITI_TRY(taciti_config_need(config, key, origin, &place));
    return taciti_place_set(&place, origin, value);
}

tacit_status taciti_config_preset(const taciti_config *config, const char *key, const char *value, const char *origin) {
    taciti_place place;
    TACITI_TRY(taciti_config_need(config, key, origin, &place));
    if (place.given != NULL && *place.given != TACITI_GIVEN_NOT) {
        if (value != NULL && !taciti_place_is(&place, value)) *place.given = TACITI_GIVEN_TYPED;
        return TACIT_OK;
    }
    return taciti_value_set(place.option, origin, value == NULL ? place.option->fallback : value, place.value);
}

/* Whether a key goes on where the name of an option ends, as "optim.lrate" does. */
static bool is_longer(const char *key, const char *name) {
    const size_t length = strlen(name);
    return strncmp(key, name, length) == 0 && key[length] != '.';
}

/* Besides slips of the hand: the right name without its section or in a wrong one counts as one edit more than a slip,
 * so that "train.lr" finds "optim.lr" but "train.step" finds "train.steps"; a name that is too long, as more yet. */
taciti_nearest taciti_config_nearest(const taciti_config *config, const char *key) {
    taciti_nearest nearest = {0};
    const char *dot = strrchr(key, '.'), *name = dot == NULL ? key : dot + 1;
    taciti_place place;
    char full[TACITI_KEY_BYTES];
    for (size_t i = 0; taciti_config_at(config, i, &place); i++) {
        size_t distance = taciti_edit_distance(key, taciti_place_key(&place, full));
        if (!taciti_edit_close(name, distance)) distance = SIZE_MAX;
        if (distance > 2 && strcmp(name, place.option->key) == 0) distance = 2;
        if (distance == SIZE_MAX && is_longer(key, full)) distance = 2 + strlen(key) - strlen(full);
        if (distance < SIZE_MAX) taciti_nearest_take(&nearest, distance, full);
    }
    return nearest;
}

void taciti_config_destroy(const taciti_config *config) {
    taciti_place place;
    for (size_t i = 0; taciti_config_at(config, i, &place); i++)
        if (place.option->type == TACITI_OPTION_LIST)
            (void)taciti_value_set_list(place.option->key, NULL, 0, place.value);
}
