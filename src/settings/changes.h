/* SPDX-License-Identifier: Apache-2.0
 *
 * The differences between the configuration of a resumed run and that of its checkpoint.
 */
#ifndef TACITI_SETTINGS_CHANGES_H
#define TACITI_SETTINGS_CHANGES_H

#include <jansson.h>

#include "tacit/tacit.h"

/* The configuration of this run, without the keys that do not affect results, and that of a checkpoint. */
typedef struct taciti_changes {
    json_t *before; /* borrowed; NULL: the checkpoint has none */
    json_t *now;    /* owned */
} taciti_changes;

/* meta: the description of the checkpoint. now: as taciti_config_values(config, 1) returns it; taken, also on failure.
 * Returns E_MEMORY if `now` is NULL. */
tacit_status taciti_changes_create(const json_t *meta, json_t *now, taciti_changes *out);
void taciti_changes_destroy(taciti_changes *changes);

/* Logs one line for each changed key, and a warning for each key of the checkpoint that has gone and mattered. */
void taciti_changes_say(const taciti_changes *changes);

/* Writes "optim.accum was 4 and is 7 now, ...": the changed keys that begin with `section` ("optim."), as many as fit;
 * an empty text if there is none. */
void taciti_changes_text(const taciti_changes *changes, const char *section, char *text, size_t text_bytes);

/* Return the steps of an accumulation window of the optimizer: optim.accum if it accumulates, else 1. */
int64_t taciti_changes_window_before(const taciti_changes *changes);
int64_t taciti_changes_window_now(const taciti_changes *changes);

/* Whether second moments hold as many updates by today's optim.freeze as by that of before. The bias correction counts
 * them. updates: that the run has made. */
bool taciti_changes_keep_frozen(const taciti_changes *changes, int64_t updates);

#endif
