/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2 weights of other programs: Hugging Face folders (config.json + model.safetensors, single or sharded by
 * model.safetensors.index.json) and llm.c files (.bin, version 3 f32 and 5 bf16). An export of imported weights is
 * bit-equal to them. Not collective.
 */
#ifndef TACITI_CKPT_WEIGHTS_H
#define TACITI_CKPT_WEIGHTS_H

#include "model/model.h"

typedef enum taciti_weights_format { TACITI_WEIGHTS_HF, TACITI_WEIGHTS_LLMC } taciti_weights_format;
#define TACITI_WEIGHTS_CHOICES "hf|llmc" /* in their order */

/* Reads the shape of a model from a HF folder / config.json or a llm.c file; the format is recognised by content. */
tacit_status taciti_weights_describe(const char *path, taciti_weights_format *format, taciti_model_options *out);

/* Fills flat parameters laid out by `layout`, that of the model `options`. Padded llm.c vocabularies are cut; names and
 * shapes must match. Accepts names with and without "transformer."; ignores attn.bias masks; lm_head.weight equal to
 * wte is fine when tied. */
tacit_status taciti_weights_read(const char *path, const taciti_model_options *options, const taciti_layout *layout,
                                 float *flat);

typedef struct taciti_weights_write_options {
    taciti_weights_format format;
    int dtype; /* TACITI_DTYPE_F32 or _BF16 */
} taciti_weights_write_options;

/* HF: writes a folder (config.json, model.safetensors). llm.c: writes a file. Each file is written atomically;
 * existing files are not overwritten. */
tacit_status taciti_weights_write(const char *path, const taciti_weights_write_options *how,
                                  const taciti_model_options *options, const taciti_layout *layout, const float *flat);

#endif
