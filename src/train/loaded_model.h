/* SPDX-License-Identifier: Apache-2.0
 *
 * A trained model with its tokenizer, as `sample` and `eval` need it.
 */
#ifndef TACITI_TRAIN_LOADED_MODEL_H
#define TACITI_TRAIN_LOADED_MODEL_H

#include "data/data.h"
#include "model/model.h"

enum { TACITI_LOADED_KEYS = 8 }; /* at least those of data.* */

/* The configuration keys of these verbs: data.* only. Must not move after init. */
typedef struct taciti_loaded_options {
    taciti_data_options data;
    taciti_section section;
    taciti_config config;
    taciti_given given[TACITI_LOADED_KEYS];
    bool inherited; /* set by open: the text is that of the run, and not named by the user */
} taciti_loaded_options;

tacit_status taciti_loaded_options_init(taciti_loaded_options *options);

typedef struct taciti_loaded_model {
    taciti_model_options options;
    taciti_layout layout;
    taciti_pool *pool;
    taciti_model *model;
    taciti_tokenizer *tokenizer;
    size_t time; /* tokens of a sequence that it was trained with */
    int64_t step;
} taciti_loaded_model;

/* Opens a run folder, a checkpoint or weights of another program for batches of `batch` times the model's
 * context. Options data.* that are not set come from the configuration of the run. Call close also after an
 * error. */
tacit_status taciti_loaded_model_open(const char *path, taciti_loaded_options *options, size_t batch,
                                      taciti_loaded_model *out);

/* E_CONFIG unless the ids of a tokenizer mean something to the model. Bytes cause a warning if it has more tokens. */
tacit_status taciti_loaded_tokens_check(const taciti_loaded_model *loaded, int32_t known);

/* Opens the text: the held-out part of the run's, or what the user has named. Call it after the model was opened. */
tacit_status taciti_loaded_data_open(const taciti_loaded_options *options, const taciti_loaded_model *loaded,
                                     taciti_data **out);
void taciti_loaded_model_close(taciti_loaded_model *loaded);

#endif
