/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16: the upper half of every float, rounded to nearest even; half the bytes for 8 bits of precision.
 *
 * Source: bfloat16 of Intel's "BFLOAT16 - Hardware Numerics Definition" (338302-001, 2018); rounding of IEEE 754-2019
 * section 4.3.1.
 *   deviation: denormals are kept (that document flushes them), because a gradient scaled down by the number of ranks
 *   must not vanish on one CPU and survive on another.
 *
 * Properties (test_codec.c): relative error at most 2^-8 for every normal x that does not overflow
 * (bf16_error_is_at_most_half_an_ulp); biased only by ties; encode(decode(y)) == y for every y that is not a signalling
 * NaN (bf16_is_a_projection); Inf and NaN stay what they are; payload 2 n bytes; class SUM; deterministic.
 *
 * Wire layout       bytes      a decoder rejects
 *   y[0] .. y[n-1]  2 n        any other size
 */
#include "base/log.h"
#include "codec/codec.h"
#include "kernel/kernel.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "payloads are little endian; this machine needs a byte swap in encode and decode"
#endif

static size_t bound(size_t n) { return n * sizeof(taciti_bf16); }

static size_t encode(const float *x, size_t n, uint64_t key, void *out) {
    (void)key;
    taciti_kernels_get()->bf16_encode(out, x, n);
    return bound(n);
}

static size_t split(const float *x, size_t n, uint64_t key, void *out, float *rest) {
    (void)key;
    taciti_kernels_get()->bf16_split(out, rest, x, n);
    return bound(n);
}

static tacit_status check(size_t bytes, size_t n) {
    if (bytes == bound(n)) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "bf16 payload of %zu bytes where %zu floats need %zu", bytes, n, bound(n));
}

static tacit_status decode(const void *payload, size_t bytes, float *x, size_t n) {
    TACITI_TRY(check(bytes, n));
    taciti_kernels_get()->bf16_decode(x, payload, n);
    return TACIT_OK;
}

static tacit_status decode_add(const void *payload, size_t bytes, float *x, size_t n) {
    TACITI_TRY(check(bytes, n));
    taciti_kernels_get()->bf16_add(x, payload, n);
    return TACIT_OK;
}

/* Read x (4 bytes), write y (2). */
static double encode_cost_s(size_t n, double bytes_per_s) { return 6.0 * (double)n / bytes_per_s; }

/* Of decode_add: read y (2), read and write x (8). */
static double decode_cost_s(size_t n, double bytes_per_s) { return 10.0 * (double)n / bytes_per_s; }

extern const taciti_codec taciti_codec_bf16;
const taciti_codec taciti_codec_bf16 = {
    .name = "bf16",
    .help = "sends the upper half of every float, rounded to nearest even: half the bytes",
    .source = "bfloat16 (Intel 338302-001), denormals kept",
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .lossless = 0,
    .identity = 0,
    .bound = bound,
    .encode = encode,
    .split = split,
    .decode = decode,
    .decode_add = decode_add,
    .encode_cost_s = encode_cost_s,
    .decode_cost_s = decode_cost_s,
};
