/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "train/loaded_model.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "ckpt/run.h"

enum { SPIN_US = 50 };

tacit_status taciti_loaded_options_init(taciti_loaded_options *options) {
    if (taciti_data_option_table.count > TACITI_LOADED_KEYS)
        return taciti_fail(TACIT_E_INTERNAL, "section data has more than %d keys", (int)TACITI_LOADED_KEYS);
    memset(options, 0, sizeof *options);
    options->section = (taciti_section){&taciti_data_option_table, &options->data, options->given};
    options->config = (taciti_config){&options->section, 1};
    return taciti_config_defaults(&options->config);
}

/* The list is empty; the configuration owns it. */
static tacit_status inherit_files(const json_t *files, taciti_list *out) {
    if (json_array_size(files) == 0) return TACIT_OK;
    out->items = taciti_calloc(json_array_size(files), sizeof *out->items);
    if (out->items == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *file = json_string_value(json_array_get(files, i));
        char *copy = file == NULL ? NULL : taciti_strdup(file);
        if (copy != NULL) out->items[out->count++] = copy;
    }
    return TACIT_OK;
}

static tacit_status inherit_value(taciti_loaded_options *options, const json_t *config, const char *key) {
    const json_t *value = json_object_get(config, key);
    char number[32];
    const char *text = json_string_value(value);
    (void)snprintf(number, sizeof number, "%.17g", json_number_value(value));
    if (json_is_number(value)) text = number;
    return text == NULL ? TACIT_OK : taciti_config_preset(&options->config, key, text, "the run's configuration");
}

/* A key that the user left alone gets the value that the run was trained with. */
static tacit_status inherit_options(taciti_loaded_options *options, const json_t *config) {
    options->inherited = options->data.train.count == 0 && options->data.validation.count == 0;
    TACITI_TRY(inherit_value(options, config, "data.vocab"));
    if (!options->inherited) return TACIT_OK;
    TACITI_TRY(inherit_value(options, config, "data.split"));
    TACITI_TRY(inherit_files(json_object_get(config, "data.train"), &options->data.train));
    return inherit_files(json_object_get(config, "data.validation"), &options->data.validation);
}

static tacit_status open_tokenizer(const taciti_loaded_options *options, taciti_loaded_model *out) {
    if (options->data.vocab.text[0] == '\0') return taciti_tokenizer_byte(&out->tokenizer);
    return taciti_tokenizer_load(options->data.vocab.text, &out->tokenizer);
}

tacit_status taciti_loaded_tokens_check(const taciti_loaded_model *loaded, int32_t known) {
    const long long tokens = loaded->options.vocabulary;
    if (known > tokens)
        return taciti_fail(TACIT_E_CONFIG, "the tokenizer has %d tokens but the model only %lld; check --data.vocab",
                           known, tokens);
    if (tokens > 4 * (long long)known)
        return taciti_fail(TACIT_E_CONFIG,
                           "the model has %lld tokens but the tokenizer %d; name its vocab.json with --data.vocab",
                           tokens, known);
    if (known == TACITI_BYTE_TOKENS && tokens > known)
        taciti_log(TACITI_LOG_WARN,
                   "text is read as bytes, and the model has %lld tokens: if it was trained on others, name their "
                   "vocab.json with --data.vocab",
                   tokens);
    return TACIT_OK;
}

static tacit_status open_model(const taciti_run_info *info, size_t batch, taciti_loaded_model *out) {
    TACITI_TRY(taciti_pool_create(taciti_usable_cores(), SPIN_US, &out->pool));
    TACITI_TRY(taciti_model_layout(&out->options, (size_t)25 << 20, &out->layout));
    TACITI_TRY(taciti_model_create(&out->options, &out->layout, out->pool, batch, (size_t)out->options.context,
                                   TACITI_MODEL_INFERENCE, &out->model));
    TACITI_TRY(taciti_run_weights(info, &out->layout, taciti_model_parameters(out->model)));
    taciti_model_refresh(out->model);
    return TACIT_OK;
}

tacit_status taciti_loaded_model_open(const char *path, taciti_loaded_options *options, size_t batch,
                                      taciti_loaded_model *out) {
    taciti_run_info info;
    TACITI_TRY(taciti_run_open(path, &info));
    out->options = info.model;
    out->step = info.step;
    const json_t *config = json_object_get(info.meta, "config");
    const json_int_t trained = json_integer_value(json_object_get(config, "train.seq"));
    out->time = (size_t)(trained > 0 && trained < info.model.context ? trained : info.model.context);
    tacit_status status = inherit_options(options, config);
    if (status == TACIT_OK) status = open_tokenizer(options, out);
    if (status == TACIT_OK) status = open_model(&info, batch, out);
    taciti_run_close(&info);
    return status;
}

static tacit_status check_inherited(const taciti_list *files, const char *key) {
    for (size_t i = 0; i < files->count; i++)
        if (access(files->items[i], R_OK) != 0)
            return taciti_fail(TACIT_E_DATA,
                               "%s: %s, and the run was trained with it (%s); name a text with --data.validation FILE",
                               files->items[i], strerror(errno), key);
    return TACIT_OK;
}

tacit_status taciti_loaded_data_open(const taciti_loaded_options *options, const taciti_loaded_model *loaded,
                                     taciti_data **out) {
    taciti_data_options data = options->data;
    if (options->inherited) {
        TACITI_TRY(check_inherited(&data.train, "data.train"));
        TACITI_TRY(check_inherited(&data.validation, "data.validation"));
    }
    if (data.train.count == 0) data.train = data.validation; /* nothing else is read */
    TACITI_TRY(taciti_data_open(&data, out));
    const taciti_data_info info = taciti_data_describe(*out);
    const bool apart = data.validation.count > 0;
    taciti_log(TACITI_LOG_INFO, "evaluates %s%s; --data.validation FILE names another text",
               apart ? "" : "the held-out part of ", apart ? data.validation.items[0] : info.source);
    taciti_data_limit_vocabulary(*out, (int32_t)loaded->options.vocabulary);
    return info.vocabulary_known ? taciti_loaded_tokens_check(loaded, info.vocabulary) : TACIT_OK;
}

void taciti_loaded_model_close(taciti_loaded_model *loaded) {
    taciti_model_destroy(loaded->model);
    taciti_layout_destroy(&loaded->layout);
    taciti_pool_destroy(loaded->pool);
    taciti_tokenizer_destroy(loaded->tokenizer);
}
