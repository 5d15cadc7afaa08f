/* SPDX-License-Identifier: Apache-2.0 */
#include "settings/settings.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static const taciti_option STRATEGY_OPTIONS[] = {
    TACITI_OPTION("strategy", NAME, 0, "dp", .names = taciti_strategy_name,
                  .help = "what is exchanged and when; `tacit info strategies` lists them"),
};
const taciti_option_table taciti_strategy_option_table = {.section = "",
                                                          .help = "how the ranks work together",
                                                          .options = STRATEGY_OPTIONS,
                                                          .count = sizeof STRATEGY_OPTIONS / sizeof *STRATEGY_OPTIONS};

/* ---- what registries bring --------------------------------------------------------------------------------------- */

typedef struct registered {
    const taciti_option_table *table;
    size_t bytes; /* of its values */
} registered;

/* The index-th registered table; false behind the last. */
static bool registered_at(size_t index, registered *out) {
    for (const taciti_strategy *const *s = taciti_strategy_list(); *s != NULL; s++) {
        *out = (registered){(*s)->options, (*s)->options_size};
        if (out->table != NULL && index-- == 0) return true;
    }
    for (const taciti_codec *const *c = taciti_codec_list(); *c != NULL; c++) {
        *out = (registered){(*c)->options, (*c)->options_size};
        if (out->table != NULL && index-- == 0) return true;
    }
    return false;
}

/* The values of the next table begin aligned for any member. */
static size_t aligned(size_t bytes) {
    const size_t unit = alignof(max_align_t);
    return (bytes + unit - 1) / unit * unit;
}

bool taciti_settings_registered(const taciti_option_table *table) {
    registered r;
    for (size_t i = 0; registered_at(i, &r); i++)
        if (r.table == table) return true;
    return false;
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

typedef struct own_sections {
    const taciti_own_section *list;
    size_t count;
} own_sections;

static void append(taciti_settings *s, const own_sections *own, const taciti_option_table *table, void *values) {
    for (size_t i = 0; i < own->count; i++)
        if (own->list[i].before == table) s->sections[s->config.count++] = own->list[i].section;
    s->sections[s->config.count++] = (taciti_section){table, values};
}

static void compose(taciti_settings *s, const own_sections *own) {
    registered r;
    char *values = s->registered;
    append(s, own, &taciti_strategy_option_table, &s->strategy);
    append(s, own, &taciti_model_option_table, &s->model);
    append(s, own, &taciti_optim_option_table, &s->optim);
    append(s, own, &taciti_exchange_option_table, &s->exchange);
    for (size_t i = 0; registered_at(i, &r); values += aligned(r.bytes), i++) append(s, own, r.table, values);
    append(s, own, &taciti_comm_option_table, &s->comm);
    append(s, own, &taciti_compute_option_table, &s->compute);
    s->config.sections = s->sections;
}

tacit_status taciti_settings_init(taciti_settings *settings, const taciti_own_section *own, size_t count) {
    enum { FIXED = 6 };
    const own_sections mine = {own, count};
    size_t bytes = 1, tables = 0;
    for (registered r; registered_at(tables, &r); tables++) bytes += aligned(r.bytes);
    memset(settings, 0, sizeof *settings);
    settings->registered = taciti_calloc(bytes, 1);
    settings->sections = taciti_calloc(FIXED + tables + count, sizeof *settings->sections);
    if (settings->registered == NULL || settings->sections == NULL) return TACIT_E_MEMORY;
    compose(settings, &mine);
    return taciti_config_defaults(&settings->config);
}

void taciti_settings_destroy(taciti_settings *settings) {
    taciti_config_destroy(&settings->config);
    taciti_free(settings->sections);
    taciti_free(settings->registered);
    settings->config = (taciti_config){0};
    settings->sections = NULL;
    settings->registered = NULL;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

const taciti_strategy *taciti_settings_strategy(const taciti_settings *settings) {
    return taciti_strategy_find(settings->strategy.text);
}

const void *taciti_settings_options(const taciti_settings *settings, const taciti_option_table *table) {
    for (size_t i = 0; i < settings->config.count && table != NULL; i++)
        if (settings->sections[i].table == table) return settings->sections[i].values;
    return NULL;
}

tacit_status taciti_settings_check(const taciti_settings *settings, const taciti_hosts *hosts) {
    const taciti_strategy *strategy = taciti_settings_strategy(settings);
    if (strategy->check == NULL) return TACIT_OK;
    return strategy->check(taciti_settings_options(settings, strategy->options), hosts);
}

bool taciti_settings_label(const taciti_settings *settings, size_t index, taciti_place *out) {
    const taciti_strategy *strategy = taciti_settings_strategy(settings);
    char key[TACITI_KEY_BYTES];
    const char *word = strategy->label;
    for (; word != NULL && index > 0; index--) word = (word = strchr(word, ' ')) == NULL ? NULL : word + 1;
    if (word == NULL) return false;
    (void)snprintf(key, sizeof key, "%s.%.*s", strategy->options->section, (int)strcspn(word, " "), word);
    return taciti_config_find(&settings->config, key, out);
}
