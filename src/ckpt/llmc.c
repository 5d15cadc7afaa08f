/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight files of llm.c (github.com/karpathy/llm.c, train_gpt2.py, write_model()):
 *
 *   int32 header[256]   20240326, version (3: f32, 5: bf16), maxT, V, L, NH, C, Vp, zeros
 *   tensors             in the order of `stack` below; those of the layers stacked, [L][...]
 *
 * Matrices of the layers are [out][in], the transpose of Hugging Face's Conv1D; wte is padded with zero rows to Vp, a
 * multiple of 128. The head is tied. The file ends with the last tensor.
 */
#include <stdio.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "ckpt/formats.h"
#include "ckpt/run.h"
#include "ckpt/safetensors.h"
#include "ckpt/sink.h"
#include "kernel/kernel.h"

enum {
    HEADER_INTS = 256,
    HEADER_BYTES = HEADER_INTS * 4,
    VERSION_F32 = 3,
    VERSION_BF16 = 5,
    VOCABULARY_MULTIPLE = 128
};
enum { AT_MAGIC, AT_VERSION, AT_CONTEXT, AT_VOCABULARY, AT_LAYERS, AT_HEADS, AT_CHANNELS, AT_PADDED };

typedef struct stack_entry {
    const char *name;
    bool layered, transposed;
} stack_entry;

static const stack_entry stack[] = {
    {"wte.weight", false, false},       {"wpe.weight", false, false},       {"ln_1.weight", true, false},
    {"ln_1.bias", true, false},         {"attn.c_attn.weight", true, true}, {"attn.c_attn.bias", true, false},
    {"attn.c_proj.weight", true, true}, {"attn.c_proj.bias", true, false},  {"ln_2.weight", true, false},
    {"ln_2.bias", true, false},         {"mlp.c_fc.weight", true, true},    {"mlp.c_fc.bias", true, false},
    {"mlp.c_proj.weight", true, true},  {"mlp.c_proj.bias", true, false},   {"ln_f.weight", false, false},
    {"ln_f.bias", false, false},
};
enum { STACK_COUNT = sizeof stack / sizeof stack[0] };

/* out [columns][rows] = in [rows][columns], in tiles that stay in the first-level cache. */
static void transpose_matrix(float *restrict out, const float *restrict in, size_t rows, size_t columns) {
    enum { TILE = 32 };
    for (size_t r = 0; r < rows; r += TILE)
        for (size_t c = 0; c < columns; c += TILE)
            for (size_t i = r; i < rows && i < r + TILE; i++)
                for (size_t j = c; j < columns && j < c + TILE; j++) out[j * rows + i] = in[i * columns + j];
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct llmc_file {
    taciti_view view;
    taciti_model_options options;
    size_t padded;    /* rows of wte in the file */
    size_t at;        /* next byte */
    bool half;        /* bf16 */
    float *transpose; /* room for the largest matrix of a layer; borrowed */
} llmc_file;

static tacit_status parse_header(const char *path, const int32_t *header, llmc_file *out) {
    if (header[AT_MAGIC] != TACITI_LLMC_MAGIC)
        return taciti_fail(TACIT_E_DATA, "%s: magic is %d, a llm.c model begins with %d", path, (int)header[AT_MAGIC],
                           (int)TACITI_LLMC_MAGIC);
    if (header[AT_VERSION] != VERSION_F32 && header[AT_VERSION] != VERSION_BF16)
        return taciti_fail(TACIT_E_DATA, "%s: version %d is not known; 3 (f32) and 5 (bf16) are", path,
                           (int)header[AT_VERSION]);
    out->half = header[AT_VERSION] == VERSION_BF16;
    out->options = (taciti_model_options){.layers = header[AT_LAYERS],
                                          .heads = header[AT_HEADS],
                                          .channels = header[AT_CHANNELS],
                                          .vocabulary = header[AT_VOCABULARY],
                                          .context = header[AT_CONTEXT],
                                          .tied = true};
    TACITI_TRY(taciti_formats_resolve(path, &out->options));
    if (header[AT_PADDED] < header[AT_VOCABULARY])
        return taciti_fail(TACIT_E_DATA, "%s: padded vocabulary %d is below the vocabulary, %d", path,
                           (int)header[AT_PADDED], (int)header[AT_VOCABULARY]);
    out->padded = (size_t)header[AT_PADDED];
    return TACIT_OK;
}

static tacit_status read_header(const char *path, llmc_file *file) {
    int32_t header[HEADER_INTS];
    TACITI_TRY(taciti_view_read(&file->view, 0, sizeof header, header));
    TACITI_TRY(parse_header(path, header, file));
    const uint64_t c = (uint64_t)file->options.channels, layer = 12 * c * c + 13 * c;
    const uint64_t floats =
        (file->padded + (uint64_t)file->options.context) * c + (uint64_t)file->options.layers * layer + 2 * c;
    const uint64_t expected = HEADER_BYTES + floats * (file->half ? 2 : 4);
    if (expected != file->view.bytes)
        return taciti_fail(TACIT_E_DATA, "%s: its header needs %llu bytes, the file has %zu", path,
                           (unsigned long long)expected, file->view.bytes);
    file->at = HEADER_BYTES;
    return TACIT_OK;
}

static tacit_status open_file(const char *path, llmc_file *out) {
    llmc_file file = {.half = false};
    TACITI_TRY(taciti_view_open(path, &file.view));
    const tacit_status status = read_header(path, &file);
    if (status == TACIT_OK)
        *out = file;
    else
        taciti_view_close(&file.view);
    return status;
}

tacit_status taciti_llmc_describe(const char *path, taciti_model_options *out) {
    llmc_file file;
    TACITI_TRY(open_file(path, &file));
    taciti_view_close(&file.view);
    *out = file.options;
    return TACIT_OK;
}

static tacit_status read_floats(llmc_file *file, float *out, size_t n) {
    if (file->half)
        TACITI_TRY(taciti_safe_read_half(&file->view, file->at, TACITI_SAFE_BF16, out, n));
    else
        TACITI_TRY(taciti_view_read(&file->view, file->at, n * sizeof *out, out));
    file->at += n * (file->half ? sizeof(taciti_bf16) : sizeof *out);
    return TACIT_OK;
}

/* Finds the layout's tensor for one place of the stack. */
static tacit_status stack_tensor(const taciti_layout *layout, const stack_entry *entry, int64_t layer,
                                 const taciti_tensor **out) {
    char name[64];
    if (!entry->layered) return taciti_formats_tensor(layout, entry->name, out);
    (void)snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, entry->name);
    return taciti_formats_tensor(layout, name, out);
}

static tacit_status read_all(llmc_file *file, const taciti_layout *layout, float *flat) {
    const size_t skipped = (file->padded - (size_t)file->options.vocabulary) * (size_t)file->options.channels;
    for (size_t i = 0; i < STACK_COUNT; i++) {
        for (int64_t layer = 0; layer < (stack[i].layered ? file->options.layers : 1); layer++) {
            const taciti_tensor *tensor = NULL;
            TACITI_TRY(stack_tensor(layout, &stack[i], layer, &tensor));
            float *out = flat + tensor->offset;
            TACITI_TRY(read_floats(file, stack[i].transposed ? file->transpose : out, tensor->n));
            if (stack[i].transposed) transpose_matrix(out, file->transpose, tensor->shape[1], tensor->shape[0]);
        }
        if (i == 0) file->at += skipped * (file->half ? 2 : 4);
    }
    return TACIT_OK;
}

/* The largest matrix of a layer is [C][4C]. */
static tacit_status create_room(const taciti_model_options *options, taciti_pages *out) {
    const size_t c = (size_t)options->channels;
    return taciti_pages_create(4 * c * c * sizeof(float), "a transposed matrix", out);
}

tacit_status taciti_llmc_read(const char *path, const taciti_model_options *options, const taciti_layout *layout,
                              float *flat) {
    llmc_file file;
    taciti_pages room = {0};
    TACITI_TRY(open_file(path, &file));
    tacit_status status = taciti_run_match(path, &file.options, options);
    if (status == TACIT_OK) status = create_room(&file.options, &room);
    file.transpose = room.base;
    if (status == TACIT_OK) status = read_all(&file, layout, flat);
    taciti_pages_destroy(&room);
    taciti_view_close(&file.view);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct llmc_writer {
    taciti_sink sink;
    size_t padded;
    bool half;
    float *transpose;
} llmc_writer;

static tacit_status write_header(llmc_writer *writer, const taciti_model_options *options) {
    int32_t header[HEADER_INTS] = {
        [AT_MAGIC] = TACITI_LLMC_MAGIC,
        [AT_VERSION] = writer->half ? VERSION_BF16 : VERSION_F32,
        [AT_CONTEXT] = (int32_t)options->context,
        [AT_VOCABULARY] = (int32_t)options->vocabulary,
        [AT_LAYERS] = (int32_t)options->layers,
        [AT_HEADS] = (int32_t)options->heads,
        [AT_CHANNELS] = (int32_t)options->channels,
        [AT_PADDED] = (int32_t)writer->padded,
    };
    return taciti_sink_bytes(&writer->sink, header, sizeof header);
}

static tacit_status write_padding(llmc_writer *writer, size_t n) {
    static const float zeros[4096];
    const size_t max = sizeof zeros / sizeof zeros[0];
    for (size_t done = 0; done < n; done += max)
        TACITI_TRY(taciti_sink_floats(&writer->sink, zeros, n - done < max ? n - done : max, writer->half));
    return TACIT_OK;
}

static tacit_status write_all(llmc_writer *writer, const taciti_model_options *options, const taciti_layout *layout,
                              const float *flat) {
    TACITI_TRY(write_header(writer, options));
    for (size_t i = 0; i < STACK_COUNT; i++) {
        for (int64_t layer = 0; layer < (stack[i].layered ? options->layers : 1); layer++) {
            const taciti_tensor *tensor = NULL;
            TACITI_TRY(stack_tensor(layout, &stack[i], layer, &tensor));
            const float *x = flat + tensor->offset;
            if (stack[i].transposed) {
                transpose_matrix(writer->transpose, x, tensor->shape[0], tensor->shape[1]);
                x = writer->transpose;
            }
            TACITI_TRY(taciti_sink_floats(&writer->sink, x, tensor->n, writer->half));
        }
        if (i == 0)
            TACITI_TRY(
                write_padding(writer, (writer->padded - (size_t)options->vocabulary) * (size_t)options->channels));
    }
    return TACIT_OK;
}

static tacit_status write_file(const char *path, llmc_writer *writer, const taciti_model_options *options,
                               const taciti_layout *layout, const float *flat) {
    char temporary[TACITI_PATH_BYTES], digest[TACITI_DIGEST_BYTES];
    uint64_t bytes = 0;
    TACITI_TRY(taciti_formats_temporary(path, temporary));
    TACITI_TRY(taciti_sink_open(temporary, &writer->sink));
    tacit_status status = write_all(writer, options, layout, flat);
    if (status == TACIT_OK) status = taciti_sink_finish(&writer->sink, &bytes, digest);
    taciti_sink_abandon(&writer->sink);
    return status == TACIT_OK ? taciti_formats_publish(temporary, path) : status;
}

tacit_status taciti_llmc_write(const char *path, const taciti_weights_write_options *how,
                               const taciti_model_options *options, const taciti_layout *layout, const float *flat) {
    if (!options->tied)
        return taciti_fail(TACIT_E_UNSUPPORTED,
                           "%s: llm.c has no place for a head of its own (model.tied is false); "
                           "export as hf instead",
                           path);
    TACITI_TRY(taciti_formats_refuse_existing(path));
    taciti_pages room = {0};
    TACITI_TRY(create_room(options, &room));
    llmc_writer writer = {.padded = taciti_round_up((size_t)options->vocabulary, VOCABULARY_MULTIPLE),
                          .half = how->dtype == TACITI_DTYPE_BF16,
                          .transpose = room.base};
    const tacit_status status = write_file(path, &writer, options, layout, flat);
    taciti_pages_destroy(&room);
    return status;
}
