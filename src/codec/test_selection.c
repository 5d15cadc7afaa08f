/* SPDX-License-Identifier: Apache-2.0
 *
 * The codecs that select elements: exact results on small vectors, a reference by sorting on large ones, properties
 * that hold for every registered one, and malformed payloads. ctest runs this with each instruction set.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/log.h"
#include "codec/largest.h"
#include "codec/test_selection.h"
#include "kernel/kernel.h"

/* ---- top-k ------------------------------------------------------------------------------------------------------- */
static void topk_of_eight_numbers(void **state) {
    (void)state;
    static const float X[8] = {3, -1, 4, -1, 5, -9, 2, 6};
    static const float KEPT[5][8] = {{0},
                                     {0, 0, 0, 0, 0, -9, 0, 0},
                                     {0, 0, 0, 0, 0, -9, 0, 6},
                                     {0, 0, 0, 0, 5, -9, 0, 6},
                                     {0, 0, 4, 0, 5, -9, 0, 6}};
    static const double SQUARES[] = {0, 81, 117, 142, 158};
    subject s = of("topk");
    for (size_t k = 1; k <= 4; k++) {
        code(&s, X, 8, 8.0 / (double)k, 0);
        assert_memory_equal(g_y, KEPT[k], sizeof X);
        assert_int_equal(sent_and_residual_are_the_input(X, 8), k);
        assert_true(s.tally.squares_in == 173 && s.tally.squares_out == SQUARES[k]);
        assert_true(s.tally.n == 8 && s.tally.selected == k);
        assert_true(taciti_kernels_get()->sum_squares(g_error, 8) == 173 - SQUARES[k]);
    }
    assert_true(s.tally.threshold == 4 && s.tally.near == 6);
}

static void of_equal_magnitudes_the_first_are_sent(void **state) {
    (void)state;
    float x[8];
    subject s = of("topk");
    for (int signs = 0; signs < 2; signs++) {
        for (int i = 0; i < 8; i++) x[i] = signs && i % 2 ? -1 : 1;
        code(&s, x, 8, 8.0 / 3, 0);
        for (int i = 0; i < 8; i++) assert_true(g_y[i] == (i < 3 ? x[i] : 0));
        assert_true(taciti_kernels_get()->sum_squares(g_error, 8) == 5); /* (1 - 3/8) 8: the bound is tight */
    }
    const float zeros[4] = {0, -0.0f, 0, 1e-45f};
    code(&s, zeros, 4, 2, 0); /* zeros are not sent, the smallest denormal is */
    assert_true(s.tally.selected == 1 && g_y[3] == 1e-45f && to_bits(g_error[1]) == 0x80000000u);
}

static void gain_of_powers_of_two(void **state) {
    (void)state;
    float x[20];
    subject s = of("topk");
    for (int i = 0; i < 20; i++) x[i] = ldexpf(1, -i);
    for (int k = 1; k <= 3; k++) {
        code(&s, x, 20, 20.0 / k, 0);
        const double want = (1 - pow(4, -k)) / (1 - pow(4, -20));
        assert_true(fabs(s.tally.squares_out / s.tally.squares_in - want) < 1e-15);
    }
}

static void everything_is_sent_at_factor_1(void **state) {
    (void)state;
    for (size_t c = 0; c < g_selecting_count; c++) {
        subject s = with_floats(g_selecting[c]);
        fill(g_x, 1000, ANY_BITS, 3);
        code(&s, g_x, 1000, 1, 0);
        assert_int_equal(s.bytes, HEADER + 4000);
        assert_memory_equal(g_y, g_x, 4000);
        for (size_t i = 0; i < 1000; i++) assert_int_equal(to_bits(g_error[i]), 0);
        assert_true(s.tally.selected == 1000);
    }
}

static int descending(const void *a, const void *b) {
    const uint32_t x = magnitude(*(const float *)a), y = magnitude(*(const float *)b);
    return x < y ? 1 : x > y ? -1 : 0;
}

/* g_y holds the k largest of g_x by the definition: all above the k-th magnitude, then the first that equal it; no
 * zeros; all that are not finite. */
static void is_top_k(size_t n, size_t k) {
    memcpy(g_sorted, g_x, n * sizeof *g_x);
    qsort(g_sorted, n, sizeof *g_sorted, descending);
    uint32_t threshold = magnitude(g_sorted[k - 1]);
    size_t ties = 0;
    for (size_t i = 0; i < k; i++) ties += magnitude(g_sorted[i]) == threshold;
    if (threshold >= 0x7f800000u) threshold = 0x7f800000u, ties = n;
    for (size_t i = 0; i < n; i++) {
        const uint32_t m = magnitude(g_x[i]);
        bool want = m > threshold;
        if (m == threshold && ties > 0) want = true, ties--;
        assert_int_equal(to_bits(g_y[i]), want && m > 0 ? to_bits(g_x[i]) : 0);
    }
}

/* T11: of 3 and 2, half each, the first step sends the 3s; the 2s, then 4, go before the next 3s. The sum of what
 * was sent in T steps and the residual is T times the gradient, in whole numbers. */
static void error_feedback_sends_what_waited(void **state) {
    enum { N = 82, STEPS = 7 };
    static float g[N], with[N], sent[N];
    subject s = with_floats("topk");
    (void)state;
    for (size_t i = 0; i < N; i++) g[i] = i % 2 == 0 ? -3 : 2;
    memcpy(with, g, sizeof g);
    memset(sent, 0, sizeof sent);
    for (int step = 1; step <= STEPS; step++) {
        code(&s, with, N, 2, 0);
        for (size_t i = 0; i < N; i++) {
            if (step == 1) assert_true(g_y[i] == (i % 2 == 0 ? -3 : 0));
            if (step == 2) assert_true(g_y[i] == (i % 2 == 0 ? 0 : 4));
            sent[i] += g_y[i];
            assert_true(sent[i] + g_error[i] == (float)step * g[i]);
            with[i] = g[i] + g_error[i];
        }
    }
}

static void topk_is_exact(void **state) {
    (void)state;
    static const size_t SIZES[] = {1, 2, 15, 16, 17, 1000, 8192, 8193, 20000, MAX};
    static const double FACTORS[] = {1.5, 10, 100, 1000};
    subject s = of("topk");
    for (size_t z = 0; z < sizeof SIZES / sizeof *SIZES; z++)
        for (kind k = 0; k < KINDS; k++)
            for (size_t f = 0; f < sizeof FACTORS / sizeof *FACTORS; f++) {
                const size_t n = SIZES[z], kept = taciti_kept_of(FACTORS[f], 0, n);
                fill(g_x, n, k, z + 1);
                code(&s, g_x, n, FACTORS[f], 0);
                (void)sent_and_residual_are_the_input(g_x, n);
                /* more kept than is worth it: all are sent */
                if (s.bytes < HEADER + 4 * n) is_top_k(n, kept);
            }
}

/* Lines that are sampled hold other numbers than the rest: what the sample suggests is far too high or too low, or the
 * rest is 0. */
static void topk_is_exact_when_the_sample_misleads(void **state) {
    (void)state;
    static const float FACTORS[][2] = {{1, 1e3f}, {1, 1e-3f}, {0, 1}}; /* of what is not sampled, of what is */
    const size_t n = 1 << 18, stride = 32;
    subject s = of("topk");
    for (size_t f = 0; f < 3; f++) {
        size_t numbers = 0;
        fill(g_x, n, UNIFORM, 5);
        for (size_t i = 0; i < n; i++) {
            g_x[i] *= FACTORS[f][taciti_sampled_line(i / 16 / stride, stride) == i / 16];
            numbers += magnitude(g_x[i]) > 0;
        }
        for (double factor = 10; factor <= 1000; factor *= 10) {
            const size_t k = taciti_kept_of(factor, 0, n);
            code(&s, g_x, n, factor, 0);
            is_top_k(n, k);
            assert_int_equal(s.tally.selected, k < numbers ? k : numbers);
        }
    }
}

static void topk_of_topk_is_topk(void **state) {
    (void)state;
    static float first[20000];
    subject s = of("topk");
    for (kind k = 0; k < NONFINITE; k++) {
        fill(g_x, 20000, k, 9);
        code(&s, g_x, 20000, 40, 0);
        memcpy(first, g_y, sizeof first);
        code(&s, first, 20000, 400, 0);
        memcpy(first, g_y, sizeof first);
        code(&s, g_x, 20000, 400, 0);
        assert_memory_equal(g_y, first, sizeof first);
    }
}

/* ---- properties of all
 * ------------------------------------------------------------------------------------------------- */
static void what_is_selected_arrives_and_the_rest_stays(void **state) {
    (void)state;
    static const size_t SIZES[] = {1, 15, 16, 17, 4096, 5000, 20011};
    for (size_t c = 0; c < g_selecting_count; c++)
        for (size_t z = 0; z < sizeof SIZES / sizeof *SIZES; z++)
            for (kind k = 0; k < KINDS; k++) {
                subject s = with_floats(g_selecting[c]);
                const size_t n = SIZES[z];
                fill(g_x, n, k, z);
                code(&s, g_x, n, 20, 0);
                (void)sent_and_residual_are_the_input(g_x, n);
                if (k >= NONFINITE) continue;
                const double in = taciti_kernels_get()->sum_squares(g_x, n);
                const double out = taciti_kernels_get()->sum_squares(g_y, n);
                assert_true(fabs(s.tally.squares_in - in) <= 1e-12 * in);
                assert_true(fabs(s.tally.squares_out - out) <= 1e-12 * in);
            }
}

/* |x - C(x)|^2 <= (1 - k / n) |x|^2 where units of equal size are ranked. */
static void the_largest_contract(void **state) {
    (void)state;
    static const char *const NAMES[] = {"topk", "sparseloco"};
    for (size_t c = 0; c < 2; c++)
        for (kind k = 0; k < NONFINITE; k++)
            for (double factor = 2; factor < 100; factor *= 4) {
                subject s = with_floats(NAMES[c]);
                fill(g_x, 32768, k, 31);
                code(&s, g_x, 32768, factor, 0);
                const double left = taciti_kernels_get()->sum_squares(g_error, 32768);
                assert_true(left <= (1 - 1 / factor) * s.tally.squares_in * (1 + 1e-12));
            }
}

/* Half the values' bits are rounded off; the residual holds what was. */
static void errors_of_values_stay(void **state) {
    (void)state;
    for (size_t c = 0; c < g_selecting_count; c++)
        for (int all = 0; all < 2; all++) {
            subject s = of(g_selecting[c]);
            if (!stores_in(&s, "bf16")) continue;
            fill(g_x, 20000, UNIFORM, 77);
            code(&s, g_x, 20000, all ? 1 : 10, 0);
            for (size_t i = 0; i < 20000; i++) assert_true(g_error[i] == g_x[i] - g_y[i]);
            const double out = taciti_kernels_get()->sum_squares(g_y, 20000);
            assert_true(fabs(s.tally.squares_out - out) <= 1e-12 * out);
        }
}

static void thresholds_select_what_reaches_them(void **state) {
    (void)state;
    static const double THRESHOLDS[] = {1e-45, 1e-10, 0.25, 0.5, 0.9990000000000001, 1, 3e38, 1e300};
    for (kind k = 0; k < KINDS; k++)
        for (size_t t = 0; t < sizeof THRESHOLDS / sizeof *THRESHOLDS; t++) {
            subject s = of("topk");
            size_t kept = 0, near = 0;
            fill(g_x, 9000, k, 4);
            code(&s, g_x, 9000, 0, THRESHOLDS[t]);
            for (size_t i = 0; i < 9000; i++) {
                const double x = fabs((double)g_x[i]);
                const bool reaches = !(x < THRESHOLDS[t]), sent = to_bits(g_y[i]) == to_bits(g_x[i]);
                kept += reaches;
                near += x < THRESHOLDS[t] / 2 ? 0 : 1;
                if (s.bytes < HEADER + 36000) assert_true(sent == reaches || x == 0);
            }
            assert_true(s.tally.selected == kept || s.bytes == HEADER + 36000);
            if (t > 0 && t + 1 < sizeof THRESHOLDS / sizeof *THRESHOLDS) assert_int_equal(s.tally.near, near);
        }
    assert_int_equal(taciti_magnitude_bits(1), 0x3f800000u);
    assert_int_equal(taciti_magnitude_bits(1 + 1e-12), 0x3f800001u);
    assert_int_equal(taciti_magnitude_bits(1 - 1e-12), 0x3f800000u);
    assert_int_equal(taciti_magnitude_bits(1e-60), 1);
    assert_int_equal(taciti_magnitude_bits(1e300), 0x7f800000u);
}

/* ---- random ------------------------------------------------------------------------------------------------------ */
static void random_subsets_are_equally_likely(void **state) {
    (void)state;
    enum { DRAWS = 15000, SUBSETS = 15 };
    static const float X[6] = {1, 2, 3, 4, 5, 6};
    size_t counts[64] = {0};
    double left = 0, deviation = 0;
    int subsets = 0;
    subject s = of("randomk");
    for (uint64_t key = 0; key < DRAWS; key++) {
        unsigned set_of = 0;
        s.call.key = taciti_rng_key(1, key);
        code(&s, X, 6, 3, 0);
        assert_int_equal(s.bytes, HEADER + 2 * sizeof(float));
        assert_int_equal(sent_and_residual_are_the_input(X, 6), 2);
        for (unsigned i = 0; i < 6; i++) set_of |= (g_y[i] != 0 ? 1u : 0u) << i;
        if (counts[set_of]++ == 0) left += taciti_kernels_get()->sum_squares(g_error, 6);
    }
    for (unsigned i = 0; i < 64; i++) {
        subsets += counts[i] > 0;
        if (counts[i] > 0) deviation += pow((double)counts[i] - 1000, 2) / 1000;
    }
    assert_int_equal(subsets, SUBSETS);
    assert_true(left * 6 == (6 - 2) * 91 * SUBSETS); /* (1 - k/n) |x|^2 is the mean over all subsets, exactly */
    assert_true(deviation < 43);                     /* chi squared of 14 degrees: 1e-4 */
}

static void ranks_with_one_key_send_the_same_elements(void **state) {
    (void)state;
    static float first[1000];
    subject s = of("randomk");
    for (size_t i = 0; i < 1000; i++) g_x[i] = 1;
    code(&s, g_x, 1000, 10, 0);
    memcpy(first, g_y, sizeof first);
    for (size_t i = 0; i < 1000; i++) g_x[i] = 2;
    code(&s, g_x, 1000, 10, 0);
    for (size_t i = 0; i < 1000; i++) assert_true(g_y[i] == 2 * first[i]);
    assert_true(taciti_codec_find("randomk")->shared_key);
}

/* ---- SparseLoCo -------------------------------------------------------------------------------------------------- */
static void sparseloco_of_two_steps(void **state) {
    (void)state;
    static const float D[8] = {.5f, -.2f, .1f, .4f, 0, 0, -.3f, .05f};
    static const float SENT[2][8] = {{.5f, 0, 0, .4f, 0, 0, 0, 0}, {.5f, 0, 0, 0, 0, 0, -.585f, 0}};
    static const float LEFT[2][8] = {{0, -.2f, .1f, 0, 0, 0, -.3f, .05f}, {0, -.39f, .195f, .4f, 0, 0, 0, .0975f}};
    float e[8] = {0};
    subject s = with_floats("sparseloco");
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 8; i++) e[i] = 0.95f * e[i] + D[i];
        code(&s, e, 8, 4, 0);
        for (int i = 0; i < 8; i++) assert_true(fabsf(g_y[i] - SENT[step][i]) < 1e-7f);
        for (int i = 0; i < 8; i++) assert_true(fabsf(g_error[i] - LEFT[step][i]) < 1e-7f);
        memcpy(e, g_error, sizeof e);
    }
}

/* Every chunk is what topk makes of it, whatever came before. */
static void sparseloco_is_topk_of_every_chunk(void **state) {
    (void)state;
    static float chunks[20011];
    for (kind k = 0; k < KINDS; k++) {
        subject s = with_floats("sparseloco");
        fill(g_x, 20011, k, 8);
        for (size_t i = 0; i < 20011 && k < NONFINITE; i++) g_x[i] *= i / 4096 == 2 ? 1e-3f : 1;
        code(&s, g_x, 20011, 0, 0);
        if (s.bytes == HEADER + 4 * 20011) continue;
        memcpy(chunks, g_y, sizeof chunks);
        s = of("topk");
        for (size_t at = 0; at < 20011; at += 4096) {
            const size_t length = 20011 - at < 4096 ? 20011 - at : 4096;
            code(&s, g_x + at, length, 64, 0);
            assert_memory_equal(g_y, chunks + at, length * sizeof *g_y);
        }
    }
}

/* ---- sizes and payloads ------------------------------------------------------------------------------------------ */
static void expected_bytes_are_those_of_random_support(void **state) {
    (void)state;
    static const char *const NAMES[] = {"topk", "randomk", "sparseloco"};
    static const char *const CODERS[] = {"auto", "raw", "bitmap", "rice"};
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < 4; i++)
            for (double factor = 4; factor <= 400; factor *= 10) {
                subject s = with_floats(NAMES[c]);
                if (c == 0) set(&s, "indices", CODERS[i]);
                fill(g_x, MAX, UNIFORM, 99);
                code(&s, g_x, MAX, factor, 0);
                const double expected = s.codec->expected_bytes(s.codec, &s.call, MAX);
                assert_true(fabs((double)s.bytes - expected) < 0.05 * (double)s.bytes);
            }
}

static char g_message[256];
static void keep_message(void *context, taciti_log_level level, const char *line) {
    (void)context;
    if (level == TACITI_LOG_ERROR) strncpy(g_message, line, sizeof g_message - 1);
}

static tacit_status decode_into(const subject *s, size_t bytes, size_t n, bool add) {
    fill(g_y, n, UNIFORM, 5);
    memcpy(g_error, g_y, n * sizeof *g_y);
    const tacit_status status = s->codec->decode(s->codec, &s->call, g_payload, bytes, g_y, n, add);
    if (status != TACIT_OK) assert_memory_equal(g_y, g_error, n * sizeof *g_y);
    return status;
}

static void refused(const subject *s, size_t at, unsigned char value) {
    const unsigned char old = g_payload[at];
    g_payload[at] = value;
    for (int add = 0; add < 2; add++) assert_int_equal(decode_into(s, s->bytes, 1000, add), TACIT_E_DATA);
    g_payload[at] = old;
}

static void malformed_headers_are_refused(void **state) {
    (void)state;
    taciti_log_set_sink(keep_message, NULL, TACITI_LOG_INFO);
    subject s = of("topk");
    set(&s, "indices", "varint");
    for (uint64_t key = 0; key == 0 || g_payload[4] % 4 == 0; key++) { /* until there are zeros behind the indices */
        fill(g_x, 1000, UNIFORM, key);
        code(&s, g_x, 1000, 100, 0);
    }
    refused(&s, 0, 9);
    refused(&s, 0, 11);
    refused(&s, 1, 1);
    refused(&s, 3, 255);
    refused(&s, 4, (unsigned char)(g_payload[4] + 1));
    refused(&s, 5, 255);
    refused(&s, 7, 255);
    refused(&s, 8, 200);
    refused(&s, 9, 200);
    refused(&s, 9, 255);
    refused(&s, 10, 1);
    refused(&s, (size_t)HEADER + g_payload[4], 1); /* behind the indices */
    refused(&s, HEADER, 255);
    for (size_t bytes = 0; bytes < s.bytes; bytes++)
        assert_int_equal(decode_into(&s, bytes, 1000, bytes % 2), TACIT_E_DATA);
    assert_non_null(strstr(g_message, "topk"));
    assert_int_equal(decode_into(&s, s.bytes, 1000, false), TACIT_OK);
    code(&s, g_x, 1000, 1, 0); /* all elements, so no indices */
    refused(&s, 9, 0);
    memmove(g_payload + HEADER + 4, g_payload + HEADER, 4000);
    g_payload[4] = 4;
    for (int add = 0; add < 2; add++) assert_int_equal(decode_into(&s, s.bytes + 4, 1000, add), TACIT_E_DATA);
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

/* Bytes at random, most of them in the header and the indices: refused, or decoded without harm. */
static void corrupted_payloads_do_no_harm(void **state) {
    (void)state;
    static unsigned char saved[8192];
    taciti_log_set_sink(keep_message, NULL, TACITI_LOG_INFO);
    for (size_t c = 0; c < g_selecting_count; c++) {
        subject s = with_floats(g_selecting[c]);
        size_t refusals = 0;
        fill(g_x, 1000, UNIFORM, 3);
        code(&s, g_x, 1000, 10, 0);
        memcpy(saved, g_payload, s.bytes);
        for (uint64_t round = 0; round < 3000; round++) {
            const size_t reach = round % 2 ? s.bytes : HEADER + 40;
            for (uint64_t change = 0; change <= round % 3; change++)
                g_payload[taciti_rng_below(round, change, reach)] = (unsigned char)taciti_rng_u64(round, change + 9);
            const size_t bytes = round % 5 ? s.bytes : (size_t)taciti_rng_below(round, 20, s.bytes);
            refusals += decode_into(&s, bytes, 1000, round % 7 == 0) != TACIT_OK;
            memcpy(g_payload, saved, s.bytes);
        }
        assert_true(refusals > 100);
    }
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
}

/* One number for payloads, errors and tallies of those whose arithmetic needs no logarithm: the same on every
 * instruction set. */
static void payloads_do_not_depend_on_the_instruction_set(void **state) {
    (void)state;
    static const char *const GOLDEN[] = {"topk", "randomk", "sparseloco"};
    XXH64_hash_t hash = 0;
    for (size_t c = 0; c < sizeof GOLDEN / sizeof *GOLDEN; c++)
        for (kind k = 0; k < NONFINITE; k++) {
            subject s = with_floats(GOLDEN[c]);
            fill(g_x, 50021, k, k + 1);
            code(&s, g_x, 50021, 50, 0);
            hash = XXH64(g_payload, s.bytes, hash);
            hash = XXH64(g_error, 50021 * sizeof *g_error, hash);
            hash = XXH64(&s.tally, sizeof s.tally, hash);
        }
    assert_int_equal(hash, UINT64_C(0x08a239cb79454f42));
}

int main(void) {
    find_selecting();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_of_eight_numbers),
        cmocka_unit_test(of_equal_magnitudes_the_first_are_sent),
        cmocka_unit_test(gain_of_powers_of_two),
        cmocka_unit_test(everything_is_sent_at_factor_1),
        cmocka_unit_test(error_feedback_sends_what_waited),
        cmocka_unit_test(topk_is_exact),
        cmocka_unit_test(topk_is_exact_when_the_sample_misleads),
        cmocka_unit_test(topk_of_topk_is_topk),
        cmocka_unit_test(what_is_selected_arrives_and_the_rest_stays),
        cmocka_unit_test(the_largest_contract),
        cmocka_unit_test(errors_of_values_stay),
        cmocka_unit_test(thresholds_select_what_reaches_them),
        cmocka_unit_test(random_subsets_are_equally_likely),
        cmocka_unit_test(ranks_with_one_key_send_the_same_elements),
        cmocka_unit_test(sparseloco_of_two_steps),
        cmocka_unit_test(sparseloco_is_topk_of_every_chunk),
        cmocka_unit_test(expected_bytes_are_those_of_random_support),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(corrupted_payloads_do_no_harm),
        cmocka_unit_test(payloads_do_not_depend_on_the_instruction_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
