/* SPDX-License-Identifier: Apache-2.0
 *
 * What callers rely on of every registered codec, those of class LINEAR included: the tally, the sizes, and whether
 * error feedback goes with it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "codec/trial.h"
#include "kernel/kernel.h"

/* A layer of a small network again and again: two matrices, a bias, and what is between them. */
enum { LAYER = 41 * 100 + 200 * 41 + 10, MATRICES = 2 * (100003 / LAYER + 1) };
static const size_t LENGTHS[] = {1003, 41 * 100 + 7, 3 * LAYER + 7, 100003};
enum { LENGTH_COUNT = sizeof LENGTHS / sizeof *LENGTHS };

static float *g_x, *g_y, *g_error;
static size_t g_room; /* bytes of the next three */
static unsigned char *g_payload, *g_before, *g_scratch, *g_state, *g_next;
static taciti_codec_matrix g_matrices[MATRICES];

static int open_arrays(void **state) {
    (void)state;
    const size_t n = LENGTHS[LENGTH_COUNT - 1], room = 64 * n + 4096;
    g_x = taciti_calloc(n, sizeof *g_x);
    g_y = taciti_calloc(n, sizeof *g_y);
    g_error = taciti_calloc(n, sizeof *g_error);
    g_payload = taciti_calloc(room, 1);
    g_before = taciti_calloc(room, 1);
    g_scratch = taciti_calloc(room, 1);
    g_state = taciti_calloc(room, 1);
    g_next = taciti_calloc(room, 1);
    g_room = room;
    return 0;
}

static int close_arrays(void **state) {
    (void)state;
    void *const arrays[] = {g_x, g_y, g_error, g_payload, g_before, g_scratch, g_state, g_next};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) taciti_free(arrays[i]);
    return 0;
}

static double normal(uint64_t key, size_t i) {
    return sqrt(-2 * log(1 - taciti_rng_unit(key, 2 * i))) * cos(6.283185307179586 * taciti_rng_unit(key, 2 * i + 1));
}

/* One of a hundred reaches 1e-3. */
static void fill_normal(size_t n) {
    for (size_t i = 0; i < n; i++) g_x[i] = (float)(1e-3 / 2.5758 * normal(5, i));
}

/* Those that an array of n floats holds whole. */
static size_t matrices_of(size_t n) {
    size_t count = 0;
    for (size_t at = 0; count + 2 <= MATRICES; at += LAYER) {
        g_matrices[count] = (taciti_codec_matrix){.at = at, .rows = 41, .columns = 100};
        g_matrices[count + 1] = (taciti_codec_matrix){.at = at + 41 * 100, .rows = 200, .columns = 41};
        for (size_t i = 0; i < 2; i++, count++)
            if (g_matrices[count].at + g_matrices[count].rows * g_matrices[count].columns > n) return count;
    }
    return count;
}

static size_t state_bytes(const taciti_codec *codec, const taciti_codec_call *call, size_t n) {
    if (codec->linear_state_bytes != NULL) return codec->linear_state_bytes(call, n);
    return 0;
}

/* A call of the only rank, before any step. */
static taciti_codec_call call_for(const taciti_codec *codec, const void *options, size_t n,
                                  taciti_codec_setting setting) {
    taciti_codec_call call = {.options = options,
                              .setting = setting,
                              .key = 42,
                              .ranks = 1,
                              .state = g_state,
                              .next = g_next,
                              .scratch = g_scratch,
                              .matrices = g_matrices,
                              .n_matrices = matrices_of(n)};
    const size_t state = state_bytes(codec, &call, n);
    assert_true(state <= g_room && codec->bound(codec, options, n) <= g_room);
    assert_true(codec->scratch_bytes == NULL || codec->scratch_bytes(codec, options, n) <= g_room);
    memset(g_state, 0, state);
    return call;
}

/* All rounds of one array; the error and the tally are those of the last one. Returns the bytes of its payload, and in
 * *all those of every round. */
static size_t encode(const taciti_codec *codec, taciti_codec_call *call, size_t n, taciti_codec_tally *tally,
                     size_t *all) {
    size_t bytes = 0;
    *all = 0;
    for (call->round = 0; call->round < codec->rounds - 1; call->round++) {
        if (codec->payload_n(call, n) == 0) continue;
        assert_int_equal(codec->encode(codec, call, g_x, n, g_before, NULL, &bytes), TACIT_OK);
        call->before = (const float *)(const void *)g_before;
        *all += bytes;
    }
    call->tally = tally;
    assert_int_equal(codec->encode(codec, call, g_x, n, g_payload, g_error, &bytes), TACIT_OK);
    assert_true(bytes <= codec->bound(codec, call->options, n));
    call->tally = NULL;
    *all += bytes;
    return bytes;
}

/* The same, then decodes the payload to g_y. */
static void encode_and_decode(const taciti_codec *codec, taciti_codec_call *call, size_t n, taciti_codec_tally *tally) {
    size_t all;
    const size_t bytes = encode(codec, call, n, tally, &all);
    assert_int_equal(codec->decode(codec, call, g_payload, bytes, g_y, n, false), TACIT_OK);
}

typedef void (*trial)(const taciti_codec *codec, const void *options);

static void for_all(trial run) {
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        void *options = NULL;
        assert_int_equal(taciti_codec_defaults(*codec, &options), TACIT_OK);
        run(*codec, options);
        taciti_free(options);
    }
}

static void is_near(double value, double expected, double relative, const char *codec, const char *what) {
    if (fabs(value - expected) <= relative * fabs(expected)) return;
    fail_msg("%s: %s is %.9g and should be %.9g", codec, what, value, expected);
}

/* ---- the tally --------------------------------------------------------------------------------------------------- */
/* How far squares_out may be from the sum of squares of what is decoded: kernels add up codes before they are rounded
 * to floats (kernel/kernel.h, quantise), and the orthonormal factor of powersgd is one up to rounding of floats. */
static const double ROUNDED = 0x1p-21, ORTHONORMAL = 1e-6;

static void tally_is_that_of_the_payload(const taciti_codec *codec, const void *options, size_t n, double factor) {
    taciti_codec_tally tally = {
        .squares_in = 3e-4, .squares_out = 2e-4, .n = 5, .selected = 4, .near = 1, .threshold = 0};
    taciti_codec_call call = call_for(codec, options, n, (taciti_codec_setting){.factor = factor});
    encode_and_decode(codec, &call, n, &tally);
    const taciti_kernels *kernels = taciti_kernels_get();
    const size_t selected = tally.selected - 4;
    const bool linear = codec->aggregation == TACITI_CODEC_LINEAR;
    size_t decoded = 0;
    for (size_t i = 0; i < n; i++) decoded += g_y[i] != 0;
    const taciti_codec *sender = codec->rungs == NULL ? codec : taciti_codec_rung_at(codec, factor)->codec;
    const bool some = sender->selects || sender->aggregation == TACITI_CODEC_GATHER;
    assert_int_equal(tally.n, 5 + n);
    is_near(tally.squares_in, 3e-4 + kernels->sum_squares(g_x, n), 1e-12, codec->name, "squares_in");
    is_near(tally.squares_out, 2e-4 + kernels->sum_squares(g_y, n), linear ? ORTHONORMAL : ROUNDED, codec->name,
            "squares_out");
    if (!linear) is_near((double)selected, some ? (double)decoded : (double)n, 0, codec->name, "selected");
}

static void every_encode_adds_what_it_sends(const taciti_codec *codec, const void *options) {
    for (size_t i = 0; i < 3; i++) {
        fill_normal(LENGTHS[i]);
        for (double factor = 1; factor <= 100; factor *= 10)
            if (factor == 10 || codec->selects || codec->rungs != NULL)
                tally_is_that_of_the_payload(codec, options, LENGTHS[i], factor);
    }
}

static void tallies_are_those_of_the_payloads(void **state) {
    (void)state;
    for_all(every_encode_adds_what_it_sends);
}

/* The next step's threshold follows from these counts. */
static void counts_about_its_threshold(const taciti_codec *codec, const void *options) {
    const size_t n = LENGTHS[2];
    const double threshold = 5e-4;
    size_t selected = 0, near = 0;
    taciti_codec_tally tally = {.near = 7, .threshold = 1e-4};
    if (!codec->thresholds || codec->sketches) return;
    fill_normal(n);
    taciti_codec_call call = call_for(codec, options, n, (taciti_codec_setting){.threshold = threshold});
    encode_and_decode(codec, &call, n, &tally);
    for (size_t i = 0; i < n; i++) {
        selected += fabs((double)g_x[i]) >= threshold;
        near += fabs((double)g_x[i]) >= threshold / 2;
    }
    assert_int_equal(tally.selected, selected);
    assert_int_equal(tally.near, 7 + near);
    is_near(tally.threshold, threshold, 0x1p-23, codec->name, "threshold");
}

static void thresholds_are_counted_about(void **state) {
    (void)state;
    for_all(counts_about_its_threshold);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */
/* How far payloads may be from what is expected. Codecs that estimate a threshold send other counts than n / factor, as
 * docs/codecs.md says. */
static struct {
    const char *codec;
    double min, max;
} const RANGES[] = {{"dgc", 0.8, 1.3}, {"redsync", 0.9, 2}, {NULL, 0.9, 1.1}};

static void is_expected(const taciti_codec *codec, double bytes, double expected) {
    size_t range = 0;
    while (RANGES[range].codec != NULL && strcmp(RANGES[range].codec, codec->name) != 0) range++;
    if (codec->fixed_size ? bytes == expected
                          : bytes >= RANGES[range].min * expected && bytes <= RANGES[range].max * expected)
        return;
    fail_msg("%s: a payload has %g bytes where %g are expected", codec->name, bytes, expected);
}

static void expects_what_it_sends(const taciti_codec *codec, const void *options) {
    for (size_t i = 0; i < LENGTH_COUNT; i++) {
        const size_t n = LENGTHS[i];
        fill_normal(n);
        for (double factor = 2; factor <= 200; factor *= 10) {
            const bool has = codec->selects || codec->rungs != NULL;
            taciti_codec_call call = call_for(codec, options, n, (taciti_codec_setting){.factor = has ? factor : 0});
            const double expected = taciti_codec_expected_bytes(codec, &call, n);
            size_t all;
            (void)encode(codec, &call, n, NULL, &all);
            is_expected(codec, (double)all, expected);
            if (!has) break;
        }
    }
}

/* Sizes are those of any setting; the exchange sizes its buffers once for its longest array. */
static void needs_no_less_for_more(const taciti_codec *codec, const void *options) {
    for (size_t n = 0; n < 5000; n++) {
        assert_true(codec->bound(codec, options, n) <= codec->bound(codec, options, n + 1));
        if (codec->scratch_bytes == NULL) continue;
        assert_true(codec->scratch_bytes(codec, options, n) <= codec->scratch_bytes(codec, options, n + 1));
    }
}

static void bounds_grow_with_the_array(void **state) {
    (void)state;
    for_all(needs_no_less_for_more);
}

static void payloads_are_as_long_as_expected(void **state) {
    (void)state;
    for_all(expects_what_it_sends);
}

/* ---- error feedback ---------------------------------------------------------------------------------------------- */
typedef enum { ZEROS, SPIKE, EQUAL, NORMAL, HEAVY, DENORMAL, HUGE, INPUTS } input;

static double value(input kind, size_t i) {
    const double u = 2 * taciti_rng_unit(3, i) - 1;
    switch (kind) {
    case SPIKE: return i == 3 ? -1e4 : 0;
    case EQUAL: return 0.1;
    case NORMAL: return normal(9, i);
    case HEAVY: return u / (1 - fabs(u) * 0.99999);
    case DENORMAL: return u * 1e-40;
    case HUGE: return u * 1e38;
    case ZEROS:
    case INPUTS: break;
    }
    return 0;
}

/* The mean over some keys of |x - decoded|^2 / |x|^2 in a step behind one with other numbers; 0 / 0: 0. */
static double loss_of(const taciti_codec *codec, const void *options, size_t n, input kind) {
    enum { KEYS = 16 };
    double lost = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        taciti_codec_call call = call_for(codec, options, n, (taciti_codec_setting){.factor = 10});
        call.key = key;
        for (int step = 0; step < 2; step++) {
            for (size_t i = 0; i < n; i++) g_x[i] = (float)value(step == 0 ? NORMAL : kind, i);
            call.before = NULL;
            encode_and_decode(codec, &call, n, NULL);
            memcpy(g_state, g_next, state_bytes(codec, &call, n));
        }
        lost += taciti_kernels_get()->sum_squares(g_error, n) / KEYS;
    }
    const double all = taciti_kernels_get()->sum_squares(g_x, n);
    return lost > 0 && all > 0 ? lost / all : lost > 0 ? HUGE_VAL : 0;
}

/* Error feedback needs errors that are no larger than the array. An infinite one, of fp16, has the step skipped. */
static void feedback_goes_with_small_errors(const taciti_codec *codec, const void *options) {
    double worst = 0;
    for (size_t i = 0; i < 2; i++)
        for (int kind = 0; kind < INPUTS; kind++) {
            const double loss = loss_of(codec, options, LENGTHS[i], (input)kind);
            if (isfinite(loss)) worst = fmax(worst, loss);
        }
    if (codec->no_feedback != (worst > 1 + 1e-6)) fail_msg("%s loses up to %g of |x|^2", codec->name, worst);
}

static void feedback_is_refused_where_it_would_grow(void **state) {
    (void)state;
    for_all(feedback_goes_with_small_errors);
}

/* ---- presets ----------------------------------------------------------------------------------------------------- */
/* A short run whose factor does not rise loses more than the codec does: tagc 5 % of the loss of 400 steps, not 3 %. */
static void presets_suit_the_default_run(void **state) {
    (void)state;
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        const char *preset = (*codec)->preset != NULL ? (*codec)->preset : "";
        assert_null(strstr(preset, "compress.warmup"));
        assert_null(strstr(preset, "momentum=0.")); /* the default optimizer has one */
        assert_true((*codec)->no_feedback == (strcmp(preset, "compress.feedback=0") == 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tallies_are_those_of_the_payloads),
        cmocka_unit_test(thresholds_are_counted_about),
        cmocka_unit_test(bounds_grow_with_the_array),
        cmocka_unit_test(payloads_are_as_long_as_expected),
        cmocka_unit_test(feedback_is_refused_where_it_would_grow),
        cmocka_unit_test(presets_suit_the_default_run),
    };
    return cmocka_run_group_tests(tests, open_arrays, close_arrays);
}
