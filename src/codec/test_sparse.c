/* SPDX-License-Identifier: Apache-2.0
 *
 * sparse: sends the elements whose magnitude reaches a threshold, as pairs of index and value. For tests: it depends on
 * every field of a call, so that an exchange which confuses two of them fails.
 NaN and Inf always travel.
 *
 * Properties (test_codec.c): what is selected arrives bit for bit, so the error is the array without it; payload
 * 8 + 8 k bytes for k elements; class GATHER; the decoder must have the encoder's key.
 *
 * Wire layout             bytes   a decoder rejects
 *   k                     4       more than n; a payload that has not 8 + 8 k bytes
 *   key, lower half       4       another than its own
 *   {index, value} [k]    8 k     an index that is not above the one before it, or not below n
 */
#include "codec/test_sparse.h"

#include <math.h>
#include <string.h>

#include "base/log.h"

typedef struct header {
    uint32_t count, key;
} header;

typedef struct pair {
    uint32_t index;
    float value;
} pair;

static const taciti_option OPTIONS[] = {{.key = "threshold",
                                         .type = TACITI_OPTION_REAL,
                                         .offset = offsetof(test_sparse_options, threshold),
                                         .fallback = "0.5",
                                         .max = 1e38,
                                         .help = "magnitude from which on an element is sent"}};

static const taciti_option_table TABLE = TACITI_OPTION_TABLE("sparse", "a codec for tests", OPTIONS);

static size_t payload_bytes(size_t count) { return sizeof(header) + count * sizeof(pair); }

static size_t bound(const taciti_codec *codec, const void *options, size_t n) {
    (void)codec;
    (void)options;
    return payload_bytes(n);
}

static double threshold_of(const taciti_codec_call *call) {
    const test_sparse_options *options = call->options;
    return call->setting.threshold > 0 ? call->setting.threshold : options->threshold;
}

static tacit_status encode(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                           void *out, float *error, size_t *bytes) {
    header *head = out;
    pair *pairs = (pair *)(head + 1);
    const double threshold = threshold_of(call);
    (void)codec;
    *head = (header){.key = (uint32_t)call->key};
    for (size_t i = 0; i < n; i++) {
        const bool sent = !(fabs((double)x[i]) < threshold);
        if (sent) pairs[head->count++] = (pair){.index = (uint32_t)i, .value = x[i]};
        if (error != NULL) error[i] = sent ? 0 : x[i];
    }
    *bytes = payload_bytes(head->count);
    return TACIT_OK;
}

static tacit_status check(const taciti_codec_call *call, const void *payload, size_t bytes, size_t n) {
    const header *head = payload;
    const pair *pairs = (const pair *)(head + 1);
    if (bytes < sizeof *head || head->count > n || bytes != payload_bytes(head->count))
        return taciti_fail(TACIT_E_DATA, "sparse payload of %zu bytes for %zu floats", bytes, n);
    if (head->key != (uint32_t)call->key)
        return taciti_fail(TACIT_E_DATA, "sparse payload of key %08x where %08x is expected", (unsigned)head->key,
                           (unsigned)(uint32_t)call->key);
    for (size_t i = 0; i < head->count; i++)
        if (pairs[i].index >= n || (i > 0 && pairs[i].index <= pairs[i - 1].index))
            return taciti_fail(TACIT_E_DATA, "sparse payload whose index %zu is %u", i, (unsigned)pairs[i].index);
    return TACIT_OK;
}

static tacit_status decode(const taciti_codec *codec, const taciti_codec_call *call, const void *payload, size_t bytes,
                           float *x, size_t n, bool add) {
    (void)codec;
    TACITI_TRY(check(call, payload, bytes, n));
    const header *head = payload;
    const pair *pairs = (const pair *)(head + 1);
    if (!add && n > 0) memset(x, 0, n * sizeof *x);
    for (size_t i = 0; i < head->count; i++) {
        float *at = &x[pairs[i].index];
        *at = add ? *at + pairs[i].value : pairs[i].value;
    }
    return TACIT_OK;
}

const taciti_codec test_sparse = {
    .name = "sparse",
    .help = "sends the elements whose magnitude reaches a threshold",
    .source = "none; for tests",
    .selects = true,
    .thresholds = true,
    .options = &TABLE,
    .options_size = sizeof(test_sparse_options),
    .aggregation = TACITI_CODEC_GATHER,
    .rounds = 1,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
