/* SPDX-License-Identifier: Apache-2.0
 *
 * Gaps between tensors, for every codec of the registry:
 *
 * - after an exchange they are 0 in the array, and in everything that is stored for the next step;
 * - what lies in them before changes no bit of tensors, residuals, the codec's state and tallies.
 *
 * Over several steps, one of them dense and one dropped, as an all-reduce, as its two halves, and with each half alone.
 * The halves in sequence equal the all-reduce, so the gaps of an owner's sum are 0 there, too, before it is encoded.
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
#include "comm/state.h"
#include "comm/test_engine.h"
#include "exchange/exchange.h"
#include "exchange/test_layout.h"
#include "kernel/kernel.h"

enum { STEPS = 5, DENSE = 1, DROPPED = 3, BUCKET_BYTES = 4096 };
static const int SIZES[] = {1, 2, 3, 5};
static const int HOSTS[][5] = {{0, 1, 2, 3, 4}, {0, 0, 1, 1, 2}};

typedef enum way { ALL_REDUCE, HALVES, REDUCE_SCATTER, ALL_GATHER, WAYS } way;

typedef struct trial {
    const taciti_codec *codec;
    taciti_feedback feedback;
    int route;
    way way;
} trial;

typedef struct bench {
    taciti_comm *comm;
    const trial *t;
    taciti_layout layout;
    void *options;
    taciti_exchange *exchange;
    float *x, *stored;
} bench;

/* Matrices, for codecs of low rank; biases; single elements. Buckets cut the largest. */
static void lay_out(taciti_layout *out) {
    static const size_t SHAPES[][2] = {{41, 0}, {10, 0}, {100, 41}, {20, 10}, {3, 0}, {1, 0}};
    CHECK(taciti_layout_create(6, out) == TACIT_OK);
    for (size_t i = 0; i < 6; i++) {
        const char name[2] = {(char)('a' + i), 0};
        CHECK(taciti_layout_append(out, name, SHAPES[i][1] > 0 ? 2 : 1, SHAPES[i], true) == TACIT_OK);
    }
    CHECK(taciti_layout_seal(out, BUCKET_BYTES) == TACIT_OK);
}

static void set_up(taciti_comm *comm, const trial *t, bench *b) {
    const taciti_exchange_options options = {.bucket_bytes = BUCKET_BYTES};
    *b = (bench){.comm = comm, .t = t};
    lay_out(&b->layout);
    CHECK(taciti_codec_defaults(t->codec, &b->options) == TACIT_OK);
    const taciti_encoding compression = {.codec = t->codec,
                                         .options = b->options,
                                         .seed = 3,
                                         .expected = {.factor = 8},
                                         .feedback = t->feedback,
                                         .way = (taciti_way)t->route};
    CHECK(taciti_exchange_create(comm, &b->layout, &options, &compression, &b->exchange) == TACIT_OK);
    b->x = taciti_calloc(b->layout.n, sizeof *b->x);
    b->stored = taciti_calloc(b->layout.n, sizeof *b->stored);
}

static void tear_down(bench *b) {
    taciti_exchange_destroy(b->exchange);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->options);
    taciti_free(b->x);
    taciti_free(b->stored);
}

/* CHECK with the trial. */
static void expect(bool holds, const bench *b, int64_t step, const char *what) {
    if (holds) return;
    (void)fprintf(stderr,
                  "%s, %d ranks, route %d, way %d, errors %d stored as %d, estimates %d, step %d: ", b->t->codec->name,
                  taciti_comm_size(b->comm), b->t->route, (int)b->t->way, b->t->feedback.errors,
                  (int)b->t->feedback.stored, b->t->feedback.estimates, (int)step);
    (void)fprintf(stderr, "%s\n", what);
    abort();
}

/* ---- one exchange ------------------------------------------------------------------------------------------------ */

static void fill(const bench *b, int64_t step, bool dirty) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(5, (uint64_t)taciti_comm_rank(b->comm)), (uint64_t)step);
    for (size_t i = 0; i < b->layout.n; i++) {
        const bool gap = test_is_gap(&b->layout, i);
        b->x[i] = gap ? 0 : (float)taciti_rng_unit(key, i) - 0.5F;
        if (gap && dirty) b->x[i] = i % 2 == 0 ? 1e30F : NAN;
    }
}

static void run(const bench *b, taciti_phase phase) {
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        CHECK(taciti_exchange_begin_phase(b->exchange, b->x, k, phase) == TACIT_OK);
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        expect(taciti_exchange_wait(b->exchange, k) == TACIT_OK, b, 0, "an exchange fails");
}

static void exchange(const bench *b, int64_t step, way how) {
    const double factor = (double)(2 << step % 3);
    const taciti_codec_setting one = {.factor = factor, .threshold = step % 2 == 0 ? 0.4 : 0};
    const taciti_bucket_task setting = {.setting[TACITI_PAYLOAD_CONTRIBUTION] = one,
                                        .setting[TACITI_PAYLOAD_RESULT] = {.factor = factor},
                                        .dense = step == DENSE,
                                        .trial.factor = step % 2 == 0 || step == DENSE ? 4 : 0};
    taciti_exchange_at(b->exchange, step, &setting);
    if (how == ALL_REDUCE) run(b, TACITI_PHASE_ALL_REDUCE);
    if (how == HALVES || how == REDUCE_SCATTER) run(b, TACITI_PHASE_REDUCE_SCATTER);
    if (how == HALVES || how == ALL_GATHER) run(b, TACITI_PHASE_ALL_GATHER);
}

/* ---- what must be alike ------------------------------------------------------------------------------------------ */

static void has_no_numbers_in_gaps(const bench *b, int64_t step, const float *x, const char *what) {
    for (size_t i = 0; i < b->layout.n; i++) expect(x[i] == 0 || !test_is_gap(&b->layout, i), b, step, what);
}

/* After a reduce-scatter, what this rank owns. */
static void have_the_same_result(const bench *a, const bench *b, int64_t step) {
    taciti_range r;
    const char *what = "what lay in gaps changed a result";
    if (b->t->way != REDUCE_SCATTER) expect(memcmp(a->x, b->x, a->layout.n * sizeof *a->x) == 0, b, step, what);
    for (size_t k = 0; k < a->layout.bucket_count; k++)
        for (size_t i = 0; taciti_exchange_owned(a->exchange, k, i, &r); i++)
            expect(memcmp(a->x + r.at, b->x + r.at, r.n * sizeof *a->x) == 0, b, step, what);
}

/* NULL: there is none. */
static const float *read_stored(const bench *b, taciti_residual_array which) {
    taciti_state_access access;
    const float *plain = taciti_exchange_residual(b->exchange, which);
    if (plain != NULL) return plain;
    if (!taciti_exchange_narrow_residual(b->exchange, which, &access)) return NULL;
    access.read(access.object, access.which, 0, b->stored, b->layout.n);
    return b->stored;
}

static void have_stored_the_same(const bench *a, const bench *b, int64_t step) {
    for (int which = 0; which < TACITI_RESIDUAL_ARRAYS; which++) {
        const float *x = read_stored(a, (taciti_residual_array)which);
        const float *y = read_stored(b, (taciti_residual_array)which);
        if (x == NULL) continue;
        has_no_numbers_in_gaps(b, step, y, "numbers are stored for gaps");
        expect(memcmp(x, y, a->layout.n * sizeof *x) == 0, b, step, "what lay in gaps changed what is stored");
    }
    size_t bytes = 0;
    const void *state = taciti_exchange_codec_state(a->exchange, &bytes);
    const void *other = taciti_exchange_codec_state(b->exchange, &bytes);
    if (state != NULL) expect(memcmp(state, other, bytes) == 0, b, step, "what lay in gaps changed the codec's state");
}

/* But for times, and for bytes of dense steps, in which an all-reduce of a short array has a way of its own (small.h).
 */
static taciti_tally counts_of(const bench *b, size_t bucket, int kind, int64_t step) {
    taciti_tally tally = taciti_exchange_tally_of(b->exchange, bucket)[kind];
    tally.encode_ns = tally.decode_ns = tally.run_ns = 0;
    if (step == DENSE) tally.bytes = 0;
    return tally;
}

static void have_counted_the_same(const bench *a, const bench *b, int64_t step) {
    for (size_t k = 0; k < a->layout.bucket_count; k++)
        for (int kind = 0; kind < TACITI_PAYLOAD_KINDS; kind++) {
            const taciti_tally x = counts_of(a, k, kind, step), y = counts_of(b, k, kind, step);
            expect(memcmp(&x, &y, sizeof x) == 0, b, step, "what lay in gaps changed a tally");
        }
}

/* ---- all codecs -------------------------------------------------------------------------------------------------- */

static void compare(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench clean, dirty;
    set_up(comm, t, &clean);
    set_up(comm, t, &dirty);
    for (int64_t step = 0; step < STEPS; step++) {
        fill(&clean, step, false);
        fill(&dirty, step, true);
        exchange(&clean, step, t->way == HALVES ? ALL_REDUCE : t->way);
        exchange(&dirty, step, t->way);
        has_no_numbers_in_gaps(&dirty, step, dirty.x, "numbers came into gaps");
        have_the_same_result(&clean, &dirty, step);
        have_counted_the_same(&clean, &dirty, step);
        CHECK(taciti_exchange_settle(clean.exchange, step != DROPPED) == TACIT_OK);
        CHECK(taciti_exchange_settle(dirty.exchange, step != DROPPED) == TACIT_OK);
        have_stored_the_same(&clean, &dirty, step);
    }
    tear_down(&clean);
    tear_down(&dirty);
}

static bool is_legal(const trial *t) {
    const bool linear = t->codec->aggregation == TACITI_CODEC_LINEAR, sketches = t->codec->sketches;
    const bool gathers = t->route == TACITI_WAY_GATHER;
    if (linear) return t->way == ALL_REDUCE && !t->feedback.estimates && !(t->feedback.momentum > 0) && !gathers;
    if (t->codec->votes && gathers) return false;
    return !(sketches && (t->feedback.estimates || gathers)) && !(gathers && t->way != ALL_REDUCE);
}

static void try_sizes(trial *t) {
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES && is_legal(t); s++) {
        if (test_spares((int)s + t->route + (int)t->way + (int)t->feedback.stored)) continue;
        taciti_comm_options options = test_comm_options(s % 2 == 0);
        options.segment_bytes = s % 2 == 0 ? 1024 : 16384;
        test_hosts(HOSTS[s / 2]);
        test_world_run(SIZES[s], &options, compare, t);
    }
    test_hosts(NULL);
}

static void try_codecs(taciti_feedback feedback, int route, way how) {
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        trial t = {*codec, feedback, route, how};
        if (!taciti_codec_is_dense(*codec)) try_sizes(&t);
    }
}

static void gaps_do_not_matter_whatever_is_exchanged(void **state) {
    (void)state;
    const taciti_feedback errors = {.errors = true, .decay = 1};
    for (int how = 0; how < WAYS; how++) try_codecs(errors, TACITI_WAY_SCATTER, (way)how);
    try_codecs(errors, TACITI_WAY_GATHER, ALL_REDUCE);
}

static void gaps_do_not_matter_whatever_is_stored(void **state) {
    (void)state;
    static const taciti_feedback FEEDBACKS[] = {
        {.errors = false},
        {.errors = true, .decay = 0.9, .stored = TACITI_RESIDUAL_BF16},
        {.errors = true, .decay = 1, .stored = TACITI_RESIDUAL_INT8},
        {.errors = true, .decay = 1, .momentum = 0.5},
        {.errors = false, .decay = 1, .momentum = 0.5},
        {.estimates = true},
    };
    for (size_t i = 0; i < sizeof FEEDBACKS / sizeof *FEEDBACKS; i++)
        try_codecs(FEEDBACKS[i], i % 2 == 0 ? TACITI_WAY_SCATTER : TACITI_WAY_AUTO, ALL_REDUCE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_do_not_matter_whatever_is_exchanged),
        cmocka_unit_test(gaps_do_not_matter_whatever_is_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
