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

static size_t bound(size_t n) { return n * sizeof(float); }

static size_t encode(const float *x, size_t n, uint64_t key, void *out) {
    (void)key;
    if (n > 0) memcpy(out, x, bound(n));
    return bound(n);
}

static size_t split(const float *x, size_t n, uint64_t key, void *out, float *rest) {
    if (n > 0) memset(rest, 0, n * sizeof *rest);
    return encode(x, n, key, out);
}

static tacit_status check(size_t bytes, size_t n) {
    if (bytes == bound(n)) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "f32 payload of %zu bytes where %zu floats need %zu", bytes, n, bound(n));
}

static tacit_status decode(const void *payload, size_t bytes, float *x, size_t n) {
    TACITI_TRY(check(bytes, n));
    if (n > 0) memcpy(x, payload, bytes);
    return TACIT_OK;
}

static tacit_status decode_add(const void *payload, size_t bytes, float *x, size_t n) {
    TACITI_TRY(check(bytes, n));
    taciti_kernels_get()->add(x, payload, n);
    return TACIT_OK;
}

/* Read x, write the payload. An exchange that sends from the array itself does not pay this. */
static double encode_cost_s(size_t n, double bytes_per_s) { return 8.0 * (double)n / bytes_per_s; }

/* Of decode_add: read the payload, read and write x. */
static double decode_cost_s(size_t n, double bytes_per_s) { return 12.0 * (double)n / bytes_per_s; }

extern const taciti_codec taciti_codec_f32;
const taciti_codec taciti_codec_f32 = {
    .name = "f32",
    .help = "sends 32-bit floats as they are",
    .source = "IEEE 754-2019 binary32",
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .lossless = 1,
    .identity = 1,
    .bound = bound,
    .encode = encode,
    .split = split,
    .decode = decode,
    .decode_add = decode_add,
    .encode_cost_s = encode_cost_s,
    .decode_cost_s = decode_cost_s,
};
