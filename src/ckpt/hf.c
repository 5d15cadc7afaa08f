/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face folders of GPT-2: config.json and model.safetensors, or, read only, shards by
 * model.safetensors.index.json. Names are read with and without "transformer." and written with it; matrices of the
 * layers are [in][out] there as here.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "base/text.h"
#include "ckpt/formats.h"
#include "ckpt/run.h"
#include "ckpt/safetensors.h"
#include "ckpt/sink.h"

enum {
    JSON_MAX_BYTES = 64 << 20,
    SHARDS_MAX = 4096,
    NAME_BYTES = 128,
    GPT2_VOCABULARY = 50257,
    GPT2_END_OF_TEXT = 50256,
};
static const char single_name[] = "model.safetensors", index_name[] = "model.safetensors.index.json",
                  pickle_name[] = "pytorch_model.bin";
static const char name_prefix[] = "transformer.", head_name[] = "lm_head.weight", wte_name[] = "wte.weight";

/* ---- config.json ------------------------------------------------------------------------------------------------- */

typedef struct hf_config {
    taciti_model_options model;
    double epsilon;
    int64_t inner; /* 0: 4 x n_embd */
} hf_config;

/* A switch under which the network would compute something else than ours: `min` says what it must be. */
static tacit_status read_switch(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                                void *out) {
    (void)out;
    const bool needed = field->min > 0;
    if (json_is_boolean(value) && json_boolean_value(value) == needed) return TACIT_OK;
    return taciti_strict_refuse(r, value, field->legal);
}

static tacit_status read_activation(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                                    void *out) {
    (void)out;
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    if (strcmp(name, "gelu_new") == 0 || strcmp(name, "gelu_pytorch_tanh") == 0) return TACIT_OK;
    return taciti_strict_refuse(r, value, field->legal);
}

static tacit_status read_inner(taciti_strict_reader *r, const json_t *value, const taciti_strict_field *field,
                               void *out) {
    return json_is_null(value) ? TACIT_OK : taciti_strict_integer(r, value, field, out);
}

/* A member that is absent has Hugging Face's default. */
#define SIZE(key, member)                                                                                              \
    { key, true, taciti_strict_integer, offsetof(hf_config, model.member), 1, INT32_MAX, "a positive integer", NULL }
static const taciti_strict_field CONFIG_FIELDS[] = {
    {"model_type", true, taciti_strict_literal, 0, 0, 0, "\"gpt2\"", NULL},
    SIZE("n_layer", layers),
    SIZE("n_head", heads),
    SIZE("n_embd", channels),
    SIZE("n_positions", context),
    SIZE("vocab_size", vocabulary),
    {"activation_function", false, read_activation, 0, 0, 0, "\"gelu_new\"", NULL},
    {"scale_attn_weights", false, read_switch, 0, 1, 1, "true", NULL},
    {"scale_attn_by_inverse_layer_idx", false, read_switch, 0, 0, 0, "false", NULL},
    {"add_cross_attention", false, read_switch, 0, 0, 0, "false", NULL},
    {"layer_norm_epsilon", false, taciti_strict_real, offsetof(hf_config, epsilon), 1e-5, 1e-5, "1e-5", NULL},
    {"n_inner", false, read_inner, offsetof(hf_config, inner), 1, INT32_MAX, "null or 4 x n_embd", NULL},
    {"tie_word_embeddings", false, taciti_strict_flag, offsetof(hf_config, model.tied), 0, 0, "true or false", NULL},
    {0},
};

tacit_status taciti_hf_describe(const char *path, taciti_model_options *out) {
    taciti_strict_reader reader = {.file = path, .status = TACIT_E_DATA, .open = true};
    hf_config config = {.model = {.tied = true}};
    json_t *root = NULL;
    TACITI_TRY(taciti_strict_load(&reader, JSON_MAX_BYTES, &root));
    const tacit_status status = taciti_strict_object(&reader, root, CONFIG_FIELDS, "an object", &config);
    json_decref(root);
    TACITI_TRY(status);
    if (config.inner != 0 && config.inner != 4 * config.model.channels)
        return taciti_fail(TACIT_E_DATA, "%s: \"n_inner\" must be null or 4 x n_embd, %lld", path,
                           (long long)(4 * config.model.channels));
    TACITI_TRY(taciti_formats_resolve(path, &config.model));
    *out = config.model;
    return TACIT_OK;
}

/* ---- which files ------------------------------------------------------------------------------------------------- */

/* Names are the keys of an object, which has each once. */
static tacit_status add_file(json_t *files, const char *name) {
    return json_object_set_new(files, name, json_null()) == 0 ? TACIT_OK : TACIT_E_MEMORY;
}

/* A name in the index must stay in its folder. */
static bool name_is_plain(const char *name) {
    return strlen(name) < 256 && name[0] != '.' && strpbrk(name, "/\\") == NULL &&
           taciti_text_ends_with(name, ".safetensors");
}

static tacit_status parse_index(const char *path, const json_t *index, json_t *files) {
    const char *key = NULL;
    json_t *value = NULL, *map = json_object_get(index, "weight_map");
    if (!json_is_object(map)) return taciti_fail(TACIT_E_DATA, "%s: \"weight_map\" must be an object", path);
    json_object_foreach(map, key, value) {
        const char *name = json_string_value(value);
        if (name == NULL || !name_is_plain(name))
            return taciti_fail(TACIT_E_DATA, "%s: tensor %.64s: \"%.80s\" is not a legal file name", path, key,
                               name == NULL ? "" : name);
        TACITI_TRY(add_file(files, name));
        if (json_object_size(files) > SHARDS_MAX)
            return taciti_fail(TACIT_E_DATA, "%s: more than %d files", path, (int)SHARDS_MAX);
    }
    return TACIT_OK;
}

static tacit_status read_index(const char *folder, json_t *files) {
    char path[TACITI_PATH_BYTES];
    const taciti_strict_reader reader = {.file = path, .status = TACIT_E_DATA};
    json_t *index = NULL;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, index_name));
    TACITI_TRY(taciti_strict_load(&reader, JSON_MAX_BYTES, &index));
    const tacit_status status = parse_index(path, index, files);
    json_decref(index);
    return status;
}

static tacit_status list_files(const char *folder, json_t *files) {
    if (taciti_file_exists_in(folder, single_name)) return add_file(files, single_name);
    if (taciti_file_exists_in(folder, index_name)) return read_index(folder, files);
    if (!taciti_file_exists_in(folder, pickle_name))
        return taciti_fail(TACIT_E_DATA, "%s: holds neither %s nor %s", folder, single_name, index_name);
    char pickle[TACITI_PATH_BYTES];
    TACITI_TRY(taciti_path_join(pickle, sizeof pickle, folder, pickle_name));
    return taciti_formats_refuse_pickle(pickle);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

typedef struct hf_reader {
    const char *folder;
    json_t *files; /* owned */
    bool tied;
    const taciti_layout *layout;
    float *flat;
    unsigned char *seen; /* by tensor of the layout */
} hf_reader;

static const char *bare_name(const char *name) {
    const size_t prefix = sizeof name_prefix - 1;
    return strncmp(name, name_prefix, prefix) == 0 ? name + prefix : name;
}

/* Whether it is a causal mask, which old files hold as tensors. */
static bool is_mask(const char *name) {
    return strncmp(name, "h.", 2) == 0 &&
           (taciti_text_ends_with(name, ".attn.bias") || taciti_text_ends_with(name, ".attn.masked_bias"));
}

static bool is_tied_head(const hf_reader *reader, const char *name) {
    return reader->tied && strcmp(name, head_name) == 0;
}

typedef tacit_status entry_visitor(hf_reader *reader, const taciti_safe_file *file, const taciti_safe_entry *entry);

static tacit_status visit_files(hf_reader *reader, entry_visitor *visit) {
    const char *name = NULL;
    json_t *nothing = NULL;
    json_object_foreach(reader->files, name, nothing) {
        char path[TACITI_PATH_BYTES];
        taciti_safe_file file;
        tacit_status status = TACIT_OK;
        TACITI_TRY(taciti_path_join(path, sizeof path, reader->folder, name));
        TACITI_TRY(taciti_safe_open(path, &file));
        for (size_t i = 0; i < file.count && status == TACIT_OK; i++) status = visit(reader, &file, &file.entries[i]);
        taciti_safe_close(&file);
        TACITI_TRY(status);
    }
    return TACIT_OK;
}

static tacit_status read_entry(hf_reader *reader, const taciti_safe_file *file, const taciti_safe_entry *entry) {
    const char *name = bare_name(entry->name);
    if (is_mask(name)) return TACIT_OK;
    const bool head = is_tied_head(reader, name);
    const size_t t = taciti_layout_find(reader->layout, head ? wte_name : name);
    if (t == reader->layout->tensor_count)
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s does not belong to the model in config.json", file->view.path,
                           entry->name);
    const taciti_tensor *tensor = &reader->layout->tensors[t];
    char there[TACITI_SHAPE_TEXT_BYTES], here[TACITI_SHAPE_TEXT_BYTES];
    if (!taciti_shape_equals(entry->dims, entry->shape, tensor->dims, tensor->shape))
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s has shape %s, config.json needs %s", file->view.path,
                           entry->name, taciti_shape_text(entry->dims, entry->shape, there),
                           taciti_shape_text(tensor->dims, tensor->shape, here));
    if (head) return TACIT_OK;
    if (reader->seen[t]) return taciti_fail(TACIT_E_DATA, "%s: tensor %s comes twice", file->view.path, entry->name);
    reader->seen[t] = 1;
    return taciti_safe_read_f32(file, entry, reader->flat + tensor->offset, tensor->n);
}

/* A tied head that is stored all the same must be the embedding. */
static tacit_status compare_head(hf_reader *reader, const taciti_safe_file *file, const taciti_safe_entry *entry) {
    if (!is_tied_head(reader, bare_name(entry->name))) return TACIT_OK;
    const taciti_tensor *wte = NULL;
    taciti_pages head = {0};
    TACITI_TRY(taciti_formats_tensor(reader->layout, wte_name, &wte));
    TACITI_TRY(taciti_pages_create(wte->n * sizeof(float), head_name, &head));
    tacit_status status = taciti_safe_read_f32(file, entry, head.base, wte->n);
    if (status == TACIT_OK && memcmp(head.base, reader->flat + wte->offset, wte->n * sizeof(float)) != 0)
        status = taciti_fail(TACIT_E_DATA,
                             "%s: %s differs from wte.weight, but config.json ties them (set "
                             "\"tie_word_embeddings\" to false)",
                             file->view.path, entry->name);
    taciti_pages_destroy(&head);
    return status;
}

static tacit_status read_all(hf_reader *reader) {
    TACITI_TRY(list_files(reader->folder, reader->files));
    TACITI_TRY(visit_files(reader, read_entry));
    for (size_t t = 0; t < reader->layout->tensor_count; t++)
        if (!reader->seen[t])
            return taciti_fail(TACIT_E_DATA, "%s: tensor %s is missing", reader->folder,
                               reader->layout->tensors[t].name);
    return visit_files(reader, compare_head);
}

tacit_status taciti_hf_read(const char *folder, const taciti_model_options *options, const taciti_layout *layout,
                            float *flat) {
    hf_reader reader = {.folder = folder, .tied = options->tied, .layout = layout, .flat = flat};
    char path[TACITI_PATH_BYTES];
    taciti_model_options file;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, "config.json"));
    TACITI_TRY(taciti_hf_describe(path, &file));
    TACITI_TRY(taciti_run_match(path, &file, options));
    reader.files = json_object();
    reader.seen = taciti_calloc(layout->tensor_count, 1);
    const tacit_status status = reader.seen == NULL ? TACIT_E_MEMORY : read_all(&reader);
    json_decref(reader.files);
    taciti_free(reader.seen);
    return status;
}

/* ---- writing, as GPT2LMHeadModel.save_pretrained() does ---------------------------------------------------------- */

/* Fills in all tensors. The layout is in the order of gradients, from the head down: backwards it reads as people
 * expect. */
static void collect_tensors(const taciti_layout *layout, const float *flat, taciti_safe_dtype dtype,
                            char (*names)[NAME_BYTES], taciti_safe_tensor *out) {
    for (size_t i = 0; i < layout->tensor_count; i++) {
        const taciti_tensor *tensor = &layout->tensors[layout->tensor_count - 1 - i];
        const bool head = strcmp(tensor->name, head_name) == 0;
        (void)snprintf(names[i], NAME_BYTES, "%s%s", head ? "" : name_prefix, tensor->name);
        out[i] = (taciti_safe_tensor){.name = names[i],
                                      .dims = tensor->dims,
                                      .shape = tensor->shape,
                                      .data = flat + tensor->offset,
                                      .dtype = dtype};
    }
}

static tacit_status write_tensors(const char *folder, const taciti_safe_tensor *tensors, size_t count) {
    static const char *const metadata[] = {"format", "pt", NULL};
    char path[TACITI_PATH_BYTES], temporary[TACITI_PATH_BYTES], digest[TACITI_DIGEST_BYTES];
    uint64_t bytes = 0;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, single_name));
    TACITI_TRY(taciti_formats_temporary(path, temporary));
    TACITI_TRY(taciti_safe_write(temporary, tensors, count, metadata, &bytes, digest));
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

static tacit_status prepare_folder(const char *folder) {
    static const char *const names[] = {"config.json", single_name, index_name};
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
    const size_t count = layout->tensor_count;
    const taciti_safe_dtype dtype = how->dtype == TACITI_DTYPE_BF16 ? TACITI_SAFE_BF16 : TACITI_SAFE_F32;
    taciti_safe_tensor *tensors = taciti_calloc(count, sizeof *tensors);
    char(*names)[NAME_BYTES] = taciti_calloc(count, sizeof *names);
    tacit_status status = TACIT_E_MEMORY;
    if (tensors != NULL && names != NULL) {
        collect_tensors(layout, flat, dtype, names, tensors);
        status = write_tensors(folder, tensors, count);
        /* config.json comes last: a folder without it is not taken for a model. */
        if (status == TACIT_OK) status = write_config(folder, options, how->dtype);
    }
    taciti_free(tensors);
    taciti_free(names);
    return status;
}
