/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face folders of GPT-2, written as GPT2LMHeadModel.save_pretrained() does: names with "transformer.", one
 * model.safetensors and config.json.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/formats.h"
#include "ckpt/safetensors.h"
#include "ckpt/sink.h"

enum { NAME_BYTES = 128, GPT2_VOCABULARY = 50257, GPT2_END_OF_TEXT = 50256 };

typedef struct hf_writer {
    const char *folder;
    taciti_safe_tensor *tensors; /* owned */
    char (*names)[NAME_BYTES];   /* owned */
    size_t count;
} hf_writer;

/* The layout is in the order of gradients, from the head down: backwards it reads as people expect. */
static void collect_tensors(hf_writer *writer, const taciti_layout *layout, const float *flat,
                            taciti_safe_dtype dtype) {
    for (size_t i = 0; i < writer->count; i++) {
        const taciti_tensor *tensor = &layout->tensors[writer->count - 1 - i];
        const bool head = strcmp(tensor->name, "lm_head.weight") == 0;
        (void)snprintf(writer->names[i], NAME_BYTES, "%s%s", head ? "" : "transformer.", tensor->name);
        writer->tensors[i] = (taciti_safe_tensor){.name = writer->names[i],
                                                  .dims = tensor->dims,
                                                  .shape = tensor->shape,
                                                  .data = flat + tensor->offset,
                                                  .dtype = dtype};
    }
}

static tacit_status write_tensors(const hf_writer *writer) {
    static const char *const metadata[] = {"format", "pt", NULL};
    char path[TACITI_PATH_BYTES], temporary[TACITI_PATH_BYTES], digest[TACITI_DIGEST_BYTES];
    uint64_t bytes = 0;
    TACITI_TRY(taciti_path_join(path, sizeof path, writer->folder, "model.safetensors"));
    TACITI_TRY(taciti_formats_temporary(path, temporary));
    TACITI_TRY(taciti_safe_write(temporary, writer->tensors, writer->count, metadata, &bytes, digest));
    return taciti_formats_publish(temporary, path);
}

/* Writes the value, which it takes. */
static tacit_status write_json(const char *folder, const char *name, json_t *value) {
    char path[TACITI_PATH_BYTES];
    tacit_status status = taciti_path_join(path, sizeof path, folder, name);
    char *text = taciti_json_dump(value, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    if (text == NULL) return taciti_fail(TACIT_E_MEMORY, "%s/%s: no memory for it", folder, name);
    if (status == TACIT_OK) status = taciti_file_write(path, text, strlen(text));
    taciti_free(text);
    return status;
}

static tacit_status write_config(const char *folder, const taciti_model_options *o, int dtype) {
    json_t *config = json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:n, s:I, s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:b, s:s}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new", "n_layer",
        (json_int_t)o->layers, "n_head", (json_int_t)o->heads, "n_embd", (json_int_t)o->channels, "n_positions",
        (json_int_t)o->context, "n_ctx", (json_int_t)o->context, "n_inner", "vocab_size", (json_int_t)o->vocabulary,
        "layer_norm_epsilon", 1e-5, "initializer_range", 0.02, "embd_pdrop", o->dropout, "resid_pdrop", o->dropout,
        "attn_pdrop", o->dropout, "scale_attn_weights", 1, "use_cache", 1, "tie_word_embeddings", (int)o->tied,
        "torch_dtype", dtype == TACITI_DTYPE_BF16 ? "bfloat16" : "float32");
    const bool ends = o->vocabulary == GPT2_VOCABULARY; /* only that vocabulary has an end-of-text token */
    static const char *const tokens[] = {"bos_token_id", "eos_token_id"};
    for (size_t i = 0; i < 2; i++)
        (void)json_object_set_new(config, tokens[i], ends ? json_integer(GPT2_END_OF_TEXT) : json_null());
    return write_json(folder, "config.json", config);
}

/* config.json comes last: a folder without it is not taken for a model. */
static tacit_status write_all(const hf_writer *writer, const taciti_model_options *options, int dtype) {
    TACITI_TRY(write_tensors(writer));
    return write_config(writer->folder, options, dtype);
}

static tacit_status prepare_folder(const char *folder) {
    static const char *const names[] = {"config.json", "model.safetensors", "model.safetensors.index.json"};
    TACITI_TRY(taciti_file_make_folder(folder));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[TACITI_PATH_BYTES];
        TACITI_TRY(taciti_path_join(path, sizeof path, folder, names[i]));
        TACITI_TRY(taciti_formats_refuse_existing(path));
    }
    return TACIT_OK;
}

tacit_status taciti_hf_write(const char *folder, const taciti_weights_write_options *how,
                             const taciti_model_options *options, const taciti_layout *layout, const float *flat) {
    TACITI_TRY(prepare_folder(folder));
    hf_writer writer = {.folder = folder,
                        .tensors = taciti_calloc(layout->tensor_count, sizeof *writer.tensors),
                        .names = taciti_calloc(layout->tensor_count, sizeof *writer.names),
                        .count = layout->tensor_count};
    tacit_status status = TACIT_E_MEMORY;
    if (writer.tensors != NULL && writer.names != NULL) {
        collect_tensors(&writer, layout, flat, how->dtype == TACITI_DTYPE_BF16 ? TACITI_SAFE_BF16 : TACITI_SAFE_F32);
        status = write_all(&writer, options, how->dtype);
    }
    taciti_free(writer.tensors);
    taciti_free(writer.names);
    return status;
}
