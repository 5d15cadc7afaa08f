/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of sums of sketches: the same sums as of sparse payloads, exactly, in every form and arrangement;
 * nothing is lost; sketches that are too small are made up for; steps that are dropped, NaN, checkpoints. Numbers are
 * small integers, so that sums of floats are exact in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "exchange/test_sketches.h"

/* ---- the sums of sparse payloads --------------------------------------------------------------------------------- */

static void sums_are_those_of_sparse_payloads(void **state) {
    (void)state;
    static const double RATIOS[] = {0, 1.5, 3, 20, 1000};
    for (size_t r = 0; r < sizeof RATIOS / sizeof *RATIOS; r++) {
        const trial t = {
            .codec = "tagc", .ratio = RATIOS[r], .feedback = ERRORS, .factor = 6, .threshold = r % 2 == 0 ? 90 : 70};
        try_all(compare_with_topk, &t);
    }
    const trial momentum = {
        .codec = "tagc", .feedback = {.errors = true, .decay = 0.5, .momentum = 0.5}, .factor = 6, .threshold = 80};
    try_all(compare_with_topk, &momentum);
}

/* T19: how large sketches are changes no bit of exact sums and of residuals. */
static void compare_ratios(taciti_comm *comm, void *context) {
    trial other = *(trial *)context, first = other;
    bench a, b;
    first.ratio = 0;
    set_up(comm, &first, &a);
    set_up(comm, &other, &b);
    for (int64_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < a.layout.n; i++) a.x[i] = b.x[i] = input(&a.layout, taciti_comm_rank(comm), step, i);
        run(&a, step, TACITI_PHASE_ALL_REDUCE, a.x);
        run(&b, step, TACITI_PHASE_ALL_REDUCE, b.x);
        CHECK(memcmp(a.x, b.x, a.layout.n * sizeof *a.x) == 0);
        CHECK(other.ratio > 1 || pending_of(&b) == 0); /* what is packed is not counted */
        CHECK(taciti_exchange_settle(a.exchange, step != 3) == TACIT_OK);
        CHECK(taciti_exchange_settle(b.exchange, step != 3) == TACIT_OK);
        const float *mine = taciti_exchange_residual(a.exchange, TACITI_RESIDUAL_CONTRIBUTION);
        const float *theirs = taciti_exchange_residual(b.exchange, TACITI_RESIDUAL_CONTRIBUTION);
        CHECK((mine == NULL) == (theirs == NULL));
        if (mine != NULL) CHECK(memcmp(mine, theirs, a.layout.n * sizeof *mine) == 0);
    }
    tear_down(&a);
    tear_down(&b);
}

static void sizes_of_sketches_change_no_bit_of_exact_sums(void **state) {
    (void)state;
    static const double RATIOS[] = {1, 2, 12}; /* all of them: test_sketch_message.c */
    for (int r = 0; r < 3; r++) {
        const trial t = {.codec = "tagc", .ratio = RATIOS[r], .feedback = ERRORS, .factor = 5};
        try_all(compare_ratios, &t);
    }
}

/* ---- nothing is lost --------------------------------------------------------------------------------------------- */

static void conserve(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    double *balance = taciti_calloc(b.layout.n, sizeof *balance);
    const float *residual = NULL;
    for (int64_t step = 0; step < STEPS; step++) {
        const bool taken = step != 3;
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = input(&b.layout, taciti_comm_rank(comm), step, i);
        run(&b, step, TACITI_PHASE_ALL_REDUCE, b.x);
        has_rank_0s_bits(&b, b.x);
        CHECK(taciti_exchange_settle(b.exchange, taken) == TACIT_OK);
        for (size_t i = 0; i < b.layout.n && taken; i++)
            balance[i] += (double)input(&b.layout, taciti_comm_rank(comm), step, i) -
                          (taciti_comm_rank(comm) == 0 ? (double)b.x[i] : 0);
    }
    residual = taciti_exchange_residual(b.exchange, TACITI_RESIDUAL_CONTRIBUTION);
    for (size_t i = 0; i < b.layout.n && residual != NULL; i++) balance[i] -= (double)residual[i];
    if (taciti_comm_size(comm) > 1)
        CHECK(taciti_comm_allreduce_f64(comm, balance, b.layout.n, TACITI_OP_SUM) == TACIT_OK);
    for (size_t i = 0; i < b.layout.n; i++) CHECK(fabs(balance[i]) < 1e-9);
    taciti_free(balance);
    tear_down(&b);
}

static void results_and_residuals_add_up_to_the_inputs(void **state) {
    (void)state;
    const trial t = {.codec = "tagc", .feedback = ERRORS, .factor = 6, .threshold = 75};
    try_all(conserve, &t);
    const trial exactly = {.codec = "tagc", .ratio = 2, .feedback = ERRORS, .factor = 5};
    try_all(conserve, &exactly);
}

/* ---- overlap, halves, dropped steps ------------------------------------------------------------------------------ */

static void compare_ways(taciti_comm *comm, void *context) {
    const trial *t = context;
    trial other = *t;
    bench a, b;
    other.blocking = !t->blocking;
    set_up(comm, t, &a);
    set_up(comm, &other, &b);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == 2) { /* a step that is dropped leaves no trace */
            step_of(&b, 40, b.x);
            CHECK(taciti_exchange_settle(b.exchange, false) == TACIT_OK);
        }
        step_of(&a, step, a.x);
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = input(&b.layout, taciti_comm_rank(comm), step, i);
        run(&b, step, TACITI_PHASE_REDUCE_SCATTER, b.x);
        taciti_range owned;
        for (size_t k = 0; k < b.layout.bucket_count; k++)
            for (size_t i = 0; taciti_exchange_owned(b.exchange, k, i, &owned); i++)
                CHECK(memcmp(a.x + owned.at, b.x + owned.at, owned.n * sizeof *a.x) == 0);
        run(&b, step, TACITI_PHASE_ALL_GATHER, b.x);
        CHECK(memcmp(a.x, b.x, a.layout.n * sizeof *a.x) == 0);
        CHECK(taciti_exchange_settle(a.exchange, true) == TACIT_OK);
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
    }
    tear_down(&a);
    tear_down(&b);
}

static void overlap_halves_and_dropped_steps_give_the_same_bits(void **state) {
    (void)state;
    for (int contiguous = 0; contiguous < 2; contiguous++) {
        const trial t = {
            .codec = "tagc", .feedback = ERRORS, .factor = 6, .blocking = true, .contiguous = contiguous != 0};
        try_all(compare_ways, &t);
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

static void copy_state(taciti_exchange *from, taciti_exchange *to, size_t n) {
    size_t bytes = 0, same = 0;
    for (int a = 0; a <= TACITI_RESIDUAL_RESULT; a++) {
        const float *one = taciti_exchange_residual(from, (taciti_residual_array)a);
        if (one != NULL) memcpy(taciti_exchange_residual(to, (taciti_residual_array)a), one, n * sizeof *one);
    }
    const void *state = taciti_exchange_codec_state(from, &bytes);
    void *copy = taciti_exchange_codec_state(to, &same);
    CHECK(bytes == same && (state == NULL) == (copy == NULL));
    if (state != NULL) memcpy(copy, state, bytes);
    taciti_exchange_restored(to, false);
}

static void resume(taciti_comm *comm, void *context) {
    bench a, b;
    set_up(comm, context, &a);
    set_up(comm, context, &b);
    for (int64_t step = 0; step < 3; step++) {
        step_of(&a, step, a.x);
        CHECK(taciti_exchange_settle(a.exchange, true) == TACIT_OK);
    }
    copy_state(a.exchange, b.exchange, a.layout.n);
    for (int64_t step = 3; step < STEPS; step++) {
        step_of(&a, step, a.x);
        step_of(&b, step, b.x);
        CHECK(memcmp(a.x, b.x, a.layout.n * sizeof *a.x) == 0);
        CHECK(pending_of(&a) == pending_of(&b));
        for (size_t k = 0; k < a.layout.bucket_count; k++)
            CHECK(taciti_exchange_tally_of(a.exchange, k)[0].bytes == taciti_exchange_tally_of(b.exchange, k)[0].bytes);
        CHECK(taciti_exchange_settle(a.exchange, true) == TACIT_OK);
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
    }
    tear_down(&a);
    tear_down(&b);
}

static void a_run_resumes_bit_for_bit(void **state) {
    (void)state;
    const trial t = {.codec = "tagc", .feedback = ERRORS, .factor = 6};
    try_all(resume, &t);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static void one_nan(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    const int size = taciti_comm_size(comm);
    for (int64_t step = 0; step < 4; step++) {
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = input(&b.layout, taciti_comm_rank(comm), step, i);
        const size_t at = (size_t)(step + 1) * b.layout.n / 7;
        if (step > 0 && taciti_comm_rank(comm) == size - 1) b.x[at] = step % 2 == 0 ? NAN : -INFINITY;
        run(&b, step, TACITI_PHASE_ALL_REDUCE, b.x);
        CHECK(step == 0 || !isfinite(b.x[at]));
        CHECK(taciti_exchange_settle(b.exchange, step == 0) == TACIT_OK);
    }
    const float *residual = taciti_exchange_residual(b.exchange, TACITI_RESIDUAL_CONTRIBUTION);
    for (size_t i = 0; i < b.layout.n && residual != NULL; i++) CHECK(isfinite(residual[i]));
    step_of(&b, 4, b.x);
    for (size_t i = 0; i < b.layout.n; i++) CHECK(isfinite(b.x[i]));
    tear_down(&b);
}

static void what_is_not_finite_reaches_all_ranks_and_no_residual(void **state) {
    (void)state;
    const trial t = {.codec = "tagc", .feedback = ERRORS, .factor = 6};
    try_all(one_nan, &t);
}

/* Contributions grow a thousand times from step to step. Then they vanish. */
static void outgrow(taciti_comm *comm, void *context) {
    static const float SCALES[] = {1, 1024, 1048576, 0, 1, 1};
    bench b;
    set_up(comm, context, &b);
    for (int64_t step = 0; step < 6; step++) {
        for (size_t i = 0; i < b.layout.n; i++) {
            const float scale = taciti_rng_below(5, i, 8) == 0 ? SCALES[step] : 0;
            b.x[i] = scale * input(&b.layout, taciti_comm_rank(comm), step, i);
            b.whole[i] = 0;
            for (int r = 0; r < taciti_comm_size(comm); r++) b.whole[i] += scale * input(&b.layout, r, step, i);
        }
        run(&b, step, TACITI_PHASE_ALL_REDUCE, b.x);
        for (size_t i = 0; i < b.layout.n; i++) CHECK(b.x[i] == b.whole[i]);
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
    }
    tear_down(&b);
}

static void sums_of_growing_numbers_are_exact(void **state) {
    (void)state;
    const trial t = {.codec = "tagc", .factor = 6, .threshold = 1e-30};
    try_all(outgrow, &t);
}

/* ---- size -------------------------------------------------------------------------------------------------------- */

/* After the first step the sketch has the size of the union, also where the factor has halved: next to nothing stays
 * pending (two elements that share all rows), and fewer bytes travel than of the plain array. */
static void measure(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    double dense = 0;
    for (size_t k = 0; k < b.layout.bucket_count; k++) dense += (double)b.layout.buckets[k].n * sizeof(float);
    for (int64_t step = 0; step < STEPS; step++) {
        b.setting.setting[TACITI_PAYLOAD_CONTRIBUTION].factor = step == 2 || step == 3 ? 20 : 40;
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = input(&b.layout, taciti_comm_rank(comm), step, i);
        const uint64_t before = taciti_comm_count(comm).bytes_sent;
        run(&b, step, TACITI_PHASE_REDUCE_SCATTER, b.x);
        const double sent = over_ranks(comm, (double)(taciti_comm_count(comm).bytes_sent - before));
        uint64_t counted = 0;
        for (size_t k = 0; k < b.layout.bucket_count; k++)
            counted += taciti_exchange_tally_of(b.exchange, k)[TACITI_PAYLOAD_CONTRIBUTION].bytes;
        CHECK(over_ranks(comm, (double)counted) == sent);
        if (step == 0) CHECK(taciti_exchange_bytes_per_step(b.exchange) >= counted);
        if (step > 0) CHECK(over_ranks(comm, (double)pending_of(&b)) < 0.001 * (double)b.layout.n); /* pairs */
        if (step > 0) CHECK(sent < 0.7 * dense * (taciti_comm_size(comm) - 1));
        CHECK(taciti_exchange_settle(b.exchange, true) == TACIT_OK);
    }
    tear_down(&b);
}

static void a_sketch_has_the_size_of_the_last_union(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    const trial t = {.codec = "tagc", .factor = 20};
    for (int size = 2; size < 5; size++) test_world_run(size, &options, measure, (void *)(uintptr_t)&t);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static uint64_t messages_of(taciti_comm *comm) { return taciti_comm_count(comm).messages_sent; }

/* More blocks than may be under way, with nothing and with most elements pending: the sums of topk, step by step. */
static void compare_many_blocks(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    const uint64_t before = messages_of(comm);
    step_of(&b, 0, b.x);
    CHECK(messages_of(comm) - before >= 2 * (TACITI_SKETCH_SLOTS + 1)); /* a contribution and a reply for each */
    tear_down(&b);
    compare_with_topk(comm, context);
}

static void blocks_give_the_sums_of_sparse_payloads(void **state) {
    (void)state;
    taciti_comm_options options = test_comm_options(true);
    options.segment_bytes = 1024;
    for (int contiguous = 0; contiguous < 2; contiguous++)
        for (int ratio = 0; ratio < 20; ratio += 10) {
            trial t = {.codec = "tagc", .ratio = ratio, .factor = 6, .threshold = 80, .contiguous = contiguous != 0};
            for (int size = 2; size < 4; size++) test_world_run(size, &options, compare_many_blocks, &t);
        }
}

/* T13, as the transport counts it: index and sketch with c = 2 are 0.53125 of the floats of a reduce-scatter. */
static void count_bytes(taciti_comm *comm, void *context) {
    enum { FLOATS = 2359296, DENSE = FLOATS / 2 * 4, INDEX = FLOATS / 2 / 8, COUNTERS = DENSE / 2, HEAD = 64 };
    static const size_t LENGTHS[] = {FLOATS};
    const taciti_exchange_options options = {.bucket_bytes = FLOATS * sizeof(float), .contiguous = true};
    const taciti_codec *tagc = taciti_codec_find("tagc");
    bench b = {.comm = comm,
               .setting = {.setting[TACITI_PAYLOAD_CONTRIBUTION] = {.factor = 5},
                           .setting[TACITI_PAYLOAD_RESULT] = {.factor = 1}}};
    (void)context;
    test_layout(LENGTHS, 1, FLOATS * sizeof(float), &b.layout);
    CHECK(taciti_codec_defaults(tagc, &b.options) == TACIT_OK);
    const taciti_encoding compression = {
        .codec = tagc, .options = b.options, .seed = 4, .expected = {.factor = 5}, .feedback = ERRORS};
    CHECK(taciti_exchange_create(comm, &b.layout, &options, &compression, &b.exchange) == TACIT_OK);
    b.x = taciti_calloc(b.layout.n, sizeof *b.x);
    for (size_t i = 0; i < b.layout.n; i++) b.x[i] = input(&b.layout, taciti_comm_rank(comm), 0, i);
    const taciti_comm_counters before = taciti_comm_count(comm);
    run(&b, 0, TACITI_PHASE_REDUCE_SCATTER, b.x);
    const uint64_t sent = taciti_comm_count(comm).bytes_sent - before.bytes_sent;
    const uint64_t messages = messages_of(comm) - before.messages_sent;
    CHECK(pending_of(&b) == 0); /* with this seed no two lines have the same three rows */
    CHECK(INDEX + COUNTERS == 0.53125 * DENSE);
    CHECK(sent >= INDEX + COUNTERS && sent <= INDEX + COUNTERS + messages * (HEAD + sizeof(taciti_sketch_reply)));
    tear_down(&b);
}

static void bytes_are_those_of_the_formulas(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(2, &options, count_bytes, NULL);
}

static void refuse(taciti_comm *comm, void *context) {
    (void)context;
    static const taciti_exchange_options OPTIONS = {.bucket_bytes = 10000};
    taciti_layout layout;
    taciti_exchange *exchange = NULL;
    test_layout_of_five(&layout);
    taciti_encoding c = {.codec = taciti_codec_find("tagc")};
    c.feedback.estimates = true;
    CHECK(taciti_exchange_create(comm, &layout, &OPTIONS, &c, &exchange) == TACIT_E_CONFIG);
    c.feedback.estimates = false;
    c.way = TACITI_WAY_GATHER;
    CHECK(taciti_exchange_create(comm, &layout, &OPTIONS, &c, &exchange) == TACIT_E_CONFIG);
    taciti_layout_destroy(&layout);
}

static void what_does_not_add_up_is_refused(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(2, &options, refuse, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sketch_has_the_size_of_the_last_union),
        cmocka_unit_test(sums_are_those_of_sparse_payloads),
        cmocka_unit_test(sizes_of_sketches_change_no_bit_of_exact_sums),
        cmocka_unit_test(results_and_residuals_add_up_to_the_inputs),
        cmocka_unit_test(overlap_halves_and_dropped_steps_give_the_same_bits),
        cmocka_unit_test(a_run_resumes_bit_for_bit),
        cmocka_unit_test(what_is_not_finite_reaches_all_ranks_and_no_residual),
        cmocka_unit_test(sums_of_growing_numbers_are_exact),
        cmocka_unit_test(blocks_give_the_sums_of_sparse_payloads),
        cmocka_unit_test(bytes_are_those_of_the_formulas),
        cmocka_unit_test(what_does_not_add_up_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
