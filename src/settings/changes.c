/* SPDX-License-Identifier: Apache-2.0 */
#include "settings/changes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/option.h"
#include "base/text.h"

enum { VALUE_DIGITS = 10, VALUE_BYTES = 400 };

tacit_status taciti_changes_create(const json_t *meta, json_t *now, taciti_changes *out) {
    *out = (taciti_changes){.before = json_object_get(meta, "config"), .now = now};
    return out->now == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

void taciti_changes_destroy(taciti_changes *changes) { json_decref(changes->now); }

static void put_value(const json_t *value, char out[VALUE_BYTES]) {
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(VALUE_DIGITS));
    (void)snprintf(out, VALUE_BYTES, "%s", text == NULL ? "?" : text);
    free(text); /* NOLINT: jansson's */
}

/* Returns the key's old value if it has changed, else NULL. A key that the checkpoint does not know has not changed,
 * nor has a boolean that is a number now and says the same: true is 1. */
static const json_t *old_value(const taciti_changes *changes, const char *key, const json_t *value) {
    const json_t *old = json_object_get(changes->before, key);
    if (old == NULL || json_equal(old, value)) return NULL;
    const double now = json_number_value(value), was = json_is_true(old) ? 1 : 0;
    const bool same = json_is_boolean(old) && json_is_number(value) && now >= was && now <= was;
    return same ? NULL : old;
}

/* Whether the run of the checkpoint used this section of a codec that is still there. For codecs that have gone, the
 * warning about compress.codec says enough. */
static bool used_section(const taciti_changes *changes, const taciti_old_key *section) {
    static const char *const choices[] = {"compress.codec", "compress.gather"};
    const size_t length = strlen(section->key) - 1;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0] && section->was != NULL; i++) {
        const char *codec = json_string_value(json_object_get(changes->before, choices[i]));
        if (codec != NULL && strlen(codec) == length && strncmp(codec, section->key, length) == 0) return true;
    }
    return false;
}

/* A key of the checkpoint that this version has no more, with a value that a run could not have now. */
static void say_old(const taciti_changes *changes, const char *key, const json_t *value) {
    char text[TACITI_OLD_KEY_BYTES], before[VALUE_BYTES];
    const taciti_old_key *old = taciti_old_key_find(key);
    if (old == NULL || (strcmp(old->key, key) != 0 && !used_section(changes, old))) return;
    put_value(value, before);
    if (old->was == NULL || !taciti_text_among(before, old->was))
        taciti_log(TACITI_LOG_WARN, "resume: %s (it was %s in the checkpoint)", taciti_old_key_text(old, key, text),
                   before);
}

void taciti_changes_say(const taciti_changes *changes) {
    const char *key = NULL;
    json_t *value = NULL;
    char before[VALUE_BYTES], now[VALUE_BYTES];
    json_object_foreach(changes->now, key, value) {
        const json_t *old = old_value(changes, key, value);
        if (old == NULL) continue;
        put_value(old, before);
        put_value(value, now);
        taciti_log(TACITI_LOG_INFO, "resume: %s was %s in the checkpoint and is %s now", key, before, now);
    }
    json_object_foreach(changes->before, key, value) {
        if (json_object_get(changes->now, key) == NULL) say_old(changes, key, value);
    }
}

void taciti_changes_text(const taciti_changes *changes, const char *section, char *text, size_t text_bytes) {
    const char *key = NULL;
    json_t *value = NULL;
    char before[VALUE_BYTES], now[VALUE_BYTES];
    text[0] = '\0';
    json_object_foreach(changes->now, key, value) {
        const json_t *old = old_value(changes, key, value);
        if (old == NULL || strncmp(key, section, strlen(section)) != 0) continue;
        put_value(old, before);
        put_value(value, now);
        taciti_text_add(text, text_bytes, "%s%s was %s and is %s now", *text != '\0' ? ", " : "", key, before, now);
    }
}

static int64_t window_of(const json_t *config) {
    const char *name = json_string_value(json_object_get(config, "optim.name"));
    const json_int_t steps = json_integer_value(json_object_get(config, "optim.accum"));
    return name != NULL && strncmp(name, "accum-", strlen("accum-")) == 0 && steps > 0 ? (int64_t)steps : 1;
}

int64_t taciti_changes_window_before(const taciti_changes *changes) {
    return window_of(changes->before != NULL ? changes->before : changes->now);
}

int64_t taciti_changes_window_now(const taciti_changes *changes) { return window_of(changes->now); }

/* Second moments hold no update behind the freeze. */
static int64_t updates_held(const json_t *config, int64_t updates) {
    const int64_t freeze = json_integer_value(json_object_get(config, "optim.freeze"));
    return freeze > 0 && freeze < updates ? freeze : updates;
}

bool taciti_changes_keep_frozen(const taciti_changes *changes, int64_t updates) {
    return changes->before == NULL || updates_held(changes->before, updates) == updates_held(changes->now, updates);
}
