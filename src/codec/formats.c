/* SPDX-License-Identifier: Apache-2.0
 *
 * f32, bf16, fp16, int8, int4, e3m0, signmag2, efsign: codecs that send all elements in a value format (values.h).
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
 * instruction set. Range: 6.1e-5 to 65504 with full precision, down to 6.0e-8 as denormals, below 3.0e-8 nothing. What
 * is 65520 or more in magnitude becomes Inf, as the standard asks: ranks then skip the step together, which a saturated
 * value would hide from them. Where gradients leave this range, bf16 is the format to use.
 *
 * Properties of the others (test_values.c, test_codec.c): |x - C(x)|^2 <= (1 - d) |x|^2 with d = mean|x|^2 / mean(x^2)
 * per block for efsign (efsign_contracts_as_its_paper_says), and an NMSE far below 1 for the others
 * (formats_have_the_errors_of_the_specification); biased: need error feedback where steps are many and small; class
 * SUM; deterministic.
 *
 * Wire layout   bytes                      a decoder rejects
 *   numbers     values.h, bytes(block, n)  any other size
 */
#include "base/log.h"
#include "codec/codec.h"
#include "codec/values.h"
#include "kernel/kernel.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "payloads are little endian; this machine needs a byte swap in encode and decode"
#endif

enum { GROUP = TACITI_QUANTISE_GROUP, BLOCK_MAX = TACITI_QUANTISE_BLOCK_MAX };

typedef struct format_options {
    int64_t block;
    bool hadamard;
} format_options;

static taciti_values_options values_options(const void *options) {
    const format_options *o = options;
    if (o == NULL) return (taciti_values_options){.block = 0};
    return (taciti_values_options){.block = ((size_t)o->block + GROUP - 1) / GROUP * GROUP, .hadamard = o->hadamard};
}

static size_t bytes_in(int id, const void *options, size_t n) {
    const taciti_values_options values = values_options(options);
    return taciti_value_format_at(id)->bytes(&values, n);
}

static tacit_status encode_in(int id, const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,
                              size_t *bytes) {
    const taciti_value_format *format = taciti_value_format_at(id);
    const taciti_values_options values = values_options(call->options);
    taciti_squares squares = {0, 0};
    *bytes = format->bytes(&values, n);
    format->encode(&values, x, n, out, error, call->tally != NULL ? &squares : NULL);
    taciti_codec_count_all(call->tally, squares.in, squares.out, n);
    return TACIT_OK;
}

static tacit_status decode_in(int id, const char *codec, bool add, const taciti_codec_call *call, const void *payload,
                              size_t bytes, float *x, size_t n) {
    const taciti_value_format *format = taciti_value_format_at(id);
    const taciti_values_options values = values_options(call->options);
    const size_t want = format->bytes(&values, n);
    if (bytes != want)
        return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes where %zu floats need %zu", codec, bytes, n, want);
    (add ? format->decode_add : format->decode)(&values, payload, x, n);
    return TACIT_OK;
}

/* The functions and the option table of one codec, and all fields of it but the texts. */
#define BLOCK_OPTION(fallback)                                                                                         \
    TACITI_OPTION("block", INT, offsetof(format_options, block), fallback, .min = GROUP, .max = BLOCK_MAX,             \
                  .unit = "elements", .help = "elements per scale, rounded up to a multiple of 32")
#define HADAMARD_OPTION(fallback)                                                                                      \
    TACITI_OPTION("hadamard", BOOL, offsetof(format_options, hadamard), fallback,                                      \
                  .help = "rotate groups of 32 elements before they are rounded, which spreads outliers")

#define FUNCTIONS(codec, id)                                                                                           \
    static size_t codec##_bound(const void *options, size_t n) { return bytes_in(id, options, n); }                    \
    static tacit_status codec##_encode(const taciti_codec_call *call, const float *x, size_t n, void *out,             \
                                       float *error, size_t *bytes) {                                                  \
        return encode_in(id, call, x, n, out, error, bytes);                                                           \
    }                                                                                                                  \
    static tacit_status codec##_decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x,     \
                                       size_t n) {                                                                     \
        return decode_in(id, #codec, false, call, payload, bytes, x, n);                                               \
    }                                                                                                                  \
    static tacit_status codec##_decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x, \
                                           size_t n) {                                                                 \
        return decode_in(id, #codec, true, call, payload, bytes, x, n);                                                \
    }

#define TABLE(codec, text, ...)                                                                                        \
    static const taciti_option codec##_options[] = {__VA_ARGS__};                                                      \
    static const taciti_option_table codec##_table = {.section = #codec,                                               \
                                                      .help = text,                                                    \
                                                      .options = codec##_options,                                      \
                                                      .count = sizeof codec##_options / sizeof *codec##_options};

#define MEMBERS(codec)                                                                                                 \
    .name = #codec, .aggregation = TACITI_CODEC_SUM, .rounds = 1, .fixed_size = true, .keyless = true,                 \
    .bound = codec##_bound, .encode = codec##_encode, .decode = codec##_decode, .decode_add = codec##_decode_add
#define OPTIONS(codec) .options = &codec##_table, .options_size = sizeof(format_options)

FUNCTIONS(f32, TACITI_VALUES_F32)
extern const taciti_codec taciti_codec_f32;
const taciti_codec taciti_codec_f32 = {
    MEMBERS(f32),
    .help = "sends 32-bit floats as they are",
    .source = "IEEE 754-2019 binary32",
    .number_format = true,
    .lossless = true,
    .identity = true,
};

FUNCTIONS(bf16, TACITI_VALUES_BF16)
extern const taciti_codec taciti_codec_bf16;
const taciti_codec taciti_codec_bf16 = {
    MEMBERS(bf16),
    .help = "sends the upper half of every float, rounded to nearest even: half the bytes",
    .source = "bfloat16 (Intel 338302-001), denormals kept",
    .number_format = true,
};

FUNCTIONS(fp16, TACITI_VALUES_FP16)
extern const taciti_codec taciti_codec_fp16;
const taciti_codec taciti_codec_fp16 = {
    MEMBERS(fp16),
    .help = "sends every float as a 16-bit float of IEEE 754: half the bytes, 65520 and more becomes Inf",
    .source = "IEEE 754-2019 binary16",
    .number_format = true,
};

FUNCTIONS(int8, TACITI_VALUES_INT8)
TABLE(int8, "8-bit integers and a scale per block", BLOCK_OPTION("128"), HADAMARD_OPTION("false"))
extern const taciti_codec taciti_codec_int8;
const taciti_codec taciti_codec_int8 = {
    MEMBERS(int8),
    OPTIONS(int8),
    .help = "sends 8-bit integers and one scale per block",
    .source = "absmax quantisation per block, as in ZeRO++ (2306.10209), symmetric",
};

FUNCTIONS(int4, TACITI_VALUES_INT4)
TABLE(int4, "4-bit integers and a scale per block", BLOCK_OPTION("128"), HADAMARD_OPTION("true"))
extern const taciti_codec taciti_codec_int4;
const taciti_codec taciti_codec_int4 = {
    MEMBERS(int4),
    OPTIONS(int4),
    .help = "sends 4-bit integers of rotated groups, and one scale per block",
    .source = "SDP4Bit (2410.15526): 4 bits, blocks of 128, Hadamard groups of 32",
};

FUNCTIONS(e3m0, TACITI_VALUES_E3M0)
TABLE(e3m0, "4-bit powers of two and a scale per block", BLOCK_OPTION("128"))
extern const taciti_codec taciti_codec_e3m0;
const taciti_codec taciti_codec_e3m0 = {
    MEMBERS(e3m0),
    OPTIONS(e3m0),
    .help = "sends signs and 3-bit powers of two, and one scale per block",
    .source = "Streaming DiLoCo (2501.18512), E3M0; scale per block",
};

FUNCTIONS(signmag2, TACITI_VALUES_SIGNMAG2)
TABLE(signmag2, "sign and one bit of magnitude, two levels per block", BLOCK_OPTION("4096"))
extern const taciti_codec taciti_codec_signmag2;
const taciti_codec taciti_codec_signmag2 = {
    MEMBERS(signmag2),
    OPTIONS(signmag2),
    .help = "sends the sign and one bit of magnitude, and two levels per block: 2 bits",
    .source = "Lloyd (IEEE Trans. Information Theory 28(2), 1982), symmetric 4-level quantiser",
};

FUNCTIONS(efsign, TACITI_VALUES_SIGNMEAN)
TABLE(efsign, "signs and the mean magnitude of a block", BLOCK_OPTION("4096"))
extern const taciti_codec taciti_codec_efsign;
const taciti_codec taciti_codec_efsign = {
    MEMBERS(efsign),
    OPTIONS(efsign),
    .help = "sends signs and the mean magnitude of a block: 1 bit; needs error feedback",
    .source = "EF-SignSGD (1901.09847), blocks instead of the whole array",
};
