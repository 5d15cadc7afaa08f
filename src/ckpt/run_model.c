/* SPDX-License-Identifier: Apache-2.0
 *
 * The model in the description of a checkpoint.
 */
#include "base/log.h"
#include "base/strict_json.h"
#include "ckpt/formats.h"
#include "ckpt/run.h"

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
    const struct {
        const char *name;
        int64_t found, wanted;
    } pairs[] = {
        {"layers", found->layers, wanted->layers},       {"heads", found->heads, wanted->heads},
        {"channels", found->channels, wanted->channels}, {"vocabulary", found->vocabulary, wanted->vocabulary},
        {"context", found->context, wanted->context},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (pairs[i].found != pairs[i].wanted)
            return taciti_fail(TACIT_E_CONFIG, "%s: was made with --model.%s %lld, the run is configured with %lld",
                               path, pairs[i].name, (long long)pairs[i].found, (long long)pairs[i].wanted);
    if (found->tied == wanted->tied) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "%s: was made with --model.tied %s, the run is configured with %s", path,
                       found->tied ? "true" : "false", wanted->tied ? "true" : "false");
}
