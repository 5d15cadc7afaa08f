/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "train/trainer.h"

enum { WHAT_BYTES = 48 };

static void add(const taciti_trainer *trainer, taciti_state_list *list, int owner, const char *what, float *flat) {
    char *prefix = list->prefixes[list->count];
    if (owner < 0)
        (void)snprintf(prefix, TACITI_CKPT_PREFIX_BYTES, "%s", what);
    else
        taciti_ckpt_own_prefix(owner, what, prefix);
    list->arrays[list->count++] =
        (taciti_ckpt_array){.prefix = prefix, .layout = &trainer->layout, .flat = flat, .own = owner >= 0};
}

void taciti_state_add_moment(const taciti_trainer *trainer, int owner, int state, float *flat,
                             taciti_state_list *list) {
    char what[WHAT_BYTES];
    taciti_state listed = {.count = 0};
    taciti_optim_list_state(trainer->optim, TACITI_STATE_SHARED, &listed);
    (void)snprintf(what, sizeof what, "%s.", listed.entries[state].name);
    add(trainer, list, owner, what, flat);
}

void taciti_state_add_model(const taciti_trainer *trainer, taciti_state_list *list) {
    add(trainer, list, -1, "model.", taciti_model_parameters(trainer->model));
}

void taciti_state_add_moments(const taciti_trainer *trainer, taciti_state_list *list) {
    for (int i = 0; i < taciti_optim_state_count(trainer->optim); i++)
        taciti_state_add_moment(trainer, -1, i, taciti_optim_state(trainer->optim, i), list);
}

void taciti_state_add_strategy(const taciti_trainer *trainer, int rank, taciti_state_list *list) {
    taciti_state state = {.count = 0};
    trainer->strategy->state(trainer->strategy_self, &state);
    for (size_t a = 0; a < state.count; a++) {
        char what[WHAT_BYTES];
        if (strncmp(state.entries[a].name, "strategy.", strlen("strategy.")) != 0) continue;
        (void)snprintf(what, sizeof what, "%s.", state.entries[a].name);
        add(trainer, list, rank, what, state.entries[a].data);
    }
}

void taciti_state_add_own(const taciti_trainer *trainer, int rank, float *parameters, taciti_state_list *list) {
    add(trainer, list, rank, "model.", parameters);
    for (int i = 0; i < taciti_optim_state_count(trainer->optim); i++)
        taciti_state_add_moment(trainer, rank, i, taciti_optim_state(trainer->optim, i), list);
    taciti_state_add_strategy(trainer, rank, list);
}
