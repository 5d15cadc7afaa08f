/* SPDX-License-Identifier: Apache-2.0
 *
 * Residuals in fewer bits. The law: an exchange that stores them in a narrow form is, bit for bit, one that stores
 * floats and whose residuals somebody rounds after every step that is taken; whatever the codec, the arrangement, the
 * half, dense and dropped steps, and residuals that other ranks bring. So nothing is lost but the rounding of the
 * kernels (kernel/test_line8.c, kernel/test_array.c). And what is read for a checkpoint is stored again as it was.
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

/* Rank r is on host ARRANGEMENTS[i][r]: all alone; unequal hosts; pairs; all together. */
static const int ARRANGEMENTS[][4] = {{0, 1, 2, 3}, {1, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 0, 0}};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS, STEPS = 9 };
enum { DENSE = 3, DROPPED = 4, MOVED = 6 };

typedef enum halves { ALL_REDUCE, BOTH_HALVES, REDUCE_SCATTER } halves;

typedef struct trial {
    const char *codec;
    taciti_residual_form form;
    double decay;
    int route, scheme;
    halves halves;
} trial;

typedef struct bench {
    taciti_comm *comm;
    const trial *t;
    taciti_layout layout;
    void *options;
    taciti_exchange *exchange;
    float *x;
} bench;

static void set_up(taciti_comm *comm, const trial *t, taciti_residual_form form, bench *b) {
    static const size_t LENGTHS[] = {5000, 3, 12000, 700, 64};
    const taciti_exchange_options options = {.bucket_bytes = 30000, .scheme = t->scheme};
    const taciti_codec *codec = taciti_codec_find(t->codec);
    *b = (bench){.comm = comm, .t = t};
    test_layout(LENGTHS, 5, 30000, &b->layout);
    CHECK(codec != NULL && taciti_codec_defaults(codec, &b->options) == TACIT_OK);
    const taciti_encoding compression = {
        .codec = codec,
        .options = b->options,
        .seed = 3,
        .expected = {.factor = 6},
        .feedback = {.errors = true, .decay = t->decay, .half = t->halves == REDUCE_SCATTER, .stored = form},
        .way = (taciti_way)t->route};
    CHECK(taciti_exchange_create(comm, &b->layout, &options, &compression, &b->exchange) == TACIT_OK);
    b->x = taciti_calloc(b->layout.n, sizeof *b->x);
}

static void tear_down(bench *b) {
    taciti_exchange_destroy(b->exchange);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->options);
    taciti_free(b->x);
}

/* Each form takes every other arrangement and number of ranks. */
static void try_all(test_rank *law, trial t) {
    for (int size = 1; size <= 4; size++)
        for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
            if ((size + i + (int)t.form) % 2 == 0 || test_spares(size / 2 + i)) continue;
            taciti_comm_options options = test_comm_options((size + i) / 2 % 2 == 0);
            options.segment_bytes = size == 2 ? 1024 : 16384;
            t.scheme = (i + size) % 3;
            test_hosts(ARRANGEMENTS[i]);
            test_world_run(size, &options, law, &t);
        }
    test_hosts(NULL);
}

static void try_codecs(test_rank *law) {
    static const trial TRIALS[] = {
        {.codec = "topk", .decay = 1, .route = TACITI_WAY_SCATTER},
        {.codec = "topk", .decay = 0.75, .route = TACITI_WAY_GATHER},
        {.codec = "topk", .decay = 1, .route = TACITI_WAY_SCATTER, .halves = REDUCE_SCATTER},
        {.codec = "int4", .decay = 1, .route = TACITI_WAY_SCATTER},
        {.codec = "int4", .decay = 1, .route = TACITI_WAY_SCATTER, .halves = REDUCE_SCATTER},
        {.codec = "sketch", .decay = 1},
        {.codec = "tagc", .decay = 0.5, .halves = BOTH_HALVES},
        {.codec = "powersgd", .decay = 1},
    };
    for (size_t i = 0; i < sizeof TRIALS / sizeof *TRIALS; i++)
        for (int form = TACITI_RESIDUAL_BF16; form <= TACITI_RESIDUAL_INT8; form++) {
            trial t = TRIALS[i];
            t.form = (taciti_residual_form)form;
            try_all(law, t);
        }
}

/* Returns a number whose scale differs from stretch to stretch; some are zero, as all in gaps are. */
static float number(const taciti_layout *layout, int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(7, (uint64_t)rank), (uint64_t)step);
    const float scale = i / 4096 % 2 == 0 ? 1 : 1e-3F;
    return i % 7 == 0 || test_is_gap(layout, i) ? 0 : scale * ((float)taciti_rng_unit(key, i) - 0.5F);
}

static void run(const bench *b, int64_t step, bool one_by_one) {
    const taciti_phase parts[] = {b->t->halves != ALL_REDUCE ? TACITI_PHASE_REDUCE_SCATTER : TACITI_PHASE_ALL_REDUCE,
                                  TACITI_PHASE_ALL_GATHER};
    const double factor = step % 3 == 0 ? 4 : 40;
    const taciti_bucket_task setting = {.setting[TACITI_PAYLOAD_CONTRIBUTION] = {.factor = factor},
                                        .setting[TACITI_PAYLOAD_RESULT] = {.factor = factor},
                                        .dense = step % STEPS == DENSE,
                                        .trial.factor = step % 4 == 1 ? 16 : 0};
    for (size_t i = 0; i < b->layout.n; i++) b->x[i] = number(&b->layout, taciti_comm_rank(b->comm), step, i);
    taciti_exchange_at(b->exchange, step, &setting);
    for (size_t p = 0; p < (b->t->halves == BOTH_HALVES ? 2 : 1); p++) {
        for (size_t k = 0; k < b->layout.bucket_count; k++) {
            CHECK(taciti_exchange_begin_phase(b->exchange, b->x, k, parts[p]) == TACIT_OK);
            if (one_by_one) CHECK(taciti_exchange_wait(b->exchange, k) == TACIT_OK);
        }
        for (size_t k = 0; k < b->layout.bucket_count && !one_by_one; k++)
            CHECK(taciti_exchange_wait(b->exchange, k) == TACIT_OK);
    }
}

/* After a reduce-scatter, only the ranges that this rank owns are compared. */
static void are_equal(const bench *a, const bench *b) {
    taciti_range owned;
    for (size_t i = 0; i < a->layout.n && a->t->halves != REDUCE_SCATTER; i++) CHECK(a->x[i] == b->x[i]);
    for (size_t k = 0; k < a->layout.bucket_count; k++)
        for (size_t j = 0; taciti_exchange_owned(a->exchange, k, j, &owned); j++)
            for (size_t i = owned.at; i < owned.at + owned.n; i++) CHECK(a->x[i] == b->x[i]);
}

/* The narrow residuals as floats; owned. NULL: there are none. */
static float *read_narrow(const bench *b, int which) {
    taciti_state_access access;
    CHECK(taciti_exchange_residual(b->exchange, (taciti_residual_array)which) == NULL);
    if (!taciti_exchange_narrow_residual(b->exchange, (taciti_residual_array)which, &access)) return NULL;
    float *out = taciti_calloc(b->layout.n, sizeof *out);
    access.read(access.object, access.which, 0, out, b->layout.n);
    return out;
}

/* ---- rounding is all that is lost -------------------------------------------------------------------------------- */

static void round_all(const bench *b, taciti_residual_form form, float *x) {
    void *stored = taciti_calloc(taciti_residual_form_bytes(form, b->layout.n), 1);
    taciti_residual_narrow(form, stored, 0, x, b->layout.n);
    taciti_residual_widen(form, stored, 0, x, b->layout.n);
    taciti_free(stored);
}

static void round_as_stored(const bench *narrow, const bench *wide, bool taken) {
    for (int a = 0; a <= TACITI_RESIDUAL_RESULT; a++) {
        float *x = taciti_exchange_residual(wide->exchange, (taciti_residual_array)a), *y = read_narrow(narrow, a);
        CHECK((x == NULL) == (y == NULL));
        if (x == NULL) continue;
        if (taken) round_all(wide, narrow->t->form, x);
        CHECK(memcmp(x, y, wide->layout.n * sizeof *x) == 0);
        taciti_free(y);
    }
    if (taken) taciti_exchange_restored(wide->exchange, false);
}

/* Residuals of rank r go to rank r + 1, as if another number of ranks had written them. */
static void move_on(const bench *narrow, const bench *wide) {
    const int size = taciti_comm_size(wide->comm), rank = taciti_comm_rank(wide->comm);
    const size_t n = wide->layout.n;
    taciti_state_access access;
    float *all = taciti_calloc(n * (size_t)size, sizeof *all);
    for (int a = 0; a <= TACITI_RESIDUAL_RESULT; a++) {
        float *x = taciti_exchange_residual(wide->exchange, (taciti_residual_array)a);
        if (x == NULL) continue;
        CHECK(taciti_comm_allgather(wide->comm, x, n * sizeof *x, all) == TACIT_OK);
        memcpy(x, all + (size_t)((rank + 1) % size) * n, n * sizeof *x);
        CHECK(taciti_exchange_narrow_residual(narrow->exchange, (taciti_residual_array)a, &access));
        access.write(access.object, access.which, 0, x, n);
    }
    taciti_exchange_restored(wide->exchange, true);
    taciti_exchange_restored(narrow->exchange, true);
    taciti_free(all);
}

static void follow_rounded(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench narrow, wide;
    double rounded = 0;
    set_up(comm, t, t->form, &narrow);
    set_up(comm, t, TACITI_RESIDUAL_F32, &wide);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == MOVED) move_on(&narrow, &wide);
        run(&narrow, step, false);
        run(&wide, step, true);
        are_equal(&narrow, &wide);
        CHECK(taciti_exchange_settle(narrow.exchange, step != DROPPED) == TACIT_OK);
        CHECK(taciti_exchange_settle(wide.exchange, step != DROPPED) == TACIT_OK);
        const float *x = taciti_exchange_residual(wide.exchange, TACITI_RESIDUAL_CONTRIBUTION);
        for (size_t i = 0; step == 0 && x != NULL && i < wide.layout.n; i++) rounded += x[i] != 0;
        round_as_stored(&narrow, &wide, step != DROPPED);
    }
    CHECK(taciti_exchange_residual(wide.exchange, TACITI_RESIDUAL_CONTRIBUTION) == NULL || rounded > 0 ||
          taciti_comm_hosts(comm)->count < taciti_comm_size(comm)); /* ranks that are no lanes encode nothing */
    tear_down(&narrow);
    tear_down(&wide);
}

static void it_is_an_exchange_whose_residuals_are_rounded(void **state) {
    (void)state;
    try_codecs(follow_rounded);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* In parts of odd length, as tensors have. */
static void copy_residuals(const bench *from, const bench *to) {
    enum { PART = 1003 };
    for (int a = 0; a <= TACITI_RESIDUAL_RESULT; a++) {
        float *x = read_narrow(from, a);
        taciti_state_access access;
        for (size_t at = 0; x != NULL && at < from->layout.n; at += PART) {
            const size_t part = from->layout.n - at < PART ? from->layout.n - at : PART;
            CHECK(taciti_exchange_narrow_residual(to->exchange, (taciti_residual_array)a, &access));
            access.write(access.object, access.which, at, x + at, part);
        }
        float *copy = read_narrow(to, a);
        CHECK(x == NULL || memcmp(x, copy, from->layout.n * sizeof *x) == 0);
        taciti_free(x);
        taciti_free(copy);
    }
    size_t bytes = 0;
    const void *state = taciti_exchange_codec_state(from->exchange, &bytes);
    if (state != NULL) memcpy(taciti_exchange_codec_state(to->exchange, &bytes), state, bytes);
    taciti_exchange_restored(to->exchange, false);
}

static void resume(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench a, b;
    set_up(comm, t, t->form, &a);
    set_up(comm, t, t->form, &b);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == 2) copy_residuals(&a, &b);
        run(&a, step, false);
        CHECK(taciti_exchange_settle(a.exchange, true) == TACIT_OK);
        if (step < 2) continue;
        run(&b, step, false);
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
        are_equal(&a, &b);
    }
    tear_down(&a);
    tear_down(&b);
}

static void what_is_read_is_stored_as_it_was(void **state) {
    (void)state;
    try_codecs(resume);
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */

/* A residual that another number of ranks has left; 0 in gaps. Sums of some are exact in every form. */
static float small_integer(const taciti_layout *layout, int which, size_t i) {
    return test_is_gap(layout, i) ? 0 : (float)((int)taciti_rng_below((uint64_t)which, i, 17) - 8);
}

/* Writes residuals to arrays 0 .. arrays - 1; returns whether an exchange has them all. */
static bool bring_residuals(const bench *b, int arrays) {
    taciti_state_access access;
    bool all = true;
    for (int a = 0; a < arrays; a++) {
        float *floats = taciti_exchange_residual(b->exchange, (taciti_residual_array)a);
        const bool narrow = taciti_exchange_narrow_residual(b->exchange, (taciti_residual_array)a, &access);
        all = all && narrow != (floats != NULL);
        for (size_t i = 0; all && i < b->layout.n; i++) {
            const float x = small_integer(&b->layout, a, i);
            if (narrow)
                access.write(access.object, access.which, i, &x, 1);
            else
                floats[i] = x;
        }
    }
    return all;
}

/* Residuals of contributions and, but for linear codecs, of results. The first step is dropped. */
static void add_once(taciti_comm *comm, void *context) {
    const trial *t = context;
    const int arrays = strcmp(t->codec, "powersgd") == 0 ? 1 : 2;
    bench b;
    set_up(comm, t, t->form, &b);
    CHECK(bring_residuals(&b, arrays));
    taciti_exchange_restored(b.exchange, false);
    for (int64_t step = 0; step < 3; step++) {
        const taciti_bucket_task dense = {.dense = true};
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = test_is_gap(&b.layout, i) ? 0 : -0.0F;
        taciti_exchange_at(b.exchange, step, &dense);
        CHECK(taciti_exchange_run(b.exchange, b.x) == TACIT_OK);
        for (size_t i = 0; i < b.layout.n; i++) {
            float sum = test_is_gap(&b.layout, i) ? 0 : -0.0F;
            for (int a = 0; a < arrays && step < 2; a++) sum += small_integer(&b.layout, a, i);
            CHECK(memcmp(&sum, &b.x[i], sizeof sum) == 0);
        }
        CHECK(taciti_exchange_settle(b.exchange, step > 0) == TACIT_OK);
        CHECK(bring_residuals(&b, arrays) == (step == 0));
    }
    tear_down(&b);
}

/* Nor do residuals that are zeros change a bit. */
static void add_zeros(taciti_comm *comm, void *context) {
    const taciti_bucket_task dense = {.dense = true};
    bench b;
    set_up(comm, context, ((const trial *)context)->form, &b);
    taciti_exchange_restored(b.exchange, false);
    b.x[0] = -0.0F;
    taciti_exchange_at(b.exchange, 0, &dense);
    CHECK(taciti_exchange_run(b.exchange, b.x) == TACIT_OK);
    CHECK(signbit(b.x[0]) != 0);
    tear_down(&b);
}

static void one_rank_adds_residuals_of_a_checkpoint_once(void **state) {
    (void)state;
    static const char *const CODECS[] = {"topk", "int4", "sketch", "powersgd"};
    const taciti_comm_options options = test_comm_options(true);
    for (size_t i = 0; i < sizeof CODECS / sizeof *CODECS; i++)
        for (int form = TACITI_RESIDUAL_F32; form <= TACITI_RESIDUAL_INT8; form++) {
            trial t = {.codec = CODECS[i], .decay = 1, .form = (taciti_residual_form)form};
            test_world_run(1, &options, add_once, &t);
            if (strcmp(t.codec, "powersgd") != 0) test_world_run(1, &options, add_zeros, &t);
        }
}

/* ---- memory, refusals -------------------------------------------------------------------------------------------- */

static size_t predict(taciti_comm *comm, const bench *b, taciti_feedback feedback) {
    const taciti_exchange_options options = {.bucket_bytes = 30000, .scheme = TACITI_SCHEME_FLAT};
    const taciti_encoding compression = {
        .codec = taciti_codec_find("topk"), .options = b->options, .feedback = feedback, .way = TACITI_WAY_SCATTER};
    return taciti_exchange_predict_bytes(comm, &b->layout, &options, &compression);
}

/* Without results every element has one residual, in two versions. Scratch memory has room for one message. */
static void count_bytes(taciti_comm *comm, void *context) {
    enum { SEGMENT_BYTES = 1024 };
    bench b;
    set_up(comm, context, TACITI_RESIDUAL_F32, &b);
    const size_t none = predict(comm, &b, (taciti_feedback){.errors = false}), n = b.layout.n;
    taciti_feedback errors = {.errors = true, .decay = 1, .half = true};
    CHECK(predict(comm, &b, errors) == none + 8 * n);
    errors.stored = TACITI_RESIDUAL_BF16;
    const size_t scratch = predict(comm, &b, errors) - none - 4 * n;
    CHECK(scratch >= SEGMENT_BYTES && scratch <= 30000 + 64);
    errors.stored = TACITI_RESIDUAL_INT8;
    CHECK(predict(comm, &b, errors) == none + 2 * (n + n / 16) + scratch);
    tear_down(&b);
}

static void memory_is_predicted(void **state) {
    (void)state;
    trial t = {.codec = "topk", .decay = 1, .route = TACITI_WAY_SCATTER};
    taciti_comm_options options = test_comm_options(true);
    options.segment_bytes = 1024;
    test_world_run(3, &options, count_bytes, &t);
}

static void refuse(taciti_comm *comm, void *context) {
    const taciti_exchange_options options = {.bucket_bytes = 30000};
    taciti_exchange *exchange = NULL;
    taciti_layout layout;
    test_layout_of_five(&layout);
    const taciti_encoding compression = {.codec = taciti_codec_find("topk"),
                                         .feedback = *(const taciti_feedback *)context};
    CHECK(taciti_exchange_create(comm, &layout, &options, &compression, &exchange) == TACIT_E_CONFIG);
    taciti_layout_destroy(&layout);
}

static void only_errors_are_narrow(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    taciti_feedback momentum = {.errors = true, .decay = 1, .momentum = 0.5, .stored = TACITI_RESIDUAL_INT8};
    taciti_feedback estimates = {.estimates = true, .stored = TACITI_RESIDUAL_BF16};
    taciti_feedback none = {.stored = TACITI_RESIDUAL_BF16};
    test_log_keep();
    test_world_run(2, &options, refuse, &momentum);
    test_world_run(2, &options, refuse, &estimates);
    test_world_run(2, &options, refuse, &none);
    assert_true(test_log_count("only errors are stored in fewer bits") >= 3);
    test_log_drop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_an_exchange_whose_residuals_are_rounded),
        cmocka_unit_test(what_is_read_is_stored_as_it_was),
        cmocka_unit_test(one_rank_adds_residuals_of_a_checkpoint_once),
        cmocka_unit_test(memory_is_predicted),
        cmocka_unit_test(only_errors_are_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
