/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs that estimate a threshold: how many elements they send of distributions that are known, which ones, and the
 * steps of their searches. The duties of every codec are in test_codec.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "codec/largest.h"

enum { MAX = 100000 };
static float g_x[MAX], g_y[MAX], g_error[MAX];
static _Alignas(64) unsigned char g_payload[8 * MAX], g_scratch[16 * MAX];
static taciti_codec_call g_call;
static taciti_codec_tally g_tally;

static const char *const NAMES[] = {"dgc", "redsync"};
enum { NAME_COUNT = 2 };

typedef enum { UNIFORM, EXPONENTIAL, LAPLACE, NORMAL, GAMMA, PARETO, LAWS } law;

static float draw(law kind, uint64_t key, size_t i) {
    const double u = taciti_rng_unit(key, 3 * i) + 0x1p-54, v = taciti_rng_unit(key, 3 * i + 1) + 0x1p-54;
    const double sign = taciti_rng_u64(key, 3 * i + 2) & 1 ? 1 : -1;
    switch (kind) {
    case EXPONENTIAL: return (float)-log(u);
    case LAPLACE: return (float)(sign * -log(u));
    case NORMAL: return (float)(sign * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    case GAMMA: return (float)(sign * (-log(u) - log(v)));
    case PARETO: return (float)(sign * 4 * (pow(u, -.25) - 1));
    case UNIFORM:
    case LAWS: break;
    }
    return (float)(sign * u);
}

static void fill(law kind, uint64_t key, size_t n) {
    for (size_t i = 0; i < n; i++) g_x[i] = draw(kind, key, i);
}

static const taciti_codec *use(const char *name, double factor) {
    const taciti_codec *codec = taciti_codec_find(name);
    assert_non_null(codec);
    g_call = (taciti_codec_call){.setting.factor = factor, .key = 42, .scratch = g_scratch, .tally = &g_tally};
    assert_true(codec->options == NULL && codec->scratch_bytes(codec, NULL, MAX) <= sizeof g_scratch);
    return codec;
}

/* Encodes and decodes g_x into g_y. Returns how many elements were sent. */
static size_t send(const taciti_codec *codec, size_t n) {
    size_t bytes = 0;
    g_tally = (taciti_codec_tally){0};
    assert_int_equal(codec->encode(codec, &g_call, g_x, n, g_payload, g_error, &bytes), TACIT_OK);
    assert_true(bytes <= codec->bound(codec, NULL, n));
    assert_int_equal(codec->decode(codec, &g_call, g_payload, bytes, g_y, n, false), TACIT_OK);
    return g_tally.selected;
}

static size_t floor_of(double n, double factor) { return (size_t)(n / factor); }

/* ---- what all have in common ------------------------------------------------------------------------------------- */
/* The elements that are sent are the largest, bit for bit, and the tally counts them. */
static void what_is_sent_are_the_largest_elements(void **state) {
    (void)state;
    for (size_t c = 0; c < NAME_COUNT; c++)
        for (int kind = 0; kind < LAWS; kind++) {
            const taciti_codec *codec = use(NAMES[c], 50);
            fill((law)kind, 61, 20000);
            const size_t kept = send(codec, 20000);
            float smallest_sent = INFINITY, largest_left = 0;
            size_t sent = 0;
            for (size_t i = 0; i < 20000; i++) {
                assert_true(g_y[i] == 0 ? g_error[i] == g_x[i] : g_y[i] == g_x[i] && g_error[i] == 0);
                if (g_y[i] != 0)
                    smallest_sent = fminf(smallest_sent, fabsf(g_x[i]));
                else
                    largest_left = fmaxf(largest_left, fabsf(g_x[i]));
                sent += g_y[i] != 0;
            }
            assert_true(smallest_sent >= largest_left && sent == kept && kept > 0);
        }
}

static void one_element_is_sent_at_least(void **state) {
    (void)state;
    static const double FACTORS[] = {2, 100, 1e6};
    for (size_t c = 0; c < NAME_COUNT; c++)
        for (size_t n = 130; n <= 1300; n += 128)
            for (size_t f = 0; f < 3; f++) {
                const taciti_codec *codec = use(NAMES[c], FACTORS[f]);
                memset(g_x, 0, n * sizeof *g_x);
                assert_int_equal(send(codec, n), 0);
                g_x[n / 2] = -1e-45f;
                assert_int_equal(send(codec, n), 1);
                assert_true(g_y[n / 2] == g_x[n / 2]);
                for (size_t i = 0; i < n; i++) g_x[i] = i % 2 ? -0.1f : 0.1f;
                assert_true(send(codec, n) >= 1);
                for (size_t i = 0; i < n; i++) g_x[i] = (float)(i + 1) * 1e35f;
                assert_true(send(codec, n) >= 1);
            }
}

static void factor_1_sends_everything(void **state) {
    (void)state;
    for (size_t c = 0; c < NAME_COUNT; c++) {
        const taciti_codec *codec = use(NAMES[c], 1);
        fill(NORMAL, 67, 1000);
        assert_int_equal(send(codec, 1000), 1000);
        assert_memory_equal(g_y, g_x, 1000 * sizeof *g_x);
    }
}

static void everything_that_is_not_finite_is_sent(void **state) {
    (void)state;
    for (size_t c = 0; c < NAME_COUNT; c++) {
        const taciti_codec *codec = use(NAMES[c], 1000);
        fill(NORMAL, 71, 3000);
        for (size_t i = 0; i < 3000; i += 100) g_x[i] = i % 200 ? NAN : -INFINITY;
        assert_int_equal(send(codec, 3000), 30);
        for (size_t i = 0; i < 3000; i++) assert_true((isfinite(g_y[i]) != 0) == (i % 100 != 0));
    }
}

static void thresholds_stay_within_finite_magnitudes(void **state) {
    (void)state;
    assert_int_equal(taciti_estimate_bits(0), 1);
    assert_int_equal(taciti_estimate_bits(-1), 1);
    assert_int_equal(taciti_estimate_bits((double)NAN), 1);
    assert_int_equal(taciti_estimate_bits(1e-60), 1);
    assert_int_equal(taciti_estimate_bits(1), 0x3f800000);
    assert_int_equal(taciti_estimate_bits(1e300), 0x7f7fffff);
    assert_int_equal(taciti_estimate_bits((double)INFINITY), 0x7f7fffff);
}

/* ---- dgc --------------------------------------------------------------------------------------------------------- */
static void dgc_sends_between_0_8_and_1_3_of_k(void **state) {
    (void)state;
    static const double FACTORS[] = {3, 10, 100, 1000};
    for (int kind = 0; kind < LAWS; kind++)
        for (size_t f = 0; f < 4; f++)
            for (uint64_t key = 0; key < 5; key++) {
                const taciti_codec *codec = use("dgc", FACTORS[f]);
                const double k = (double)floor_of(MAX, FACTORS[f]);
                g_call.key = taciti_rng_key(73, key);
                fill((law)kind, key, MAX);
                const double kept = (double)send(codec, MAX);
                assert_true(kept >= 0.8 * k && kept <= 1.3 * k);
            }
}

/* The sample depends on the key. */
static void dgc_samples(void **state) {
    (void)state;
    const taciti_codec *codec = use("dgc", 20);
    fill(LAPLACE, 79, MAX);
    size_t different = 0, inexact = 0, last = 0;
    for (uint64_t key = 0; key < 20; key++) {
        g_call.key = taciti_rng_key(83, key);
        const size_t kept = send(codec, MAX);
        different += kept != last;
        inexact += kept != 5000;
        last = kept;
    }
    assert_true(different > 15 && inexact > 15);
}

/* A sample that sees only small elements: its threshold lets all others through, and the k largest are sent. One that
 * sees large ones alone: the threshold comes down. */
static void dgc_corrects_a_misleading_sample(void **state) {
    (void)state;
    const taciti_codec *codec = use("dgc", 100);
    for (int seen = 0; seen < 2; seen++) {
        /* 1000 samples: stride 97 of 100000 */
        const size_t stride = 97, start = taciti_rng_below(g_call.key, 0, stride);
        for (size_t i = 0; i < MAX; i++) {
            const bool sampled = i % stride == start;
            g_x[i] = draw(UNIFORM, 89, i) * (sampled == (seen == 1) ? 2.0f : 1.0f);
        }
        const size_t kept = send(codec, MAX);
        if (seen == 0)
            assert_int_equal(kept, 1000);
        else
            assert_true(kept >= 800 && kept <= 1300);
    }
}

/* ---- redsync ----------------------------------------------------------------------------------------------------- */
static void redsync_lands_between_k_and_the_ratio(void **state) {
    (void)state;
    static const double FACTORS[] = {1.5, 10, 100, 1000, 50000};
    for (int kind = 0; kind < LAWS; kind++)
        for (size_t f = 0; f < 5; f++) {
            const taciti_codec *codec = use("redsync", FACTORS[f]);
            fill((law)kind, 97, MAX);
            const double k = (double)floor_of(MAX, FACTORS[f]), kept = (double)send(codec, MAX);
            assert_true(kept >= k && kept <= 2 * k);
        }
}

static void redsync_sends_k_of_equal_magnitudes(void **state) {
    (void)state;
    const taciti_codec *codec = use("redsync", 100);
    for (size_t i = 0; i < 5000; i++) g_x[i] = i % 3 ? -2.5f : 2.5f;
    assert_int_equal(send(codec, 5000), 50);
    for (size_t i = 0; i < 5000; i++) assert_true((g_y[i] != 0) == (i < 50));
    g_x[4000] = 3;
    assert_int_equal(send(codec, 5000), 50);
    for (size_t i = 0; i < 5000; i++) assert_true((g_y[i] != 0) == (i < 49 || i == 4000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_are_the_largest_elements),
        cmocka_unit_test(one_element_is_sent_at_least),
        cmocka_unit_test(factor_1_sends_everything),
        cmocka_unit_test(everything_that_is_not_finite_is_sent),
        cmocka_unit_test(thresholds_stay_within_finite_magnitudes),
        cmocka_unit_test(dgc_sends_between_0_8_and_1_3_of_k),
        cmocka_unit_test(dgc_samples),
        cmocka_unit_test(dgc_corrects_a_misleading_sample),
        cmocka_unit_test(redsync_lands_between_k_and_the_ratio),
        cmocka_unit_test(redsync_sends_k_of_equal_magnitudes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
