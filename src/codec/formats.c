/* SPDX-License-Identifier: Apache-2.0
 *
 * f32, bf16, fp16, int8, int4, signmag2, efsign: codecs that send all elements in a value format (values.h).
 *
 * Sources: those of the formats (values.c). f32, bf16 and fp16: IEEE 754-2019 binary32 and binary16, and bfloat16 of
 * Intel's "BFLOAT16 - Hardware Numerics Definition" (338302-001, 2018), little endian; rounding of section 4.3.1,
 * overflow of section 7.4. efsign is the compressor of EF-SignSGD (Karimireddy et al., arXiv 1901.09847, algorithm 1):
 * mean|x| sign(x), with blocks instead of the whole array.
 *   deviation: bf16 keeps denormals (that document flushes them), because a gradient scaled down by the number of ranks
 *   must not vanish on one CPU and survive on another.
 *
 * Properties of f32 (test_codec.c): lossless, every bit pattern included (lossless_codecs_keep_every_finite_bit,
 * identity_payload_is_the_array).
 *
 * Properties of bf16 (test_codec.c): relative error at most 2^-8 for every normal x that does not overflow
 * (bf16_error_is_at_most_half_an_ulp); biased only by ties; encode(decode(y)) == y for every y that is not a signalling
 * NaN (bf16_is_a_projection); Inf and NaN stay what they are.
 *
 * Properties of fp16 (test_fp16.c): error at most half an ulp for every x below 65520
 * (fp16_rounds_to_nearest_even_everywhere), that is 2^-11 |x| or 2^-25; encode(decode(y)) == y for every y that is not
 * a signalling NaN (every_half_decodes_to_its_value); Inf and NaN stay what they are; the same bytes on every
 * instruction set. Range: 6.1e-5 to 65504 with full precision, down to 6.0e-8 as denormals, below 3.0e-8 nothing.
 * A magnitude of 65520 or more becomes Inf, as the standard asks: ranks then skip the step together, which a saturated
 * value would hide from them. Where gradients leave this range, bf16 is the format to use.
 *
 * Properties of the others (test_values.c, test_codec.c): |x - C(x)|^2 <= (1 - d) |x|^2 with d = mean|x|^2 / mean(x^2)
 * per block for efsign (efsign_contracts_as_its_paper_says), and an NMSE far below 1 for the others
 * (formats_have_the_errors_of_the_specification); biased: need error feedback where steps are many and small; class
 * SUM; deterministic.
 *
 * Wire layout   bytes                      a decoder rejects
 *   numbers     taciti_values_bytes(n)     any other size
 */
#include "base/log.h"
#include "codec/codec.h"
#include "codec/values.h"
#include "kernel/kernel.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "payloads are little endian; this machine needs a byte swap in encode and decode"
#endif

static size_t bound_payload(const taciti_codec *codec, const void *options, size_t n) {
    (void)options;
    return taciti_values_bytes(codec->method, n);
}

static tacit_status encode_numbers(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                                   void *out, float *error, size_t *bytes) {
    const taciti_value_format *format = codec->method;
    taciti_squares squares = {0, 0};
    *bytes = taciti_values_bytes(format, n);
    format->encode(format, x, n, out, error, call->tally != NULL ? &squares : NULL);
    taciti_codec_count_all(call->tally, squares.in, squares.out, n);
    return TACIT_OK;
}

static tacit_status decode_numbers(const taciti_codec *codec, const taciti_codec_call *call, const void *payload,
                                   size_t bytes, float *x, size_t n, bool add) {
    const taciti_value_format *format = codec->method;
    const size_t want = taciti_values_bytes(format, n);
    (void)call;
    if (bytes != want)
        return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes where %zu floats need %zu", codec->name, bytes, n,
                           want);
    format->decode(format, payload, x, n, add);
    return TACIT_OK;
}

/* All fields of a codec but its texts, and the properties of those whose numbers stand alone. */
#define NUMBERS_IN(format)                                                                                             \
    .aggregation = TACITI_CODEC_SUM, .rounds = 1, .fixed_size = true, .keyless = true, .method = &(format),            \
    .bound = bound_payload, .encode = encode_numbers, .decode = decode_numbers

extern const taciti_codec taciti_codec_f32, taciti_codec_bf16, taciti_codec_fp16, taciti_codec_int8, taciti_codec_int4,
    taciti_codec_signmag2, taciti_codec_efsign;

const taciti_codec taciti_codec_f32 = {
    NUMBERS_IN(taciti_values_f32),
    .name = "f32",
    .help = "sends 32-bit floats as they are",
    .source = "IEEE 754-2019 binary32",
    .number_format = true,
    .lossless = true,
    .identity = true,
};

const taciti_codec taciti_codec_bf16 = {
    NUMBERS_IN(taciti_values_bf16),
    .name = "bf16",
    .help = "sends the upper half of every float, rounded to nearest even: half the bytes",
    .source = "bfloat16 (Intel 338302-001), denormals kept",
    .number_format = true,
};

const taciti_codec taciti_codec_fp16 = {
    NUMBERS_IN(taciti_values_fp16),
    .name = "fp16",
    .help = "sends every float as a 16-bit float of IEEE 754: half the bytes, 65520 and more becomes Inf",
    .source = "IEEE 754-2019 binary16",
    .number_format = true,
};

const taciti_codec taciti_codec_int8 = {
    NUMBERS_IN(taciti_values_int8),
    .name = "int8",
    .help = "sends 8-bit integers and one scale per block",
    .source = "absmax quantisation per block, as in ZeRO++ (2306.10209), symmetric",
};

const taciti_codec taciti_codec_int4 = {
    NUMBERS_IN(taciti_values_rotated),
    .name = "int4",
    .help = "sends 4-bit integers of rotated groups, and one scale per block",
    .source = "SDP4Bit (2410.15526): 4 bits, blocks of 128, Hadamard groups of 32",
};

const taciti_codec taciti_codec_signmag2 = {
    NUMBERS_IN(taciti_values_signmag2),
    .name = "signmag2",
    .help = "sends the sign and one bit of magnitude, and two levels per block: 2 bits",
    .source = "Lloyd (IEEE Trans. Information Theory 28(2), 1982), symmetric 4-level quantiser",
};

const taciti_codec taciti_codec_efsign = {
    NUMBERS_IN(taciti_values_signmean),
    .name = "efsign",
    .help = "sends signs and the mean magnitude of a block: 1 bit; needs error feedback",
    .source = "EF-SignSGD (1901.09847), blocks instead of the whole array",
};
