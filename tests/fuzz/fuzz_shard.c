/* SPDX-License-Identifier: Apache-2.0
 *
 * Token shards and text. Byte 0 chooses the format, byte 1 the tokens of a sample; the rest is the file.
 */
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "data/shard.h"
#include "fuzz.h"

enum { TIME_MAX = 16, VOCABULARY = 1000, SAMPLES = 3 };

static void check_tokens(const int32_t *tokens, size_t count, int32_t min) {
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < min || tokens[i] >= VOCABULARY) abort();
}

static void read_samples(taciti_data *data, size_t time) {
    int32_t tokens[SAMPLES * TIME_MAX], targets[SAMPLES * TIME_MAX];
    const taciti_data_info info = taciti_data_describe(data);
    const bool fine = taciti_data_check(data, time, true) == TACIT_OK;
    const tacit_status trained = taciti_data_train(data, 7, 5, SAMPLES, time, tokens, targets);
    if (trained == TACIT_OK) {
        check_tokens(tokens, SAMPLES * time, 0);
        check_tokens(targets, SAMPLES * time, 0);
    }
    const uint64_t windows = taciti_data_validation_windows(data, time);
    if (fine != (info.train_tokens > time && windows > 0)) abort();
    for (uint64_t w = 0; w < windows && w < SAMPLES; w++)
        if (taciti_data_validation(data, w, 1, time, tokens, targets) == TACIT_OK) {
            check_tokens(tokens, time, 0);
            check_tokens(targets, time, -1);
        }
    if (taciti_data_validation(data, windows, 1, time, tokens, targets) == TACIT_OK) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (size < 2 || size > FUZZ_INPUT_MAX) return 0;
    char path[64];
    strcpy(path, fuzz_file(bytes + 2, size - 2));
    char *files[] = {path};
    const taciti_data_options options = {.train = {.items = files, .count = 1}, .split = 0.1};
    taciti_data *data = NULL;
    if (taciti_data_open(&options, &data) != TACIT_OK) return 0;
    taciti_data_limit_vocabulary(data, VOCABULARY);
    read_samples(data, 1 + bytes[1] % TIME_MAX);
    if (taciti_data_unchanged(data) != TACIT_OK) abort();
    taciti_data_close(data);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const char text[] = "The quick brown fox jumps over the lazy dog.\n";
    enum { TOKENS = 40 };
    if (i >= 8) return 0;
    out[0] = (uint8_t)(i % 4);
    out[1] = (uint8_t)(3 * i);
    if (out[0] == TACITI_DATA_TEXT) {
        memcpy(out + 2, text, sizeof text);
        return 2 + sizeof text;
    }
    size_t at = 2;
    if (out[0] != TACITI_DATA_U16) {
        taciti_shard_header(TOKENS, out + at);
        at += TACITI_SHARD_HEADER_BYTES;
    }
    for (size_t t = 0; t < TOKENS; t++) {
        out[at++] = (uint8_t)(t * 37);
        out[at++] = (uint8_t)(t % 3);
    }
    return at;
}
