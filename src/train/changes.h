/* SPDX-License-Identifier: Apache-2.0
 *
 * What a resumed run configures otherwise than its checkpoint did.
 */
#ifndef TACITI_TRAIN_CHANGES_H
#define TACITI_TRAIN_CHANGES_H

#include <jansson.h>

#include "train/trainer.h"

/* The configuration of this run beside that of a checkpoint. Keys that are no part of a run's identity are left out. */
typedef struct taciti_changes {
    const json_t *before; /* borrowed; NULL: the checkpoint has none */
    json_t *now;          /* owned */
} taciti_changes;

tacit_status taciti_changes_create(const taciti_trainer *trainer, const json_t *meta, taciti_changes *out);
void taciti_changes_destroy(taciti_changes *changes);

/* One line for each key with another value, on rank 0. */
void taciti_changes_say(const taciti_changes *changes, const taciti_trainer *trainer);

/* "optim.accum was 4 and is 7 now, ...": the changed keys that begin with `section` ("optim."), as far as they fit; an
 * empty text when there is none. */
void taciti_changes_text(const taciti_changes *changes, const char *section, char *text, size_t text_bytes);

/* Steps of a window of the optimizer: optim.accum of its accumulating forms, else 1. */
int64_t taciti_changes_window_before(const taciti_changes *changes);
int64_t taciti_changes_window_now(const taciti_changes *changes);

#endif
