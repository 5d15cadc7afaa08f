/* SPDX-License-Identifier: Apache-2.0
 *
 * LoCo: the numbers and the laws of its error memory.
 */
#include "codec/test_quantisers.h"

static void take_state(void) { memcpy(g_state, g_next, sizeof g_state); }

static void loco_follows_its_trace(void **state) {
    (void)state;
    static const float X[] = {1, .3f, -.8f, .05f};
    static const int CODES[3][4] = {{7, 2, -6, 0}, {7, 2, -6, 0}, {7, 2, -6, 1}};
    static const double ERRORS[3][4] = {
        {.025, .01, -.01, .01}, {.045625, .01875, -.01625, .02}, {.062641, .026469, -.019406, .003859}};
    const taciti_codec *codec = use("loco");
    set(codec, "loco.error", "f32");
    for (int t = 0; t < 3; t++) {
        assert_int_equal(round_trip(codec, X, 4, g_y), 4 + 2);
        float e[4];
        memcpy(e, g_next + 8, sizeof e);
        for (size_t i = 0; i < 4; i++) {
            const int code = (g_payload[4 + i / 2] >> (i % 2 * 4) & 15) - 8;
            assert_int_equal(code, CODES[t][i]);
            assert_true(fabs((double)e[i] - ERRORS[t][i]) < 1e-6);
        }
        take_state();
    }
}

/* With 8 bits the memory is within half a step of 1/128 of its largest element, and the largest positive one loses as
 * much as a whole step. */
static void loco_stores_its_memory_in_8_bits(void **state) {
    (void)state;
    const taciti_codec *codec = use("loco");
    for (size_t i = 0; i < 1000; i++) g_x[i] = normal(19, i);
    (void)round_trip(codec, g_x, 1000, g_y);
    for (size_t b = 0; b * 256 < 1000; b++) {
        float scale, largest = 0;
        memcpy(&scale, g_next + 8 + b * 260, sizeof scale);
        for (size_t i = b * 256; i < 1000 && i < b * 256 + 256; i++) {
            const float e = 0.2f * (g_x[i] - g_y[i]), stored = scale * (float)(int8_t)g_next[8 + b * 260 + 4 + i % 256];
            largest = fmaxf(largest, fabsf(e));
            assert_true(fabsf(e - stored) <= scale * 1.001f);
            if (e < 127 * scale) assert_true(fabsf(e - stored) <= scale * 0.501f);
        }
        assert_true(fabsf(scale * 128 - largest) <= largest * 1e-5f && largest > 0);
    }
    /* the next step adds the memory to its input */
    take_state();
    memset(g_x, 0, sizeof g_x);
    (void)round_trip(codec, g_x, 1000, g_y);
    float scale;
    memcpy(&scale, g_state + 8, sizeof scale);
    double sent = 0;
    for (size_t i = 0; i < 256; i++) sent = fmax(sent, fabs((double)g_y[i]));
    assert_true(sent > 7.0 / 8 * 127 * (double)scale && sent < 129 * (double)scale);
}

static void loco_stores_its_memory_in_floats(void **state) {
    (void)state;
    const taciti_codec *codec = use("loco");
    set(codec, "loco.error", "f32");
    assert_int_equal(codec->state_bytes(g_options, 600), 8 + 3 * 1024);
    for (size_t i = 0; i < 600; i++) g_x[i] = normal(41, i);
    (void)round_trip(codec, g_x, 600, g_y);
    for (size_t i = 0; i < 600; i++) {
        float e;
        memcpy(&e, g_next + 8 + 4 * i, sizeof e);
        assert_true(fabsf(e - 0.2f * (g_x[i] - g_y[i])) < 1e-6f);
    }
}

static void loco_sends_the_largest_floats_and_zeros(void **state) {
    (void)state;
    const float huge[] = {-0x1.fffffep127f, 0x1.fffffep127f}, sent[] = {-0x1.fffffep127f, 0x1.fffffep124f * 7};
    (void)round_trip(use("loco"), huge, 2, g_y);
    assert_floats(g_y, sent, 2);
    memset(g_x, 0, sizeof g_x);
    (void)round_trip(use("loco"), g_x, 16, g_y);
    for (size_t i = 4; i < 12; i++) assert_int_equal(g_payload[i], 0x88);
}

static void loco_resets_its_memory(void **state) {
    (void)state;
    const taciti_codec *codec = use("loco");
    set(codec, "loco.reset", "3");
    for (size_t i = 0; i < 300; i++) g_x[i] = normal(23, i);
    g_x[299] = NAN; /* also the memory of a block that is not finite */
    const size_t bytes = codec->state_bytes(g_options, 300);
    for (int step = 1; step <= 7; step++) {
        memset(g_next, 0x5a, sizeof g_next);
        (void)round_trip(codec, g_x, 300, g_y);
        size_t set_bytes = 0;
        for (size_t i = 8; i < bytes; i++) set_bytes += g_next[i] != 0;
        assert_true((set_bytes == 0) == (step % 3 == 0));
        assert_int_equal(g_next[bytes], 0x5a);
        take_state();
    }
}

static void loco_keeps_the_memory_of_blocks_that_are_not_finite(void **state) {
    (void)state;
    const taciti_codec *codec = use("loco");
    for (size_t i = 0; i < 600; i++) g_x[i] = normal(29, i);
    (void)round_trip(codec, g_x, 600, g_y);
    take_state();
    g_x[300] = INFINITY;
    (void)round_trip(codec, g_x, 600, g_y);
    assert_memory_equal(g_state + 8 + 260, g_next + 8 + 260, 260);
    assert_memory_not_equal(g_state + 8, g_next + 8, 260);
    assert_memory_not_equal(g_state + 8 + 520, g_next + 8 + 520, 260);
}

/* A mean of inputs that do not change reaches them, although every step rounds to 4 bits. */
static void loco_averages_the_error_away(void **state) {
    (void)state;
    const taciti_codec *codec = use("loco");
    double sum[256] = {0}, plain = 0, averaged = 0;
    for (size_t i = 0; i < 256; i++) g_x[i] = normal(31, i);
    for (int step = 0; step < 200; step++) {
        (void)round_trip(codec, g_x, 256, g_y);
        for (size_t i = 0; i < 256; i++) {
            sum[i] += (double)g_y[i] / 200;
            if (step == 0) plain += fabs((double)g_x[i] - (double)g_y[i]);
        }
        take_state();
    }
    for (size_t i = 0; i < 256; i++) averaged += fabs((double)g_x[i] - sum[i]);
    assert_true(averaged < plain / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loco_follows_its_trace),
        cmocka_unit_test(loco_stores_its_memory_in_8_bits),
        cmocka_unit_test(loco_stores_its_memory_in_floats),
        cmocka_unit_test(loco_sends_the_largest_floats_and_zeros),
        cmocka_unit_test(loco_resets_its_memory),
        cmocka_unit_test(loco_keeps_the_memory_of_blocks_that_are_not_finite),
        cmocka_unit_test(loco_averages_the_error_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
