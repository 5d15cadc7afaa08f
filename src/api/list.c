/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of what is built in.
 */
#include <string.h>

#include "api/object.h"

typedef struct item {
    const char *name, *help;
} item;

/* The index-th key; false behind the last. */
static bool option_at(size_t index, item *out) {
    static _Thread_local char key[TACITI_KEY_BYTES];
    taciti_place place;
    tacit_settings *settings = NULL;
    if (tacit_settings_create(&settings) != TACIT_OK) return false;
    const bool there = taciti_config_at(&settings->config, index, &place);
    if (there) *out = (item){taciti_place_key(&place, key), place.option->help};
    tacit_settings_destroy(settings);
    return there;
}

static bool optimizer_at(size_t index, item *out) {
    static const char *const HELP[] = {"Adam with decoupled weight decay", "SGD, with momentum or without",
                                       "Adam whose weight decay is part of the gradient",
                                       "adamw whose moments follow the mean gradient of optim.accum steps",
                                       "adam whose moments follow the mean gradient of optim.accum steps"};
    static _Thread_local char name[TACITI_CHOICE_BYTES];
    _Static_assert(sizeof HELP / sizeof *HELP == TACITI_OPTIM_ACCUM_ADAM + 1, "a text for every optimizer");
    const taciti_option *option = taciti_optim_option_table.options;
    while (strcmp(option->key, "name") != 0) option++;
    if (index >= sizeof HELP / sizeof *HELP || !taciti_option_choice(option, (int)index, name)) return false;
    *out = (item){name, HELP[index]};
    return true;
}

/* Takes the index-th member of a registry, which ends with NULL. */
#define TAKE(list)                                                                                                     \
    for (size_t i = 0; (list)[i] != NULL; i++)                                                                         \
        if (i == index) return *out = (item){(list)[i]->name, (list)[i]->help}, true

static bool item_at(tacit_list_kind kind, size_t index, item *out) {
    switch (kind) {
    case TACIT_LIST_OPTIONS: return option_at(index, out);
    case TACIT_LIST_STRATEGIES: TAKE(taciti_strategy_list()); break;
    case TACIT_LIST_CODECS: TAKE(taciti_codec_list()); break;
    case TACIT_LIST_CONTROLLERS: TAKE(taciti_controller_list()); break;
    case TACIT_LIST_OPTIMIZERS: return optimizer_at(index, out);
    }
    return false;
}

bool tacit_list(tacit_list_kind kind, size_t index, const char **name, const char **help) {
    item found;
    if (!item_at(kind, index, &found)) return false;
    if (name != NULL) *name = found.name;
    if (help != NULL) *help = found.help;
    return true;
}
