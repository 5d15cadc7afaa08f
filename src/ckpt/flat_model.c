/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/flat_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

enum { BUCKET_BYTES = 25 << 20, TOKENIZER_MAX_BYTES = 256 << 20 };

tacit_status taciti_flat_model_create(const taciti_model_options *options, taciti_flat_model *out) {
    taciti_flat_model model = {.flat = NULL};
    TACITI_TRY(taciti_model_layout(options, BUCKET_BYTES, &model.layout));
    const tacit_status status =
        taciti_pages_create(model.layout.n * sizeof(float), "the model's parameters", &model.pages);
    if (status != TACIT_OK) {
        taciti_layout_destroy(&model.layout);
        return status;
    }
    model.flat = model.pages.base;
    *out = model;
    return TACIT_OK;
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

tacit_status taciti_flat_model_copy_tokenizer(const json_t *meta, const char *folder) {
    const char *vocab = json_string_value(json_object_get(json_object_get(meta, "config"), "data.vocab"));
    if (vocab == NULL || vocab[0] == '\0') return TACIT_OK;
    char merges[TACITI_PATH_BYTES];
    const char *slash = strrchr(vocab, '/');
    const int length =
        snprintf(merges, sizeof merges, "%.*smerges.txt", slash == NULL ? 0 : (int)(slash + 1 - vocab), vocab);
    if (length >= TACITI_PATH_BYTES || access(vocab, R_OK) != 0 || access(merges, R_OK) != 0) {
        taciti_log(TACITI_LOG_WARN, "%s: the tokenizer of the run (%s and %s) cannot be read and is left out", folder,
                   vocab, merges);
        return TACIT_OK;
    }
    TACITI_TRY(copy_file(vocab, folder, "vocab.json"));
    return copy_file(merges, folder, "merges.txt");
}
