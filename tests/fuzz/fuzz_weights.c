/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of other programs: llm.c headers and Hugging Face's config.json, told apart by their content as in use. A
 * llm.c header is followed by as many zero bytes as it asks for, if those are few, so that reading is reached.
 */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/weights.h"
#include "fuzz.h"

enum { HEADER_BYTES = 1024, FILE_MAX = 1 << 18 };

/* Bytes after the header, from the definition of the format; 0: too many, or nonsense. */
static size_t body_bytes(const int32_t *h) {
    for (int i = 2; i <= 7; i++)
        if (h[i] < 1 || h[i] > 4096) return 0;
    const uint64_t c = (uint64_t)h[6], layer = 12 * c * c + 13 * c;
    const uint64_t n = ((uint64_t)h[7] + (uint64_t)h[2]) * c + (uint64_t)h[4] * layer + 2 * c;
    const uint64_t bytes = n * (h[1] == 3 ? 4 : 2);
    return bytes <= FILE_MAX - HEADER_BYTES ? (size_t)bytes : 0;
}

static void read_weights(const char *path, const taciti_model_options *options) {
    taciti_layout layout;
    if (options->layers * options->channels * options->channels > 1 << 18 ||
        options->vocabulary * options->channels > 1 << 18 || options->context * options->channels > 1 << 18)
        return;
    if (taciti_model_layout(options, 1 << 20, &layout) != TACIT_OK) abort();
    float *flat = taciti_calloc(layout.n, sizeof *flat);
    if (flat == NULL) abort();
    (void)taciti_weights_read(path, options, &layout, flat);
    taciti_free(flat);
    taciti_layout_destroy(&layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t bytes[FILE_MAX];
    int32_t header[HEADER_BYTES / 4];
    taciti_weights_format format;
    taciti_model_options options;
    if (size > FUZZ_INPUT_MAX) return 0;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, data, size);
    memcpy(header, bytes, sizeof header);
    const size_t body = size >= 4 && data[0] != '{' ? body_bytes(header) : 0;
    const char *path = fuzz_file(bytes, body > 0 ? HEADER_BYTES + body : size);
    if (taciti_weights_describe(path, &format, &options) != TACIT_OK) return 0;
    if (options.layers < 1 || options.channels % options.heads != 0 || options.vocabulary < 1) abort();
    if (format == TACITI_WEIGHTS_LLMC) read_weights(path, &options);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const int32_t headers[][8] = {{20240326, 3, 12, 61, 2, 2, 8, 128}, {20240326, 5, 4, 128, 1, 1, 16, 128}};
    static const char *const configs[] = {
        "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":2,\"n_embd\":8,\"n_positions\":12,\"vocab_size\":61}",
        ("{\"model_type\":\"gpt2\",\"n_layer\":12,\"n_head\":12,\"n_embd\":768,\"n_positions\":1024,\"vocab_size\":"
         "50257,"
         "\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-05,\"n_inner\":null,"
         "\"tie_word_embeddings\":false,\"scale_attn_weights\":true}"),
    };
    if (i < 2) {
        memset(out, 0, HEADER_BYTES);
        memcpy(out, headers[i], sizeof headers[i]);
        return sizeof headers[i];
    }
    if (i >= 4) return 0;
    memcpy(out, configs[i - 2], strlen(configs[i - 2]));
    return strlen(configs[i - 2]);
}
