/* SPDX-License-Identifier: Apache-2.0
 *
 * Every codec. A new one is its file and one line here: tests, options, documentation and planner iterate over it.
 * Codecs that no result recommends are in codec/reference/ and come last.
 */
#include <string.h>

#include "codec/codec.h"

/* clang-format off */
#define TACITI_CODECS(X) \
    X(f32) X(bf16) X(fp16) X(int8) X(int4) X(mixed) X(mixed4) X(mixed8) \
    X(topk) X(sketch) X(tagc) \
    X(signmag2) X(efsign) X(onebit) \
    /* for reference */ \
    X(sparseloco) X(randomk) X(dgc) X(redsync) \
    X(qsgd) X(signsgd) X(powersgd)
/* clang-format on */

#define DECLARE(name) extern const taciti_codec taciti_codec_##name;
TACITI_CODECS(DECLARE)
#undef DECLARE

#define ENTRY(name) &taciti_codec_##name,
static const taciti_codec *const CODECS[] = {TACITI_CODECS(ENTRY) NULL};
#undef ENTRY

const taciti_codec *const *taciti_codec_list(void) { return CODECS; }

const char *taciti_codec_name(size_t index) {
    const size_t count = sizeof CODECS / sizeof *CODECS - 1;
    size_t shown = 0;
    while (shown < count && !CODECS[shown]->reference) shown++;
    const size_t at = index < shown ? index : index - 1;
    return index == shown || at >= count ? NULL : CODECS[at]->name;
}

const taciti_codec *taciti_codec_find(const char *name) {
    for (const taciti_codec *const *codec = CODECS; *codec != NULL; codec++)
        if (strcmp((*codec)->name, name) == 0) return *codec;
    return NULL;
}

const char *taciti_codec_class_name(const taciti_codec *codec) {
    static const char *const NAMES[] = {
        [TACITI_CODEC_SUM] = "sum", [TACITI_CODEC_GATHER] = "gather", [TACITI_CODEC_LINEAR] = "linear"};
    return NAMES[codec->aggregation];
}

const char *taciti_codec_property(const taciti_codec *codec, size_t index, char *letter) {
    const struct {
        const char *name;
        bool has;
        char letter;
    } properties[] = {{"lossless", codec->lossless, 'l'},
                      {"fixed_size", codec->fixed_size, 'f'},
                      {"selects", codec->selects, 's'},
                      {"thresholds", codec->thresholds, 't'},
                      {"number_format", codec->number_format, 'n'},
                      {"shared_key", codec->shared_key, 'k'}};
    if (index >= sizeof properties / sizeof *properties) return NULL;
    *letter = properties[index].has ? properties[index].letter : '-';
    return properties[index].name;
}

static double bytes_of_rounds(const taciti_codec *codec, const taciti_codec_call *call, size_t n) {
    taciti_codec_call of = *call;
    size_t floats = 0;
    for (of.round = 0; of.round < codec->rounds; of.round++) floats += codec->payload_n(&of, n);
    return (double)(floats * sizeof(float));
}

double taciti_codec_expected_bytes(const taciti_codec *codec, const taciti_codec_call *call, size_t n) {
    if (n == 0) return (double)codec->bound(codec, call->options, n);
    if (codec->expected_bytes != NULL) return codec->expected_bytes(codec, call, n);
    if (codec->aggregation == TACITI_CODEC_LINEAR) return bytes_of_rounds(codec, call, n);
    return (double)codec->bound(codec, call->options, n);
}

bool taciti_codec_is_dense(const taciti_codec *codec) { return codec->number_format; }

const char *taciti_codec_dense_name(size_t index) {
    for (const taciti_codec *const *codec = CODECS; *codec != NULL; codec++)
        if (taciti_codec_is_dense(*codec) && index-- == 0) return (*codec)->name;
    return NULL;
}
