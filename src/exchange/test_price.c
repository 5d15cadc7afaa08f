/* SPDX-License-Identifier: Apache-2.0
 *
 * The prices of the routes against values worked out by hand, for two and three hosts of unequal size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>

#include "base/memory.h"
#include "codec/trial.h"
#include "comm/test_engine.h"
#include "exchange/route.h"
#include "exchange/route_sketch.h"
#include "exchange/sketch_message.h"
#include "exchange/test_layout.h"

enum { N = 100003, SEGMENT_BYTES = 1024 };

static const taciti_hosts TWO = {.ranks = 5, .count = 2, .host_of = (int[]){0, 0, 1, 1, 1}};
static const taciti_hosts THREE = {.ranks = 7, .count = 3, .host_of = (int[]){0, 0, 0, 1, 1, 2, 2}};
static const taciti_hosts FIVE = {.ranks = 5, .count = 5, .host_of = (int[]){0, 1, 2, 3, 4}};

/* ---- codecs whose payloads are easy to count ----------------------------------------------------------------------
 */
static size_t selecting_bound(const taciti_codec *codec, const void *options, size_t n) {
    (void)codec;
    (void)options;
    return 8 + 6 * n;
}

static double selecting_bytes(const taciti_codec *codec, const taciti_codec_call *call, size_t n) {
    (void)codec;
    return 8 + 8 * (double)n / call->setting.factor;
}

static const taciti_codec SELECTING = {.name = "selecting",
                                       .aggregation = TACITI_CODEC_GATHER,
                                       .rounds = 1,
                                       .selects = true,
                                       .bound = selecting_bound,
                                       .expected_bytes = selecting_bytes};

/* A tenth of the elements, then a fifth, and 100 floats of every matrix. */
static size_t linear_floats(const taciti_codec_call *call, size_t n) {
    return 100 * call->n_matrices + (size_t)(call->round + 1) * n / 10;
}

static const taciti_codec LINEAR = {.name = "linear",
                                    .aggregation = TACITI_CODEC_LINEAR,
                                    .rounds = 2,
                                    .bound = selecting_bound,
                                    .payload_n = linear_floats};

static taciti_codec_rates rates_at(const void *context, const taciti_codec *codec, double factor) {
    (void)codec;
    assert_true(context == &TWO);
    return factor == 10 ? (taciti_codec_rates){3, 5, 7} : (taciti_codec_rates){11, 13, 17};
}

static taciti_price price_of(const taciti_hosts *hosts, const taciti_encoding *encoding, const taciti_layout *layout,
                             taciti_phase phase, size_t n) {
    const taciti_route_setup setup = {.hosts = hosts,
                                      .segment_bytes = SEGMENT_BYTES,
                                      .layout = layout,
                                      .wire = taciti_codec_find("bf16"),
                                      .encoding = *encoding};
    taciti_price price;
    assert_int_equal(taciti_route_of(encoding->codec)->price(&setup, phase, n, rates_at, &TWO, &price), TACIT_OK);
    return price;
}

static taciti_price price_selecting(const taciti_hosts *hosts, taciti_way way, taciti_phase phase) {
    const taciti_encoding e = {.codec = &SELECTING, .expected = {.factor = 10}, .back = {.factor = 4}, .way = way};
    return price_of(hosts, &e, NULL, phase, N);
}

static void is_price(taciti_price got, taciti_price want) {
    assert_int_equal(got.length.wire_bytes, want.length.wire_bytes);
    assert_int_equal(got.length.f32_bytes, want.length.f32_bytes);
    assert_true(fabs(got.codec_s - want.codec_s) <= 1e-9 * want.codec_s);
    assert_true(fabs(got.busiest - want.busiest) <= 1e-12);
    assert_int_equal(got.by_owners, want.by_owners);
    assert_int_equal(got.fillings, want.fillings);
    assert_int_equal(got.messages, want.messages);
    assert_int_equal(got.wire_hops, want.wire_hops);
}

/* ---- payloads ------------------------------------------------------------------------------------------------------
 * 1264 floats have 1019.2 bytes, 1280 more than a message. Two hosts: 2 lanes, 4 ranges, 20 pieces of 5056; a chunk of
 * a piece has 1250 floats, 1008 bytes; the sum of two has 1 - 0.9^2 = 0.19 of the elements, 1908 bytes. Three hosts: 14
 * pieces of 7200, chunks of 1191 floats, 960.8 bytes, and the sum at the factor 4 that was asked for, 2390 bytes. Five
 * messages under way. */
static void owners_add_what_members_send(void **state) {
    (void)state;
    const double share = N / 2.0;
    is_price(price_selecting(&TWO, TACITI_WAY_SCATTER, TACITI_PHASE_ALL_REDUCE),
             (taciti_price){{4 * 20 * (1008 + 1908) / 2, 4 * N},
                            .codec_s = share * (3 + 13) + share / 2 * (5 + 7 + 11),
                            .busiest = 1,
                            .by_owners = true,
                            .fillings = 4,
                            .messages = 40,
                            .wire_hops = 2});
    is_price(price_selecting(&THREE, TACITI_WAY_SCATTER, TACITI_PHASE_ALL_REDUCE),
             (taciti_price){{140734, 4 * N}, /* 6 * 14 * (960.8 + 2390) / 2 */
                            .codec_s = share * (3 + 13) + share / 3 * (5 + 2 * 7 + 11),
                            .busiest = 1,
                            .by_owners = true,
                            .fillings = 3,
                            .messages = 56,
                            .wire_hops = 2});
}

static void phases_alone_take_their_part(void **state) {
    (void)state;
    const double share = N / 2.0, own = share / 3;
    taciti_price want = {{80707, 4 * N}, /* 6 * 14 * 960.8 */
                         .codec_s = share * 3 + own * (5 + 2 * 7),
                         .busiest = 1,
                         .by_owners = true,
                         .fillings = 3,
                         .messages = 28,
                         .wire_hops = 1};
    is_price(price_selecting(&THREE, TACITI_WAY_AUTO, TACITI_PHASE_REDUCE_SCATTER), want);
    want.by_owners = false;
    want.codec_s = own * 3 + share * 5;
    is_price(price_selecting(&THREE, TACITI_WAY_AUTO, TACITI_PHASE_ALL_GATHER), want);
}

/* Segments are multiples of 16 floats of every host: 41 pieces of 2496 floats for two, a share of 1220 floats of each.
 */
static void all_add_what_all_send(void **state) {
    (void)state;
    const double share = N / 2.0;
    const taciti_price two = {{4 * 41 * (8 + 976) / 2, 4 * N},
                              .codec_s = share * (3 + 5 + 7),
                              .busiest = 1,
                              .fillings = 9,
                              .messages = 41,
                              .wire_hops = 1};
    is_price(price_selecting(&TWO, TACITI_WAY_GATHER, TACITI_PHASE_ALL_REDUCE), two);
    is_price(price_selecting(&TWO, TACITI_WAY_AUTO, TACITI_PHASE_ALL_REDUCE), two); /* between two always */
    const taciti_price three = price_selecting(&THREE, TACITI_WAY_GATHER, TACITI_PHASE_ALL_REDUCE);
    assert_true(three.codec_s == share * (3 + 5 + 2 * 7) && three.messages == 2 * 41 && !three.by_owners);
    assert_int_equal(three.length.wire_bytes, 6 * 41 * (8 + 976) / 2); /* less than what owners need */
    is_price(price_selecting(&THREE, TACITI_WAY_AUTO, TACITI_PHASE_ALL_REDUCE), three);
    /* from five hosts on all would send more than owners do: 5 * 20001 * 0.8 against 5 * 4000 * (0.8 + 8 * 0.41) */
    assert_true(price_selecting(&FIVE, TACITI_WAY_GATHER, TACITI_PHASE_ALL_REDUCE).length.wire_bytes >
                price_selecting(&FIVE, TACITI_WAY_SCATTER, TACITI_PHASE_ALL_REDUCE).length.wire_bytes);
    assert_true(price_selecting(&FIVE, TACITI_WAY_AUTO, TACITI_PHASE_ALL_REDUCE).by_owners);
}

/* ---- dense and linear ----------------------------------------------------------------------------------------------
 */
static void a_dense_sum_costs_its_wire(void **state) {
    (void)state;
    const taciti_encoding dense = {.codec = NULL};
    is_price(price_of(&THREE, &dense, NULL, TACITI_PHASE_ALL_REDUCE, 1001), (taciti_price){{2002, 4004}, .busiest = 1});
}

static double link_bytes(size_t floats) {
    return taciti_allreduce_demand(&FIVE, NULL, 5, (taciti_placement){0}, 2 * floats, 4 * floats).host_bytes;
}

/* One bucket is a matrix of 30 x 100, the other a vector of as many elements: 401 + 701 and 300 + 601 floats. */
static void linear_rounds_are_dense_sums_of_their_payloads(void **state) {
    (void)state;
    taciti_layout layout;
    const taciti_encoding linear = {.codec = &LINEAR};
    const size_t matrix[] = {30, 100}, vector = 3000;
    assert_int_equal(taciti_layout_create(2, &layout), TACIT_OK);
    assert_int_equal(taciti_layout_append(&layout, "a", 2, matrix, true), TACIT_OK);
    assert_int_equal(taciti_layout_append(&layout, "b", 1, &vector, true), TACIT_OK);
    assert_int_equal(taciti_layout_seal(&layout, 3008 * sizeof(float)), TACIT_OK);
    assert_true(layout.bucket_count == 2 && layout.buckets[0].n == 3008 && layout.buckets[1].n == 3008);
    const double link = (link_bytes(400) + link_bytes(701) + link_bytes(300) + link_bytes(601)) / 2;
    is_price(price_of(&FIVE, &linear, &layout, TACITI_PHASE_ALL_REDUCE, 3008),
             (taciti_price){{2002, 4004},
                            .codec_s = 3008 * (11 + 13),
                            .busiest = link / link_bytes(1001),
                            .fillings = 1,
                            .wire_hops = 4});
    /* of another length than any bucket, as of a square matrix: nothing is known of the links */
    is_price(price_of(&FIVE, &linear, &layout, TACITI_PHASE_ALL_REDUCE, 1000),
             (taciti_price){{1000, 2000}, .codec_s = 24000, .busiest = 1, .fillings = 1, .wire_hops = 4});
    taciti_layout_destroy(&layout);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------
 * Of 80 floats each of five owns 16: its reply and an index of one word go to four others, and a contribution, all of
 * its values and a payload of the result come from each. */
static void sketches_are_bound_with_replies_and_values(void **state) {
    (void)state;
    const size_t n = 80;
    void *options = NULL;
    taciti_route route;
    taciti_layout layout;
    const taciti_codec *codec = taciti_codec_find("sketch");
    assert_int_equal(taciti_codec_defaults(codec, &options), TACIT_OK);
    test_layout(&n, 1, 4 * n, &layout);
    const taciti_encoding sketch = {.codec = codec, .options = options, .expected = {.factor = 10}};
    const taciti_route_setup setup = {.hosts = &FIVE,
                                      .rank = 3,
                                      .segment_bytes = SEGMENT_BYTES,
                                      .layout = &layout,
                                      .wire = taciti_codec_find("f32"),
                                      .encoding = sketch};
    assert_int_equal(taciti_route_describe(&setup, &route), TACIT_OK);
    const size_t payload = taciti_encoding_bound(&sketch, 16),
                 message = taciti_sketch_message_bound(16) + 16 * sizeof(float);
    assert_true(message > payload);
    assert_int_equal(route.verbs->bytes(&route, 0, sketch.expected), 4 * (message + payload + 16 + 8));
    assert_int_equal(route.verbs->range_bytes(&sketch, 5000), 2 * 20000 + 625 + 3 * 2 * 16);
    assert_int_equal(route.verbs->range_bytes(&sketch, 0), 0);
    taciti_route_close(&route);
    taciti_layout_destroy(&layout);
    taciti_free(options);
}

/* ---- life ----------------------------------------------------------------------------------------------------------
 */
/* The planner describes routes and never opens them. */
static void a_route_that_was_described_can_be_closed(void **state) {
    (void)state;
    static const char *const CODECS[] = {"topk", "powersgd", "sketch"};
    taciti_layout layout;
    test_layout_of_five(&layout);
    for (size_t i = 0; i < sizeof CODECS / sizeof *CODECS; i++) {
        void *options = NULL;
        taciti_route route;
        const taciti_codec *codec = taciti_codec_find(CODECS[i]);
        assert_int_equal(taciti_codec_defaults(codec, &options), TACIT_OK);
        const taciti_route_setup setup = {.hosts = &THREE,
                                          .segment_bytes = SEGMENT_BYTES,
                                          .layout = &layout,
                                          .wire = taciti_codec_find("f32"),
                                          .encoding = {.codec = codec, .options = options, .expected = {.factor = 10}}};
        assert_int_equal(taciti_route_describe(&setup, &route), TACIT_OK);
        taciti_route_close(&route);
        assert_null(route.verbs);
        taciti_free(options);
    }
    taciti_layout_destroy(&layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_add_what_members_send),
        cmocka_unit_test(phases_alone_take_their_part),
        cmocka_unit_test(all_add_what_all_send),
        cmocka_unit_test(a_dense_sum_costs_its_wire),
        cmocka_unit_test(linear_rounds_are_dense_sums_of_their_payloads),
        cmocka_unit_test(sketches_are_bound_with_replies_and_values),
        cmocka_unit_test(a_route_that_was_described_can_be_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
