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

static size_t bound(const void *options, size_t n) {
    (void)options;
    return n * sizeof(taciti_bf16);
}

static tacit_status encode(const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,
                           size_t *bytes) {
    *bytes = bound(call->options, n);
    if (error != NULL)
        taciti_kernels_get()->bf16_encode_error(out, error, x, n);
    else
        taciti_kernels_get()->bf16_encode(out, x, n);
    return TACIT_OK;
}

static tacit_status check(size_t bytes, size_t n) {
    const size_t want = bound(NULL, n);
    if (bytes == want) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "bf16 payload of %zu bytes where %zu floats need %zu", bytes, n, want);
}

static tacit_status decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    (void)call;
    TACITI_TRY(check(bytes, n));
    taciti_kernels_get()->bf16_decode(x, payload, n);
    return TACIT_OK;
}

static tacit_status decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    (void)call;
    TACITI_TRY(check(bytes, n));
    taciti_kernels_get()->bf16_add(x, payload, n);
    return TACIT_OK;
}

extern const taciti_codec taciti_codec_bf16;
const taciti_codec taciti_codec_bf16 = {
    .name = "bf16",
    .help = "sends the upper half of every float, rounded to nearest even: half the bytes",
    .source = "bfloat16 (Intel 338302-001), denormals kept",
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .fixed_size = true,
    .number_format = true,
    .keyless = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
