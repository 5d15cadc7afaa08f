/* SPDX-License-Identifier: Apache-2.0
 *
 * A run folder (or one of its checkpoints, or weights of another program) as a source of a model: what eval, sample,
 * export and train.init read. Not collective, any thread.
 */
#ifndef TACITI_CKPT_RUN_H
#define TACITI_CKPT_RUN_H

#include <stdint.h>

#include "model/model.h"

enum { TACITI_RUN_PATH_BYTES = 4096 };

typedef struct taciti_run_info {
    char path[TACITI_RUN_PATH_BYTES]; /* the checkpoint folder, or the foreign weights as given */
    int64_t step;                     /* -1 for foreign weights */
    taciti_model_options model;       /* resolved; dtype f32, dropout 0 */
    char *meta_json;                  /* "meta" of the manifest; {"config": {}} for foreign weights; owned */
} taciti_run_info;

/* The "model" object of a checkpoint's meta data: {"layers": ..., "heads": ..., "channels": ..., "vocabulary": ...,
 * "context": ..., "tied": ..., "dropout": ...}. Returns owned, taciti_free(); NULL when memory is short. */
char *taciti_run_describe_model(const taciti_model_options *model);

/* The other way: what meta data of the checkpoint at `path` (for messages) says. Resolved; dtype f32, dropout 0. */
tacit_status taciti_run_parse_model(const char *path, const char *meta_json, taciti_model_options *out);

/* Every size of a model found at `path` must be the wanted one - heads and head as well, which no shape shows. E_CONFIG
 * names the key and both values. */
tacit_status taciti_run_match(const char *path, const taciti_model_options *found, const taciti_model_options *wanted);

/* path: a run folder (newest valid checkpoint), a step folder, a Hugging Face folder or a llm.c file. When vocab.json
 * and merges.txt lie in the run or Hugging Face folder and the configuration names no tokenizer, they are entered as
 * "data.vocab" and "data.merges" of meta_json's "config". */
tacit_status taciti_run_open(const char *path, taciti_run_info *out);
void taciti_run_close(taciti_run_info *info);

/* Parameters into a flat array of `layout`. */
tacit_status taciti_run_weights(const taciti_run_info *info, const taciti_layout *layout, float *flat);

#endif
