/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a model from a run folder, one of its checkpoints, or the weights of another program, for eval, sample, export
 * and train.init. Not collective, any thread.
 */
#ifndef TACITI_CKPT_RUN_H
#define TACITI_CKPT_RUN_H

#include <jansson.h>

#include "base/file.h"
#include "model/model.h"

typedef struct taciti_run_info {
    char path[TACITI_PATH_BYTES]; /* the checkpoint folder, or the foreign weights as given */
    int64_t step;                 /* -1 for foreign weights */
    taciti_model_options model;   /* resolved; dtype f32, dropout 0 */
    json_t *meta;                 /* "meta" of the manifest; {"config": {}} for foreign weights; owned */
} taciti_run_info;

/* The "model" object of a checkpoint's meta data: {"layers": ..., "heads": ..., "channels": ..., "vocabulary": ...,
 * "context": ..., "tied": ..., "dropout": ...}. Returns owned, json_decref(); NULL when memory is short. */
json_t *taciti_run_describe_model(const taciti_model_options *model);

/* Reads the "model" object of the meta data; `path` is used in messages. Resolved; dtype f32, dropout 0. */
tacit_status taciti_run_parse_model(const char *path, const json_t *meta, taciti_model_options *out);

/* Checks that every size of the model found at `path` is the wanted one, including heads and tied head, which no shape
 * reveals. The message of E_CONFIG names the key and both values. */
tacit_status taciti_run_match(const char *path, const taciti_model_options *found, const taciti_model_options *wanted);

/* path: a run folder (newest valid checkpoint), a step folder, a Hugging Face folder or a llm.c file. If the folder
 * contains vocab.json and merges.txt and the configuration has no tokenizer, the former becomes "data.vocab" of the
 * "config" in `meta`. Relative paths of that configuration are found in the folder where the run was started
 * (`directory` in `meta`), if they are there. */
tacit_status taciti_run_open(const char *path, taciti_run_info *out);
void taciti_run_close(taciti_run_info *info);

/* Reads the parameters into a flat array of `layout`. */
tacit_status taciti_run_weights(const taciti_run_info *info, const taciti_layout *layout, float *flat);

/* ---- import and export: parameters without their network, and the tokenizer -------------------------------------- */

typedef struct taciti_flat_model {
    taciti_layout layout;
    taciti_pages pages;
    float *flat; /* in `pages`; zero */
} taciti_flat_model;

tacit_status taciti_flat_model_create(const taciti_model_options *options, taciti_flat_model *out);
void taciti_flat_model_destroy(taciti_flat_model *model); /* {0} is fine */

/* Returns E_CONFIG, naming the file, if the next function would replace one that is not the same. */
tacit_status taciti_flat_model_check_tokenizer(const json_t *meta, const char *folder);

/* Copies the tokenizer that a run's meta data names ("data.vocab" of "config", with merges.txt beside it) to
 * folder/vocab.json and folder/merges.txt. Does nothing if the run has none. A missing file causes a warning only. */
tacit_status taciti_flat_model_copy_tokenizer(const json_t *meta, const char *folder);

#endif
