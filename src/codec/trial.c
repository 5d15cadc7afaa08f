/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/trial.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "kernel/kernel.h"

enum { SLOTS = 8, COLUMNS = 1024, EIGHTHS_NARROW = 7 };

/* ---- data -------------------------------------------------------------------------------------------------------- */

/* Uniform in (0, 1]. */
static float unit_of(uint32_t bits) { return (float)((bits >> 8) + 1) * 0x1p-24f; }

/* 10^-4 to 10^-2, of a whole layer. */
static float scale_of(uint64_t seed, size_t layer) {
    return powf(10.0f, -2.0f - 2.0f * unit_of(taciti_rng_u32(taciti_rng_key(seed, 'l'), (uint32_t)layer)));
}

/* Seven elements of eight from a distribution four times as narrow as that of the others. */
void taciti_gradient_like(uint64_t seed, float *x, size_t n) {
    const uint64_t key = taciti_rng_key(seed, 'g');
    for (size_t at = 0; at < n; at += TACITI_TRIAL_LAYER) {
        const size_t end = n - at < TACITI_TRIAL_LAYER ? n : at + TACITI_TRIAL_LAYER;
        const float wide = scale_of(seed, at / TACITI_TRIAL_LAYER), narrow = wide / 4;
        for (size_t i = at; i < end; i++) {
            const uint32_t bits = taciti_rng_u32(taciti_rng_key(key, i >> 32), (uint32_t)i);
            const float magnitude = -logf(unit_of(bits)) * ((bits & 7) < EIGHTHS_NARROW ? narrow : wide) + 1e-9f * wide;
            x[i] = (bits & 8) != 0 ? magnitude : -magnitude;
        }
    }
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

tacit_status taciti_codec_defaults(const taciti_codec *codec, void **out) {
    *out = NULL;
    if (codec->options == NULL) return TACIT_OK;
    void *values = taciti_calloc(1, codec->options_size);
    if (values == NULL) return TACIT_E_MEMORY;
    const taciti_section section = {codec->options, values, NULL};
    const tacit_status status = taciti_config_defaults(&(taciti_config){&section, 1});
    if (status == TACIT_OK)
        *out = values;
    else
        taciti_free(values);
    return status;
}

static size_t pieces_of(const taciti_trial *t) { return t->n / t->piece_n; }

static float *make_array(const taciti_trial *t, int index) { return t->arrays[index].base; }

double taciti_trial_moved_bytes(const taciti_trial *t, taciti_trial_pass pass) {
    static const double FLOATS[TACITI_TRIAL_PASSES] = {3, 1, 1, 2}; /* read and written */
    return FLOATS[pass] * sizeof(float) * (double)t->n + (double)t->payload_bytes;
}

double taciti_trial_codec_bytes(const taciti_codec *codec, const void *options, size_t n) {
    double bytes = (double)codec->bound(codec, options, n);
    if (codec->scratch_bytes != NULL) bytes += (double)codec->scratch_bytes(codec, options, n);
    return bytes + (codec->rounds > 1 ? (double)n * sizeof(float) : 0);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static tacit_status reserve_bytes(size_t bytes, taciti_pages *out) {
    return bytes == 0 ? TACIT_OK : taciti_pages_create(bytes, "a trial of a codec", out);
}

/* Makes the state of a linear codec, which belongs to its matrices, as at the start of training. */
static size_t state_bytes(const taciti_trial *t) {
    const taciti_codec *c = t->codec;
    const taciti_codec_call shape = {.options = t->options,
                                     .setting = t->setting,
                                     .ranks = 1,
                                     .matrices = &t->matrix,
                                     .n_matrices = t->matrix.rows > 0 ? 1 : 0};
    return c->linear_state_bytes == NULL ? 0 : c->linear_state_bytes(&shape, t->piece_n);
}

static tacit_status allocate_buffers(taciti_trial *t) {
    const taciti_codec *c = t->codec;
    const size_t slots = pieces_of(t) < SLOTS ? pieces_of(t) : SLOTS;
    const size_t state = state_bytes(t);
    t->stride = taciti_round_up(c->bound(c, t->options, t->piece_n) + TACITI_ALIGN_BYTES, TACITI_ALIGN_BYTES);
    t->state_stride = taciti_round_up(state, TACITI_ALIGN_BYTES);
    t->before_at =
        taciti_round_up(c->scratch_bytes == NULL ? 0 : c->scratch_bytes(c, t->options, t->piece_n), TACITI_ALIGN_BYTES);
    for (int a = 0; a < 3; a++) TACITI_TRY(reserve_bytes(t->n * sizeof(float), &t->arrays[a]));
    TACITI_TRY(reserve_bytes(slots * t->stride, &t->payloads));
    TACITI_TRY(reserve_bytes(t->before_at + (c->rounds > 1 ? t->stride : 0), &t->scratch));
    TACITI_TRY(reserve_bytes(2 * pieces_of(t) * t->state_stride, &t->states));
    t->bytes = taciti_calloc(slots, sizeof *t->bytes);
    return t->bytes == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

tacit_status taciti_trial_create(const taciti_codec *codec, const void *options, taciti_codec_setting setting,
                                 const float *gradient, size_t n, size_t piece_n, taciti_trial *out) {
    const size_t piece = piece_n == 0 || piece_n > n ? n : piece_n;
    *out = (taciti_trial){.codec = codec,
                          .options = options,
                          .setting = setting,
                          .n = n / piece * piece,
                          .piece_n = piece,
                          .gradient = gradient,
                          .matrix = {.rows = piece / COLUMNS, .columns = COLUMNS}};
    const tacit_status status = allocate_buffers(out);
    if (status != TACIT_OK) taciti_trial_destroy(out);
    return status;
}

void taciti_trial_destroy(taciti_trial *t) {
    for (int a = 0; a < 3; a++) taciti_pages_destroy(&t->arrays[a]);
    taciti_pages_destroy(&t->payloads);
    taciti_pages_destroy(&t->scratch);
    taciti_pages_destroy(&t->states);
    taciti_free(t->bytes);
    *t = (taciti_trial){0};
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static char *state_of(const taciti_trial *t, size_t piece, int version) {
    if (t->state_stride == 0) return NULL;
    return (char *)t->states.base + ((size_t)version * pieces_of(t) + piece) * t->state_stride;
}

static char *payload_of(const taciti_trial *t, size_t piece) {
    return (char *)t->payloads.base + piece % SLOTS * t->stride;
}

static float *before_of(const taciti_trial *t) {
    return t->codec->rounds > 1 ? (float *)(void *)((char *)t->scratch.base + t->before_at) : NULL;
}

static taciti_codec_call call_of(const taciti_trial *t, size_t piece) {
    return (taciti_codec_call){.options = t->options,
                               .setting = t->setting,
                               .key = taciti_codec_key(1, 0, TACITI_CODEC_ALL_RANKS, piece % SLOTS),
                               .state = state_of(t, piece, t->now),
                               .ranks = 1,
                               .scratch = t->before_at == 0 ? NULL : t->scratch.base,
                               .matrices = &t->matrix,
                               .n_matrices = t->matrix.rows > 0 ? 1 : 0};
}

/* The rounds before the last one only tell `before`: with one rank, its payload is the sum. */
static tacit_status encode_piece(taciti_trial *t, size_t piece, const float *x, float *error) {
    taciti_codec_call call = call_of(t, piece);
    size_t *bytes = &t->bytes[piece % SLOTS];
    const int last = t->codec->rounds - 1;
    for (call.round = 0; call.round < last; call.round++) {
        if (t->codec->payload_n(&call, t->piece_n) == 0) continue;
        TACITI_TRY(t->codec->encode(t->codec, &call, x, t->piece_n, payload_of(t, piece), NULL, bytes));
        memcpy(before_of(t), payload_of(t, piece), *bytes);
        t->payload_bytes += *bytes;
        call.before = before_of(t);
    }
    call.tally = &t->tally;
    TACITI_TRY(t->codec->encode(t->codec, &call, x, t->piece_n, payload_of(t, piece), error, bytes));
    t->payload_bytes += *bytes;
    return TACIT_OK;
}

static tacit_status decode_piece(const taciti_trial *t, size_t piece, float *x, bool add) {
    taciti_codec_call call = call_of(t, piece);
    call.round = t->codec->rounds - 1;
    call.before = before_of(t);
    return t->codec->decode(t->codec, &call, payload_of(t, piece), t->bytes[piece % SLOTS], x, t->piece_n, add);
}

/* The error of the pass before becomes v, in place; the other array receives the error of this one. */
static tacit_status run_piece(taciti_trial *t, taciti_trial_pass pass, size_t piece) {
    const size_t at = piece * t->piece_n;
    float *v = make_array(t, t->now) + at;
    switch (pass) {
    case TACITI_TRIAL_FEEDBACK:
        taciti_kernels_get()->add(v, t->gradient + at, t->piece_n);
        return encode_piece(t, piece, v, make_array(t, 1 - t->now) + at);
    case TACITI_TRIAL_ENCODE: return encode_piece(t, piece, t->gradient + at, NULL);
    case TACITI_TRIAL_DECODE:
    case TACITI_TRIAL_ADD: return decode_piece(t, piece, make_array(t, 2) + at, pass == TACITI_TRIAL_ADD);
    case TACITI_TRIAL_PASSES: break;
    }
    return TACIT_OK;
}

tacit_status taciti_trial_run(taciti_trial *t, taciti_trial_pass pass) {
    if (pass == TACITI_TRIAL_FEEDBACK || pass == TACITI_TRIAL_ENCODE) {
        t->payload_bytes = 0;
        t->tally = (taciti_codec_tally){0};
    }
    for (size_t piece = 0; piece < pieces_of(t); piece++) TACITI_TRY(run_piece(t, pass, piece));
    if (pass == TACITI_TRIAL_FEEDBACK) t->now = 1 - t->now;
    return TACIT_OK;
}
