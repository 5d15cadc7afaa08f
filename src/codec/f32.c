/* SPDX-License-Identifier: Apache-2.0
 *
 * f32: the array as it is; the neutral codec that every other one is measured against.
 *
 * Source: IEEE 754-2019 binary32, little endian.
 *
 * Properties (test_codec.c): lossless, every bit pattern included (lossless_codecs_keep_every_finite_bit,
 * identity_payload_is_the_array); payload 4 n bytes; class SUM; deterministic.
 *
 * Wire layout       bytes      a decoder rejects
 *   x[0] .. x[n-1]  4 n        any other size
 */
#include <string.h>

#include "base/log.h"
#include "codec/codec.h"
#include "kernel/kernel.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "payloads are little endian; this machine needs a byte swap in encode and decode"
#endif

static size_t bound(const void *options, size_t n) {
    (void)options;
    return n * sizeof(float);
}

static tacit_status encode(const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,
                           size_t *bytes) {
    *bytes = bound(call->options, n);
    if (n == 0) return TACIT_OK;
    memcpy(out, x, *bytes);
    if (error != NULL) memset(error, 0, *bytes);
    return TACIT_OK;
}

static tacit_status check(size_t bytes, size_t n) {
    const size_t want = bound(NULL, n);
    if (bytes == want) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "f32 payload of %zu bytes where %zu floats need %zu", bytes, n, want);
}

static tacit_status decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    (void)call;
    TACITI_TRY(check(bytes, n));
    if (n > 0) memcpy(x, payload, bytes);
    return TACIT_OK;
}

static tacit_status decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    (void)call;
    TACITI_TRY(check(bytes, n));
    taciti_kernels_get()->add(x, payload, n);
    return TACIT_OK;
}

extern const taciti_codec taciti_codec_f32;
const taciti_codec taciti_codec_f32 = {
    .name = "f32",
    .help = "sends 32-bit floats as they are",
    .source = "IEEE 754-2019 binary32",
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .fixed_size = true,
    .number_format = true,
    .keyless = true,
    .lossless = true,
    .identity = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
