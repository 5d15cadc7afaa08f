/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises the format by content and hands over to it.
 */
#define _POSIX_C_SOURCE 200809L
#include "ckpt/weights.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "ckpt/formats.h"

enum { LOOK_BYTES = 4 };

/* Where the weights are: a llm.c file, or a Hugging Face folder with its config.json. */
typedef struct weights_source {
    taciti_weights_format format;
    char folder[TACITI_PATH_BYTES], config[TACITI_PATH_BYTES];
} weights_source;

static tacit_status source_of_file(const char *path, weights_source *out) {
    const int32_t llmc_magic = TACITI_LLMC_MAGIC;
    unsigned char bytes[LOOK_BYTES] = {0};
    taciti_view view;
    TACITI_TRY(taciti_view_open(path, &view));
    const size_t count = view.bytes < LOOK_BYTES ? view.bytes : LOOK_BYTES;
    const tacit_status status = taciti_view_read(&view, 0, count, bytes);
    taciti_view_close(&view);
    TACITI_TRY(status);
    if (memcmp(bytes, &llmc_magic, sizeof llmc_magic) == 0) {
        out->format = TACITI_WEIGHTS_LLMC;
        return TACIT_OK;
    }
    if (bytes[0] == '{' && !taciti_text_ends_with(path, ".jsonl")) { /* metrics are lines of objects */
        TACITI_TRY(taciti_path_copy(out->config, sizeof out->config, path));
        return taciti_path_parent(path, out->folder);
    }
    if (memcmp(bytes, "PK\003\004", LOOK_BYTES) == 0 || (bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5))
        return taciti_formats_refuse_pickle(path); /* archives, too, can run code when they are loaded */
    return taciti_fail(
        TACIT_E_DATA,
        "%s: is no model, neither a config.json nor a llm.c file; give the folder of a run, the one that "
        "holds config.json and model.safetensors, or the .bin file",
        path);
}

static tacit_status find_source(const char *path, weights_source *out) {
    struct stat info;
    if (stat(path, &info) != 0) return taciti_file_refuse(path);
    out->format = TACITI_WEIGHTS_HF;
    if (!S_ISDIR(info.st_mode)) return source_of_file(path, out);
    TACITI_TRY(taciti_path_copy(out->folder, sizeof out->folder, path));
    return taciti_path_join(out->config, sizeof out->config, path, "config.json");
}

tacit_status taciti_weights_describe(const char *path, taciti_weights_format *format, taciti_model_options *out) {
    weights_source source;
    TACITI_TRY(find_source(path, &source));
    if (source.format == TACITI_WEIGHTS_HF)
        TACITI_TRY(taciti_hf_describe(source.config, out));
    else
        TACITI_TRY(taciti_llmc_describe(path, out));
    *format = source.format;
    return TACIT_OK;
}

tacit_status taciti_weights_read(const char *path, const taciti_model_options *options, const taciti_layout *layout,
                                 float *flat) {
    weights_source source;
    TACITI_TRY(find_source(path, &source));
    if (source.format == TACITI_WEIGHTS_HF) return taciti_hf_read(source.folder, options, layout, flat);
    return taciti_llmc_read(path, options, layout, flat);
}

tacit_status taciti_weights_write(const char *path, const taciti_weights_write_options *how,
                                  const taciti_model_options *options, const taciti_layout *layout, const float *flat) {
    if (how->format == TACITI_WEIGHTS_HF) return taciti_hf_write(path, how, options, layout, flat);
    return taciti_llmc_write(path, how, options, layout, flat);
}
