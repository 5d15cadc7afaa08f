/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of a model without its network, and the tokenizer files, for import and export.
 */
#ifndef TACITI_CKPT_FLAT_MODEL_H
#define TACITI_CKPT_FLAT_MODEL_H

#include <jansson.h>

#include "base/memory.h"
#include "model/model.h"

typedef struct taciti_flat_model {
    taciti_layout layout;
    taciti_pages pages;
    float *flat; /* in `pages`; zero */
} taciti_flat_model;

tacit_status taciti_flat_model_create(const taciti_model_options *options, taciti_flat_model *out);
void taciti_flat_model_destroy(taciti_flat_model *model); /* {0} is fine */

/* Copies the tokenizer that a run's meta data names ("data.vocab" of "config", with merges.txt beside it) to
 * folder/vocab.json and folder/merges.txt. Does nothing if the run has none. A missing file causes a warning only. */
tacit_status taciti_flat_model_copy_tokenizer(const json_t *meta, const char *folder);

#endif
