/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/formats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/strict_json.h"
#include "ckpt/run.h"

tacit_status taciti_formats_tensor(const taciti_layout *layout, const char *name, const taciti_tensor **out) {
    const size_t t = taciti_layout_find(layout, name);
    if (t == layout->tensor_count) return taciti_fail(TACIT_E_INTERNAL, "the model has no tensor %s", name);
    *out = &layout->tensors[t];
    return TACIT_OK;
}

tacit_status taciti_formats_temporary(const char *path, char out[TACITI_PATH_BYTES]) {
    const int length = snprintf(out, TACITI_PATH_BYTES, "%s.tmp", path);
    if (length > 0 && length < TACITI_PATH_BYTES) return TACIT_OK;
    return taciti_fail(TACIT_E_IO, "%s: the path is too long", path);
}

tacit_status taciti_formats_publish(const char *temporary, const char *path) {
    if (rename(temporary, path) != 0)
        return taciti_fail(TACIT_E_IO, "%s: cannot be renamed to %s: %s", temporary, path, strerror(errno));
    return taciti_file_sync_parent(path);
}

tacit_status taciti_formats_refuse_existing(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s: exists already; remove it or choose another place", path);
}

tacit_status taciti_formats_refuse_pickle(const char *path) {
    return taciti_fail(TACIT_E_DATA,
                       "%s: is a pickle, which can run code and is never loaded; convert it where it comes from: "
                       "model.save_pretrained(FOLDER, safe_serialization=True)",
                       path);
}

tacit_status taciti_formats_resolve(const char *path, taciti_model_options *options) {
    if (taciti_model_resolve(options) == TACIT_OK) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "%s: describes a model that cannot be built", path);
}

/* ---- the model in the description of a checkpoint ---------------------------------------------------------------- */

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
