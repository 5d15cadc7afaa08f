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

/* ---- loss -------------------------------------------------------------------------------------------------------- */

enum { SAMPLE = 4096 };
#define PI 3.14159265358979323846

/* Box and Muller. */
static float draw_normal(uint64_t key, size_t i) {
    const double radius = sqrt(-2 * log(1 - taciti_rng_unit(key, 2 * i)));
    return (float)(radius * cos(2 * PI * taciti_rng_unit(key, 2 * i + 1)));
}

/* x and error: SAMPLE floats each. */
static tacit_status encode_sample(const taciti_encoding *e, float *x, float *error, void *payload, void *scratch) {
    taciti_codec_call call = taciti_encoding_call(e, e->expected, 0, 0, 0, 0);
    size_t bytes = 0;
    call.scratch = scratch;
    for (size_t i = 0; i < SAMPLE; i++) x[i] = draw_normal(taciti_rng_key(e->seed, 'l'), i);
    return e->codec->encode(e->codec, &call, x, SAMPLE, payload, error, &bytes);
}

tacit_status taciti_encoding_loss(const taciti_encoding *e, double *out) {
    float *x = taciti_calloc(2 * SAMPLE, sizeof *x);
    void *payload = taciti_calloc(1, taciti_encoding_bound(e, SAMPLE)),
         *scratch = taciti_calloc(1, taciti_encoding_scratch_bytes(e, SAMPLE) + 1);
    const bool complete = x != NULL && payload != NULL && scratch != NULL;
    const tacit_status status = complete ? encode_sample(e, x, x + SAMPLE, payload, scratch) : TACIT_E_MEMORY;
    double all = 0, lost = 0;
    for (size_t i = 0; i < SAMPLE && status == TACIT_OK; i++) {
        all += (double)x[i] * (double)x[i];
        lost += (double)x[SAMPLE + i] * (double)x[SAMPLE + i];
    }
    *out = all > 0 ? sqrt(lost / all) : 0;
    taciti_free(x);
    taciti_free(payload);
    taciti_free(scratch);
    return status;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

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
