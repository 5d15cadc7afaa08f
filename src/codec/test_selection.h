/* SPDX-License-Identifier: Apache-2.0
 *
 * For test_selection.c, which includes <cmocka.h> first: a codec that selects, with its options and arrays, and inputs.
 */
#ifndef TACITI_CODEC_TEST_SELECTION_H
#define TACITI_CODEC_TEST_SELECTION_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "codec/selector.h"

enum { MAX = 300007, HEADER = 12 };

static inline uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint32_t magnitude(float x) { return to_bits(x) & 0x7fffffffu; }

/* ---- one codec with its options ---------------------------------------------------------------------------------- */
typedef struct subject {
    const taciti_codec *codec;
    taciti_codec_call call;
    taciti_codec_tally tally;
    size_t bytes; /* of the last payload */
} subject;

static _Alignas(64) unsigned char g_options[4096], g_scratch[16 * MAX + 4096], g_payload[4 * MAX + 4096];
static _Alignas(64) unsigned char g_state[4096], g_next[4096]; /* of the first step */
static float g_x[MAX], g_y[MAX], g_error[MAX], g_sorted[MAX];

static inline void set(const subject *s, const char *key, const char *value) {
    const taciti_section section = {.table = s->codec->options, .values = g_options};
    char full[TACITI_KEY_BYTES];
    (void)snprintf(full, sizeof full, "%s.%s", s->codec->options->section, key);
    assert_int_equal(taciti_config_set(&(taciti_config){&section, 1}, full, value, full), TACIT_OK);
}

static inline subject of(const char *name) {
    subject s = {.codec = taciti_codec_find(name)};
    assert_non_null(s.codec);
    memset(g_options, 0, sizeof g_options);
    s.call = (taciti_codec_call){.key = 7, .scratch = g_scratch, .state = g_state, .next = g_next};
    const taciti_section section = {.table = s.codec->options, .values = g_options};
    if (s.codec->options == NULL) return s;
    s.call.options = g_options;
    assert_int_equal(taciti_config_defaults(&(taciti_config){&section, 1}), TACIT_OK);
    return s;
}

/* Every codec of the registry that selects elements, but for these. */
static const char *const EXCLUDED[] = {
    "sketch", "tagc", /* their payloads are for sums: test_homomorphic*.c */
};
enum { SELECTING_MAX = 64 };
static const char *g_selecting[SELECTING_MAX];
static size_t g_selecting_count;

static inline bool is_excluded(const char *name) {
    for (size_t i = 0; i < sizeof EXCLUDED / sizeof *EXCLUDED; i++)
        if (strcmp(EXCLUDED[i], name) == 0) return true;
    return false;
}

static inline void find_selecting(void) {
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        const bool linear = (*codec)->aggregation == TACITI_CODEC_LINEAR; /* test_linear_payloads.c */
        if (!(*codec)->selects || linear || is_excluded((*codec)->name)) continue;
        assert_true(g_selecting_count < SELECTING_MAX);
        g_selecting[g_selecting_count++] = (*codec)->name;
    }
}

/* Only some have a choice of formats. */
static inline bool stores_in(const subject *s, const char *values) {
    const taciti_section section = {.table = s->codec->options, .values = g_options};
    char full[TACITI_KEY_BYTES];
    taciti_place place;
    if (s->codec->options == NULL) return false;
    (void)snprintf(full, sizeof full, "%s.values", s->codec->name);
    if (!taciti_config_find(&(taciti_config){&section, 1}, full, &place)) return false;
    set(s, "values", values);
    return true;
}

static inline subject with_floats(const char *name) {
    static const taciti_composed_options FLOATS = {.values = {"f32"}};
    subject s = of(name);
    if (!stores_in(&s, "f32") && s.codec->encode == taciti_composed_encode) s.call.options = &FLOATS;
    return s;
}

/* Encodes x[n]; the error is in g_error, what is decoded in g_y. */
static inline void code(subject *s, const float *x, size_t n, double factor, double threshold) {
    s->call.setting = (taciti_codec_setting){factor, threshold};
    s->call.tally = &s->tally;
    s->tally = (taciti_codec_tally){0};
    assert_true(s->codec->bound(s->codec, s->call.options, n) <= sizeof g_payload);
    assert_true(s->codec->scratch_bytes(s->codec, s->call.options, n) <= sizeof g_scratch);
    assert_int_equal(s->codec->encode(s->codec, &s->call, x, n, g_payload, g_error, &s->bytes), TACIT_OK);
    taciti_codec_call decoder = s->call;
    decoder.setting = (taciti_codec_setting){0};
    memset(g_scratch, 0xa5, s->codec->scratch_bytes(s->codec, s->call.options, n));
    assert_int_equal(s->codec->decode(s->codec, &decoder, g_payload, s->bytes, g_y, n, false), TACIT_OK);
}

/* Elements that arrived are x, bit for bit, and the others are in the error; `kept` elements arrived. */
static inline size_t sent_and_residual_are_the_input(const float *x, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        const bool sent = to_bits(g_error[i]) == 0 && to_bits(g_y[i]) == to_bits(x[i]);
        assert_true(sent || (to_bits(g_y[i]) == 0 && to_bits(g_error[i]) == to_bits(x[i])));
        kept += sent;
    }
    return kept;
}

typedef enum { ZEROS, SPIKE, EQUAL, SIGNS, UNIFORM, HEAVY, DENORMAL, SPARSE, COLUMNS, NONFINITE, ANY_BITS, KINDS } kind;

static inline void fill(float *x, size_t n, kind k, uint64_t key) {
    for (size_t i = 0; i < n; i++) {
        const float u = (float)(taciti_rng_unit(key, i) * 2 - 1);
        const uint32_t any = (uint32_t)taciti_rng_u64(key, i);
        switch (k) {
        case SPIKE: x[i] = i == n / 2 ? -3 : 0; break;
        case EQUAL: x[i] = 0.25f; break;
        case SIGNS: x[i] = u < 0 ? -1 : 1; break;
        case UNIFORM: x[i] = u; break;
        case HEAVY: x[i] = u / (1.0f - fabsf(u) * 0.99999f); break;
        case DENORMAL: x[i] = u * 1e-40f; break;
        case SPARSE: x[i] = any % 400 == 0 ? u : 0; break;
        case COLUMNS: x[i] = i % 512 < 16 ? u : u * 1e-3f; break;
        case NONFINITE: x[i] = any % 5000 == 0 ? NAN : any % 5000 == 1 ? -INFINITY : u; break;
        case ANY_BITS: memcpy(&x[i], &any, sizeof any); break;
        case ZEROS:
        case KINDS: x[i] = i % 2 ? -0.0f : 0.0f; break;
        }
    }
}

#endif
