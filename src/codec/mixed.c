/* SPDX-License-Identifier: Apache-2.0
 *
 * mixed, mixed4, mixed8: the form that the factor asks for, as the codec of that form sends it: bf16 from 2 on, int8
 * from 4, int4 from 8 (not mixed8), and of mixed the largest elements alone in int4: a fifth of them from 20 on, a
 * tenth from 32 on. So a controller chooses how many bytes a gradient gets (adapt/payoff.c), bucket by bucket and step
 * by step.
 *
 * Source: ours; the choice of bits per layer and step is that of adaptive quantisation, e.g. Markov et al., "L-GreCo",
 * arXiv 2210.17357.
 *
 * Properties (test_mixed.c, test_codec.c): the bits of the codecs that the rungs name; deterministic; biased as they
 * are: needs error feedback.
 *
 * Wire layout   bytes                  a decoder rejects
 *   rung        4, its index           an index that the codec does not have
 *   payload     of the rung's codec    what that codec rejects
 */
#include <string.h>

#include "base/log.h"
#include "codec/codec.h"
#include "codec/selector.h"

enum { HEAD = sizeof(uint32_t) };

extern const taciti_codec taciti_codec_bf16, taciti_codec_int8, taciti_codec_int4, taciti_codec_topk;

static const taciti_composed_options IN_INT4 = {.values = {"int4"}};

#define BITS_16                                                                                                        \
    { .factor = 2, .codec = &taciti_codec_bf16 }
#define BITS_8                                                                                                         \
    { .factor = 4, .codec = &taciti_codec_int8 }
#define BITS_4                                                                                                         \
    { .factor = 8, .codec = &taciti_codec_int4 }
#define LARGEST(bytes, of, percent)                                                                                    \
    { .factor = (bytes), .codec = &taciti_codec_topk, .options = &IN_INT4, .selects = (of), .loss = (percent) }

/* Losses are the largest mean of a text, rounded up (docs/results/compression.md, `auto`). */
static const taciti_codec_rung ALL[] = {BITS_16, BITS_8, BITS_4, LARGEST(20, 5, 4), LARGEST(32, 10, 5), {.factor = 0}},
                               TO_4_BITS[] = {BITS_16, BITS_8, BITS_4, {.factor = 0}},
                               TO_8_BITS[] = {BITS_16, BITS_8, {.factor = 0}};

static taciti_codec_call call_of(const taciti_codec_rung *rung, const taciti_codec_call *call) {
    taciti_codec_call inner = *call;
    inner.options = rung->options;
    inner.setting = (taciti_codec_setting){.factor = rung->selects};
    return inner;
}

/* Scales of few floats take more bytes than fewer bits save. */
static size_t bound_payload(const taciti_codec *codec, const void *options, size_t n) {
    size_t max = 0;
    (void)options;
    for (const taciti_codec_rung *rung = codec->rungs; rung->factor > 0; rung++) {
        const size_t bytes = rung->codec->bound(rung->codec, rung->options, n);
        max = bytes > max ? bytes : max;
    }
    return HEAD + max;
}

static size_t scratch_bytes(const taciti_codec *codec, const void *options, size_t n) {
    size_t max = 0;
    (void)options;
    for (const taciti_codec_rung *rung = codec->rungs; rung->factor > 0; rung++) {
        if (rung->codec->scratch_bytes == NULL) continue;
        const size_t bytes = rung->codec->scratch_bytes(rung->codec, rung->options, n);
        max = bytes > max ? bytes : max;
    }
    return max;
}

static double expected_bytes(const taciti_codec *codec, const taciti_codec_call *call, size_t n) {
    const taciti_codec_rung *rung = taciti_codec_rung_at(codec, call->setting.factor);
    const taciti_codec_call inner = call_of(rung, call);
    return HEAD + taciti_codec_expected_bytes(rung->codec, &inner, n);
}

static tacit_status encode_form(const taciti_codec *codec, const taciti_codec_call *call, const float *x, size_t n,
                                void *out, float *error, size_t *bytes) {
    const taciti_codec_rung *rung = taciti_codec_rung_at(codec, call->setting.factor);
    const taciti_codec_call inner = call_of(rung, call);
    const uint32_t index = (uint32_t)(rung - codec->rungs);
    memcpy(out, &index, HEAD);
    TACITI_TRY(rung->codec->encode(rung->codec, &inner, x, n, (char *)out + HEAD, error, bytes));
    *bytes += HEAD;
    return TACIT_OK;
}

static tacit_status decode_form(const taciti_codec *codec, const taciti_codec_call *call, const void *payload,
                                size_t bytes, float *x, size_t n, bool add) {
    uint32_t index, count = 0;
    while (codec->rungs[count].factor > 0) count++;
    if (bytes < HEAD) return taciti_fail(TACIT_E_DATA, "%s payload of %zu bytes", codec->name, bytes);
    memcpy(&index, payload, HEAD);
    if (index >= count) return taciti_fail(TACIT_E_DATA, "%s payload in form %u of %u", codec->name, index, count);
    const taciti_codec_rung *rung = &codec->rungs[index];
    const taciti_codec_call inner = call_of(rung, call);
    return rung->codec->decode(rung->codec, &inner, (const char *)payload + HEAD, bytes - HEAD, x, n, add);
}

#define MIXED(choice)                                                                                                  \
    .source = "ours; bits per layer and step as in L-GreCo (2210.17357)", .rounds = 1, .rungs = (choice),              \
    .keyless = true, .bound = bound_payload, .expected_bytes = expected_bytes, .scratch_bytes = scratch_bytes,         \
    .encode = encode_form, .decode = decode_form

extern const taciti_codec taciti_codec_mixed, taciti_codec_mixed4, taciti_codec_mixed8;
const taciti_codec taciti_codec_mixed = {
    MIXED(ALL),
    .name = "mixed",
    .help = "sends numbers of 16, 8 or 4 bits, or the largest elements in 4, as few bytes as the factor asks for",
    .aggregation = TACITI_CODEC_GATHER,
};

const taciti_codec taciti_codec_mixed4 = {
    MIXED(TO_4_BITS),
    .name = "mixed4",
    .help = "sends numbers of 16, 8 or 4 bits, as few as the factor asks for",
    .aggregation = TACITI_CODEC_SUM,
};

const taciti_codec taciti_codec_mixed8 = {
    MIXED(TO_8_BITS),
    .name = "mixed8",
    .help = "sends numbers of 16 or 8 bits, as few as the factor asks for",
    .aggregation = TACITI_CODEC_SUM,
};
