/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of a short array that travel together: as many messages as ranks need, and the bits of pieces that travel
 * alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/trial.h"
#include "comm/test_engine.h"
#include "exchange/allreduce.h"

enum { MIN_CHUNK = 2048, SEGMENT_BYTES = 1 << 18 };

static void describe(taciti_comm *comm, const char *codec, void *options, taciti_allreduce *out) {
    const taciti_encoding encoding = {
        .codec = taciti_codec_find(codec), .options = options, .expected = {.factor = 10}};
    CHECK(taciti_allreduce_describe(taciti_comm_hosts(comm), (taciti_members){0}, taciti_comm_rank(comm), &encoding,
                                    (taciti_placement){.scheme = TACITI_SCHEME_FLAT}, SEGMENT_BYTES, out) == TACIT_OK);
}

static void *options_of(const char *codec) {
    void *options = NULL;
    CHECK(taciti_codec_defaults(taciti_codec_find(codec), &options) == TACIT_OK);
    return options;
}

/* The pieces of a bucket of n floats, of which every rank owns a chunk. */
static size_t pieces_of(taciti_comm *comm, const char *codec, size_t n) {
    taciti_allreduce reduce;
    void *options = options_of(codec);
    describe(comm, codec, options, &reduce);
    const size_t pieces = taciti_allreduce_cut(&reduce, n).pieces;
    taciti_allreduce_destroy(&reduce);
    taciti_free(options);
    return pieces;
}

/* If the length of payloads depends on the threshold, every owner gets parts of four stretches, unless they are
 * short. */
static void look_at_pieces(taciti_comm *comm, void *context) {
    (void)context;
    const size_t chunks = (size_t)taciti_comm_size(comm) * MIN_CHUNK;
    CHECK(pieces_of(comm, "topk", 2 * chunks - 1) == 1);
    CHECK(pieces_of(comm, "topk", 2 * chunks) == 2);
    CHECK(pieces_of(comm, "topk", 4 * chunks) == 4);
    CHECK(pieces_of(comm, "topk", 8 * chunks) == 4);
    CHECK(pieces_of(comm, "qsgd", 4 * chunks) == 1);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */
static const taciti_bucket_task THRESHOLD = {.setting[TACITI_PAYLOAD_CONTRIBUTION] = {.threshold = 0.9},
                                             .setting[TACITI_PAYLOAD_RESULT] = {.threshold = 1.5}};

typedef struct running {
    taciti_allreduce reduce;
    taciti_bucket_task task;
    taciti_tally tallies[TACITI_PAYLOAD_KINDS];
    float *x;
    size_t n;
} running;

static tacit_status run_reduce(taciti_comm *comm, void *context) {
    running *r = context;
    (void)comm;
    return taciti_allreduce_run(&r->reduce, r->x, r->n, &r->task, NULL);
}

static tacit_status run_job(taciti_comm *comm, tacit_status (*run)(taciti_comm *, void *), void *context) {
    taciti_job job = {.run = run, .context = context, .name = "test", .detail = -1};
    taciti_job_submit(comm, &job);
    return taciti_job_wait(comm, &job);
}

static void open_reduce(taciti_comm *comm, void *options, bool together, size_t n, running *r) {
    memset(r, 0, sizeof *r);
    describe(comm, "topk", options, &r->reduce);
    r->reduce.halves_only = together;
    r->n = n;
    r->x = taciti_calloc(n, sizeof *r->x);
    r->task = THRESHOLD;
    r->task.tallies = r->tallies;
    for (size_t i = 0; i < n; i++)
        r->x[i] = (float)taciti_rng_below(taciti_rng_key(7, (uint64_t)taciti_comm_rank(comm)), i, 2001) / 1000 - 1;
    CHECK(taciti_allreduce_open(&r->reduce, comm, NULL) == TACIT_OK);
}

static void close_reduce(running *r) {
    taciti_allreduce_destroy(&r->reduce);
    taciti_free(r->x);
}

/* Runs it and returns the messages that this rank has sent. */
static uint64_t count_messages(taciti_comm *comm, void *options, bool together, size_t n, running *r) {
    open_reduce(comm, options, together, n, r);
    const uint64_t before = taciti_comm_count(comm).messages_sent;
    CHECK(run_job(comm, run_reduce, r) == TACIT_OK);
    return taciti_comm_count(comm).messages_sent - before;
}

/* Four pieces; the second length leaves some ranks without a range of the last one. */
static void compare_with_single_pieces(taciti_comm *comm, void *context) {
    const size_t size = (size_t)taciti_comm_size(comm), lengths[] = {4 * MIN_CHUNK * size, 8800 * size + 41};
    void *options = options_of("topk");
    (void)context;
    for (int l = 0; l < 2; l++) {
        running one, many;
        const uint64_t few = count_messages(comm, options, true, lengths[l], &one),
                       all = count_messages(comm, options, false, lengths[l], &many);
        CHECK(few == 2 * (size - 1));
        CHECK(all > 3 * few && all <= 4 * few);
        CHECK(memcmp(one.x, many.x, one.n * sizeof *one.x) == 0);
        for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++)
            CHECK(one.tallies[kind].bytes > 0 && one.tallies[kind].bytes == many.tallies[kind].bytes);
        close_reduce(&one);
        close_reduce(&many);
    }
    taciti_free(options);
}

/* ---- malformed messages ------------------------------------------------------------------------------------------ */
typedef struct forged {
    const uint32_t *words;
    size_t bytes;
} forged;

/* Rank 1 sends that in the place of its payloads. */
static tacit_status send_forged(taciti_comm *comm, void *context) {
    static char taken[1 << 18];
    const forged *f = context;
    taciti_engine_request request;
    TACITI_TRY(taciti_comm_irecv_up_to(comm, 0, taken, sizeof taken, &request));
    TACITI_TRY(taciti_comm_send(comm, 0, f->words, f->bytes));
    return taciti_comm_await(comm, &request);
}

/* The words of a topk payload without elements. */
#define EMPTY 0, 0, 255u << 8

static void refuse_forged(taciti_comm *comm, void *context) {
    static const uint32_t EMPTY_PAYLOADS[] = {12, 12, 12, 12, EMPTY, EMPTY, EMPTY, EMPTY, 0};
    const uint32_t too_long[] = {12, 12, 12, 16, EMPTY, EMPTY, EMPTY, EMPTY};
    const uint32_t endless[] = {UINT32_MAX, 12, 12, 12, EMPTY, EMPTY, EMPTY, EMPTY};
    const forged all[] = {{EMPTY_PAYLOADS, 64},     {EMPTY_PAYLOADS, 68}, {EMPTY_PAYLOADS, 60},
                          {EMPTY_PAYLOADS, 12},     {EMPTY_PAYLOADS, 0},  {too_long, sizeof too_long},
                          {endless, sizeof endless}};
    const forged *f = &all[*(const int *)context];
    void *options = options_of("topk");
    running r;
    open_reduce(comm, options, true, 2 * 4 * MIN_CHUNK, &r);
    r.task.phase = TACITI_PHASE_REDUCE_SCATTER;
    if (taciti_comm_rank(comm) == 1)
        CHECK(run_job(comm, send_forged, (void *)(uintptr_t)f) == TACIT_OK);
    else
        CHECK(run_job(comm, run_reduce, &r) == (f == all ? TACIT_OK : TACIT_E_DATA));
    close_reduce(&r);
    taciti_free(options);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */
static void run_apart(int size, test_rank *rank, void *context) {
    const taciti_comm_options options = test_comm_options(size % 2 == 0);
    test_ranks_per_host(1);
    test_world_run(size, &options, rank, context);
    test_ranks_per_host(0);
}

static void uneven_payloads_have_four_pieces(void **state) {
    (void)state;
    for (int size = 2; size <= 7; size++) run_apart(size, look_at_pieces, NULL);
}

static void four_pieces_take_one_message_per_member_and_phase(void **state) {
    (void)state;
    for (int size = 2; size <= 8; size++) run_apart(size, compare_with_single_pieces, NULL);
}

static void lengths_that_do_not_fit_a_message_are_refused(void **state) {
    (void)state;
    test_log_keep();
    for (int i = 0; i < 7; i++) run_apart(2, refuse_forged, &i);
    assert_int_equal(test_log_count("payload of rank 1"), 6);
    test_log_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_payloads_have_four_pieces),
        cmocka_unit_test(four_pieces_take_one_message_per_member_and_phase),
        cmocka_unit_test(lengths_that_do_not_fit_a_message_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
