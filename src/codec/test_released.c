/* SPDX-License-Identifier: Apache-2.0
 *
 * What the released code of TAGC gets wrong, against figures of a simulation of its arithmetic: selection, index,
 * decoding.
 */
#include "codec/released.h"

#include "codec/sketch.h"
#include "codec/test_homomorphic.h"

/* ---- the ladder -------------------------------------------------------------------------------------------------- */

enum { DRAWS = 20000, SCALES = 400 };

/* Standard numbers, the same for all scales. */
static void draw_standard(bool laplace, float *x) {
    for (size_t i = 0; i < DRAWS; i++) {
        const double u = taciti_rng_unit(5, i) - 0.5;
        const double v = laplace ? copysign(log(1 - 2 * fabs(u) + 1e-12), u) : (double)number(NORMALS, 6, i, 0);
        x[i] = (float)v;
    }
}

typedef struct range {
    double min, max, mean;
} range;

static range sparsities(bool laplace, double target) {
    float *standard = memory(DRAWS * 4), *x = memory(DRAWS * 4), *selected = memory(DRAWS * 4);
    range out = {1, 0, 0};
    draw_standard(laplace, standard);
    for (int s = 0; s < SCALES; s++) {
        const float scale = (float)pow(10, -6 + 3 * (s + 0.5) / SCALES);
        for (size_t i = 0; i < DRAWS; i++) x[i] = scale * standard[i];
        const size_t kept =
            taciti_released_select(x, DRAWS, taciti_released_threshold(x, DRAWS, target), selected, NULL);
        const double sparsity = 1 - (double)kept / DRAWS;
        out.min = fmin(out.min, sparsity);
        out.max = fmax(out.max, sparsity);
        out.mean += sparsity / SCALES;
    }
    taciti_free(standard);
    taciti_free(x);
    taciti_free(selected);
    return out;
}

static void assert_near(double value, double expected, double tolerance) {
    if (fabs(value - expected) > tolerance) fail_msg("%g is not %g +- %g", value, expected, tolerance);
}

/* D3: scales log-uniform in 1e-6 .. 1e-3. */
static void the_ladder_misses_the_target(void **state) {
    (void)state;
    const range normal = sparsities(false, 0.8), laplace = sparsities(true, 0.8);
    assert_near(normal.min, 0.392, 0.02);
    assert_near(normal.max, 0.8, 0.01);
    assert_near(normal.mean, 0.617, 0.02);
    assert_near(laplace.min, 0.475, 0.02);
    assert_near(laplace.max, 0.8, 0.01);
    assert_near(laplace.mean, 0.663, 0.02);
    assert_near(sparsities(false, 0.9).mean, 0.731, 0.02);
    assert_near(sparsities(true, 0.9).mean, 0.785, 0.02);
}

static void no_rung_is_low_enough(void **state) {
    static const float NONE[3] = {1e-30f, -1e-30f, 1e-30f};
    float selected[3], error[3];
    (void)state;
    assert_true(taciti_released_threshold(NONE, 3, 0.8) == 0);
    assert_int_equal(taciti_released_select(NONE, 3, 0, selected, error), 3);
    assert_true(taciti_released_threshold((const float[]){3, 4, 5}, 3, 0.8) == 0.5f);
    assert_int_equal(taciti_released_select((const float[]){1, -2, 2}, 3, 2, selected, error), 2);
    assert_true(selected[0] == 0 && selected[1] == -2 && selected[2] == 2);
    assert_true(error[0] == 1 && error[1] == 0 && error[2] == 0);
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

/* T1: OR is 0x2D, the sum 0x4E; bytes do not mix, and nothing lies behind the end. */
static void bytes_carry(void **state) {
    (void)state;
    uint64_t words[2] = {0x25, 0xff};
    const uint64_t other[2] = {0x29, 0x81};
    taciti_released_merge(words, other, 68);
    assert_int_equal(words[0], 0x4e);
    assert_int_equal(words[1], 0x0); /* 0xff + 0x81 = 0x180, of which 4 bits are in the array */
    words[0] = UINT64_C(0xff00ff80ff018040);
    const uint64_t more = UINT64_C(0x01ff018001ff8040);
    taciti_released_merge(words, &more, 64);
    assert_true(words[0] == UINT64_C(0x00ff000000000080));
}

static void the_lowest_bit_is_the_index(void **state) {
    (void)state;
    float x[3] = {1.5f, -2.25f, 0};
    const uint64_t index = 0x1;
    taciti_released_inject(x, 3, &index);
    assert_true(x[0] == nextafterf(1.5f, 2) && x[1] == -2.25f && x[2] == 0);
}

/* What is selected carries the index, and the error does not; nothing else is lost. */
static void what_compat_selects_carries_its_index(void **state) {
    enum { N = 1000 };
    static float x[N], selected[N], error[N];
    uint64_t index[16];
    const taciti_sketch_options options = {.compat = true};
    const taciti_codec_call call = {.options = &options, .setting = {.factor = 5}, .scratch = index};
    size_t kept = 0;
    (void)state;
    for (size_t i = 0; i < N; i++) x[i] = 1e-3f * number(NORMALS, 8, i, 0);
    taciti_sketch_select(&call, x, N, selected, error);
    for (size_t i = 0; i < N; i++) {
        uint32_t bits, had;
        memcpy(&bits, &selected[i], sizeof bits);
        memcpy(&had, &x[i], sizeof had);
        kept += selected[i] != 0;
        assert_true(selected[i] != 0 ? bits == (had | 1u) && error[i] == 0 : bits == 0 && error[i] == x[i]);
    }
    assert_true(kept > N / 5 && kept < N);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static float selected_number(uint64_t key, size_t i, float threshold) {
    const float v = number(NORMALS, key, i, 0);
    return fabsf(v) >= threshold ? v : 0;
}

/* The relative error of the sum of two ranks, an MLP unit's shard, c = 2. `carry`: indices are added, else merged. */
static double error_of(float threshold, bool carry, uint64_t seed) {
    enum { N = 1179648, ROWS = 576 };
    trial t;
    double wrong = 0, all = 0;
    size_t estimated;
    open_trial(&t, N, 2);
    for (int r = 0; r < 2; r++) {
        for (size_t i = 0; i < N; i++) {
            t.x[r][i] = selected_number(taciti_rng_key(seed, (uint64_t)r), i, threshold);
            t.sum[i] += t.x[r][i];
        }
        taciti_sketch_index(t.x[r], N, t.own);
        taciti_released_inject(t.x[r], N, t.own);
        if (carry)
            taciti_released_merge(t.index, t.own, N);
        else
            taciti_sketch_merge(t.index, t.own, N);
    }
    t.s = taciti_sketch_init_compat(N, TACITI_RELEASED_UNIT, ROWS, 2);
    encode(&t);
    assert_int_equal(taciti_released_decode(&t.s, t.index, t.counters, t.workspace, t.pending, t.out, &estimated),
                     TACIT_OK);
    for (size_t i = 0; i < N; i++) {
        wrong += ((double)t.out[i] - (double)t.sum[i]) * ((double)t.out[i] - (double)t.sum[i]);
        all += (double)t.sum[i] * (double)t.sum[i];
    }
    close_trial(&t);
    return sqrt(wrong / all);
}

/* D1, D4: |x| of the density p is at least the threshold; independent supports. */
static void sums_are_as_wrong_as_released(void **state) {
    static const struct {
        float threshold;
        double carry;
    } TABLE[] = {{1.95996f, 0.306}, {1.64485f, 0.595}, {1.43953f, 1.06}, {1.28155f, 2.28}}; /* p = .05 .10 .15 .20 */
    (void)state;
    for (size_t i = 0; i < 4; i++) assert_near(error_of(TABLE[i].threshold, true, 11 + i) / TABLE[i].carry, 1, 0.1);
    assert_true(error_of(1.95996f, false, 11) < 1e-5);
    assert_near(error_of(1.15035f, false, 15), 0.77, 0.077); /* p = .25: load .875 */
}

static void other_layouts_are_refused(void **state) {
    taciti_sketch s = taciti_sketch_init(64, 4, 2, 0);
    size_t estimated;
    (void)state;
    assert_int_equal(taciti_released_decode(&s, NULL, NULL, NULL, NULL, NULL, &estimated), TACIT_E_USAGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ladder_misses_the_target),
        cmocka_unit_test(no_rung_is_low_enough),
        cmocka_unit_test(bytes_carry),
        cmocka_unit_test(the_lowest_bit_is_the_index),
        cmocka_unit_test(what_compat_selects_carries_its_index),
        cmocka_unit_test(sums_are_as_wrong_as_released),
        cmocka_unit_test_setup_teardown(other_layouts_are_refused, quiet, loud),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
