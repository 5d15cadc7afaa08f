/* SPDX-License-Identifier: Apache-2.0
 *
 * int8, int4, e3m0, signmag2, efsign: codecs that send all elements in a value format (values.h).
 *
 * Sources: those of the formats (values.c). efsign is the compressor of EF-SignSGD (Karimireddy et al., arXiv
 * 1901.09847, algorithm 1): mean|x| sign(x), with blocks instead of the whole array.
 *
 * Properties (test_values.c, test_codec.c): |x - C(x)|^2 <= (1 - d) |x|^2 with d = mean|x|^2 / mean(x^2) per block for
 * efsign (efsign_contracts_as_its_paper_says), and an NMSE far below 1 for the others
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

enum { GROUP = TACITI_QUANTISE_GROUP, BLOCK_MAX = TACITI_QUANTISE_BLOCK_MAX };

typedef struct format_options {
    int64_t block;
    bool hadamard;
} format_options;

static taciti_values_options values_options(const void *options) {
    const format_options *o = options;
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
    .name = #codec, .options = &codec##_table, .options_size = sizeof(format_options),                                 \
    .aggregation = TACITI_CODEC_SUM, .rounds = 1, .fixed_size = true, .keyless = true, .bound = codec##_bound,         \
    .encode = codec##_encode, .decode = codec##_decode, .decode_add = codec##_decode_add

FUNCTIONS(int8, TACITI_VALUES_INT8)
TABLE(int8, "8-bit integers and a scale per block", BLOCK_OPTION("128"), HADAMARD_OPTION("false"))
extern const taciti_codec taciti_codec_int8;
const taciti_codec taciti_codec_int8 = {
    MEMBERS(int8),
    .help = "sends 8-bit integers and one scale per block",
    .source = "absmax quantisation per block, as in ZeRO++ (2306.10209), symmetric",
};

FUNCTIONS(int4, TACITI_VALUES_INT4)
TABLE(int4, "4-bit integers and a scale per block", BLOCK_OPTION("128"), HADAMARD_OPTION("true"))
extern const taciti_codec taciti_codec_int4;
const taciti_codec taciti_codec_int4 = {
    MEMBERS(int4),
    .help = "sends 4-bit integers of rotated groups, and one scale per block",
    .source = "SDP4Bit (2410.15526): 4 bits, blocks of 128, Hadamard groups of 32",
};

FUNCTIONS(e3m0, TACITI_VALUES_E3M0)
TABLE(e3m0, "4-bit powers of two and a scale per block", BLOCK_OPTION("128"))
extern const taciti_codec taciti_codec_e3m0;
const taciti_codec taciti_codec_e3m0 = {
    MEMBERS(e3m0),
    .help = "sends signs and 3-bit powers of two, and one scale per block",
    .source = "Streaming DiLoCo (2501.18512), E3M0; scale per block",
};

FUNCTIONS(signmag2, TACITI_VALUES_SIGNMAG2)
TABLE(signmag2, "sign and one bit of magnitude, two levels per block", BLOCK_OPTION("4096"))
extern const taciti_codec taciti_codec_signmag2;
const taciti_codec taciti_codec_signmag2 = {
    MEMBERS(signmag2),
    .help = "sends the sign and one bit of magnitude, and two levels per block: 2 bits",
    .source = "Lloyd (IEEE Trans. Information Theory 28(2), 1982), symmetric 4-level quantiser",
};

FUNCTIONS(efsign, TACITI_VALUES_SIGNMEAN)
TABLE(efsign, "signs and the mean magnitude of a block", BLOCK_OPTION("4096"))
extern const taciti_codec taciti_codec_efsign;
const taciti_codec taciti_codec_efsign = {
    MEMBERS(efsign),
    .help = "sends signs and the mean magnitude of a block: 1 bit; needs error feedback",
    .source = "EF-SignSGD (1901.09847), blocks instead of the whole array",
};
