/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/run.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "ckpt/ckpt.h"
#include "ckpt/formats.h"

/* ---- the model in the description of a checkpoint -----------------------------------------------------------------
 */

json_t *taciti_run_describe_model(const taciti_model_options *model) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "layers", (json_int_t)model->layers, "heads",
                     (json_int_t)model->heads, "channels", (json_int_t)model->channels, "vocabulary",
                     (json_int_t)model->vocabulary, "context", (json_int_t)model->context, "tied", (int)model->tied,
                     "dropout", model->dropout);
}

#define SIZE(key)                                                                                                      \
    { #key, true, taciti_strict_integer, offsetof(taciti_model_options, key), 1, 0x1p63, "an integer above 0", NULL }
static const taciti_strict_field MODEL_FIELDS[] = {
    SIZE(layers),
    SIZE(heads),
    SIZE(channels),
    SIZE(vocabulary),
    SIZE(context),
    {"tied", true, taciti_strict_flag, offsetof(taciti_model_options, tied), 0, 0, "true or false", NULL},
    {0},
};
static const taciti_strict_field META_FIELDS[] = {
    {"model", true, taciti_strict_nested, 0, 0, 0, "an object with the sizes of the model", MODEL_FIELDS},
    {0},
};

tacit_status taciti_run_parse_model(const char *path, const json_t *meta, taciti_model_options *out) {
    taciti_strict_reader reader = {.file = path, .status = TACIT_E_DATA, .open = true};
    taciti_model_options options = {.dropout = 0, .dtype = TACITI_DTYPE_F32};
    if (json_object_get(meta, "model") == NULL)
        return taciti_fail(
            TACIT_E_DATA,
            "%s: is no checkpoint of a GPT: a program of the C interface has saved its own network, and "
            "loads it with tacit_job_load(); any reader of safetensors finds the tensors model.NAME there",
            path);
    TACITI_TRY(taciti_strict_object(&reader, meta, META_FIELDS, "an object", &options));
    TACITI_TRY(taciti_formats_resolve(path, &options));
    *out = options;
    return TACIT_OK;
}

tacit_status taciti_run_match(const char *path, const taciti_model_options *found, const taciti_model_options *wanted) {
    for (size_t i = 0; i < TACITI_MODEL_SIZES; i++) {
        const char *key = NULL;
        const int64_t there = taciti_model_size(found, i, &key), here = taciti_model_size(wanted, i, &key);
        if (there != here)
            return taciti_fail(TACIT_E_CONFIG, "%s: was made with --model.%s %lld, the run is configured with %lld",
                               path, key, (long long)there, (long long)here);
    }
    if (found->tied == wanted->tied) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s: was made with --model.tied %s, the run is configured with %s", path,
                       found->tied ? "true" : "false", wanted->tied ? "true" : "false");
}

/* ---- the tokenizer that lies beside ------------------------------------------------------------------------------ */

/* Path of `name` in `folder` when that file exists and a configuration value can hold it; else "". */
static void find_file(const char *folder, const char *name, taciti_text *out) {
    const int length = snprintf(out->text, sizeof out->text, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof out->text || access(out->text, R_OK) != 0) out->text[0] = 0;
}

/* A folder may have been moved since its configuration was written: files beside the weights are found wherever they
 * are now. A tokenizer that the configuration names goes first. */
static void note_tokenizer(const char *folder, json_t *meta) {
    taciti_text vocab, merges;
    json_t *config = json_object_get(meta, "config");
    const char *named = json_string_value(json_object_get(config, "data.vocab"));
    find_file(folder, "vocab.json", &vocab);
    find_file(folder, "merges.txt", &merges);
    if (!json_is_object(config) || (named != NULL && named[0] != 0) || vocab.text[0] == 0 || merges.text[0] == 0)
        return;
    (void)json_object_set_new(config, "data.vocab", json_string(vocab.text));
}

/* ---- paths of the configuration ---------------------------------------------------------------------------------- */

/* Sets *value to the path in the folder where the run was started, if a file is there and the path has room in `limit`
 * bytes. Returns whether it has. */
static bool resolve_path(const char *directory, const json_t *path, size_t limit, json_t **value) {
    char there[TACITI_PATH_BYTES];
    const char *relative = json_string_value(path);
    if (relative == NULL || relative[0] == '\0' || relative[0] == '/') return false;
    const int length = snprintf(there, sizeof there, "%s/%s", directory, relative);
    if (length < 0 || (size_t)length >= limit || access(there, R_OK) != 0) return false;
    *value = json_string(there);
    return true;
}

/* Relative paths are those of the folder where the run was started, wherever this program is now. A file that is not
 * there may have been moved along with this program's folder. */
static void resolve_paths(json_t *meta) {
    static const char *const KEYS[] = {"data.vocab", "data.train", "data.validation"};
    json_t *config = json_object_get(meta, "config");
    const char *directory = json_string_value(json_object_get(meta, "directory"));
    for (size_t i = 0; directory != NULL && i < sizeof KEYS / sizeof *KEYS; i++) {
        json_t *value = json_object_get(config, KEYS[i]), *found = NULL;
        if (resolve_path(directory, value, sizeof(taciti_text), &found))
            (void)json_object_set_new(config, KEYS[i], found);
        for (size_t f = 0; f < json_array_size(value); f++)
            if (resolve_path(directory, json_array_get(value, f), TACITI_PATH_BYTES, &found))
                (void)json_array_set_new(value, f, found);
    }
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* Takes the text. */
static tacit_status parse_meta(const char *root, char *text, taciti_run_info *out) {
    const taciti_strict_reader reader = {.file = out->path, .status = TACIT_E_DATA};
    const tacit_status status = taciti_strict_parse(&reader, text, strlen(text), &out->meta);
    taciti_free(text);
    TACITI_TRY(status);
    resolve_paths(out->meta);
    note_tokenizer(root, out->meta);
    return taciti_run_parse_model(out->path, out->meta, &out->model);
}

/* The newest checkpoint below `folder`. */
static tacit_status open_newest(const char *root, const char *folder, taciti_run_info *out) {
    char *meta = NULL;
    const tacit_status status = taciti_ckpt_find(NULL, folder, out->path, sizeof out->path, &out->step, &meta);
    if (status == TACIT_E_DATA && out->step < 0)
        return taciti_fail(TACIT_E_DATA, "%s: holds no checkpoint yet", folder);
    TACITI_TRY(status);
    return parse_meta(root, meta, out);
}

/* run/ckpt/step_00000100 lies two folders below its run. */
static tacit_status open_step(const char *path, taciti_run_info *out) {
    char root[TACITI_PATH_BYTES], *meta = NULL;
    TACITI_TRY(taciti_path_join(root, sizeof root, path, "../.."));
    TACITI_TRY(taciti_path_copy(out->path, sizeof out->path, path));
    TACITI_TRY(taciti_ckpt_check(path, &out->step, &meta));
    return parse_meta(root, meta, out);
}

static tacit_status open_foreign(const char *path, bool is_folder, taciti_run_info *out) {
    taciti_weights_format format;
    TACITI_TRY(taciti_weights_describe(path, &format, &out->model));
    TACITI_TRY(taciti_path_copy(out->path, sizeof out->path, path));
    out->step = -1;
    out->meta = json_pack("{s:{}}", "config");
    if (is_folder) note_tokenizer(path, out->meta);
    return out->meta == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

static tacit_status open_any(const char *path, taciti_run_info *out) {
    char folder[TACITI_PATH_BYTES];
    struct stat info;
    if (stat(path, &info) != 0) return taciti_file_refuse(path);
    if (!S_ISDIR(info.st_mode)) return open_foreign(path, false, out);
    if (taciti_file_exists_in(path, "manifest.json")) return open_step(path, out);
    TACITI_TRY(taciti_path_join(folder, sizeof folder, path, "ckpt"));
    if (taciti_file_exists_in(path, "ckpt")) return open_newest(path, folder, out);
    if (taciti_file_exists_in(path, "config.json")) return open_foreign(path, true, out);
    return taciti_fail(TACIT_E_DATA,
                       "%s: is neither a run folder (no ckpt/), a checkpoint (no manifest.json) nor a model of Hugging "
                       "Face (no config.json)",
                       path);
}

tacit_status taciti_run_open(const char *path, taciti_run_info *out) {
    taciti_run_info info = {.step = -1};
    const tacit_status status = open_any(path, &info);
    if (status == TACIT_OK)
        *out = info;
    else
        taciti_run_close(&info);
    return status;
}

void taciti_run_close(taciti_run_info *info) {
    json_decref(info->meta);
    info->meta = NULL;
}

tacit_status taciti_run_weights(const taciti_run_info *info, const taciti_layout *layout, float *flat) {
    if (info->step < 0) return taciti_weights_read(info->path, &info->model, layout, flat);
    const taciti_ckpt_array parameters = {.prefix = "model.", .entry = {.layout = layout, .data = flat}};
    return taciti_ckpt_load(info->path, &parameters, 1);
}
