/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "api/object.h"

static tacit_status compose(tacit_settings *s) {
    TACITI_TRY(taciti_settings_init(&s->values, NULL, 0));
    const taciti_config *all = &s->values.config;
    s->sections = taciti_calloc(all->count, sizeof *s->sections);
    if (s->sections == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < all->count; i++) { /* the network is the caller's, and it computes for real */
        const taciti_option_table *table = all->sections[i].table;
        if (table != &taciti_model_option_table && table != &taciti_compute_option_table)
            s->sections[s->config.count++] = all->sections[i];
    }
    s->config.sections = s->sections;
    return TACIT_OK;
}

static void release(tacit_settings *settings) {
    taciti_settings_destroy(&settings->values);
    taciti_free(settings->sections);
    taciti_free(settings);
}

tacit_status tacit_settings_create(tacit_settings **out) {
    taciti_log_about(NULL);
    TACITI_TRY(taciti_argument_check(out, "out"));
    tacit_settings *s = taciti_calloc(1, sizeof *s);
    if (s == NULL) return TACIT_E_MEMORY;
    const tacit_status status = compose(s);
    if (status != TACIT_OK) {
        release(s);
        return status;
    }
    taciti_handle_open(&s->handle, TACITI_HANDLE_SETTINGS);
    *out = s;
    return TACIT_OK;
}

/* Copies text[0 .. n) without the blanks around it. False: it does not fit. */
static bool copy_word(const char *text, size_t n, char *out, size_t room) {
    for (; n > 0 && isspace((unsigned char)text[0]) != 0; n--) text++;
    while (n > 0 && isspace((unsigned char)text[n - 1]) != 0) n--;
    if (n >= room) return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

tacit_status tacit_settings_set(tacit_settings *settings, const char *key_is_value) {
    char key[TACITI_KEY_BYTES], value[TACITI_VALUE_BYTES];
    TACITI_TRY(taciti_handle_check(settings, TACITI_HANDLE_SETTINGS));
    TACITI_TRY(taciti_argument_check(key_is_value, "key_is_value"));
    const size_t length = strcspn(key_is_value, "=");
    if (key_is_value[length] == '\0' || !copy_word(key_is_value, length, key, sizeof key) || key[0] == '\0')
        return taciti_fail(TACIT_E_CONFIG, "setting \"%.80s\": write section.key=value, for instance optim.lr=0.01",
                           key_is_value);
    const char *given = key_is_value + length + 1;
    const bool fits = copy_word(given, strlen(given), value, sizeof value); /* no option takes more: that is refused */
    TACITI_TRY(taciti_config_set(&settings->config, key, fits ? value : given, key));
    return taciti_settings_complete(&settings->values);
}

tacit_status tacit_settings_file(tacit_settings *settings, const char *path) {
    TACITI_TRY(taciti_handle_check(settings, TACITI_HANDLE_SETTINGS));
    TACITI_TRY(taciti_argument_check(path, "path"));
    const tacit_status read = taciti_config_file(&settings->config, path); /* what stands before a mistake is set */
    const tacit_status completed = taciti_settings_complete(&settings->values);
    return read != TACIT_OK ? read : completed;
}

tacit_status tacit_settings_get(const tacit_settings *settings, const char *key, char *text, size_t room) {
    taciti_place place;
    char value[TACITI_VALUE_BYTES];
    TACITI_TRY(taciti_handle_check(settings, TACITI_HANDLE_SETTINGS));
    TACITI_TRY(taciti_argument_check(key, "key"));
    TACITI_TRY(taciti_argument_check(text, "text"));
    TACITI_TRY(taciti_config_need(&settings->config, key, key, &place));
    const size_t bytes = strlen(taciti_place_text(&place, value)) + 1;
    if (bytes > room)
        return taciti_fail(TACIT_E_USAGE, "tacit_settings_get: the value of %s needs %zu bytes, room is for %zu", key,
                           bytes, room);
    memcpy(text, value, bytes);
    return TACIT_OK;
}

void tacit_settings_destroy(tacit_settings *settings) {
    if (settings == NULL || taciti_handle_check(settings, TACITI_HANDLE_SETTINGS) != TACIT_OK) return;
    taciti_handle_close(&settings->handle);
    release(settings);
}
