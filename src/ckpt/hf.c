/* SPDX-License-Identifier: Apache-2.0
 *
 * Hugging Face folders of GPT-2, read: config.json and model.safetensors, or shards by model.safetensors.index.json.
 * Names come with and without "transformer."; matrices of the layers are [in][out] there as here.
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/formats.h"
#include "ckpt/run.h"
#include "ckpt/safetensors.h"

enum { JSON_MAX_BYTES = 64 << 20, SHARDS_MAX = 4096 };
static const char name_prefix[] = "transformer.", head_name[] = "lm_head.weight", wte_name[] = "wte.weight";

/* Returns owned; json_decref(). */
static tacit_status read_json(const char *path, json_t **out) {
    char *text = NULL;
    size_t bytes = 0;
    json_error_t error = {0};
    TACITI_TRY(taciti_file_read(path, JSON_MAX_BYTES, &text, &bytes));
    json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    taciti_free(text);
    if (!json_is_object(value)) {
        json_decref(value);
        return taciti_fail(TACIT_E_DATA, "%s:%d:%d: not a JSON object: %s", path, error.line, error.column, error.text);
    }
    *out = value;
    return TACIT_OK;
}

/* ---- config.json ------------------------------------------------------------------------------------------------- */

static tacit_status read_size(const char *path, const json_t *config, const char *key, int64_t *out) {
    const json_t *value = json_object_get(config, key);
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > INT32_MAX)
        return taciti_fail(TACIT_E_DATA, "%s: \"%s\" must be a positive integer", path, key);
    *out = json_integer_value(value);
    return TACIT_OK;
}

static tacit_status require_text(const char *path, const json_t *config, const char *key, const char *const *legal) {
    const json_t *value = json_object_get(config, key);
    for (size_t i = 0; legal[i] != NULL; i++)
        if (json_is_string(value) && strcmp(json_string_value(value), legal[i]) == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "%s: \"%s\" is %.64s, must be \"%s\"", path, key,
                       json_is_string(value) ? json_string_value(value) : "not given", legal[0]);
}

/* Settings under which the network would compute something else than ours. Absent means Hugging Face's default. */
static tacit_status check_variant(const char *path, const json_t *config, int64_t channels) {
    static const char *const model[] = {"gpt2", NULL}, *const gelu[] = {"gelu_new", "gelu_pytorch_tanh", NULL};
    static const struct {
        const char *key;
        bool needed;
    } switches[] = {
        {"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}};
    TACITI_TRY(require_text(path, config, "model_type", model));
    if (json_object_get(config, "activation_function") != NULL)
        TACITI_TRY(require_text(path, config, "activation_function", gelu));
    for (size_t i = 0; i < sizeof switches / sizeof switches[0]; i++) {
        const json_t *value = json_object_get(config, switches[i].key);
        if (value != NULL && (!json_is_boolean(value) || json_boolean_value(value) != switches[i].needed))
            return taciti_fail(TACIT_E_DATA, "%s: \"%s\" must be %s", path, switches[i].key,
                               switches[i].needed ? "true" : "false");
    }
    const json_t *epsilon = json_object_get(config, "layer_norm_epsilon");
    if (epsilon != NULL && json_number_value(epsilon) != 1e-5)
        return taciti_fail(TACIT_E_DATA, "%s: \"layer_norm_epsilon\" is %g, must be 1e-5", path,
                           json_number_value(epsilon));
    const json_t *inner = json_object_get(config, "n_inner");
    if (inner != NULL && !json_is_null(inner) && json_integer_value(inner) != 4 * channels)
        return taciti_fail(TACIT_E_DATA, "%s: \"n_inner\" must be null or 4 x n_embd, %lld", path,
                           (long long)(4 * channels));
    return TACIT_OK;
}

static tacit_status parse_config(const char *path, const json_t *config, taciti_model_options *out) {
    taciti_model_options o = {.tied = true};
    TACITI_TRY(read_size(path, config, "n_layer", &o.layers));
    TACITI_TRY(read_size(path, config, "n_head", &o.heads));
    TACITI_TRY(read_size(path, config, "n_embd", &o.channels));
    TACITI_TRY(read_size(path, config, "n_positions", &o.context));
    TACITI_TRY(read_size(path, config, "vocab_size", &o.vocabulary));
    TACITI_TRY(check_variant(path, config, o.channels));
    const json_t *tied = json_object_get(config, "tie_word_embeddings");
    if (tied != NULL && !json_is_boolean(tied))
        return taciti_fail(TACIT_E_DATA, "%s: \"tie_word_embeddings\" must be true or false", path);
    if (tied != NULL) o.tied = json_boolean_value(tied);
    TACITI_TRY(taciti_formats_resolve(path, &o));
    *out = o;
    return TACIT_OK;
}

tacit_status taciti_hf_describe(const char *path, taciti_model_options *out) {
    json_t *config = NULL;
    TACITI_TRY(read_json(path, &config));
    const tacit_status status = parse_config(path, config, out);
    json_decref(config);
    return status;
}

/* ---- which files ------------------------------------------------------------------------------------------------- */

typedef struct file_list {
    char **names; /* owned, each once */
    size_t count;
} file_list;

static void file_list_destroy(file_list *list) {
    for (size_t i = 0; i < list->count; i++) taciti_free(list->names[i]);
    taciti_free(list->names);
}

static tacit_status add_file(file_list *list, const char *name) {
    list->names[list->count] = taciti_strdup(name);
    return list->names[list->count++] == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

/* A name in the index must stay in its folder. */
static bool name_is_plain(const char *name) {
    const size_t bytes = strlen(name), suffix = strlen(".safetensors");
    return bytes > suffix && bytes < 256 && name[0] != '.' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL &&
           strcmp(name + bytes - suffix, ".safetensors") == 0;
}

static tacit_status parse_index(const char *path, const json_t *index, file_list *list) {
    const char *key = NULL;
    json_t *value = NULL, *map = json_object_get(index, "weight_map");
    if (!json_is_object(map)) return taciti_fail(TACIT_E_DATA, "%s: \"weight_map\" must be an object", path);
    json_object_foreach(map, key, value) {
        const char *name = json_string_value(value);
        if (name == NULL || !name_is_plain(name))
            return taciti_fail(TACIT_E_DATA, "%s: tensor %.64s: \"%.80s\" is not a legal file name", path, key,
                               name == NULL ? "" : name);
        size_t i = 0;
        while (i < list->count && strcmp(list->names[i], name) != 0) i++;
        if (i < list->count) continue;
        if (i == SHARDS_MAX) return taciti_fail(TACIT_E_DATA, "%s: more than %d files", path, (int)SHARDS_MAX);
        TACITI_TRY(add_file(list, name));
    }
    return TACIT_OK;
}

static tacit_status read_index(const char *path, file_list *list) {
    json_t *index = NULL;
    TACITI_TRY(read_json(path, &index));
    const tacit_status status = parse_index(path, index, list);
    json_decref(index);
    return status;
}

static tacit_status no_weights(const char *folder) {
    char pickle[TACITI_FORMATS_PATH_BYTES];
    TACITI_TRY(taciti_path_join(pickle, sizeof pickle, folder, "pytorch_model.bin"));
    if (access(pickle, F_OK) == 0)
        return taciti_fail(TACIT_E_DATA,
                           "%s: is a pickle, which can run code and is never loaded; convert it where it comes from: "
                           "model.save_pretrained(FOLDER, safe_serialization=True)",
                           pickle);
    return taciti_fail(TACIT_E_DATA, "%s: holds neither model.safetensors nor model.safetensors.index.json", folder);
}

static tacit_status list_files(const char *folder, file_list *list) {
    char single[TACITI_FORMATS_PATH_BYTES], index[TACITI_FORMATS_PATH_BYTES];
    TACITI_TRY(taciti_path_join(single, sizeof single, folder, "model.safetensors"));
    TACITI_TRY(taciti_path_join(index, sizeof index, folder, "model.safetensors.index.json"));
    list->names = taciti_calloc(SHARDS_MAX, sizeof *list->names);
    if (list->names == NULL) return TACIT_E_MEMORY;
    if (access(single, F_OK) == 0) return add_file(list, "model.safetensors");
    if (access(index, F_OK) == 0) return read_index(index, list);
    return no_weights(folder);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

typedef struct hf_reader {
    const char *folder;
    file_list files;
    bool tied;
    const taciti_layout *layout;
    float *flat;
    unsigned char *seen; /* by tensor of the layout */
} hf_reader;

static const char *bare_name(const char *name) {
    const size_t prefix = sizeof name_prefix - 1;
    return strncmp(name, name_prefix, prefix) == 0 ? name + prefix : name;
}

static bool ends_with(const char *text, const char *end) {
    const size_t bytes = strlen(text), tail = strlen(end);
    return bytes >= tail && strcmp(text + bytes - tail, end) == 0;
}

/* Causal masks, which old files hold as tensors. */
static bool is_mask(const char *name) {
    return strncmp(name, "h.", 2) == 0 && (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"));
}

static bool is_tied_head(const hf_reader *reader, const char *name) {
    return reader->tied && strcmp(name, head_name) == 0;
}

typedef tacit_status entry_visitor(hf_reader *reader, const taciti_safe_file *file, const taciti_safe_entry *entry);

static tacit_status visit_files(hf_reader *reader, entry_visitor *visit) {
    for (size_t f = 0; f < reader->files.count; f++) {
        char path[TACITI_FORMATS_PATH_BYTES];
        taciti_safe_file file;
        tacit_status status = TACIT_OK;
        TACITI_TRY(taciti_path_join(path, sizeof path, reader->folder, reader->files.names[f]));
        TACITI_TRY(taciti_safe_open(path, &file));
        for (size_t i = 0; i < file.count && status == TACIT_OK; i++) status = visit(reader, &file, &file.entries[i]);
        taciti_safe_close(&file);
        TACITI_TRY(status);
    }
    return TACIT_OK;
}

static tacit_status check_shape(const taciti_safe_file *file, const taciti_safe_entry *entry,
                                const taciti_tensor *tensor) {
    if (entry->dims == tensor->dims && memcmp(entry->shape, tensor->shape, sizeof entry->shape) == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "%s: tensor %s is %zu x %zu (%d dimensions), config.json needs %zu x %zu (%d)",
                       file->view.path, entry->name, entry->shape[0], entry->shape[1], entry->dims, tensor->shape[0],
                       tensor->shape[1], tensor->dims);
}

static tacit_status check_entry(hf_reader *reader, const taciti_safe_file *file, const taciti_safe_entry *entry) {
    const char *name = bare_name(entry->name);
    if (is_mask(name)) return TACIT_OK;
    const bool head = is_tied_head(reader, name);
    const size_t t = taciti_layout_find(reader->layout, head ? wte_name : name);
    if (t == reader->layout->tensor_count)
        return taciti_fail(TACIT_E_DATA, "%s: tensor %s does not belong to the model in config.json", file->view.path,
                           entry->name);
    TACITI_TRY(check_shape(file, entry, &reader->layout->tensors[t]));
    if (head) return TACIT_OK;
    if (reader->seen[t]) return taciti_fail(TACIT_E_DATA, "%s: tensor %s comes twice", file->view.path, entry->name);
    reader->seen[t] = 1;
    return TACIT_OK;
}

static tacit_status read_entry(hf_reader *reader, const taciti_safe_file *file, const taciti_safe_entry *entry) {
    const char *name = bare_name(entry->name);
    if (is_mask(name) || is_tied_head(reader, name)) return TACIT_OK;
    const taciti_tensor *tensor = NULL;
    TACITI_TRY(taciti_formats_tensor(reader->layout, name, &tensor));
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

static tacit_status check_all_seen(const hf_reader *reader) {
    for (size_t t = 0; t < reader->layout->tensor_count; t++)
        if (!reader->seen[t])
            return taciti_fail(TACIT_E_DATA, "%s: tensor %s is missing", reader->folder,
                               reader->layout->tensors[t].name);
    return TACIT_OK;
}

static tacit_status read_all(hf_reader *reader) {
    TACITI_TRY(list_files(reader->folder, &reader->files));
    TACITI_TRY(visit_files(reader, check_entry));
    TACITI_TRY(check_all_seen(reader));
    TACITI_TRY(visit_files(reader, read_entry));
    return visit_files(reader, compare_head);
}

static tacit_status check_config(const char *folder, const taciti_model_options *options) {
    char path[TACITI_FORMATS_PATH_BYTES];
    taciti_model_options file;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, "config.json"));
    TACITI_TRY(taciti_hf_describe(path, &file));
    return taciti_run_match(path, &file, options);
}

tacit_status taciti_hf_read(const char *folder, const taciti_model_options *options, const taciti_layout *layout,
                            float *flat) {
    hf_reader reader = {.folder = folder, .tied = options->tied, .layout = layout, .flat = flat};
    TACITI_TRY(check_config(folder, options));
    reader.seen = taciti_calloc(layout->tensor_count, 1);
    const tacit_status status = reader.seen == NULL ? TACIT_E_MEMORY : read_all(&reader);
    file_list_destroy(&reader.files);
    taciti_free(reader.seen);
    return status;
}
