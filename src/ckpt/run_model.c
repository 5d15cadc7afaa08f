/* SPDX-License-Identifier: Apache-2.0
 *
 * The model in the description of a checkpoint.
 */
#include <jansson.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "ckpt/formats.h"
#include "ckpt/run.h"

char *taciti_run_describe_model(const taciti_model_options *model) {
    json_t *value = json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "layers", (json_int_t)model->layers, "heads",
                              (json_int_t)model->heads, "channels", (json_int_t)model->channels, "vocabulary",
                              (json_int_t)model->vocabulary, "context", (json_int_t)model->context, "tied",
                              (int)model->tied, "dropout", model->dropout);
    char *text = value == NULL ? NULL : json_dumps(value, JSON_COMPACT);
    char *copy = text == NULL ? NULL : taciti_strdup(text);
    free(text);
    json_decref(value);
    return copy;
}

static tacit_status read_size(const char *path, const json_t *model, const char *key, int64_t *out) {
    const json_t *value = json_object_get(model, key);
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return taciti_fail(TACIT_E_DATA, "%s: model.%s is missing from its description", path, key);
    *out = json_integer_value(value);
    return TACIT_OK;
}

static tacit_status read_model(const char *path, const json_t *meta, taciti_model_options *out) {
    taciti_model_options o = {.dropout = 0, .dtype = TACITI_DTYPE_F32};
    const json_t *model = json_object_get(meta, "model"), *tied = json_object_get(model, "tied");
    TACITI_TRY(read_size(path, model, "layers", &o.layers));
    TACITI_TRY(read_size(path, model, "heads", &o.heads));
    TACITI_TRY(read_size(path, model, "channels", &o.channels));
    TACITI_TRY(read_size(path, model, "vocabulary", &o.vocabulary));
    TACITI_TRY(read_size(path, model, "context", &o.context));
    if (!json_is_boolean(tied))
        return taciti_fail(TACIT_E_DATA, "%s: model.tied is missing from its description", path);
    o.tied = json_boolean_value(tied);
    TACITI_TRY(taciti_formats_resolve(path, &o));
    *out = o;
    return TACIT_OK;
}

tacit_status taciti_run_parse_model(const char *path, const char *meta_json, taciti_model_options *out) {
    json_t *meta = json_loads(meta_json, JSON_REJECT_DUPLICATES, NULL);
    if (meta == NULL) return taciti_fail(TACIT_E_DATA, "%s: its description is not JSON", path);
    const tacit_status status = read_model(path, meta, out);
    json_decref(meta);
    return status;
}

tacit_status taciti_run_match(const char *path, const taciti_model_options *found, const taciti_model_options *wanted) {
    const struct {
        const char *name;
        int64_t found, wanted;
    } pairs[] = {
        {"layers", found->layers, wanted->layers},       {"heads", found->heads, wanted->heads},
        {"channels", found->channels, wanted->channels}, {"vocabulary", found->vocabulary, wanted->vocabulary},
        {"context", found->context, wanted->context},    {"tied", found->tied, wanted->tied},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (pairs[i].found != pairs[i].wanted)
            return taciti_fail(TACIT_E_CONFIG, "%s: was made with --model.%s %lld, the run is configured with %lld",
                               path, pairs[i].name, (long long)pairs[i].found, (long long)pairs[i].wanted);
    return TACIT_OK;
}
