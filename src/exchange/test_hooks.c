/* SPDX-License-Identifier: Apache-2.0
 *
 * Hooks around the exchange of a bucket: memory of the caller's, read and written piece by piece, gives the bits of the
 * flat array; and a dense sum reads its last piece when the first one has arrived already, so that copies hide behind
 * transfers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/trial.h"
#include "comm/test_engine.h"
#include "exchange/exchange.h"
#include "exchange/test_layout.h"

/* Rank r is on host ARRANGEMENTS[i][r]: all alone; unequal hosts; all together. */
static const int ARRANGEMENTS[][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}};
enum {
    ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS,
    BUCKET_BYTES = 400000,
    SEGMENT_BYTES = 1024,
    LONG_BYTES = 65536
};

/* codec NULL: dense sums alone. Phases of a sum are those of ranks that own one range of a bucket each. */
typedef struct trial {
    const char *codec, *wire;
    taciti_way way;
    taciti_phase phase;
    bool errors, in_pieces; /* in_pieces: compressed sums are, or there are none */
    bool together;          /* on 7 ranks, pieces travel together */
} trial;

static const trial TRIALS[] = {
    {.wire = "f32", .in_pieces = true},
    {.wire = "bf16", .in_pieces = true},
    {.codec = "int8", .wire = "f32", .errors = true, .in_pieces = true},
    {.codec = "topk", .wire = "f32", .errors = true, .in_pieces = true},
    {.codec = "topk", .wire = "f32", .way = TACITI_WAY_SCATTER, .errors = true, .in_pieces = true, .together = true},
    {.codec = "topk", .wire = "f32", .way = TACITI_WAY_GATHER, .in_pieces = true},
    {.codec = "powersgd", .wire = "f32", .errors = true},
    {.wire = "f32", .phase = TACITI_PHASE_REDUCE_SCATTER, .in_pieces = true},
    {.wire = "bf16", .phase = TACITI_PHASE_ALL_GATHER, .in_pieces = true},
    {.wire = "f32", .phase = TACITI_PHASE_REDUCE_TO_LANES, .in_pieces = true},
    {.codec = "topk",
     .wire = "f32",
     .way = TACITI_WAY_SCATTER,
     .phase = TACITI_PHASE_REDUCE_SCATTER,
     .errors = true,
     .in_pieces = true,
     .together = true},
    {.codec = "int8",
     .wire = "f32",
     .way = TACITI_WAY_SCATTER,
     .phase = TACITI_PHASE_ALL_GATHER,
     .errors = true,
     .in_pieces = true},
    {.codec = "int4",
     .wire = "f32",
     .way = TACITI_WAY_SCATTER,
     .phase = TACITI_PHASE_REDUCE_TO_LANES,
     .errors = true,
     .in_pieces = true},
};

/* A compressed step, a dense one, a compressed and a dense one with a trial, and a compressed one. */
static const taciti_bucket_task TASKS[] = {
    {.setting = {{.factor = 4}, {.factor = 4}}},
    {.dense = true},
    {.setting = {{.factor = 4}, {.factor = 4}}, .trial = {.factor = 8}},
    {.dense = true, .trial = {.factor = 8}},
    {.setting = {{.factor = 4}, {.factor = 4}}},
};
enum { STEPS = sizeof TASKS / sizeof *TASKS };

typedef struct bench {
    taciti_comm *comm;
    const trial *trial;
    taciti_layout layout;
    taciti_exchange_options options;
    void *codec_options; /* owned */
    taciti_exchange *plain, *hooked;
    float *x, *flat;            /* what each of them exchanges */
    float *mine;                /* what the hooks read and write */
    bool *is_read, *is_written; /* [layout.n] in this step */
    size_t *read, *written;     /* [bucket_count] floats for which the hooks were called in this step */
    size_t *calls;              /* [bucket_count] of the first hook in this step */
    size_t *read_at_arrival;    /* [bucket_count] read when the first range arrived; SIZE_MAX: none has */
    size_t *ended;
    bool *whole; /* [bucket_count] came as one range */
    taciti_bucket_hooks hooks;
} bench;

/* ---- hooks ------------------------------------------------------------------------------------------------------- */

static void mark(bool *marks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        CHECK(!marks[i]);
        marks[i] = true;
    }
}

static void read_range(void *context, size_t bucket, taciti_range range) {
    bench *b = context;
    const size_t at = b->layout.buckets[bucket].offset + range.at;
    CHECK(range.n > 0);
    mark(b->is_read + at, range.n);
    memcpy(b->flat + at, b->mine + at, range.n * sizeof *b->flat);
    b->whole[bucket] = range.n == b->layout.buckets[bucket].n;
    b->read[bucket] += range.n;
    b->calls[bucket]++;
}

static void write_range(void *context, size_t bucket, taciti_range range) {
    bench *b = context;
    const size_t at = b->layout.buckets[bucket].offset + range.at;
    mark(b->is_written + at, range.n);
    for (size_t i = at; taciti_phase_sums(b->trial->phase) && i < at + range.n; i++) CHECK(b->is_read[i]);
    memcpy(b->mine + at, b->flat + at, range.n * sizeof *b->flat);
    if (b->written[bucket] == 0) b->read_at_arrival[bucket] = b->read[bucket];
    b->written[bucket] += range.n;
}

/* Whether every rank gets the whole result. */
static bool reaches_all(const bench *b) {
    return b->trial->phase == TACITI_PHASE_ALL_REDUCE || b->trial->phase == TACITI_PHASE_ALL_GATHER;
}

static void end_bucket(void *context, size_t bucket, tacit_status status) {
    bench *b = context;
    CHECK(status == TACIT_OK && (!reaches_all(b) || b->written[bucket] == b->layout.buckets[bucket].n));
    b->ended[bucket]++;
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

static taciti_exchange *create_exchange(bench *b) {
    taciti_exchange *exchange = NULL;
    const taciti_encoding encoding = {.codec = b->trial->codec != NULL ? taciti_codec_find(b->trial->codec) : NULL,
                                      .options = b->codec_options,
                                      .expected = {.factor = 4},
                                      .feedback = {.errors = b->trial->errors, .decay = 1},
                                      .way = b->trial->way};
    CHECK(taciti_exchange_create(b->comm, &b->layout, &b->options, b->trial->codec != NULL ? &encoding : NULL,
                                 &exchange) == TACIT_OK);
    return exchange;
}

static void set_up(taciti_comm *comm, const trial *t, bench *b) {
    static const size_t SIZES[] = {130000, 3, 41, 40100, 10, 30000, 100};
    *b = (bench){.comm = comm, .trial = t, .options = {.bucket_bytes = BUCKET_BYTES}};
    b->options.contiguous = t->phase != TACITI_PHASE_ALL_REDUCE;
    (void)snprintf(b->options.wire.text, sizeof b->options.wire.text, "%s", t->wire);
    test_layout(SIZES, sizeof SIZES / sizeof *SIZES, BUCKET_BYTES, &b->layout);
    if (t->codec != NULL) CHECK(taciti_codec_defaults(taciti_codec_find(t->codec), &b->codec_options) == TACIT_OK);
    CHECK(b->layout.buckets[0].n * sizeof(float) == BUCKET_BYTES);
    b->plain = create_exchange(b);
    b->hooked = create_exchange(b);
    b->x = taciti_calloc(3 * b->layout.n, sizeof *b->x);
    b->flat = b->x + b->layout.n;
    b->mine = b->flat + b->layout.n;
    b->is_read = taciti_calloc(2 * b->layout.n, sizeof *b->is_read);
    b->is_written = b->is_read + b->layout.n;
    b->read = taciti_calloc(5 * b->layout.bucket_count, sizeof *b->read);
    b->written = b->read + b->layout.bucket_count;
    b->calls = b->written + b->layout.bucket_count;
    b->read_at_arrival = b->calls + b->layout.bucket_count;
    b->ended = b->read_at_arrival + b->layout.bucket_count;
    b->whole = taciti_calloc(b->layout.bucket_count, sizeof *b->whole);
    b->hooks = (taciti_bucket_hooks){read_range, write_range, end_bucket, b};
    taciti_exchange_attend(b->hooked, &b->hooks);
}

static void tear_down(bench *b) {
    taciti_exchange_destroy(b->plain);
    taciti_exchange_destroy(b->hooked);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->codec_options);
    taciti_free(b->x);
    taciti_free(b->is_read);
    taciti_free(b->whole);
    taciti_free(b->read);
}

/* The flat array of the one with hooks holds no number before they are called. */
static void set_inputs(bench *b, size_t step) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(5, (uint64_t)taciti_comm_rank(b->comm)), step);
    for (size_t i = 0; i < b->layout.n; i++) {
        b->x[i] = test_is_gap(&b->layout, i) ? 0 : (float)taciti_rng_below(key, i, 2001) / 1000 - 1;
        b->mine[i] = b->x[i];
        b->flat[i] = NAN;
    }
    memset(b->is_read, 0, 2 * b->layout.n * sizeof *b->is_read);
    memset(b->whole, 0, b->layout.bucket_count * sizeof *b->whole);
    memset(b->read, 0, 3 * b->layout.bucket_count * sizeof *b->read);
    for (size_t i = 0; i < b->layout.bucket_count; i++) b->read_at_arrival[i] = SIZE_MAX;
}

static void run_exchange(const bench *b, taciti_exchange *exchange, float *x, size_t step) {
    taciti_exchange_at(exchange, (int64_t)step, &TASKS[step]);
    for (size_t i = 0; i < b->layout.bucket_count; i++)
        CHECK(taciti_exchange_begin_phase(exchange, x, i, b->trial->phase) == TACIT_OK);
    for (size_t i = 0; i < b->layout.bucket_count; i++) CHECK(taciti_exchange_wait(exchange, i) == TACIT_OK);
    CHECK(taciti_exchange_settle(exchange, true) == TACIT_OK);
}

/* A dense step with a trial looks at the whole bucket, and so does one that sends residuals along. */
static void check_pieces(const bench *b, size_t bucket, size_t step) {
    const taciti_bucket_task *task = &TASKS[step];
    const size_t n = b->layout.buckets[bucket].n;
    const bool coded = b->trial->codec != NULL, trial_in_dense = coded && task->dense && task->trial.factor > 0;
    const bool alone = taciti_comm_size(b->comm) == 1;
    if (alone || trial_in_dense || !(task->dense || b->trial->in_pieces)) CHECK(b->calls[bucket] == 1);
    if (alone || trial_in_dense || n * sizeof(float) < BUCKET_BYTES) return;
    if (!coded && taciti_phase_sums(b->trial->phase) && b->written[bucket] > 0) CHECK(b->read_at_arrival[bucket] < n);
    if (!taciti_phase_sums(b->trial->phase)) return; /* a rank brings what it owns: check_results() */
    if (task->dense ? !b->trial->errors : b->trial->in_pieces && !b->trial->together) CHECK(b->calls[bucket] > 1);
}

/* The share of this rank's lane, which a reduction to lanes gives it. */
static taciti_range share_of_lane(const bench *b, const taciti_bucket *at) {
    taciti_arrangement a;
    taciti_range range = {0};
    CHECK(taciti_arrangement_of(taciti_comm_hosts(b->comm), (taciti_members){0}, taciti_comm_rank(b->comm),
                                taciti_exchange_placement(&b->options), &a) == TACIT_OK);
    if (taciti_arrangement_is_lane(&a)) range = taciti_arrangement_share(&a, at->n, a.number);
    taciti_arrangement_destroy(&a);
    return (taciti_range){at->offset + range.at, range.n};
}

/* Marks what this rank gets of a phase, or brings to a gather. Returns how many floats these are. */
static size_t mark_own(const bench *b, size_t bucket, bool *own) {
    taciti_range range = share_of_lane(b, &b->layout.buckets[bucket]);
    size_t n = 0;
    if (b->trial->phase == TACITI_PHASE_REDUCE_TO_LANES) {
        mark(own + range.at, range.n);
        return range.n;
    }
    for (size_t i = 0; taciti_exchange_owned(b->plain, bucket, i, &range); i++) {
        mark(own + range.at, range.n);
        n += range.n;
    }
    return n;
}

/* Checks that what this rank gets is written, with the bits of the flat array, and that a gather reads what this rank
 * owns alone. Floats of others are not specified in a bucket that came whole; else they stay as they were. */
static void check_results(const bench *b, size_t bucket, const float *before) {
    const taciti_bucket *at = &b->layout.buckets[bucket];
    const bool whole = b->whole[bucket], gathers = !taciti_phase_sums(b->trial->phase);
    bool *owned = taciti_calloc(b->layout.n, sizeof *owned);
    const size_t own_n = mark_own(b, bucket, owned);
    if (gathers && !whole && own_n * sizeof(float) > 4 * SEGMENT_BYTES) CHECK(b->calls[bucket] > 1);
    for (size_t i = at->offset; i < at->offset + at->n; i++) {
        if (test_is_gap(&b->layout, i)) continue;
        if (reaches_all(b) || owned[i]) CHECK(b->is_written[i]);
        if (!reaches_all(b) && !whole) CHECK(b->is_written[i] == owned[i]);
        if (reaches_all(b) || owned[i] || (b->is_written[i] && !whole))
            CHECK(memcmp(&b->mine[i], &b->x[i], sizeof *b->x) == 0);
        if (gathers && !whole) CHECK(b->is_read[i] == owned[i]);
        if (!b->is_written[i]) CHECK(memcmp(&b->mine[i], &before[i], sizeof *before) == 0);
    }
    taciti_free(owned);
}

static void compare_with_the_flat_array(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    float *before = taciti_calloc(b.layout.n, sizeof *before);
    for (size_t step = 0; step < STEPS; step++) {
        set_inputs(&b, step);
        memcpy(before, b.mine, b.layout.n * sizeof *before);
        run_exchange(&b, b.plain, b.x, step);
        run_exchange(&b, b.hooked, b.flat, step);
        for (size_t i = 0; i < b.layout.bucket_count; i++) CHECK(b.ended[i] == step + 1);
        for (size_t i = 0; i < b.layout.bucket_count; i++) check_results(&b, i, before);
        for (size_t i = 0; i < b.layout.bucket_count; i++) check_pieces(&b, i, step);
    }
    taciti_free(before);
    tear_down(&b);
}

static void hooks_give_the_bits_of_the_flat_array_in_pieces(void **state) {
    static const int SIZES[] = {1, 2, 3, 5, 7};
    (void)state;
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++)
        for (size_t t = 0; t < sizeof TRIALS / sizeof *TRIALS; t++)
            for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
                taciti_comm_options options = test_comm_options(SIZES[s] % 3 != 0);
                trial here = TRIALS[t];
                if ((s + t + (size_t)i) % 2 != 0) continue; /* half: every pair of size, trial and arrangement stays */
                options.segment_bytes = here.together ? LONG_BYTES : SEGMENT_BYTES;
                test_hosts(ARRANGEMENTS[i]);
                test_world_run(SIZES[s], &options, compare_with_the_flat_array, &here);
            }
    test_hosts(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hooks_give_the_bits_of_the_flat_array_in_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
