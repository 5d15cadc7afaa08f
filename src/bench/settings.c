/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/settings.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

static const char BLANKS[] = " \t\n";

bool taciti_bench_setting_emulated(const taciti_bench_setting *setting) {
    return setting->job.compute.emulate.text[0] != '\0';
}

/* ---- changes ---------------------------------------------------------------------------------------------------- */

/* Refuses the keys that all settings of one comparison share. */
static tacit_status refuse_shared(const char *key) {
    static const char *const shared[] = {"comm.", "model.", "compute.emulate"};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (strncmp(key, shared[i], strlen(shared[i])) == 0)
            return taciti_fail(TACIT_E_CONFIG,
                               "--against: %s is the same for all settings; give --%s instead, in a run of its own",
                               key, key);
    return TACIT_OK;
}

/* "KEY=VALUE", a copy that may be written to. */
static tacit_status change_key(taciti_bench_setting *setting, char *word) {
    char quoted[TACITI_QUOTED_BYTES];
    taciti_place place;
    char *equals = strchr(word, '=');
    if (equals == NULL || equals == word)
        return taciti_fail(TACIT_E_CONFIG, "--against: %s is not KEY=VALUE; for example --against exchange.wire=bf16",
                           taciti_quote(word, quoted));
    *equals = '\0';
    TACITI_TRY(refuse_shared(word));
    const bool is_list =
        taciti_config_find(&setting->job.config, word, &place) && place.option->type == TACITI_OPTION_LIST;
    for (char *c = equals + 1; is_list && *c != '\0'; c++)
        if (*c == ',') *c = ' ';
    return taciti_config_set(&setting->job.config, word, equals + 1, "--against");
}

tacit_status taciti_bench_setting_change(taciti_bench_setting *setting, const char *text) {
    char *copy = taciti_strdup(text), *rest = copy;
    if (copy == NULL) return TACIT_E_MEMORY;
    tacit_status status = TACIT_OK;
    size_t changes = 0;
    while (status == TACIT_OK && *(rest += strspn(rest, BLANKS)) != '\0') {
        char *word = rest;
        rest += strcspn(rest, BLANKS);
        if (*rest != '\0') *rest++ = '\0';
        status = change_key(setting, word);
        changes++;
    }
    taciti_free(copy);
    if (status == TACIT_OK && changes == 0)
        status = taciti_fail(TACIT_E_CONFIG, "--against: nothing is changed; give KEY=VALUE (strategy=dp, say, to "
                                             "measure a setting against itself)");
    return status;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

tacit_status taciti_bench_settings_create(taciti_bench_settings *out) {
    *out = (taciti_bench_settings){.list = taciti_calloc(TACITI_SETTINGS_MAX, sizeof *out->list)};
    return out->list == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

tacit_status taciti_bench_settings_add(taciti_bench_settings *settings, const char *label, taciti_bench_setting **out) {
    if (settings->count == TACITI_SETTINGS_MAX)
        return taciti_fail(TACIT_E_USAGE, "--against: at most %d settings at a time", TACITI_SETTINGS_MAX);
    *out = &settings->list[settings->count++];
    (void)snprintf((*out)->label, sizeof(*out)->label, "%s", label);
    return taciti_settings_init(&(*out)->job, NULL, 0);
}

void taciti_bench_settings_destroy(taciti_bench_settings *settings) {
    for (size_t i = 0; i < settings->count; i++) taciti_settings_destroy(&settings->list[i].job);
    taciti_free(settings->list);
    *settings = (taciti_bench_settings){0};
}

tacit_status taciti_bench_setting_check(const taciti_bench_setting *setting, int ranks) {
    const taciti_compute_options *compute = &setting->job.compute;
    if (!taciti_bench_setting_emulated(setting) && (compute->cv > 0 || compute->slow.count > 0))
        return taciti_fail(TACIT_E_CONFIG, "compute.%s needs compute.emulate: real computing is as fast as it is",
                           compute->cv > 0 ? "cv" : "slow");
    TACITI_TRY(taciti_compute_check(compute, ranks));
    TACITI_TRY(taciti_settings_check(&setting->job, NULL, TACITI_READER_BENCH));
    if (!taciti_bench_setting_emulated(setting)) return TACIT_OK;
    taciti_profile profile;
    TACITI_TRY(taciti_compute_profile(compute, &profile));
    taciti_profile_destroy(&profile);
    return TACIT_OK;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

/* The strategy always, the network (which is told apart) never. */
void taciti_bench_setting_text(const taciti_bench_setting *setting, char *out, size_t size) {
    char key[TACITI_KEY_BYTES], value[TACITI_VALUE_BYTES];
    taciti_place place;
    out[0] = '\0';
    for (size_t i = 0; taciti_config_at(&setting->job.config, i, &place); i++) {
        (void)taciti_place_key(&place, key);
        if (strcmp(key, "strategy") != 0 && taciti_place_is_default(&place)) continue;
        if (strncmp(key, "model.", strlen("model.")) == 0) continue;
        taciti_text_add(out, size, "%s%s %s", *out != '\0' ? ", " : "", key, taciti_place_text(&place, value));
    }
}

void taciti_bench_setting_method(const taciti_bench_setting *setting, char *out, size_t size) {
    char value[TACITI_VALUE_BYTES];
    taciti_place place;
    out[0] = '\0';
    for (size_t i = 0; taciti_settings_label(&setting->job, i, &place); i++)
        taciti_text_add(out, size, "%s%s %s", i > 0 ? ", " : "", place.option->key, taciti_place_text(&place, value));
    for (char *c = out; *c != '\0'; c++)
        if (*c == '_') *c = ' ';
}
