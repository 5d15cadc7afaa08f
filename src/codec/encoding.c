/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/encoding.h"

#include <math.h>

#include "base/memory.h"

enum { EXPECTED_FACTOR = 100 }; /* where no factor is given */

bool taciti_codec_suits(const taciti_codec *codec, taciti_codec_use use) {
    switch (use) {
    case TACITI_USE_SUMS: return codec->aggregation != TACITI_CODEC_LINEAR && codec->rounds == 1;
    case TACITI_USE_FEEDBACK: return !codec->no_feedback;
    case TACITI_USE_MAGNITUDES: return !codec->votes;
    case TACITI_USE_VALUES: return codec->aggregation == TACITI_CODEC_SUM;
    case TACITI_USE_FACTORS: return codec->selects;
    case TACITI_USE_COPIES: return codec->lossless;
    case TACITI_USE_BY_OTHERS: return codec->fixed_size && codec->scratch_bytes == NULL;
    case TACITI_USE_BY_ITSELF: return !codec->reference && !codec->number_format && codec->rungs == NULL;
    }
    return false;
}

taciti_codec_setting taciti_codec_setting_of(const taciti_codec *codec, taciti_codec_setting wanted) {
    return (taciti_codec_setting){.factor = codec->selects || codec->rungs != NULL ? wanted.factor : 0,
                                  .threshold = codec->thresholds ? wanted.threshold : 0};
}

const char *taciti_codec_narrow_name(const taciti_codec *format) { return format->lossless ? NULL : format->name; }

size_t taciti_encoding_scratch_bytes(const taciti_encoding *e, size_t n) {
    if (e->codec->scratch_bytes == NULL) return 0;
    return taciti_round_up(e->codec->scratch_bytes(e->codec, e->options, n), TACITI_ALIGN_BYTES);
}

double taciti_encoding_factor(const taciti_encoding *e) {
    return !e->codec->selects ? 1 : e->expected.factor > 0 ? e->expected.factor : EXPECTED_FACTOR;
}

taciti_codec_setting taciti_encoding_result_setting(const taciti_encoding *e, int contributions) {
    taciti_codec_setting setting = e->back.factor > 0 ? e->back : e->expected;
    if (!e->codec->selects || e->codec->shared_key) return setting;
    const double filled = 1 - pow(1 - 1 / taciti_encoding_factor(e), contributions);
    const double factor = setting.factor > 0 ? setting.factor : taciti_encoding_factor(e);
    setting.factor = e->codec->sketches ? 1 / filled : fmax(factor, 1 / filled); /* sums of sketches go back exactly */
    return setting;
}

double taciti_encoding_expected_bytes(const taciti_encoding *e, taciti_codec_setting setting, size_t n, int ranks) {
    enum { COLUMNS = 1024 };
    const taciti_codec_matrix matrix = {.rows = n / COLUMNS, .columns = COLUMNS};
    const taciti_codec_call call = {
        .options = e->options, .setting = setting, .ranks = ranks, .matrices = &matrix, .n_matrices = 1};
    return taciti_codec_expected_bytes(e->codec, &call, n);
}

size_t taciti_encoding_segment(const taciti_encoding *e, size_t bytes, size_t grain, size_t max_n, size_t *buffer) {
    const taciti_codec_call call = {.options = e->options, .setting = e->expected};
    size_t n = grain, above = max_n + grain; /* the least number known not to fit */
    *buffer = bytes;
    if (e->codec->number_format) return bytes / sizeof(float) / grain * grain;
    while (above - n > grain) {
        const size_t middle = (n + above) / 2 / grain * grain;
        if (taciti_codec_expected_bytes(e->codec, &call, middle) <= (double)bytes)
            n = middle;
        else
            above = middle;
    }
    *buffer = taciti_encoding_bound(e, n);
    return n;
}
