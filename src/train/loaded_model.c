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
    memset(options, 0, sizeof *options);
    options->section = (taciti_section){&taciti_data_option_table, &options->data, NULL};
    options->config = (taciti_config){&options->section, 1};
    return taciti_config_defaults(&options->config);
}

static tacit_status inherit_files(taciti_loaded_options *options, const json_t *config, const char *key) {
    const json_t *files = json_object_get(config, key);
    if (json_array_size(files) == 0) return TACIT_OK;
    char flag[64];
    (void)snprintf(flag, sizeof flag, "--%s", key);
    char **words = taciti_calloc(json_array_size(files) + 1, sizeof *words);
    if (words == NULL) return TACIT_E_MEMORY;
    int count = 0, next = 0;
    words[count++] = flag;
    for (size_t i = 0; i < json_array_size(files); i++) {
        const char *file = json_string_value(json_array_get(files, i));
        words[count] = file == NULL ? NULL : taciti_strdup(file);
        if (words[count] != NULL) count++;
    }
    const tacit_status status = taciti_config_flags(&options->config, count, words, &next);
    for (int i = 1; i < count; i++) taciti_free(words[i]);
    taciti_free(words);
    return status;
}

static tacit_status inherit_options(taciti_loaded_options *options, const json_t *meta) {
    const json_t *config = json_object_get(meta, "config");
    const bool own_data = options->data.train.count > 0 || options->data.validation.count > 0;
    options->inherited = !own_data;
    const char *vocab = json_string_value(json_object_get(config, "data.vocab"));
    tacit_status status = TACIT_OK; /* a key the user left alone gets the value the run was trained with */
    if (options->data.vocab.text[0] == '\0' && vocab != NULL && vocab[0] != '\0')
        status = taciti_config_set(&options->config, "data.vocab", vocab, "the run's configuration");
    if (status == TACIT_OK && !own_data) status = inherit_files(options, config, "data.train");
    if (status == TACIT_OK && !own_data) status = inherit_files(options, config, "data.validation");
    return status;
}

static tacit_status open_tokenizer(const taciti_loaded_options *options, taciti_loaded_model *out) {
    if (options->data.vocab.text[0] != '\0')
        TACITI_TRY(taciti_tokenizer_load(options->data.vocab.text, &out->tokenizer));
    else
        TACITI_TRY(taciti_tokenizer_byte(&out->tokenizer));
    const int32_t known = taciti_tokenizer_vocabulary(out->tokenizer);
    if (known > out->options.vocabulary)
        return taciti_fail(TACIT_E_CONFIG, "the tokenizer has %d tokens but the model only %lld; check --data.vocab",
                           known, (long long)out->options.vocabulary);
    if (out->options.vocabulary > 4 * (int64_t)known)
        return taciti_fail(TACIT_E_CONFIG,
                           "the model has %lld tokens but the tokenizer %d; name its vocab.json with --data.vocab",
                           (long long)out->options.vocabulary, known);
    return TACIT_OK;
}

static tacit_status open_model(const taciti_run_info *info, size_t batch, size_t time, taciti_loaded_model *out) {
    const size_t max = (size_t)out->options.context;
    TACITI_TRY(taciti_pool_create(taciti_usable_cores(), SPIN_US, &out->pool));
    TACITI_TRY(taciti_model_layout(&out->options, (size_t)25 << 20, &out->layout));
    TACITI_TRY(taciti_model_create(&out->options, &out->layout, out->pool, batch, time == 0 || time > max ? max : time,
                                   false, &out->model));
    TACITI_TRY(taciti_run_weights(info, &out->layout, taciti_model_parameters(out->model)));
    taciti_model_refresh(out->model);
    return TACIT_OK;
}

tacit_status taciti_loaded_model_open(const char *path, taciti_loaded_options *options, size_t batch, size_t time,
                                      taciti_loaded_model *out) {
    taciti_run_info info;
    TACITI_TRY(taciti_run_open(path, &info));
    out->options = info.model;
    out->step = info.step;
    tacit_status status = inherit_options(options, info.meta);
    if (status == TACIT_OK) status = open_tokenizer(options, out);
    if (status == TACIT_OK) status = open_model(&info, batch, time, out);
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

tacit_status taciti_loaded_data_open(const taciti_loaded_options *options, taciti_data **out) {
    if (options->inherited) {
        TACITI_TRY(check_inherited(&options->data.train, "data.train"));
        TACITI_TRY(check_inherited(&options->data.validation, "data.validation"));
    }
    return taciti_data_open(&options->data, out);
}

void taciti_loaded_model_close(taciti_loaded_model *loaded) {
    taciti_model_destroy(loaded->model);
    taciti_layout_destroy(&loaded->layout);
    taciti_pool_destroy(loaded->pool);
    taciti_tokenizer_destroy(loaded->tokenizer);
}
