/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/run.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/strict_json.h"
#include "ckpt/ckpt.h"
#include "ckpt/formats.h"
#include "ckpt/weights.h"

enum { BUCKET_BYTES = 25 << 20, TOKENIZER_MAX_BYTES = 256 << 20 };

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

/* ---- import and export ------------------------------------------------------------------------------------------- */

tacit_status taciti_flat_model_create(const taciti_model_options *options, taciti_flat_model *out) {
    taciti_flat_model model = {.flat = NULL};
    TACITI_TRY(taciti_model_layout(options, BUCKET_BYTES, &model.layout));
    const size_t bytes = model.layout.n * sizeof(float);
    const tacit_status status = taciti_pages_create(bytes, "the model's parameters", &model.pages);
    model.flat = model.pages.base;
    if (status == TACIT_OK)
        *out = model;
    else
        taciti_layout_destroy(&model.layout);
    return status;
}

void taciti_flat_model_destroy(taciti_flat_model *model) {
    taciti_layout_destroy(&model->layout);
    taciti_pages_destroy(&model->pages);
    model->flat = NULL;
}

static tacit_status copy_file(const char *from, const char *folder, const char *name) {
    char path[TACITI_PATH_BYTES], *bytes = NULL;
    size_t count = 0;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, name));
    TACITI_TRY(taciti_file_read(from, TOKENIZER_MAX_BYTES, &bytes, &count));
    const tacit_status status = taciti_file_write(path, bytes, count);
    taciti_free(bytes);
    return status;
}

/* The files of a run's tokenizer, and what they are called in a folder. */
typedef struct tokenizer_file {
    char from[TACITI_PATH_BYTES];
    const char *name;
} tokenizer_file;

/* Returns false if the run has no tokenizer. */
static bool find_tokenizer(const json_t *meta, tokenizer_file out[2]) {
    const char *vocab = json_string_value(json_object_get(json_object_get(meta, "config"), "data.vocab"));
    if (vocab == NULL || vocab[0] == '\0') return false;
    const char *slash = strrchr(vocab, '/');
    const int folder = slash == NULL ? 0 : (int)(slash + 1 - vocab);
    out[0].name = "vocab.json", out[1].name = "merges.txt";
    (void)snprintf(out[0].from, sizeof out[0].from, "%s", vocab);
    (void)snprintf(out[1].from, sizeof out[1].from, "%.*smerges.txt", folder, vocab);
    return true;
}

static bool can_read(const tokenizer_file files[2]) {
    return access(files[0].from, R_OK) == 0 && access(files[1].from, R_OK) == 0;
}

/* A file that is there may be the same, but no other. */
static tacit_status check_copy(const tokenizer_file *file, const char *folder) {
    char path[TACITI_PATH_BYTES], *mine = NULL, *theirs = NULL;
    size_t count = 0, there = 0;
    if (!taciti_file_exists_in(folder, file->name)) return TACIT_OK;
    TACITI_TRY(taciti_path_join(path, sizeof path, folder, file->name));
    TACITI_TRY(taciti_file_read(path, TOKENIZER_MAX_BYTES, &theirs, &there));
    tacit_status status = taciti_file_read(file->from, TOKENIZER_MAX_BYTES, &mine, &count);
    if (status == TACIT_OK && (count != there || memcmp(mine, theirs, count) != 0))
        status = taciti_formats_refuse_existing(path);
    taciti_free(mine);
    taciti_free(theirs);
    return status;
}

tacit_status taciti_flat_model_check_tokenizer(const json_t *meta, const char *folder) {
    tokenizer_file files[2];
    if (!find_tokenizer(meta, files) || !can_read(files)) return TACIT_OK;
    TACITI_TRY(check_copy(&files[0], folder));
    return check_copy(&files[1], folder);
}

tacit_status taciti_flat_model_copy_tokenizer(const json_t *meta, const char *folder) {
    tokenizer_file files[2];
    if (!find_tokenizer(meta, files)) return TACIT_OK;
    if (!can_read(files)) {
        taciti_log(TACITI_LOG_WARN, "%s: the tokenizer of the run (%s and %s) cannot be read and is left out", folder,
                   files[0].from, files[1].from);
        return TACIT_OK;
    }
    TACITI_TRY(copy_file(files[0].from, folder, files[0].name));
    return copy_file(files[1].from, folder, files[1].name);
}
