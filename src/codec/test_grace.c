/* SPDX-License-Identifier: Apache-2.0
 *
 * u8bit, quantile-sketch, inceptionn and adaq: their values, levels and classes, and what their decoders refuse. What
 * every codec must do is in test_codec.c.
 */
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
#include "codec/codec.h"

enum { MAX = 20000 };
static float g_x[MAX], g_y[MAX], g_error[MAX];
static _Alignas(64) unsigned char g_payload[8 * MAX], g_scratch[16 * MAX], g_options[4096];
static taciti_codec_call g_call;
static taciti_codec_tally g_tally;

static float normal(uint64_t key, size_t i) {
    const double u = taciti_rng_unit(key, 2 * i) + 0x1p-54, v = taciti_rng_unit(key, 2 * i + 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

static const taciti_codec *use(const char *name) {
    const taciti_codec *codec = taciti_codec_find(name);
    assert_non_null(codec);
    g_tally = (taciti_codec_tally){0};
    g_call = (taciti_codec_call){.scratch = g_scratch, .tally = &g_tally};
    if (codec->options == NULL) return codec;
    const taciti_section section = {.table = codec->options, .values = g_options};
    assert_int_equal(taciti_config_defaults(&(taciti_config){&section, 1}), TACIT_OK);
    g_call.options = g_options;
    return codec;
}

static void set(const taciti_codec *codec, const char *key, const char *value) {
    const taciti_section section = {.table = codec->options, .values = g_options};
    assert_int_equal(taciti_config_set(&(taciti_config){&section, 1}, key, value, key), TACIT_OK);
}

static size_t round_trip(const taciti_codec *codec, const float *x, size_t n, float *y) {
    size_t bytes = 0;
    assert_int_equal(codec->encode(&g_call, x, n, g_payload, g_error, &bytes), TACIT_OK);
    assert_true(bytes <= codec->bound(g_options, n));
    assert_int_equal(codec->decode(&g_call, g_payload, bytes, y, n), TACIT_OK);
    double in = 0, out = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(g_error[i] == x[i] - y[i]);
        in += (double)x[i] * (double)x[i];
        out += (double)y[i] * (double)y[i];
    }
    assert_true(fabs(g_tally.squares_in - in) <= 1e-12 * in && fabs(g_tally.squares_out - out) <= 1e-12 * out);
    assert_true(g_tally.n == n);
    g_tally = (taciti_codec_tally){0};
    return bytes;
}

static void drop_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

/* The payload with `value` at byte `at` is refused; without, it is not. */
static void refuses(const taciti_codec *codec, size_t bytes, size_t n, size_t at, uint32_t value) {
    uint32_t old;
    memcpy(&old, g_payload + at, sizeof old);
    memcpy(g_payload + at, &value, sizeof value);
    for (size_t i = 0; i < n; i++) g_y[i] = 7;
    taciti_log_set_sink(drop_line, NULL, TACITI_LOG_INFO);
    assert_int_equal(codec->decode(&g_call, g_payload, bytes, g_y, n), TACIT_E_DATA);
    assert_int_equal(codec->decode_add(&g_call, g_payload, bytes, g_y, n), TACIT_E_DATA);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
    for (size_t i = 0; i < n; i++) assert_true(g_y[i] == 7);
    memcpy(g_payload + at, &old, sizeof old);
    assert_int_equal(codec->decode(&g_call, g_payload, bytes, g_y, n), TACIT_OK);
}

static void refuses_float(const taciti_codec *codec, size_t bytes, size_t n, size_t at, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    refuses(codec, bytes, n, at, bits);
}

/* ---- u8bit ------------------------------------------------------------------------------------------------------- */
static void u8bit_takes_the_nearest_value(void **state) {
    (void)state;
    const taciti_codec *codec = use("u8bit");
    unsigned char payload[4 + 256];
    float values[256];
    const float scale = 2;
    memcpy(payload, &scale, sizeof scale);
    for (int c = 0; c < 256; c++) payload[4 + c] = (unsigned char)c;
    assert_int_equal(codec->decode(&g_call, payload, sizeof payload, values, 256), TACIT_OK);
    for (size_t i = 1; i < 2000; i++) g_x[i] = (float)(pow(10, -8 * taciti_rng_unit(3, i)) * (i % 2 ? 2 : -2));
    g_x[0] = 2;
    assert_int_equal(round_trip(codec, g_x, 2000, g_y), 4 + 2000);
    for (size_t i = 0; i < 2000; i++) {
        double best = (double)INFINITY;
        for (int c = 0; c < 256; c++) best = fmin(best, fabs((double)values[c] - (double)g_x[i]));
        assert_true(fabs((double)g_y[i] - (double)g_x[i]) <= best * (1 + 1e-6));
        if (fabsf(g_x[i]) > 0.2f) assert_true(fabs((double)g_error[i]) <= 0.0705 * fabs((double)g_x[i]));
    }
    refuses_float(codec, 2004, 2000, 0, -1);
    const float top[] = {2, 1.98f, 1.994f}; /* the largest two values are 1.9859375 and 2 */
    (void)round_trip(codec, top, 3, g_y);
    assert_true(g_y[0] == 2 && g_y[1] == 1.9859375f && g_y[2] == 2);
    memset(g_x, 0, sizeof g_x);
    (void)round_trip(codec, g_x, 2100, g_y);
    assert_memory_equal(g_y, g_x, 2100 * sizeof *g_x);
}

static void u8bit_has_the_values_of_the_paper(void **state) {
    (void)state;
    const taciti_codec *codec = use("u8bit");
    const float x[] = {1, -1, 0, .55e-6f, -.55e-6f, 4.0e-7f, .0325f, -0.0f};
    const unsigned char golden[] = {0, 0, 0x80, 0x3f, 128, 255, 0, 1, 129, 1, 32 + 4 - 16 - 4, 0};
    assert_int_equal(round_trip(codec, x, 8, g_y), sizeof golden);
    assert_true(g_y[0] == 1 && fabsf(g_y[1] + 1) < 0.0071f && g_y[2] == 0);
    for (size_t i = 0; i < sizeof golden; i++)
        if (i != 10) assert_int_equal(g_payload[i], golden[i]);
    /* .0325: 2 digits of bits behind 10^-1: 0.01 + 0.09 (f + 1/2) / 2^5, f = 8 -> 32 + 8 */
    assert_int_equal(g_payload[10], 32 + 8 - 1);
}

static void u8bit_blocks_have_their_own_scale(void **state) {
    (void)state;
    const taciti_codec *codec = use("u8bit");
    set(codec, "u8bit.block", "16");
    for (size_t i = 0; i < 48; i++) g_x[i] = i == 5 ? 1e20f : i < 16 ? 0 : i < 32 ? 3 : 1e-20f;
    assert_int_equal(round_trip(codec, g_x, 48, g_y), 12 + 48);
    assert_memory_equal(g_x, g_y, 48 * sizeof *g_x);
}

/* ---- quantile-sketch --------------------------------------------------------------------------------------------- */
static void quantile_sketch_levels_are_quantiles(void **state) {
    (void)state;
    const taciti_codec *codec = use("quantile-sketch");
    set(codec, "quantile-sketch.levels", "16");
    for (size_t i = 0; i < MAX; i++) g_x[i] = normal(5, i);
    assert_int_equal(round_trip(codec, g_x, MAX, g_y), 64 + MAX / 2);
    float levels[16];
    size_t counts[16] = {0};
    memcpy(levels, g_payload, sizeof levels);
    for (size_t i = 0; i < MAX; i++)
        for (size_t j = 0; j < 16; j++) {
            counts[j] += g_y[i] == levels[j];
            assert_true(fabs((double)g_x[i] - (double)g_y[i]) <= fabs((double)g_x[i] - (double)levels[j]));
        }
    /* cells of nearest levels are quantiles but at the ends, where the law is steep */
    for (size_t j = 0; j < 16; j++) {
        assert_true((double)counts[j] > MAX / 16 * 0.5 && (double)counts[j] < MAX / 16 * 1.5);
        if (j > 2 && j < 13) assert_true((double)counts[j] > MAX / 16 * 0.85 && (double)counts[j] < MAX / 16 * 1.15);
        if (j > 0) assert_true(levels[j] > levels[j - 1]);
    }
    /* the mean of the largest sixteenth of a normal distribution */
    assert_true(fabs((double)levels[15] - 1.968) < 0.06 && fabs((double)levels[0] + 1.968) < 0.06);
    refuses_float(codec, 64 + MAX / 2, MAX, 8, levels[3] + 1);
}

static void quantile_sketch_keeps_few_values(void **state) {
    (void)state;
    static const char *const LEVELS[] = {"2", "3", "4", "7", "256"};
    static const size_t COUNT[] = {2, 3, 4, 7, 256}, BYTES[] = {4, 10, 16, 42, 4096};
    for (size_t c = 0; c < 5; c++) {
        const taciti_codec *codec = use("quantile-sketch");
        set(codec, "quantile-sketch.levels", LEVELS[c]);
        const size_t n = 16 * COUNT[c];
        for (size_t i = 0; i < n; i++) g_x[i] = (float)((i * 5 + 3) % COUNT[c]) - 1.5f;
        assert_int_equal(round_trip(codec, g_x, n, g_y), 4 * COUNT[c] + BYTES[c]);
        assert_memory_equal(g_x, g_y, n * sizeof *g_x);
    }
    const taciti_codec *codec = use("quantile-sketch"); /* fewer elements than levels */
    for (size_t i = 0; i < 100; i++) g_x[i] = normal(7, i);
    (void)round_trip(codec, g_x, 100, g_y);
    assert_memory_equal(g_x, g_y, 100 * sizeof *g_x);
}

/* ---- inceptionn -------------------------------------------------------------------------------------------------- */
static void inceptionn_keeps_its_bound(void **state) {
    (void)state;
    static const char *const BOUNDS[] = {"2", "5", "10", "14"};
    static const double BOUND[] = {0x1p-2, 0x1p-5, 0x1p-10, 0x1p-14};
    for (size_t b = 0; b < 4; b++)
        for (int scale = -60; scale <= 60; scale += 20) {
            const taciti_codec *codec = use("inceptionn");
            set(codec, "inceptionn.bound", BOUNDS[b]);
            for (size_t i = 0; i < 5000; i++)
                g_x[i] = (float)ldexp((taciti_rng_unit(9, i) * 2 - 1) * pow(2, -20 * taciti_rng_unit(11, i)), scale);
            g_x[4999] = (float)ldexp(0.75, scale); /* the unit is 2^scale */
            (void)round_trip(codec, g_x, 5000, g_y);
            double worst = 0;
            for (size_t i = 0; i < 5000; i++) {
                worst = fmax(worst, fabs((double)g_error[i]) / ldexp(1, scale));
                assert_true(fabsf(g_y[i]) <= fabsf(g_x[i]) && g_y[i] * g_x[i] >= 0);
            }
            assert_true(worst < BOUND[b] && worst > BOUND[b] / 2);
        }
}

/* bound 10: 16 bits from 2^-5 on in steps of 2^-15, 8 bits from 2^-10 on in steps of 2^-12 */
static void inceptionn_has_the_classes_of_the_paper(void **state) {
    (void)state;
    const float x[] = {-1.5f, 0x1p-5f, -0x1.fp-6f, 0x1p-10f, 0x1.fp-11f, 0.75f};
    const unsigned char golden[] = {0,
                                    0,
                                    0,
                                    0, /* unit 1 */
                                    3 + (2 << 2) + (1 << 4) + (1 << 6),
                                    0 + (2 << 2),
                                    0,
                                    0,
                                    0xc0,
                                    0xbf, /* a float */
                                    0x00,
                                    0x04,       /* 2^10 steps */
                                    0x80 | 124, /* 31 / 32 of 2^-5: 124 of 128 steps */
                                    4,
                                    0x00,
                                    0x60};
    const taciti_codec *codec = use("inceptionn");
    set(codec, "inceptionn.relative", "false");
    assert_int_equal(round_trip(codec, x, 6, g_y), sizeof golden);
    assert_memory_equal(g_payload, golden, sizeof golden);
    for (size_t i = 0; i < 6; i++) assert_true(g_y[i] == (i == 4 ? 0 : x[i]));
    assert_true(codec->expected_bytes(&(taciti_codec_call){.options = g_options}, 1000) == 4 + 250 + 1500);
    assert_true(codec->bound(g_options, 1001) == 4 + 251 + 4004 && codec->bound(g_options, 0) == 0);
    const float one = -1, odd = 0.1875f;
    assert_int_equal(round_trip(codec, &one, 1, g_y), 4 + 1 + 4);
    assert_true(g_y[0] == -1);
    set(codec, "inceptionn.bound", "5"); /* 16 bits from 2^-3 on */
    assert_int_equal(round_trip(codec, &odd, 1, g_y), 4 + 1 + 2);
    assert_true(g_y[0] == odd);
    set(codec, "inceptionn.bound", "10");
    /* relative: the same in units of 2, the smallest power above 1.5 */
    set(codec, "inceptionn.relative", "true");
    assert_int_equal(round_trip(codec, x, 6, g_y), 4 + 2 + 2 + 1 + 1 + 0 + 0 + 2);
    assert_int_equal(g_payload[0], 1);
    assert_true(g_y[0] == -1.5f && g_y[1] == x[1] && g_y[2] == x[2] && g_y[3] == 0 && g_y[5] == 0.75f);
}

static void inceptionn_refuses_malformed_payloads(void **state) {
    (void)state;
    const float x[] = {-1.5f, 0x1p-5f, -0x1.fp-6f, 0x1p-10f, 0x1.fp-11f, 0.75f};
    const taciti_codec *codec = use("inceptionn");
    const size_t bytes = round_trip(codec, x, 6, g_y);
    refuses(codec, bytes, 6, 0, 129);
    refuses(codec, bytes, 6, 0, (uint32_t)-151);
    refuses(codec, bytes, 6, 0, INT32_MAX);
    uint32_t tags = 0;
    memcpy(&tags, g_payload + 4, sizeof tags);
    refuses(codec, bytes, 6, 4, tags ^ 1);
    refuses(codec, bytes, 6, 4, tags ^ (1u << 12)); /* behind the last tag */
    refuses(codec, bytes, 6, 4, tags ^ (1u << 15));
    float nan[] = {1, NAN, 2};
    size_t length = 0;
    assert_int_equal(codec->encode(&g_call, nan, 3, g_payload, g_error, &length), TACIT_OK);
    assert_int_equal(length, 4);
    assert_int_equal(codec->decode(&g_call, g_payload, length, g_y, 3), TACIT_OK);
    for (size_t i = 0; i < 3; i++) assert_true(isnan(g_y[i]) && isnan(g_error[i]));
}

/* ---- adaq -------------------------------------------------------------------------------------------------------- */
static void adaq_sends_shares_of_both_sides(void **state) {
    (void)state;
    const taciti_codec *codec = use("adaq");
    g_call.setting.factor = 50;
    size_t sides[2] = {0}, sent[2] = {0};
    double sums[2] = {0};
    for (size_t i = 0; i < MAX; i++) {
        g_x[i] = i % 10 == 0 ? 0 : normal(13, i) + .4f;
        if (g_x[i] != 0) sides[g_x[i] > 0]++;
    }
    (void)round_trip(codec, g_x, MAX, g_y);
    float smallest[2] = {INFINITY, INFINITY}, largest[2] = {0, 0};
    for (size_t i = 0; i < MAX; i++) {
        const int side = g_x[i] > 0;
        if (g_y[i] == 0) {
            largest[side] = fmaxf(largest[side], fabsf(g_x[i]));
            continue;
        }
        smallest[side] = fminf(smallest[side], fabsf(g_x[i]));
        sent[side]++;
        sums[side] += (double)g_x[i];
        assert_true((g_y[i] > 0) == side);
    }
    for (int side = 0; side < 2; side++) {
        assert_int_equal(sent[side], sides[side] / 50);
        assert_true(smallest[side] > largest[side]);
        float value;
        memcpy(&value, g_payload + 12 + 4 * side, sizeof value);
        assert_true(value == (float)(sums[side] / (double)sent[side]));
    }
}

static void adaq_sends_the_means_of_few_elements(void **state) {
    (void)state;
    const taciti_codec *codec = use("adaq");
    const float x[] = {1, -2, 3, -4, 0, -0.0f, 5, 0}, y[] = {0, 0, 4, -4, 0, 0, 4, 0};
    g_call.setting.factor = 1.5; /* 2 of 3, and 1 of 2 */
    assert_int_equal(round_trip(codec, x, 8, g_y), 20 + 1 + 1);
    assert_memory_equal(g_y, y, sizeof y);
    assert_int_equal(codec->encode(&g_call, x, 8, g_payload, NULL, &(size_t){0}), TACIT_OK);
    assert_true(g_tally.selected == 3 && g_tally.near == 4 && g_tally.threshold == 3);
    assert_int_equal(g_payload[0], 3);
    assert_int_equal(g_payload[20], 4 + 8 + 64); /* a bitmap */
    assert_int_equal(g_payload[21], 1 + 4);
    memset(g_x, 0, sizeof g_x);
    (void)use("adaq");
    assert_int_equal(round_trip(codec, g_x, 100, g_y), 20); /* nothing */
    for (size_t i = 0; i < 100; i++) g_x[i] = -1;
    (void)round_trip(codec, g_x, 100, g_y); /* ties: all */
    assert_memory_equal(g_y, g_x, 100 * sizeof *g_x);
}

static void adaq_refuses_malformed_payloads(void **state) {
    (void)state;
    const taciti_codec *codec = use("adaq");
    const float x[] = {1, -2, 3, -4, 0, -0.0f, 5, 0};
    g_call.setting.factor = 1.5;
    const size_t bytes = round_trip(codec, x, 8, g_y);
    refuses(codec, bytes, 8, 0, 9);
    refuses(codec, bytes, 8, 0, 2);
    refuses(codec, bytes, 8, 0, UINT32_MAX);
    refuses(codec, bytes, 8, 4, 2);
    refuses(codec, bytes, 8, 4, UINT32_MAX);
    refuses(codec, bytes, 8, 8, 77);
    refuses(codec, bytes, 8, 8, UINT32_MAX);
    refuses_float(codec, bytes, 8, 12, 1);
    refuses_float(codec, bytes, 8, 12, -INFINITY);
    refuses_float(codec, bytes, 8, 16, -1);
    refuses_float(codec, bytes, 8, 16, NAN);
    refuses_float(codec, bytes, 8, 16, INFINITY);
    g_payload[21] |= 8; /* behind the last sign */
    taciti_log_set_sink(drop_line, NULL, TACITI_LOG_INFO);
    assert_int_equal(codec->decode(&g_call, g_payload, bytes, g_y, 8), TACIT_E_DATA);
    memset(g_x, 0, sizeof g_x);
    assert_int_equal(round_trip(codec, g_x, 100, g_y), 20);
    refuses(codec, 20, 100, 4, 1);
    refuses(codec, 20, 100, 8, 1);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
    float nan[] = {1, NAN, 2};
    size_t length = 0;
    g_tally = (taciti_codec_tally){.selected = 1};
    assert_int_equal(codec->encode(&g_call, nan, 3, g_payload, g_error, &length), TACIT_OK);
    assert_true(g_tally.n == 3 && g_tally.selected == 4 && g_tally.near == 3 && isnan(g_tally.squares_in));
    assert_int_equal(codec->decode(&g_call, g_payload, length, g_y, 3), TACIT_OK);
    for (size_t i = 0; i < 3; i++) assert_true(isnan(g_y[i]) && isnan(g_error[i]));
}

/* One sign fills 1 bit of its byte; 1000 of 100000 elements at random need their entropy and a sign each. */
static void adaq_counts_bits(void **state) {
    (void)state;
    const taciti_codec *codec = use("adaq");
    const float x[] = {0, 0, 3, 0, 0, 0, 0, 0};
    const size_t bytes = round_trip(codec, x, 8, g_y);
    g_payload[bytes - 1] |= 2;
    taciti_log_set_sink(drop_line, NULL, TACITI_LOG_INFO);
    assert_int_equal(codec->decode(&g_call, g_payload, bytes, g_y, 8), TACIT_E_DATA);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
    const double expected = codec->expected_bytes(&(taciti_codec_call){.setting.factor = 100}, 100000);
    assert_true(expected > 20 + 1000 * (8.0 + 1) / 8 && expected < 20 + 1000 * (8.4 + 1) / 8);
    for (size_t i = 0; i < MAX; i++) g_x[i] = normal(19, i);
    g_call.setting.factor = 100;
    const double measured = (double)round_trip(codec, g_x, MAX, g_y);
    assert_true(fabs(codec->expected_bytes(&g_call, MAX) / measured - 1) < 0.05);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(u8bit_takes_the_nearest_value),
        cmocka_unit_test(u8bit_has_the_values_of_the_paper),
        cmocka_unit_test(u8bit_blocks_have_their_own_scale),
        cmocka_unit_test(quantile_sketch_levels_are_quantiles),
        cmocka_unit_test(quantile_sketch_keeps_few_values),
        cmocka_unit_test(inceptionn_keeps_its_bound),
        cmocka_unit_test(inceptionn_has_the_classes_of_the_paper),
        cmocka_unit_test(inceptionn_refuses_malformed_payloads),
        cmocka_unit_test(adaq_sends_shares_of_both_sides),
        cmocka_unit_test(adaq_sends_the_means_of_few_elements),
        cmocka_unit_test(adaq_refuses_malformed_payloads),
        cmocka_unit_test(adaq_counts_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
