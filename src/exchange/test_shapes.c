/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule and the memory of exchanges, against values worked out by hand for hosts of unequal size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "base/memory.h"
#include "codec/trial.h"
#include "comm/test_engine.h"
#include "exchange/allreduce.h"
#include "exchange/linear.h"
#include "exchange/neighbours.h"
#include "exchange/route.h"
#include "exchange/store.h"
#include "exchange/test_layout.h"

enum { SEGMENT_BYTES = 4096, SEGMENT_N = 1024, SMALL_BYTES = 16 << 10 };

static const taciti_hosts ONE = {.ranks = 5, .count = 1, .host_of = (int[]){0, 0, 0, 0, 0}};
static const taciti_hosts TWO = {.ranks = 5, .count = 2, .host_of = (int[]){0, 0, 1, 1, 1}};

/* The object points into itself, so it is described where it stays. */
static void describe(const taciti_hosts *hosts, int rank, const char *codec, taciti_placement placement,
                     taciti_allreduce *out) {
    const taciti_encoding encoding = {.codec = taciti_codec_find(codec)};
    assert_int_equal(
        taciti_allreduce_describe(hosts, (taciti_members){0}, rank, &encoding, placement, SEGMENT_BYTES, out),
        TACIT_OK);
}

/* ---- all-reduces ------------------------------------------------------------------------------------------------- */
static void is_schedule(const taciti_allreduce *reduce, size_t wire_depth, size_t local_depth, size_t segment_n) {
    assert_int_equal(reduce->wire_depth, wire_depth);
    assert_int_equal(reduce->local_depth, local_depth);
    assert_int_equal(reduce->segment_n, segment_n);
    assert_int_equal(reduce->wire_shape.slots, wire_depth + 1);
    assert_int_equal(reduce->wire_shape.range_n, segment_n);
}

/* Between hosts eight pieces are under way, of which each of two lanes has four; a slot has the pieces under way and
 * the next. */
static void two_hosts_have_lanes(void **state) {
    (void)state;
    for (int rank = 0; rank < 5; rank++) {
        const int lane = rank != 4, local = rank < 2 ? 2 : 3;
        taciti_allreduce r;
        describe(&TWO, rank, "f32", (taciti_placement){0}, &r);
        is_schedule(&r, 4, 1, SEGMENT_N);
        assert_int_equal(r.wire_shape.count, lane ? 2 : 1);
        assert_int_equal(r.wire_shape.me, rank == 2 || rank == 3);
        assert_int_equal(r.wire_shape.window, 2 * 2);
        assert_int_equal(r.local_shape.count, local);
        assert_int_equal(r.local_shape.me, rank < 2 ? rank : rank - 2);
        assert_int_equal(r.local_shape.range_n, 2 * SEGMENT_N);
        assert_int_equal(r.local_shape.slots, 2);
        assert_int_equal(r.local_shape.lag, 2 * 4 + 1);
        assert_int_equal(r.local_shape.window, 4 * local);
        /* arriving floats of every member and slot, and of short arrays those of all and two more, and a payload */
        const size_t wire = lane ? 5 * 2 * 4096 : 0, inside = 2 * (size_t)local * 8192,
                     small = (5 + 2 + 1) * SMALL_BYTES;
        assert_int_equal(taciti_allreduce_workspace_bytes(&r), wire + inside + small);
        taciti_allreduce_destroy(&r);
        /* encoded: the payloads that arrive, leave and come back, and the own one of the sum */
        describe(&TWO, rank, "bf16", (taciti_placement){0}, &r);
        const size_t coded = lane ? 3 * 5 * 2 * 2048 + 5 * 2048 : 0;
        assert_int_equal(taciti_allreduce_workspace_bytes(&r), coded + inside + small - SMALL_BYTES / 2);
        taciti_allreduce_destroy(&r);
    }
}

static void a_contiguous_placement_runs_every_host_by_itself(void **state) {
    (void)state;
    taciti_allreduce r;
    describe(&TWO, 3, "f32", (taciti_placement){.contiguous = true}, &r);
    is_schedule(&r, 4, 1, SEGMENT_N);
    assert_int_equal(r.runs, 2);
    assert_int_equal(r.local_shape.range_n, SEGMENT_N);
    assert_int_equal(r.local_shape.slots, 2 * 2);
    assert_int_equal(r.local_shape.lag, (2 * 4 + 1) * 2);
    assert_int_equal(r.local_shape.window, 4 * 3 * 2);
    taciti_allreduce_destroy(&r);
    describe(&ONE, 3, "f32", (taciti_placement){.contiguous = true}, &r);
    assert_int_equal(r.runs, 1); /* flat: there is nothing to add inside hosts */
    taciti_allreduce_destroy(&r);
}

/* Whole shares go to all, in messages that are multiples of 16 floats for each host. */
static void a_gather_keeps_one_payload_per_member(void **state) {
    (void)state;
    const taciti_hosts three = {.ranks = 3, .count = 3, .host_of = (int[]){0, 1, 2}};
    taciti_allreduce r;
    describe(&three, 1, "bf16", (taciti_placement){.gather = true}, &r);
    is_schedule(&r, 8, 0, SEGMENT_N / 48 * 48);
    assert_true(r.wire_shape.whole);
    const size_t stride = taciti_round_up(SEGMENT_N / 48 * 48 * 2, 64);
    assert_int_equal(taciti_halves_memory_bytes(&r.wire_shape), 9 * (3 + 1) * stride);
    taciti_allreduce_destroy(&r);
}

static void one_host_is_flat_or_has_no_wire(void **state) {
    (void)state;
    taciti_allreduce r;
    describe(&ONE, 3, "f32", (taciti_placement){0}, &r);
    is_schedule(&r, 3, 0, SEGMENT_N);
    assert_true(r.wire_shape.count == 5 && r.wire_shape.me == 3 && r.local_shape.count == 1);
    assert_int_equal(r.wire_shape.window, (2 * 3 + 2) * 5);
    taciti_allreduce_destroy(&r);
    describe(&ONE, 3, "f32", (taciti_placement){.scheme = TACITI_SCHEME_HOSTS}, &r);
    is_schedule(&r, 0, 1, SEGMENT_N);
    assert_true(r.wire_shape.count == 1 && r.local_shape.count == 5 && r.local_shape.me == 3);
    taciti_allreduce_destroy(&r);
}

/* Five ranks: three exchanges of 4 n floats take as long as two rounds of four messages and 1.6 n floats at 3 * 1.4 us
 * + 3.2 ns n = 2 * 2.6 us + 1.28 ns n in memory, at 3 * 50 us + 128 ns n = 2 * 140 us + 51.2 ns n between hosts. */
static void short_arrays_go_to_all_where_that_is_faster(void **state) {
    (void)state;
    const taciti_hosts five = {.ranks = 5, .count = 5, .host_of = (int[]){0, 1, 2, 3, 4}};
    taciti_allreduce r;
    describe(&ONE, 3, "f32", (taciti_placement){0}, &r);
    assert_true(taciti_small_pays(&r.arrangement, 515) && !taciti_small_pays(&r.arrangement, 525));
    taciti_allreduce_destroy(&r);
    describe(&five, 3, "f32", (taciti_placement){0}, &r);
    assert_true(taciti_small_pays(&r.arrangement, 1680) && !taciti_small_pays(&r.arrangement, 1700));
    taciti_allreduce_destroy(&r);
}

static void lanes_encode_and_others_do_not(void **state) {
    (void)state;
    taciti_allreduce r;
    describe(&TWO, 2, "bf16", (taciti_placement){0}, &r);
    const taciti_residual errors = taciti_allreduce_errors(&r, 5);
    assert_true(errors.encodes && errors.back == 5);
    const taciti_residual lasting = taciti_allreduce_residual(&r, 100003, (taciti_feedback){.errors = true});
    assert_true(lasting.encodes && lasting.results);
    assert_int_equal(taciti_allreduce_cut(&r, 100003).pieces, 25); /* 4 ranges of 1024: 24.4 */
    taciti_allreduce_destroy(&r);
    describe(&TWO, 4, "bf16", (taciti_placement){0}, &r);
    assert_false(taciti_allreduce_errors(&r, 5).encodes);
    taciti_allreduce_destroy(&r);
}

/* Members of a large group lie on some of seven hosts in turns; each is found where its host and its number among
 * the host's members say. */
static void large_groups_stand_by_host(void **state) {
    (void)state;
    enum { RANKS = 163, HOSTS = 7, MEMBERS = 97 };
    int host_of[RANKS], members[MEMBERS], first_seen[HOSTS], count[HOSTS] = {0}, rank_of_host = 0;
    for (int r = 0; r < RANKS; r++) host_of[r] = HOSTS - 1 - r * r % HOSTS; /* 4 of the 7 hosts */
    for (int i = 0; i < MEMBERS; i++) members[i] = i < 30 ? 5 + i : 20 + i * 7 / 5;
    const taciti_hosts hosts = {.ranks = RANKS, .count = HOSTS, .host_of = host_of};
    taciti_arrangement p;
    assert_int_equal(taciti_arrangement_of(&hosts, (taciti_members){.ranks = members, .count = MEMBERS}, members[41],
                                           (taciti_placement){.scheme = TACITI_SCHEME_HOSTS}, &p),
                     TACIT_OK);
    for (int i = 0; i < MEMBERS; i++) {
        const int host = host_of[members[i]], number = count[host]++;
        if (number == 0) first_seen[host] = rank_of_host++;
        const int at = p.first[first_seen[host]] + number;
        assert_int_equal(p.order[at], members[i]);
        assert_int_equal(p.host_of[at], host);
        if (i == 41) assert_true(p.host == first_seen[host] && p.number == number);
    }
    assert_int_equal(p.hosts, rank_of_host);
    assert_int_equal(p.first[p.hosts], MEMBERS);
    taciti_arrangement_destroy(&p);
}

/* ---- what is stored ---------------------------------------------------------------------------------------------- */
/* Two versions: of contributions what a lane encodes, its half; of results what it owns, a quarter. Narrow forms need
 * a range of floats besides. */
static void stores_take_what_a_rank_encodes(void **state) {
    (void)state;
    static const size_t LENGTHS[] = {12800, 10};
    taciti_layout layout;
    test_layout(LENGTHS, 2, 1 << 20, &layout);
    assert_true(layout.bucket_count == 1 && layout.n == 12816);
    taciti_allreduce r;
    describe(&TWO, 0, "bf16", (taciti_placement){0}, &r);
    taciti_feedback feedback = {.errors = true};
    size_t encoded = 0, owned = 0;
    taciti_range range;
    for (size_t i = 0; taciti_allreduce_encoded(&r, layout.n, i, &range); i++) encoded += range.n;
    for (size_t i = 0; taciti_allreduce_owned(&r, layout.n, i, &range); i++) owned += range.n;
    assert_true(encoded > 12816 / 2 - 160 && encoded < 12816 / 2 + 160 && owned > 12816 / 4 - 160);
    assert_int_equal(taciti_store_predict_bytes(&r, &layout, feedback), 2 * (encoded + owned) * sizeof(float));
    feedback.stored = TACITI_RESIDUAL_BF16;
    assert_int_equal(taciti_store_predict_bytes(&r, &layout, feedback),
                     2 * (encoded + owned) * 2 + SEGMENT_N * sizeof(float));
    assert_int_equal(taciti_store_predict_bytes(NULL, &layout, feedback), 2 * 12816 * 2 + 12816 * sizeof(float));
    assert_int_equal(taciti_store_predict_bytes(&r, &layout, (taciti_feedback){.errors = false}), 0);
    taciti_store store;
    assert_int_equal(taciti_store_create(&r, &layout, feedback, &store), TACIT_OK);
    assert_int_equal(store.all[0].scratch_n, SEGMENT_N);
    taciti_store_destroy(&store);
    taciti_allreduce_destroy(&r);
    taciti_layout_destroy(&layout);
}

/* Narrow errors are read and written in spans of 4096 floats, whatever the place where a reader begins. */
static void narrow_errors_are_read_as_they_were_written(void **state) {
    (void)state;
    enum { LENGTH = 10000, AT = 5, COUNT = 9001, MARK = -7 };
    static const size_t LENGTHS[] = {LENGTH};
    static float x[LENGTH], y[LENGTH + 8192];
    taciti_layout layout;
    taciti_store store;
    taciti_state_access access;
    test_layout(LENGTHS, 1, 24000, &layout); /* two buckets */
    assert_int_equal(
        taciti_store_create(NULL, &layout, (taciti_feedback){.errors = true, .stored = TACITI_RESIDUAL_BF16}, &store),
        TACIT_OK);
    assert_true(taciti_store_narrow(&store, TACITI_RESIDUAL_CONTRIBUTION, &access));
    for (int i = 0; i < LENGTH; i++) x[i] = (float)(i % 251 + 1);
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) y[i] = MARK;
    access.write(access.object, access.which, AT, x, COUNT);
    access.read(access.object, access.which, AT, y, COUNT);
    assert_memory_equal(x, y, COUNT * sizeof *x);
    for (size_t i = COUNT; i < sizeof y / sizeof *y; i++) assert_true(y[i] == MARK);
    access.read(access.object, access.which, 0, y, AT);
    for (int i = 0; i < AT; i++) assert_true(y[i] == 0);
    access.read(access.object, access.which, AT + COUNT, y, LENGTH - AT - COUNT);
    for (int i = 0; i < LENGTH - AT - COUNT; i++) assert_true(y[i] == 0);
    taciti_store_destroy(&store);
    taciti_layout_destroy(&layout);
}

/* ---- neighbours -------------------------------------------------------------------------------------------------- */
/* Three ranks send to rank 1, which sends to one. */
static void neighbours_keep_a_slot_for_each_arrival(void **state) {
    (void)state;
    const taciti_edge edges[] = {{0, 1, .25}, {2, 1, .25}, {4, 1, .125}, {1, 3, .375}};
    const taciti_round round = {.edges = edges, .edge_count = 4, .self = (double[]){.75, .375, .75, 1, .875}};
    const taciti_encoding f32 = {.codec = taciti_codec_find("f32")}, bf16 = {.codec = taciti_codec_find("bf16")};
    taciti_neighbours nb;
    assert_int_equal(taciti_neighbours_describe(&TWO, &round, 1, &f32, SEGMENT_BYTES, &nb), TACIT_OK);
    assert_true(nb.in_count == 3 && nb.out_count == 1 && nb.self == .375 && nb.given == .375);
    assert_true(nb.in[0].rank == 0 && nb.in[1].rank == 2 && nb.in[2].weight == .125 && nb.out[0].rank == 3);
    assert_true(nb.slots == 9 && nb.segment_n == SEGMENT_N);
    assert_int_equal(taciti_neighbours_workspace_bytes(&nb), 9 * 3 * 4096);
    taciti_neighbours_destroy(&nb);
    assert_int_equal(taciti_neighbours_describe(&TWO, &round, 1, &bf16, SEGMENT_BYTES, &nb), TACIT_OK);
    assert_int_equal(taciti_neighbours_workspace_bytes(&nb), 9 * 3 * 2048 + 9 * 2048 + 4096);
    taciti_neighbours_destroy(&nb);
}

/* The rank with the most arrivals, three, decides for all: their payloads and slots together take 64 MiB. */
static void neighbours_cut_by_the_most_arrivals_of_a_rank(void **state) {
    (void)state;
    const taciti_edge edges[] = {{1, 0, .25}, {0, 1, .25}, {2, 1, .25}, {3, 1, .125}, {1, 2, .25}};
    const taciti_round round = {.edges = edges, .edge_count = 5, .self = (double[]){.75, .375, .75, 1, 1}};
    const taciti_encoding f32 = {.codec = taciti_codec_find("f32")};
    const size_t room = ((size_t)64 << 20) / 3;
    for (int rank = 0; rank < 5; rank++) {
        taciti_neighbours nb;
        assert_int_equal(taciti_neighbours_describe(&ONE, &round, rank, &f32, (size_t)1 << 30, &nb), TACIT_OK);
        assert_int_equal(nb.slots, 3);
        assert_int_equal(nb.segment_n, room / 3 / 64 * 16);
        taciti_neighbours_destroy(&nb);
    }
}

/* So that not all send to the lowest rank first. */
static void neighbours_send_first_to_the_ranks_after_them(void **state) {
    (void)state;
    const taciti_edge edges[] = {{2, 0, .25}, {2, 1, .25}, {2, 3, .25}, {2, 4, .125}};
    const taciti_round round = {.edges = edges, .edge_count = 4, .self = (double[]){.75, .75, .125, .75, .875}};
    const taciti_encoding f32 = {.codec = taciti_codec_find("f32")};
    static const int ORDER[] = {3, 4, 0, 1};
    taciti_neighbours nb;
    assert_int_equal(taciti_neighbours_describe(&TWO, &round, 2, &f32, SEGMENT_BYTES, &nb), TACIT_OK);
    for (size_t i = 0; i < nb.out_count; i++) assert_int_equal(nb.out[i].rank, ORDER[i]);
    assert_true(nb.out_count == 4 && nb.in_count == 0 && nb.out[1].weight == .125);
    taciti_neighbours_destroy(&nb);
}

/* ---- without memory ---------------------------------------------------------------------------------------------- */
static void a_size_that_overflows_is_no_memory(void **state) {
    (void)state;
    taciti_allreduce r;
    describe(&TWO, 0, "f32", (taciti_placement){0}, &r);
    taciti_halves halves;
    taciti_halves_shape shape = r.wire_shape;
    shape.encoding = &r.encoding; /* r has moved */
    shape.window = SIZE_MAX / 4;
    assert_int_equal(taciti_halves_create(NULL, &shape, (int[]){0, 2}, NULL, &halves), TACIT_E_MEMORY);
    shape.window = r.wire_shape.window;
    shape.lag = SIZE_MAX / 4;
    assert_int_equal(taciti_halves_create(NULL, &shape, (int[]){0, 2}, NULL, &halves), TACIT_E_MEMORY);
    taciti_allreduce_destroy(&r);
    taciti_neighbours nb = {.slots = SIZE_MAX / 4};
    assert_int_equal(taciti_neighbours_open(&nb, NULL, NULL), TACIT_E_MEMORY);
    taciti_neighbours_destroy(&nb);
    nb = (taciti_neighbours){.slots = 1, .in_count = SIZE_MAX / 4};
    assert_int_equal(taciti_neighbours_open(&nb, NULL, NULL), TACIT_E_MEMORY);
    taciti_neighbours_destroy(&nb);
}

/* ---- linear ------------------------------------------------------------------------------------------------------ */
/* The arrays are a matrix of 41 x 100 and a bias: rank 2 takes floats of both factors, twice, and a state of the
 * smaller one. */
static void a_linear_route_keeps_two_payloads(void **state) {
    (void)state;
    taciti_layout layout;
    taciti_route route;
    void *options = NULL;
    const size_t matrix[] = {41, 100}, bias = 10;
    const taciti_codec *codec = taciti_codec_find("powersgd");
    assert_int_equal(taciti_codec_defaults(codec, &options), TACIT_OK);
    assert_int_equal(taciti_layout_create(2, &layout), TACIT_OK);
    assert_int_equal(taciti_layout_append(&layout, "a", 2, matrix, true), TACIT_OK);
    assert_int_equal(taciti_layout_append(&layout, "b", 1, &bias, true), TACIT_OK);
    assert_int_equal(taciti_layout_seal(&layout, 1 << 20), TACIT_OK);
    const taciti_route_setup setup = {.hosts = &TWO,
                                      .segment_bytes = SEGMENT_BYTES,
                                      .layout = &layout,
                                      .wire = taciti_codec_find("f32"),
                                      .encoding = {.codec = codec, .options = options}};
    assert_int_equal(taciti_route_describe(&setup, &route), TACIT_OK);
    taciti_codec_matrix found[2];
    const size_t n = layout.buckets[0].n;
    taciti_codec_call call = {
        .options = options, .ranks = 5, .matrices = found, .n_matrices = taciti_linear_matrices(&layout, 0, found)};
    size_t payload = codec->bound(codec, options, n);
    for (; call.round < codec->rounds; call.round++)
        if (codec->payload_n(&call, n) * sizeof(float) > payload) payload = codec->payload_n(&call, n) * sizeof(float);
    call.round = 0;
    const size_t state_bytes = taciti_round_up(codec->linear_state_bytes(&call, n), 64),
                 scratch =
                     taciti_round_up(codec->scratch_bytes == NULL ? 0 : codec->scratch_bytes(codec, options, n), 64);
    assert_true(call.n_matrices == 1 && state_bytes > 0);
    assert_int_equal(route.verbs->memory_bytes(&route), 2 * taciti_round_up(payload, 64) + scratch + 2 * state_bytes);
    taciti_route_close(&route);
    taciti_layout_destroy(&layout);
    taciti_free(options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hosts_have_lanes),
        cmocka_unit_test(a_contiguous_placement_runs_every_host_by_itself),
        cmocka_unit_test(a_gather_keeps_one_payload_per_member),
        cmocka_unit_test(one_host_is_flat_or_has_no_wire),
        cmocka_unit_test(large_groups_stand_by_host),
        cmocka_unit_test(short_arrays_go_to_all_where_that_is_faster),
        cmocka_unit_test(lanes_encode_and_others_do_not),
        cmocka_unit_test(stores_take_what_a_rank_encodes),
        cmocka_unit_test(narrow_errors_are_read_as_they_were_written),
        cmocka_unit_test(neighbours_keep_a_slot_for_each_arrival),
        cmocka_unit_test(neighbours_cut_by_the_most_arrivals_of_a_rank),
        cmocka_unit_test(neighbours_send_first_to_the_ranks_after_them),
        cmocka_unit_test(a_size_that_overflows_is_no_memory),
        cmocka_unit_test(a_linear_route_keeps_two_payloads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
