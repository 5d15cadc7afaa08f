/* SPDX-License-Identifier: Apache-2.0
 *
 * Payloads as they arrive from a peer, for every codec. Byte 0 chooses the codec, bytes 1 and 2 the floats; the rest is
 * the payload. What is refused has written nothing; what is accepted has written n floats and its scratch memory.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "codec/codec.h"
#include "codec/trial.h"
#include "fuzz.h"

enum { HEAD_BYTES = 3, FLOATS_MAX = 3000, GUARD = 64 };

/* What a call needs besides the array: as a rank of one gives it before its first step. */
typedef struct workspace {
    taciti_codec_call call;
    void *options, *state, *next, *before;
    unsigned char *scratch;
    size_t scratch_bytes;
    taciti_codec_matrix matrix;
} workspace;

static void *memory(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes + (bytes == 0)) != 0) abort();
    memset(p, 0, bytes);
    return p;
}

static size_t codec_count(void) {
    size_t count = 0;
    while (taciti_codec_list()[count] != NULL) count++;
    return count;
}

/* Sums of earlier rounds are zeros. */
static void set_linear(workspace *w, const taciti_codec *codec, size_t n) {
    size_t floats = 0;
    w->matrix = (taciti_codec_matrix){.at = 0, .rows = 4, .columns = n / 4};
    w->call.matrices = &w->matrix;
    w->call.n_matrices = n >= 32;
    w->call.ranks = 1;
    for (w->call.round = 0; w->call.round < codec->rounds - 1; w->call.round++) {
        const size_t needed = codec->payload_n(&w->call, n);
        floats = needed > floats ? needed : floats;
    }
    w->before = memory(floats * sizeof(float));
    w->call.before = w->before;
}

static void prepare(workspace *w, const taciti_codec *codec, size_t n) {
    *w = (workspace){.call = {.key = 1}};
    if (taciti_codec_defaults(codec, &w->options) != TACIT_OK) abort();
    w->call.options = w->options;
    if (codec->aggregation == TACITI_CODEC_LINEAR) set_linear(w, codec, n);
    const size_t bytes = codec->linear_state_bytes != NULL ? codec->linear_state_bytes(&w->call, n) : 0;
    w->state = bytes > 0 ? memory(bytes) : NULL; /* as the exchange gives it */
    w->next = bytes > 0 ? memory(bytes) : NULL;
    w->call.state = w->state;
    w->call.next = w->next;
    w->scratch_bytes = codec->scratch_bytes != NULL ? codec->scratch_bytes(codec, w->options, n) : 0;
    w->scratch = memory(w->scratch_bytes + GUARD);
    memset(w->scratch + w->scratch_bytes, 0xa5, GUARD);
    w->call.scratch = w->scratch;
}

static void release(workspace *w) {
    free(w->options);
    free(w->state);
    free(w->next);
    free(w->before);
    free(w->scratch);
}

/* What arrays hold before a decode. */
static const float *pattern(void) {
    static float x[FLOATS_MAX + GUARD];
    for (size_t i = 0; i < FLOATS_MAX + GUARD && x[FLOATS_MAX + GUARD - 1] == 0; i++) x[i] = (float)i;
    return x;
}

static void check_guards(const workspace *w, const float *x, size_t n) {
    for (size_t i = 0; i < GUARD; i++)
        if (w->scratch[w->scratch_bytes + i] != 0xa5) abort();
    if (memcmp(x + n, pattern() + n, GUARD * sizeof *x) != 0) abort();
}

/* Returns whether the payload was accepted. */
static bool try_decode(const taciti_codec *codec, const uint8_t *payload, size_t bytes, size_t n, bool add) {
    static float x[FLOATS_MAX + GUARD];
    workspace w;
    prepare(&w, codec, n);
    memcpy(x, pattern(), (n + GUARD) * sizeof *x);
    uint8_t *copy = malloc(bytes + (bytes == 0)); /* exactly as long, so that a sanitizer sees a read beyond */
    if (copy == NULL) abort();
    memcpy(copy, payload, bytes);
    const tacit_status status = codec->decode(codec, &w.call, copy, bytes, x, n, add);
    if (status != TACIT_OK && (status != TACIT_E_DATA || memcmp(x, pattern(), n * sizeof *x) != 0)) abort();
    if (memcmp(copy, payload, bytes) != 0) abort();
    check_guards(&w, x, n);
    free(copy);
    release(&w);
    return status == TACIT_OK;
}

static void ignore(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD_BYTES || size > FUZZ_INPUT_MAX) return 0;
    taciti_log_set_sink(ignore, NULL, TACITI_LOG_ERROR);
    const taciti_codec *codec = taciti_codec_list()[data[0] % codec_count()];
    const size_t n = (data[1] + 256u * data[2]) % (FLOATS_MAX + 1), bytes = size - HEAD_BYTES;
    const bool accepted = try_decode(codec, data + HEAD_BYTES, bytes, n, false);
    if (try_decode(codec, data + HEAD_BYTES, bytes, n, true) != accepted) abort();
    /* arrays for which it was not made: what points behind their end must be refused */
    if (n > 0) (void)try_decode(codec, data + HEAD_BYTES, bytes, n - 1, true);
    (void)try_decode(codec, data + HEAD_BYTES, bytes, n - n / 8, true);
    return 0;
}

static float number(size_t kind, size_t i) {
    const float gap = i % 7 == 0 ? 30 : 1;
    return kind % 3 == 0 ? (float)i * 0.125f : kind % 3 == 1 ? (i % 11 == 0 ? -gap : 0) : gap * (i % 2 ? -0.3f : 0.1f);
}

size_t fuzz_seed(size_t i, uint8_t *out) {
    static const struct {
        size_t n;
        double factor;
    } SHAPES[] = {{60, 2}, {1, 0}, {0, 0}, {33, 4}, {300, 10}, {300, 1}, {1300, 100}, {2000, 3}, {FLOATS_MAX, 30}};
    static float x[FLOATS_MAX];
    const size_t codecs = codec_count(), shape = i / codecs;
    if (shape >= sizeof SHAPES / sizeof *SHAPES) return 0;
    const taciti_codec *codec = taciti_codec_list()[i % codecs];
    const size_t n = SHAPES[shape].n;
    workspace w;
    prepare(&w, codec, n);
    w.call.setting.factor = SHAPES[shape].factor;
    for (size_t j = 0; j < n; j++) x[j] = number(shape, j);
    const size_t bound = codec->bound(codec, w.options, n);
    size_t bytes = 0;
    uint8_t *payload = malloc(bound + 2 * sizeof x + 1); /* bound() of class LINEAR is for one round */
    if (payload == NULL || codec->encode(codec, &w.call, x, n, payload, NULL, &bytes) != TACIT_OK) abort();
    if (bytes > FUZZ_INPUT_MAX - HEAD_BYTES) bytes = FUZZ_INPUT_MAX - HEAD_BYTES;
    out[0] = (uint8_t)(i % codecs);
    out[1] = (uint8_t)n;
    out[2] = (uint8_t)(n >> 8);
    memcpy(out + HEAD_BYTES, payload, bytes);
    free(payload);
    release(&w);
    return HEAD_BYTES + bytes;
}
