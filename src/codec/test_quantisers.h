/* SPDX-License-Identifier: Apache-2.0
 *
 * A codec with its options and an array to encode, for the tests of quantisers.
 */
#ifndef TACITI_CODEC_TEST_QUANTISERS_H
#define TACITI_CODEC_TEST_QUANTISERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "codec/quantiser.h"
#include "kernel/kernel.h"

enum { MAX = 3000, TRIALS = 20000 };
static float g_x[MAX], g_y[MAX], g_out[MAX + 1], g_error[MAX + 1];
static _Alignas(64) unsigned char g_payload[8 * MAX], g_options[256], g_state[8 * MAX], g_next[8 * MAX];
static taciti_codec_call g_call;

static inline uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float normal(uint64_t key, size_t i) {
    const double u = taciti_rng_unit(key, 2 * i) + 0x1p-54, v = taciti_rng_unit(key, 2 * i + 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* The codec with its options, changed by one "section.key" unless that is NULL. */
static inline const taciti_codec *use(const char *name) {
    const taciti_codec *codec = taciti_codec_find(name);
    assert_non_null(codec);
    g_call = (taciti_codec_call){.key = 42, .state = g_state, .next = g_next};
    memset(g_state, 0, sizeof g_state);
    if (codec->options == NULL) return codec;
    const taciti_section section = {codec->options, g_options, NULL};
    assert_int_equal(taciti_config_defaults(&(taciti_config){&section, 1}), TACIT_OK);
    g_call.options = g_options;
    return codec;
}

static inline void set(const taciti_codec *codec, const char *key, const char *value) {
    const taciti_section section = {codec->options, g_options, NULL};
    assert_int_equal(taciti_config_set(&(taciti_config){&section, 1}, key, value, key), TACIT_OK);
}

/* Encodes x and decodes into y, and looks behind what is written. Returns the bytes of the payload. */
static inline size_t round_trip(const taciti_codec *codec, const float *x, size_t n, float *y) {
    const size_t bound = codec->bound(codec, g_call.options, n);
    size_t bytes = 0;
    memset(g_payload + bound, 0xa5, 64);
    g_out[n] = g_error[n] = 7;
    assert_int_equal(codec->encode(codec, &g_call, x, n, g_payload, g_error, &bytes), TACIT_OK);
    assert_int_equal(bytes, bound);
    for (size_t i = 0; i < 64; i++) assert_int_equal(g_payload[bound + i], 0xa5);
    assert_int_equal(codec->decode(codec, &g_call, g_payload, bytes, g_out, n, false), TACIT_OK);
    assert_true(g_out[n] == 7 && g_error[n] == 7);
    memcpy(y, g_out, n * sizeof *y);
    return bytes;
}

static inline void assert_floats(const float *got, const float *expected, size_t n) {
    for (size_t i = 0; i < n; i++) assert_int_equal(to_bits(got[i]), to_bits(expected[i]));
}

#endif
