/* SPDX-License-Identifier: Apache-2.0
 *
 * The size and number of messages for codecs with even and with uneven payloads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "codec/trial.h"
#include "exchange/pipeline.h"

enum { SEGMENT_BYTES = 256 << 10, SOURCES = 8, MAX_SEGMENT_N = 1 << 18 };

static taciti_encoding encoding_of(const char *codec, double factor, void **options) {
    taciti_encoding encoding = {.codec = taciti_codec_find(codec), .expected = {.factor = factor}};
    assert_non_null(encoding.codec);
    assert_int_equal(taciti_codec_defaults(encoding.codec, options), TACIT_OK);
    encoding.options = *options;
    return encoding;
}

static double expected_bytes(const taciti_encoding *encoding, double factor, size_t n) {
    const taciti_codec_call call = {.options = encoding->options, .setting.factor = factor};
    return taciti_codec_expected_bytes(encoding->codec, &call, n);
}

/* Where a layer's elements are four times as large a share as the model's, a message is not asked for. */
static void four_times_the_expected_payload_is_sent_at_once(void **state) {
    (void)state;
    static const double FACTORS[] = {2, 5, 10, 20, 100};
    for (size_t i = 0; i < sizeof FACTORS / sizeof *FACTORS; i++) {
        void *options = NULL;
        const taciti_encoding encoding = encoding_of("topk", FACTORS[i], &options);
        const taciti_pipeline p = taciti_pipeline_of(&encoding, SEGMENT_BYTES, false, 1, SOURCES);
        const double quarter = TACITI_WIRE_SEGMENT_BYTES / 4.0;
        assert_true(expected_bytes(&encoding, FACTORS[i], p.segment_n) <= quarter);
        assert_true(p.segment_n == MAX_SEGMENT_N || expected_bytes(&encoding, FACTORS[i], p.segment_n + 32) > quarter);
        taciti_free(options);
    }
}

/* As many floats are under way in short messages as in long ones, and none waits for its turn among them. */
static void short_messages_are_under_way_together(void **state) {
    (void)state;
    void *options = NULL, *even_options = NULL;
    const taciti_encoding encoding = encoding_of("topk", 10, &options);
    const taciti_encoding even = encoding_of("int4", 0, &even_options);
    const taciti_pipeline p = taciti_pipeline_of(&encoding, SEGMENT_BYTES, false, 1, SOURCES);
    const taciti_pipeline q = taciti_pipeline_of(&even, SEGMENT_BYTES, false, 1, SOURCES);
    assert_int_equal(p.depth, 4 * q.depth);
    assert_int_equal(p.sends, p.depth);
    assert_int_equal(q.sends, 2);
    assert_true(p.depth * p.segment_n <= 8 * (size_t)MAX_SEGMENT_N);
    taciti_free(options);
    taciti_free(even_options);
}

/* Messages that hold all the floats they may are not made more of. */
static void long_segments_keep_their_depth(void **state) {
    (void)state;
    void *options = NULL;
    const taciti_encoding encoding = encoding_of("topk", 1000, &options);
    const taciti_pipeline p = taciti_pipeline_of(&encoding, SEGMENT_BYTES, false, 1, 2);
    assert_int_equal(p.segment_n, MAX_SEGMENT_N);
    assert_int_equal(p.depth, 8);
    taciti_free(options);
}

static void a_host_and_even_payloads_keep_long_messages(void **state) {
    (void)state;
    void *options = NULL, *even_options = NULL;
    const taciti_encoding encoding = encoding_of("topk", 10, &options);
    const taciti_encoding even = encoding_of("int4", 0, &even_options);
    const taciti_pipeline host = taciti_pipeline_of(&encoding, SEGMENT_BYTES, true, 1, SOURCES);
    const taciti_pipeline wire = taciti_pipeline_of(&even, SEGMENT_BYTES, false, 1, SOURCES);
    assert_true(host.segment_n == MAX_SEGMENT_N ||
                expected_bytes(&encoding, 10, host.segment_n + 32) > (double)SEGMENT_BYTES);
    assert_true(expected_bytes(&even, 0, wire.segment_n + 512) > (double)TACITI_WIRE_SEGMENT_BYTES);
    taciti_free(options);
    taciti_free(even_options);
}

/* Payloads of many sources do not take more memory than those of few. */
static void arriving_payloads_stay_within_their_room(void **state) {
    (void)state;
    void *options = NULL;
    const taciti_encoding encoding = encoding_of("topk", 10, &options);
    for (size_t sources = 2; sources <= 64; sources *= 2) {
        const taciti_pipeline p = taciti_pipeline_of(&encoding, SEGMENT_BYTES, false, 1, sources);
        const size_t bytes = sources * (p.depth + 1) * taciti_encoding_bound(&encoding, p.segment_n);
        assert_true(p.depth == 2 || bytes <= (size_t)64 << 20);
    }
    taciti_free(options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_times_the_expected_payload_is_sent_at_once),
        cmocka_unit_test(short_messages_are_under_way_together),
        cmocka_unit_test(long_segments_keep_their_depth),
        cmocka_unit_test(a_host_and_even_payloads_keep_long_messages),
        cmocka_unit_test(arriving_payloads_stay_within_their_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
