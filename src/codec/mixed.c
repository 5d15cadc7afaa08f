/* SPDX-License-Identifier: Apache-2.0
 *
 * mixed4, mixed8: all elements in the number format that the factor asks for: bf16 from 2 on, int8 from 4, int4 from 8
 * (mixed4 alone), each as the codec of that name with its default options. So a controller chooses how many bits a
 * gradient gets (adapt/payoff.c), bucket by bucket and step by step.
 *
 * Source: ours; the choice of bits per layer and step is that of adaptive quantisation, e.g. Markov et al., "L-GreCo",
 * arXiv 2210.17357.
 *
 * Properties (test_mixed.c, test_codec.c): the bits of the codecs bf16, int8 and int4; class SUM; deterministic; biased
 * as they are: needs error feedback.
 *
 * Wire layout   bytes                        a decoder rejects
 *   rung        4, its index                 an index that the codec does not have
 *   numbers     values.h, bytes(default, n)  any other size
 */
#include <string.h>

#include "base/log.h"
#include "codec/codec.h"
#include "codec/values.h"

enum { HEAD = sizeof(uint32_t), BLOCK = 128 };

typedef struct rung_format {
    int id;
    bool hadamard;
} rung_format;

/* The defaults of codec/formats.c. */
static const rung_format FORMATS[] = {
    {TACITI_VALUES_BF16, false}, {TACITI_VALUES_INT8, false}, {TACITI_VALUES_INT4, true}};
static const taciti_codec_rung TO_4_BITS[] = {{2, "bf16"}, {4, "int8"}, {8, "int4"}, {0, NULL}};
static const taciti_codec_rung TO_8_BITS[] = {{2, "bf16"}, {4, "int8"}, {0, NULL}};

static taciti_values_options options_of(size_t rung) {
    return (taciti_values_options){.block = BLOCK, .hadamard = FORMATS[rung].hadamard};
}

static size_t numbers_bytes(size_t rung, size_t n) {
    const taciti_values_options values = options_of(rung);
    return taciti_value_format_at(FORMATS[rung].id)->bytes(&values, n);
}

/* Of few floats, scales are longer than what fewer bits save. */
static size_t bound(const void *options, size_t n) {
    size_t bytes = 0;
    (void)options;
    for (size_t rung = 0; rung < sizeof FORMATS / sizeof *FORMATS; rung++)
        bytes = numbers_bytes(rung, n) > bytes ? numbers_bytes(rung, n) : bytes;
    return HEAD + bytes;
}

static double expected(const taciti_codec_rung *rungs, taciti_codec_setting setting, size_t n) {
    return (double)(HEAD + numbers_bytes(taciti_codec_rung_at(rungs, setting.factor), n));
}

static tacit_status encode(const taciti_codec_rung *rungs, const taciti_codec_call *call, const float *x, size_t n,
                           void *out, float *error, size_t *bytes) {
    const uint32_t rung = (uint32_t)taciti_codec_rung_at(rungs, call->setting.factor);
    const taciti_values_options values = options_of(rung);
    taciti_squares squares = {0, 0};
    memcpy(out, &rung, HEAD);
    taciti_value_format_at(FORMATS[rung].id)
        ->encode(&values, x, n, (char *)out + HEAD, error, call->tally != NULL ? &squares : NULL);
    taciti_codec_count_all(call->tally, squares.in, squares.out, n);
    *bytes = HEAD + numbers_bytes(rung, n);
    return TACIT_OK;
}

static tacit_status decode(const char *codec, const taciti_codec_rung *rungs, bool add, const void *payload,
                           size_t bytes, float *x, size_t n) {
    uint32_t rung, count = 0;
    while (rungs[count].factor > 0) count++;
    if (bytes < HEAD) return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes", codec, bytes);
    memcpy(&rung, payload, HEAD);
    if (rung >= count) return taciti_fail(TACIT_E_DATA, "%s payload in format %u of %u", codec, rung, count);
    if (bytes != HEAD + numbers_bytes(rung, n))
        return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes where %zu floats in %s need %zu", codec, bytes, n,
                           rungs[rung].name, HEAD + numbers_bytes(rung, n));
    const taciti_values_options values = options_of(rung);
    const taciti_value_format *format = taciti_value_format_at(FORMATS[rung].id);
    (add ? format->decode_add : format->decode)(&values, (const char *)payload + HEAD, x, n);
    return TACIT_OK;
}

#define CODEC(id, ladder, text)                                                                                        \
    static double id##_expected(const taciti_codec_call *call, size_t n) {                                             \
        return expected(ladder, call->setting, n);                                                                     \
    }                                                                                                                  \
    static tacit_status id##_encode(const taciti_codec_call *call, const float *x, size_t n, void *out, float *error,  \
                                    size_t *bytes) {                                                                   \
        return encode(ladder, call, x, n, out, error, bytes);                                                          \
    }                                                                                                                  \
    static tacit_status id##_decode(const taciti_codec_call *call, const void *payload, size_t bytes, float *x,        \
                                    size_t n) {                                                                        \
        (void)call;                                                                                                    \
        return decode(#id, ladder, false, payload, bytes, x, n);                                                       \
    }                                                                                                                  \
    static tacit_status id##_decode_add(const taciti_codec_call *call, const void *payload, size_t bytes, float *x,    \
                                        size_t n) {                                                                    \
        (void)call;                                                                                                    \
        return decode(#id, ladder, true, payload, bytes, x, n);                                                        \
    }                                                                                                                  \
    extern const taciti_codec taciti_codec_##id;                                                                       \
    const taciti_codec taciti_codec_##id = {.name = #id,                                                               \
                                            .help = text,                                                              \
                                            .source = "ours; bits per layer and step as in L-GreCo (2210.17357)",      \
                                            .aggregation = TACITI_CODEC_SUM,                                           \
                                            .rounds = 1,                                                               \
                                            .rungs = ladder,                                                           \
                                            .keyless = true,                                                           \
                                            .bound = bound,                                                            \
                                            .expected_bytes = id##_expected,                                           \
                                            .encode = id##_encode,                                                     \
                                            .decode = id##_decode,                                                     \
                                            .decode_add = id##_decode_add};

CODEC(mixed4, TO_4_BITS, "sends numbers of 16, 8 or 4 bits, as few as the factor asks for")
CODEC(mixed8, TO_8_BITS, "sends numbers of 16 or 8 bits, as few as the factor asks for")
