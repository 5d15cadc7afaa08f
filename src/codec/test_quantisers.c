/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantisers: the packing and the checks that they share, then the numbers and the properties of each. The duties of
 * every codec are in test_codec.c. Random methods have fixed keys, so a bound of 5 standard deviations holds always or
 * never.
 */
#include "codec/test_quantisers.h"

/* ---- what quantisers share --------------------------------------------------------------------------------------- */
typedef struct echo_options {
    taciti_quantiser_shape shape;
} echo_options;

/* Elements are codes; the first parameter is the place of the block. */
static taciti_quantiser_shape echo_shape(const void *options) { return ((const echo_options *)options)->shape; }
static void echo_measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    const size_t count = ((const echo_options *)call->options)->shape.parameters;
    for (size_t i = 0; i < count; i++) parameters[i] = (float)(block->first + i);
}
static void echo_quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                          uint8_t *codes) {
    (void)call;
    assert_true(part->first >= (size_t)parameters[0] && part->n <= TACITI_QUANTISER_PIECE);
    assert_ptr_equal(part->x, g_x + part->first);
    for (size_t i = 0; i < part->n; i++) codes[i] = (uint8_t)part->x[i];
}
static bool echo_legal(const void *options, const float *parameters) {
    (void)options;
    return parameters[0] >= 0;
}
static void echo_restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    (void)options;
    for (size_t i = 0; i < n; i++) y[i] = 256 * parameters[0] + codes[i];
}
static const taciti_quantiser ECHOING = {.shape = echo_shape,
                                         .measure = echo_measure,
                                         .quantise = echo_quantise,
                                         .legal = echo_legal,
                                         .restore = echo_restore};
static const taciti_codec ECHO = {TACITI_QUANTISER(ECHOING), .name = "echo"};

static void echo(size_t block, size_t parameters, unsigned codes, size_t n) {
    const echo_options options = {{block, parameters, codes}};
    taciti_codec_tally tally = {0};
    taciti_codec_call call = {.options = &options, .key = 5, .tally = &tally};
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) g_x[i] = (float)(taciti_rng_u64(codes, i) % codes);
    const size_t bound = taciti_quantiser_bound(&ECHO, &options, n);
    memset(g_payload + bound, 0xa5, 64);
    g_out[n] = g_error[n] = 7;
    assert_int_equal(taciti_quantiser_encode(&ECHO, &call, g_x, n, g_payload, g_error, &bytes), TACIT_OK);
    assert_int_equal(bytes, bound);
    for (size_t i = 0; i < 64; i++) assert_int_equal(g_payload[bound + i], 0xa5);
    assert_int_equal(taciti_quantiser_decode(&ECHO, &call, g_payload, bytes, g_out, n, false), TACIT_OK);
    assert_true(g_out[n] == 7 && g_error[n] == 7);
    memcpy(g_y, g_out, n * sizeof *g_y);
    const size_t length = block == 0 ? n : (block + 7) / 8 * 8;
    double squares_in = 0, squares_out = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(g_y[i] == 256 * (float)(i / length * length) + g_x[i]);
        assert_true(g_error[i] == g_x[i] - g_y[i]);
        squares_in += (double)g_x[i] * (double)g_x[i];
        squares_out += (double)g_y[i] * (double)g_y[i];
    }
    assert_true(tally.n == n && tally.selected == n && tally.near == n && tally.threshold == 0);
    assert_true(tally.squares_in == squares_in && tally.squares_out == squares_out);
    taciti_codec_tally again = {0};
    call.tally = &again; /* adds up without errors, too, and errors come without a tally */
    assert_int_equal(taciti_quantiser_encode(&ECHO, &call, g_x, n, g_payload, NULL, &bytes), TACIT_OK);
    assert_memory_equal(&again, &tally, sizeof tally);
    call.tally = NULL;
    memset(g_error, 0, sizeof g_error);
    assert_int_equal(taciti_quantiser_encode(&ECHO, &call, g_x, n, g_payload, g_error, &bytes), TACIT_OK);
    for (size_t i = 0; i < n; i++) assert_true(g_error[i] == g_x[i] - g_y[i]);
    memcpy(g_x, g_y, n * sizeof *g_x);
    assert_int_equal(taciti_quantiser_decode(&ECHO, &call, g_payload, bytes, g_y, n, true), TACIT_OK);
    for (size_t i = 0; i < n; i++) assert_true(g_y[i] == 2 * g_x[i]);
}

static void codes_of_every_width_arrive_in_blocks_of_every_length(void **state) {
    (void)state;
    static const unsigned CODES[] = {2, 3, 4, 5, 8, 15, 16, 17, 63, 64, 127, 255, 256};
    static const size_t SIZES[] = {0, 1, 4, 5, 6, 7, 8, 9, 639, 640, 641, 1285, MAX};
    for (size_t c = 0; c < sizeof CODES / sizeof *CODES; c++)
        for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
            echo(0, 1, CODES[c], SIZES[s]);
            echo(1, 1, CODES[c], SIZES[s]);
            echo(100, 3, CODES[c], SIZES[s]);
            echo(1000, 2, CODES[c], SIZES[s]);
        }
}

static size_t echo_bytes(size_t block, size_t parameters, unsigned codes, size_t n) {
    const echo_options options = {{block, parameters, codes}};
    return taciti_quantiser_bound(&ECHO, &options, n);
}

static void payloads_are_as_short_as_their_codes(void **state) {
    (void)state;
    assert_int_equal(echo_bytes(0, 1, 2, 9), 4 + 2);
    assert_int_equal(echo_bytes(0, 1, 3, 9), 4 + 3);
    assert_int_equal(echo_bytes(0, 1, 3, 13), 4 + 4);
    assert_int_equal(echo_bytes(0, 2, 4, 9), 8 + 3);
    assert_int_equal(echo_bytes(0, 2, 5, 9), 8 + 4);
    assert_int_equal(echo_bytes(16, 1, 16, 33), 12 + 17);
    assert_int_equal(echo_bytes(9, 1, 256, 33), 12 + 33);
    assert_int_equal(echo_bytes(9, 1, 256, 0), 0);
}

static tacit_status decode_forged(size_t parameters, unsigned codes, size_t n, size_t bytes) {
    const echo_options options = {{0, parameters, codes}};
    const taciti_codec_call call = {.options = &options};
    for (size_t i = 0; i < n; i++) g_y[i] = 7;
    const tacit_status status = taciti_quantiser_decode(&ECHO, &call, g_payload, bytes, g_y, n, false);
    if (status != TACIT_OK)
        for (size_t i = 0; i < n; i++) assert_true(g_y[i] == 7);
    return status;
}

static void drop_line(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

static void parameters_that_no_encoder_writes_are_refused(void **state) {
    (void)state;
    static const float BAD[][2] = {{NAN, 1}, {1, NAN}, {INFINITY, INFINITY}, {1, -INFINITY}, {-1, 1}, {NAN, INFINITY}};
    static const float GOOD[][2] = {{NAN, NAN}, {0, -5}, {3, 1e38f}};
    taciti_log_set_sink(drop_line, NULL, TACITI_LOG_INFO);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        memset(g_payload, 0, sizeof g_payload);
        memcpy(g_payload, BAD[i], sizeof BAD[i]);
        assert_int_equal(decode_forged(2, 4, 8, 10), TACIT_E_DATA);
    }
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        memset(g_payload, 0, sizeof g_payload);
        memcpy(g_payload, GOOD[i], sizeof GOOD[i]);
        assert_int_equal(decode_forged(2, 4, 8, 10), TACIT_OK);
    }
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

/* Every block is looked at. */
static void parameters_of_later_blocks_are_refused(void **state) {
    (void)state;
    const taciti_codec *codec = use("onebit");
    for (size_t i = 0; i < 1300; i++) g_x[i] = normal(53, i);
    size_t bytes = 0;
    assert_int_equal(codec->encode(codec, &g_call, g_x, 1300, g_payload, NULL, &bytes), TACIT_OK);
    taciti_log_set_sink(drop_line, NULL, TACITI_LOG_INFO);
    for (size_t b = 0; b < 3; b++) {
        float good;
        const float bad = 1;
        memcpy(&good, g_payload + 8 * b, sizeof good);
        memcpy(g_payload + 8 * b, &bad, sizeof bad);
        assert_int_equal(codec->decode(codec, &g_call, g_payload, bytes, g_y, 1300, false), TACIT_E_DATA);
        memcpy(g_payload + 8 * b, &good, sizeof good);
    }
    assert_int_equal(codec->decode(codec, &g_call, g_payload, bytes, g_y, 1300, false), TACIT_OK);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

static void codes_that_no_encoder_writes_are_refused(void **state) {
    (void)state;
    taciti_log_set_sink(drop_line, NULL, TACITI_LOG_INFO);
    memset(g_payload, 0, sizeof g_payload);
    for (size_t at = 4; at < 4 + 1280; at += 1279) { /* in the first and in the last of three pieces */
        g_payload[at] = 254;
        assert_int_equal(decode_forged(1, 255, 1280, 4 + 1280), TACIT_OK);
        g_payload[at] = 255;
        assert_int_equal(decode_forged(1, 255, 1280, 4 + 1280), TACIT_E_DATA);
        g_payload[at] = 0;
    }
    for (size_t at = 4; at < 9; at += 4) {
        g_payload[at] = 0xaa;
        assert_int_equal(decode_forged(1, 3, 20, 9), TACIT_OK);
        g_payload[at] = 0xab;
        assert_int_equal(decode_forged(1, 3, 20, 9), TACIT_E_DATA);
        g_payload[at] = 0;
    }
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

/* A NaN in one block tells the receiver, and leaves the others alone. */
static void a_block_that_is_not_finite_decodes_to_nan(void **state) {
    (void)state;
    static const char *const NAMES[] = {"qsgd", "onebit"};
    static const float BAD[] = {NAN, INFINITY, -INFINITY};
    for (size_t c = 0; c < 2; c++)
        for (size_t b = 0; b < 3; b++) {
            const taciti_codec *codec = use(NAMES[c]);
            for (size_t i = 0; i < 2000; i++) g_x[i] = normal(3, i);
            g_x[1100] = BAD[b];
            const size_t bytes = round_trip(codec, g_x, 2000, g_y);
            for (size_t i = 0; i < 2000; i++) assert_true((isnan(g_y[i]) != 0) == (i / 512 == 2));
            /* its codes are 0: 512 of 2000 codes behind 4 blocks' parameters */
            const size_t parameters = c == 1 ? 32 : 16, width = (bytes - parameters) * 8 / 2000;
            for (size_t i = 128 * width; i < 192 * width; i++) assert_int_equal(g_payload[parameters + i], 0);
        }
}

/* ---- random rounding --------------------------------------------------------------------------------------------- */
/* Means and variances of what decoding gives for x[n] over TRIALS keys. Elements have independent numbers. */
static void sample(const taciti_codec *codec, const float *x, size_t n, double *mean, double *variance) {
    double sum[8] = {0}, squares[8] = {0};
    float y[8];
    assert_true(n <= 8);
    for (int t = 0; t < TRIALS; t++) {
        g_call.key = taciti_rng_key(7, (uint64_t)t);
        (void)round_trip(codec, x, n, y);
        for (size_t i = 0; i < n; i++) {
            const double d = (double)y[i] - (double)x[i];
            sum[i] += d;
            squares[i] += d * d;
        }
    }
    for (size_t i = 0; i < n; i++) {
        mean[i] = (double)x[i] + sum[i] / TRIALS;
        variance[i] = squares[i] / TRIALS;
    }
}

/* The law of an element that is one of two values `gap` apart around x, with x as mean. */
static void is_between(double x, double gap, double variance, double mean, double measured) {
    const double bound = 5 * sqrt(variance / TRIALS);
    assert_true(fabs(mean - x) <= bound);
    assert_true(fabs(measured - variance) <= 5 * gap * sqrt(variance / TRIALS) + 1e-12);
}

static void qsgd_is_unbiased(void **state) {
    (void)state;
    double mean[8], variance[8];
    const float x[] = {3, -4}; /* norm 5: 2.4 and 3.2 of 4 levels */
    const taciti_codec *codec = use("qsgd");
    set(codec, "qsgd.levels", "4");
    sample(codec, x, 2, mean, variance);
    is_between(3, 1.25, 1.25 * 1.25 * .24, mean[0], variance[0]);
    is_between(-4, 1.25, 1.25 * 1.25 * .16, mean[1], variance[1]);
}

/* The random number of an element is that of its place in the array, in every block and piece. */
static void random_numbers_belong_to_elements(void **state) {
    (void)state;
    const taciti_codec *qsgd = use("qsgd");
    set(qsgd, "qsgd.levels", "1");
    for (size_t i = 0; i < 2000; i++) g_x[i] = i % 100 == 0 ? -0.25f : 0.07f;
    (void)round_trip(qsgd, g_x, 2000, g_y);
    for (size_t i = 0; i < 2000; i++) {
        const size_t block = i / 512 * 512;
        const size_t n = 2000 - block < 512 ? 2000 - block : 512;
        const float norm = (float)sqrt(taciti_kernels_get()->sum_squares(g_x + block, n));
        const double u = taciti_rng_u32(g_call.key, (uint32_t)i) * 0x1p-32;
        assert_true(g_y[i] == (u < fabs((double)g_x[i]) * (1 / (double)norm) ? copysignf(norm, g_x[i]) : 0));
    }
}

/* The levels beside the element, and no other. */
static void qsgd_rounds_to_neighbouring_levels(void **state) {
    (void)state;
    const taciti_codec *codec = use("qsgd");
    for (int levels = 1; levels <= 127; levels += 6) {
        ((int64_t *)(void *)g_options)[0] = levels;
        for (size_t i = 0; i < 1000; i++) g_x[i] = normal(11, i) * 1e-3f; /* norms below 1, too */
        (void)round_trip(codec, g_x, 1000, g_y);
        for (size_t b = 0; b < 1000; b += 512) {
            const size_t n = b == 0 ? 512 : 1000 - 512;
            const double norm = (double)(float)sqrt(taciti_kernels_get()->sum_squares(g_x + b, n));
            for (size_t i = b; i < b + n; i++) {
                const double level = (double)g_y[i] * levels / norm;
                assert_true(fabs(level - nearbyint(level)) < 1e-4);
                assert_true(fabs((double)g_x[i] * levels / norm - nearbyint(level)) < 1 + 1e-9);
            }
        }
    }
}

static void qsgd_variance_is_below_the_bound_of_the_paper(void **state) {
    (void)state;
    const taciti_codec *codec = use("qsgd");
    for (size_t i = 0; i < 512; i++) g_x[i] = normal(12, i);
    const double squares = taciti_kernels_get()->sum_squares(g_x, 512);
    for (int levels = 1; levels <= 127; levels = 2 * levels + 1) {
        double error = 0;
        ((int64_t *)(void *)g_options)[0] = levels;
        for (uint64_t t = 0; t < 200; t++) {
            g_call.key = taciti_rng_key(43, t);
            (void)round_trip(codec, g_x, 512, g_y);
            error += taciti_kernels_get()->sum_squares(g_error, 512) / 200;
        }
        assert_true(error <= fmin(512.0 / levels / levels, sqrt(512) / levels) * squares);
        assert_true(error >= 0.1 * fmin(512.0 / levels / levels, sqrt(512) / levels) * squares);
    }
}

static void zeros_stay_zeros(void **state) {
    (void)state;
    static const char *const NAMES[] = {"qsgd", "onebit"};
    memset(g_x, 0, sizeof g_x);
    for (size_t c = 0; c < 2; c++) {
        (void)round_trip(use(NAMES[c]), g_x, 1000, g_y);
        for (size_t i = 0; i < 1000; i++) assert_true(g_y[i] == 0);
    }
    (void)round_trip(use("qsgd"), g_x, 1000, g_y); /* 2 norms, then codes in the middle */
    for (size_t i = 8; i < 8 + 500; i++) assert_int_equal(g_payload[i], 0x77);
}

/* ---- signs ------------------------------------------------------------------------------------------------------- */
static void vote(const char *name, const float (*ranks)[4], size_t count, const float *expected) {
    const taciti_codec *codec = use(name);
    float sum[4] = {0}, result[4];
    size_t bytes = 0;
    for (size_t r = 0; r < count; r++) {
        assert_int_equal(codec->encode(codec, &g_call, ranks[r], 4, g_payload, NULL, &bytes), TACIT_OK);
        assert_int_equal(codec->decode(codec, &g_call, g_payload, bytes, sum, 4, true), TACIT_OK);
    }
    (void)round_trip(codec, sum, 4, result);
    assert_floats(result, expected, 4);
}

static void signsgd_takes_the_majority(void **state) {
    (void)state;
    const float ranks[][4] = {{3, -1, 0.0f, -2}, {1e-45f, 5, -0.0f, -1e9f}, {-100, -1, -5, 1}};
    const float of_three[] = {1, -1, 1, -1}, of_two[] = {1, 1, 1, -1}, of_one[] = {1, -1, 1, -1};
    vote("signsgd", ranks, 3, of_three);
    vote("signsgd", ranks, 2, of_two);
    vote("signsgd", ranks, 1, of_one);
}

static void onebit_has_the_values_of_the_specification(void **state) {
    (void)state;
    const float x[] = {1, -2, 3, -4}, means[] = {2, -3, 2, -3}, error[] = {-1, 1, 1, -1};
    const taciti_codec *codec = use("onebit");
    assert_int_equal(round_trip(codec, x, 4, g_y), 9);
    assert_floats(g_y, means, 4);
    assert_floats(g_error, error, 4);
    const float few[] = {1, -2, -3, -4}, few_means[] = {1, -3, -3, -3};
    (void)round_trip(codec, few, 4, g_y);
    assert_floats(g_y, few_means, 4);
}

/* Any other value for either sign makes the error larger. */
static void onebit_means_are_the_best_two_values(void **state) {
    (void)state;
    const taciti_codec *codec = use("onebit");
    for (size_t i = 0; i < 512; i++) g_x[i] = normal(17, i) + 0.3f;
    (void)round_trip(codec, g_x, 512, g_y);
    double errors[5] = {0};
    for (size_t i = 0; i < 512; i++)
        for (int c = 0; c < 5; c++) {
            const double shift = c == 0 ? 0 : (c < 3) == (g_x[i] >= 0) ? (c % 2 ? .01 : -.01) : 0;
            const double d = (double)g_x[i] - (double)g_y[i] - shift;
            errors[c] += d * d;
        }
    for (int c = 1; c < 5; c++) assert_true(errors[0] < errors[c]);
    assert_true(errors[0] < taciti_kernels_get()->sum_squares(g_x, 512));
}

/* ---- golden bytes ------------------------------------------------------------------------------------------------ */
static void is_golden(const char *name, const float *x, size_t n, const unsigned char *golden, size_t bytes) {
    assert_int_equal(round_trip(use(name), x, n, g_y), bytes);
    assert_memory_equal(g_payload, golden, bytes);
}

static void wire_formats_are_what_they_say(void **state) {
    (void)state;
    const float x[] = {4, -4, 0, 4, -4, 0};
    const unsigned char ternary[] = {0, 0, 0, 0x41, 0 + 1 * 4 + 1 * 16 + 1 * 64, 1 + 1 * 4};
    const unsigned char sign[] = {0, 0, 0x80, 0x3f, 1 + 4 + 8 + 32};
    const unsigned char onebit[] = {0, 0, 0x80, 0xc0, 0, 0, 0, 0x40, 1 + 4 + 8 + 32};
    const float one[] = {-8, 0, 0, 0, 0, 0, 0, 0, 0};
    const unsigned char qsgd[] = {0, 0, 0, 0x41, 0x70, 0x77, 0x77, 0x77, 0x07};
    is_golden("signsgd", x, 6, sign, sizeof sign);
    is_golden("onebit", x, 6, onebit, sizeof onebit);
    is_golden("qsgd", one, 9, qsgd, sizeof qsgd);
    const taciti_codec *codec = use("qsgd");
    set(codec, "qsgd.levels", "1");
    assert_int_equal(round_trip(codec, one, 6, g_y), sizeof ternary);
    assert_memory_equal(g_payload, ternary, sizeof ternary);
}

static void refuses_parameter(const char *name, size_t at, float value) {
    const taciti_codec *codec = use(name);
    size_t bytes = 0;
    for (size_t i = 0; i < 64; i++) g_x[i] = normal(37, i);
    assert_int_equal(codec->encode(codec, &g_call, g_x, 64, g_payload, NULL, &bytes), TACIT_OK);
    assert_int_equal(codec->decode(codec, &g_call, g_payload, bytes, g_y, 64, false), TACIT_OK);
    memcpy(g_payload + at * sizeof value, &value, sizeof value);
    assert_int_equal(codec->decode(codec, &g_call, g_payload, bytes, g_y, 64, false), TACIT_E_DATA);
}

static void every_method_refuses_scales_that_it_does_not_write(void **state) {
    (void)state;
    taciti_log_set_sink(drop_line, NULL, TACITI_LOG_INFO);
    refuses_parameter("qsgd", 0, -1);
    refuses_parameter("signsgd", 0, 2);
    refuses_parameter("signsgd", 0, 0);
    refuses_parameter("onebit", 0, 1);
    refuses_parameter("onebit", 1, -1);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_of_every_width_arrive_in_blocks_of_every_length),
        cmocka_unit_test(payloads_are_as_short_as_their_codes),
        cmocka_unit_test(parameters_that_no_encoder_writes_are_refused),
        cmocka_unit_test(parameters_of_later_blocks_are_refused),
        cmocka_unit_test(codes_that_no_encoder_writes_are_refused),
        cmocka_unit_test(a_block_that_is_not_finite_decodes_to_nan),
        cmocka_unit_test(qsgd_is_unbiased),
        cmocka_unit_test(random_numbers_belong_to_elements),
        cmocka_unit_test(qsgd_rounds_to_neighbouring_levels),
        cmocka_unit_test(qsgd_variance_is_below_the_bound_of_the_paper),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(signsgd_takes_the_majority),
        cmocka_unit_test(onebit_has_the_values_of_the_specification),
        cmocka_unit_test(onebit_means_are_the_best_two_values),
        cmocka_unit_test(wire_formats_are_what_they_say),
        cmocka_unit_test(every_method_refuses_scales_that_it_does_not_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
