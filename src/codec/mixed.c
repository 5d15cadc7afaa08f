/* SPDX-License-Identifier: Apache-2.0
 *
 * mixed4, mixed8: all elements in the number format that the factor asks for: bf16 from 2 on, int8 from 4, int4 from 8
 * (mixed4 alone), each as the codec of that name. So a controller chooses how many bits a
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
 *   numbers     taciti_values_bytes(n)       any other size
 */
#include <string.h>

#include "base/log.h"
#include "codec/codec.h"
#include "codec/values.h"

enum { HEAD = sizeof(uint32_t) };

static const taciti_value_format *const FORMATS[] = {&taciti_values_bf16, &taciti_values_int8, &taciti_values_rotated};
static const taciti_codec_rung TO_4_BITS[] = {{2, "bf16"}, {4, "int8"}, {8, "int4"}, {0, NULL}};
static const taciti_codec_rung TO_8_BITS[] = {{2, "bf16"}, {4, "int8"}, {0, NULL}};

/* Of few floats, scales are longer than what fewer bits save. */
static size_t bound(const taciti_codec *codec, const void *options, size_t n) {
    size_t max = 0;
    (void)codec;
    (void)options;
    for (size_t rung = 0; rung < sizeof FORMATS / sizeof *FORMATS; rung++) {
        const size_t bytes = taciti_values_bytes(FORMATS[rung], n);
        max = bytes > max ? bytes : max;
    }
    return HEAD + max;
}

static double expected_bytes(const taciti_codec *codec, const taciti_codec_call *call, size_t n) {
    return (double)(HEAD + taciti_values_bytes(FORMATS[taciti_codec_rung_at(codec->rungs, call->setting.factor)], n));
}

static tacit_status encode(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                           void *out, float *error, size_t *bytes) {
    const uint32_t rung = (uint32_t)taciti_codec_rung_at(codec->rungs, call->setting.factor);
    const taciti_value_format *format = FORMATS[rung];
    taciti_squares squares = {0, 0};
    memcpy(out, &rung, HEAD);
    format->encode(format, x, n, (char *)out + HEAD, error, call->tally != NULL ? &squares : NULL);
    taciti_codec_count_all(call->tally, squares.in, squares.out, n);
    *bytes = HEAD + taciti_values_bytes(format, n);
    return TACIT_OK;
}

/* The format of a payload whose size is right. */
static tacit_status parse(const taciti_codec *codec, const void *payload, size_t bytes, size_t n,
                          const taciti_value_format **format) {
    uint32_t rung, count = 0;
    while (codec->rungs[count].factor > 0) count++;
    if (bytes < HEAD) return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes", codec->name, bytes);
    memcpy(&rung, payload, HEAD);
    if (rung >= count) return taciti_fail(TACIT_E_DATA, "%s payload in format %u of %u", codec->name, rung, count);
    const size_t want = HEAD + taciti_values_bytes(*format = FORMATS[rung], n);
    if (bytes == want) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes where %zu floats in %s need %zu", codec->name, bytes, n,
                       codec->rungs[rung].name, want);
}

static tacit_status decode(const taciti_codec *codec, const taciti_codec_call *call, const void *payload, size_t bytes,
                           float *x, size_t n) {
    const taciti_value_format *format = NULL;
    (void)call;
    TACITI_TRY(parse(codec, payload, bytes, n, &format));
    format->decode(format, (const char *)payload + HEAD, x, n);
    return TACIT_OK;
}

static tacit_status decode_add(const taciti_codec *codec, const taciti_codec_call *call, const void *payload,
                               size_t bytes, float *x, size_t n) {
    const taciti_value_format *format = NULL;
    (void)call;
    TACITI_TRY(parse(codec, payload, bytes, n, &format));
    format->decode_add(format, (const char *)payload + HEAD, x, n);
    return TACIT_OK;
}

extern const taciti_codec taciti_codec_mixed4, taciti_codec_mixed8;
const taciti_codec taciti_codec_mixed4 = {
    .name = "mixed4",
    .help = "sends numbers of 16, 8 or 4 bits, as few as the factor asks for",
    .source = "ours; bits per layer and step as in L-GreCo (2210.17357)",
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .rungs = TO_4_BITS,
    .keyless = true,
    .bound = bound,
    .expected_bytes = expected_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};

const taciti_codec taciti_codec_mixed8 = {
    .name = "mixed8",
    .help = "sends numbers of 16 or 8 bits, as few as the factor asks for",
    .source = "ours; bits per layer and step as in L-GreCo (2210.17357)",
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .rungs = TO_8_BITS,
    .keyless = true,
    .bound = bound,
    .expected_bytes = expected_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
