/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of a model without the network, and the tokenizer files beside them: what import and export move.
 */
#ifndef TACITI_CKPT_FLAT_MODEL_H
#define TACITI_CKPT_FLAT_MODEL_H

#include "base/memory.h"
#include "model/model.h"

typedef struct taciti_flat_model {
    taciti_layout layout;
    taciti_pages pages;
    float *flat; /* in `pages`; zero */
} taciti_flat_model;

tacit_status taciti_flat_model_create(const taciti_model_options *options, taciti_flat_model *out);
void taciti_flat_model_destroy(taciti_flat_model *model); /* {0} is fine */

/* Copies the tokenizer that a run's meta data names ("data.vocab" and "data.merges" of "config") to folder/vocab.json
 * and folder/merges.txt. Without one there is nothing to do; files that are gone are a warning, as the weights are
 * complete without them. */
tacit_status taciti_flat_model_copy_tokenizer(const char *meta_json, const char *folder);

#endif
