/* SPDX-License-Identifier: Apache-2.0
 *
 * fp16: every float rounded to a 16-bit float of IEEE 754; half the bytes for 11 bits of precision, in a narrow range.
 *
 * Source: IEEE 754-2019 binary16, little endian; rounding of section 4.3.1, overflow of section 7.4.
 *
 * Range: 6.1e-5 to 65504 with full precision, down to 6.0e-8 as denormals, below 3.0e-8 nothing. What is 65520 or more
 * in magnitude becomes Inf, as the standard asks: ranks then skip the step together, which a saturated value would hide
 * from them. Where gradients leave this range, bf16 is the format to use.
 *
 * Properties (test_fp16.c): error at most half an ulp for every x below 65520 (fp16_rounds_to_nearest_even_everywhere),
 * that is 2^-11 |x| or 2^-25; encode(decode(y)) == y for every y that is not a signalling NaN
 * (every_half_decodes_to_its_value); Inf and NaN stay what they are; the same bytes on every instruction set; payload
 * 2 n bytes; class SUM; deterministic.
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
    return n * sizeof(taciti_fp16);
}

static tacit_status encode(const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,
                           size_t *bytes) {
    *bytes = bound(call->options, n);
    if (error != NULL)
        taciti_kernels_get()->fp16_encode_error(out, error, x, n);
    else
        taciti_kernels_get()->fp16_encode(out, x, n);
    return TACIT_OK;
}

static tacit_status check(size_t bytes, size_t n) {
    const size_t want = bound(NULL, n);
    if (bytes == want) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "fp16 payload of %zu bytes where %zu floats need %zu", bytes, n, want);
}

static tacit_status decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    (void)call;
    TACITI_TRY(check(bytes, n));
    taciti_kernels_get()->fp16_decode(x, payload, n);
    return TACIT_OK;
}

static tacit_status decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, size_t n) {
    (void)call;
    TACITI_TRY(check(bytes, n));
    taciti_kernels_get()->fp16_add(x, payload, n);
    return TACIT_OK;
}

extern const taciti_codec taciti_codec_fp16;
const taciti_codec taciti_codec_fp16 = {
    .name = "fp16",
    .help = "sends every float as a 16-bit float of IEEE 754: half the bytes, 65520 and more becomes Inf",
    .source = "IEEE 754-2019 binary16",
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
