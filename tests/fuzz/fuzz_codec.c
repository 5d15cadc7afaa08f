/* SPDX-License-Identifier: Apache-2.0
 *
 * Payloads as they arrive from a peer. Byte 0 chooses the codec, byte 1 the floats; the rest is the payload. What is
 * refused has written nothing.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "fuzz.h"

enum { FLOATS_MAX = 255 };

static bool is_untouched(const float *x, const float *before) { return memcmp(x, before, FLOATS_MAX * sizeof *x) == 0; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2 || size > FUZZ_INPUT_MAX) return 0;
    size_t codecs = 0;
    while (taciti_codec_list()[codecs] != NULL) codecs++;
    const taciti_codec *codec = taciti_codec_list()[data[0] % codecs];
    const size_t n = data[1], bytes = size - 2;
    float before[FLOATS_MAX], x[FLOATS_MAX];
    for (size_t i = 0; i < FLOATS_MAX; i++) x[i] = before[i] = (float)i;
    void *payload = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    if (payload == NULL) abort();
    memcpy(payload, data + 2, bytes);
    if (codec->decode(&(taciti_codec_call){0}, payload, bytes, x, n) != TACIT_OK && !is_untouched(x, before)) abort();
    if (memcmp(x + n, before + n, (FLOATS_MAX - n) * sizeof *x) != 0) abort();
    memcpy(x, before, sizeof x);
    if (codec->decode_add(&(taciti_codec_call){0}, payload, bytes, x, n) != TACIT_OK && !is_untouched(x, before))
        abort();
    if (memcmp(x + n, before + n, (FLOATS_MAX - n) * sizeof *x) != 0) abort();
    free(payload);
    return 0;
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    float x[FLOATS_MAX];
    if (taciti_codec_list()[i] == NULL) return 0;
    for (size_t j = 0; j < FLOATS_MAX; j++) x[j] = (float)j * 0.125f;
    out[0] = (uint8_t)i;
    out[1] = 60;
    float payload[4 * FLOATS_MAX];
    size_t bytes = 0;
    if (taciti_codec_list()[i]->encode(&(taciti_codec_call){.key = 1}, x, 60, payload, NULL, &bytes) != TACIT_OK)
        abort();
    memcpy(out + 2, payload, bytes);
    return 2 + bytes;
}
