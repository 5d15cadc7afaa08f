/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of the exchange through codecs of class LINEAR, for every one of the registry and its options: the same
 * bits on all ranks, nothing is lost, a step that is dropped leaves no trace, bytes as predicted. Then what low rank
 * promises.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "exchange/test_linear.h"

/* ---- properties of all
 * ---------------------------------------------------------------------------------------------------
 */
/* Results of the steps that were taken, and what is left at the end, add up to the inputs. */
static void lose_nothing(taciti_comm *comm, void *context) {
    enum { STEPS = 6 };
    bench b;
    set_up(comm, context, &b);
    double *sum = taciti_calloc(b.layout.n, sizeof *sum);
    double held_back = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        const bool taken = step != 3;
        fill(&b, step, b.x);
        if (taken)
            for (size_t i = 0; i < b.layout.n; i++) sum[i] += (double)b.x[i];
        exchange(&b, step, b.x);
        has_rank_0s_bits(&b, b.x);
        for (size_t i = 0; i < b.layout.n && taken && taciti_comm_rank(comm) == 0; i++) sum[i] -= (double)b.x[i];
        settle(&b, taken);
    }
    for (size_t i = 0; i < b.layout.n; i++) sum[i] -= (double)b.residual[i];
    for (size_t i = 0; i < b.layout.n; i++) held_back += fabs((double)b.residual[i]);
    CHECK(taciti_comm_size(comm) == 1 || held_back > 1);
    if (taciti_comm_size(comm) > 1) CHECK(taciti_comm_allreduce_f64(comm, sum, b.layout.n, TACITI_OP_SUM) == TACIT_OK);
    for (size_t i = 0; i < b.layout.n; i++) CHECK(fabs(sum[i]) < 1e-4);
    taciti_free(sum);
    tear_down(&b);
}

static void results_and_errors_add_up_to_the_inputs(void **state) {
    (void)state;
    try_all(lose_nothing);
}

static void drop_and_repeat(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    float *first = taciti_calloc(b.layout.n, sizeof *first);
    for (int64_t step = 0; step < 4; step++) {
        fill(&b, step, first);
        exchange(&b, step, first);
        settle(&b, false);
        fill(&b, 100, b.x);
        exchange(&b, step, b.x);
        settle(&b, false);
        fill(&b, step, b.x);
        exchange(&b, step, b.x);
        settle(&b, true);
        CHECK(memcmp(first, b.x, b.layout.n * sizeof *first) == 0);
    }
    taciti_free(first);
    tear_down(&b);
}

static void a_step_that_is_dropped_leaves_no_trace(void **state) {
    (void)state;
    try_all(drop_and_repeat);
}

static void stay_alone(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    fill(&b, 0, b.x);
    for (size_t i = 0; i < b.layout.n; i++) b.error[i] = 1;
    exchange(&b, 0, b.x);
    for (size_t i = 0; i < b.layout.n; i++) CHECK(b.error[i] == 0);
    fill(&b, 0, b.error);
    CHECK(memcmp(b.x, b.error, b.layout.n * sizeof *b.x) == 0);
    tear_down(&b);
}

static void one_rank_keeps_its_array(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    trial t = TRIALS[0];
    test_world_run(1, &options, stay_alone, &t);
}

/* One step for all buckets, or one for the even and one for the odd buckets. */
static void take_turns(taciti_comm *comm, void *context) {
    bench all, turns;
    size_t bytes = 0, same = 0;
    set_up(comm, context, &all);
    set_up(comm, context, &turns);
    for (int64_t step = 0; step < 3; step++) {
        fill(&all, step, all.x);
        fill(&turns, step, turns.x);
        exchange(&all, step, all.x);
        all.route.verbs->settle(&all.route, true);
        for (size_t odd = 0; odd < 2; odd++) {
            for (size_t k = odd; k < turns.layout.bucket_count; k += 2) exchange_bucket(&turns, step, k, turns.x);
            turns.route.verbs->settle(&turns.route, true);
        }
        CHECK(memcmp(all.x, turns.x, all.layout.n * sizeof *all.x) == 0);
        const void *state = all.route.verbs->state(&all.route, &bytes);
        const void *other = turns.route.verbs->state(&turns.route, &same);
        CHECK(bytes == same && (bytes == 0 || memcmp(state, other, bytes) == 0));
    }
    tear_down(&all);
    tear_down(&turns);
}

static void a_bucket_that_is_idle_keeps_its_state(void **state) {
    (void)state;
    try_all(take_turns);
}

static void count_bytes(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, &b);
    for (int64_t step = 0; step < 2; step++) {
        uint64_t predicted = 0;
        fill(&b, step, b.x);
        for (size_t k = 0; k < b.layout.bucket_count; k++)
            predicted += b.route.verbs->bytes(&b.route, k, (taciti_codec_setting){.factor = b.factor});
        const uint64_t before = taciti_comm_count(comm).bytes_sent;
        exchange(&b, step, b.x);
        const uint64_t sent = taciti_comm_count(comm).bytes_sent - before;
        CHECK(sent == predicted);
        CHECK(taciti_comm_size(comm) == 1 || sent > 0);
        settle(&b, true);
    }
    tear_down(&b);
}

static void bytes_are_those_of_the_formula(void **state) {
    (void)state;
    try_all(count_bytes);
}

static void one_nan(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    const int size = taciti_comm_size(comm);
    for (size_t k = 0; k < b.layout.bucket_count && size > 1; k++) {
        const taciti_bucket *bucket = &b.layout.buckets[k];
        fill(&b, (int64_t)k, b.x);
        if (taciti_comm_rank(comm) == size - 1) b.x[bucket->offset + bucket->n / 2] = k % 2 == 0 ? NAN : -INFINITY;
        exchange(&b, (int64_t)k, b.x);
        int finite = 0;
        for (size_t i = 0; i < bucket->n; i++) finite += isfinite(b.x[bucket->offset + i]) != 0;
        CHECK(finite < (int)bucket->n);
        settle(&b, false);
    }
    fill(&b, 50, b.x);
    exchange(&b, 50, b.x);
    for (size_t i = 0; i < b.layout.n; i++) CHECK(isfinite(b.x[i]));
    tear_down(&b);
}

static void what_is_not_finite_reaches_all_ranks(void **state) {
    (void)state;
    try_all(one_nan);
}

/* Residuals of tensors without gradients shrink to denormal numbers, whose norms have no inverse in f32. */
static void fade_away(taciti_comm *comm, void *context) {
    enum { STEPS = 300 };
    bench b;
    set_up(comm, context, &b);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == 0)
            fill(&b, step, b.x);
        else
            memset(b.x, 0, b.layout.n * sizeof *b.x);
        exchange(&b, step, b.x);
        for (size_t i = 0; i < b.layout.n; i++) CHECK(isfinite(b.x[i]));
        settle(&b, true);
    }
    tear_down(&b);
}

static void zeros_stay_finite(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    for (int c = 0; c < TRIAL_COUNT; c++)
        for (int ranks = 1; ranks <= 5; ranks += 2) {
            trial t = TRIALS[c];
            test_world_run(ranks, &options, fade_away, &t);
        }
}

/* ---- low rank ------------------------------------------------------------------------------------------------------
 */
/* Every matrix of a rank is of rank 1: u v^T, with the same v on all ranks. */
static void fill_rank_one(const bench *b, float *x) {
    memset(x, 0, b->layout.n * sizeof *x);
    for (size_t t = 0; t < b->layout.tensor_count; t++) {
        const taciti_tensor *tensor = &b->layout.tensors[t];
        const size_t columns = tensor->dims < 2 ? 1 : tensor->shape[1];
        for (size_t i = 0; i < tensor->n; i++)
            x[tensor->offset + i] = input(taciti_comm_rank(b->comm), 7, i / columns) * input(1000, 8, i % columns);
    }
}

static void arrive_exactly(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    double *sum = taciti_calloc(b.layout.n, sizeof *sum);
    double norm = 0, wrong = 0;
    fill_rank_one(&b, b.x);
    for (size_t i = 0; i < b.layout.n; i++) sum[i] = (double)b.x[i];
    if (taciti_comm_size(comm) > 1) CHECK(taciti_comm_allreduce_f64(comm, sum, b.layout.n, TACITI_OP_SUM) == TACIT_OK);
    exchange(&b, 0, b.x);
    for (size_t i = 0; i < b.layout.n; i++) {
        norm += sum[i] * sum[i];
        wrong += (sum[i] - (double)b.x[i]) * (sum[i] - (double)b.x[i]);
    }
    CHECK(wrong < 1e-12 * norm);
    taciti_free(sum);
    tear_down(&b);
}

/* tagc.md's law of PowerSGD: one step reproduces a matrix of rank 1 with a relative error below 1e-6. */
static void a_matrix_of_low_rank_arrives(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    for (int rank = 1; rank <= 3; rank += 2)
        for (int s = 0; s < SIZE_COUNT; s++) {
            trial t = {.codec = "powersgd", .keys = {rank == 1 ? "powersgd.rank=1" : "powersgd.rank=3"}};
            test_world_run(SIZES[s], &options, arrive_exactly, &t);
        }
}

enum { SPECTRUM = 6 };
/* A 64 x 100 matrix with singular values 2^0, 2^-1, ..: sums of outer products of cosines, which are orthogonal. */
static void fill_spectrum(const bench *b, float *x) {
    const taciti_tensor *tensor = &b->layout.tensors[5];
    const double pi = 3.14159265358979323846;
    memset(x, 0, b->layout.n * sizeof *x);
    for (size_t i = 0; i < 64; i++)
        for (size_t j = 0; j < 100; j++)
            for (int k = 0; k < SPECTRUM; k++)
                x[tensor->offset + i * 100 + j] +=
                    (float)(ldexp(1, -k) * cos(pi * (k + 1) * ((double)i + 0.5) / 64) *
                            cos(pi * (k + 1) * ((double)j + 0.5) / 100) * 2 / sqrt(6400.0));
}

/* The best approximation of rank 2 leaves out the values from 2^-2 on. */
static void converge(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    double left = 0;
    float *m = taciti_calloc(b.layout.n, sizeof *m);
    fill_spectrum(&b, m);
    for (int64_t step = 0; step < 30; step++) {
        memcpy(b.x, m, b.layout.n * sizeof *m);
        exchange(&b, step, b.x);
        b.route.verbs->settle(&b.route, true);
    }
    for (size_t i = 0; i < b.layout.n; i++) left += pow((double)m[i] * taciti_comm_size(comm) - (double)b.x[i], 2);
    double best = 0;
    for (int k = 2; k < SPECTRUM; k++) best += pow(ldexp(1, -k) * taciti_comm_size(comm), 2);
    CHECK(left < 1.0001 * best && left > 0.9999 * best);
    taciti_free(m);
    tear_down(&b);
}

static void a_constant_matrix_gets_its_largest_directions(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    trial t = {.codec = "powersgd", .keys = {"powersgd.rank=2"}, .bucket_bytes = 1 << 20};
    for (int size = 2; size <= 3; size++) test_world_run(size, &options, converge, &t);
}

/* ---- matrices of buckets
 * --------------------------------------------------------------------------------------------*/
static void a_bucket_has_the_whole_rows_of_its_tensors(void **state) {
    (void)state;
    taciti_layout layout;
    make_layout(10000, &layout);
    size_t rows[6] = {0};
    for (size_t k = 0; k < layout.bucket_count; k++) {
        taciti_codec_matrix found[8];
        const taciti_bucket *bucket = &layout.buckets[k];
        const size_t count = taciti_linear_matrices(&layout, k, found);
        size_t end = 0;
        assert_true(count <= 8);
        for (size_t i = 0; i < count; i++) {
            const size_t at = bucket->offset + found[i].at;
            size_t t = 0;
            while (at >= layout.tensors[t].offset + layout.tensors[t].n) t++;
            assert_int_equal(found[i].columns, layout.tensors[t].shape[1]);
            assert_int_equal((at - layout.tensors[t].offset) % found[i].columns, 0);
            assert_true(found[i].at >= end);
            end = found[i].at + found[i].rows * found[i].columns;
            assert_true(end <= bucket->n && bucket->offset + end <= layout.tensors[t].offset + layout.tensors[t].n);
            rows[t] += found[i].rows;
        }
    }
    assert_int_equal(rows[0], 48);
    assert_int_equal(rows[1] + rows[3], 0);
    assert_int_equal(rows[4], 3);
    /* a cut loses the row in which it lies, if it lies in one */
    assert_true(rows[2] >= 88 && rows[2] <= 90);
    assert_true(rows[5] >= 61 && rows[5] <= 64);
    taciti_layout_destroy(&layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_and_errors_add_up_to_the_inputs),
        cmocka_unit_test(a_step_that_is_dropped_leaves_no_trace),
        cmocka_unit_test(one_rank_keeps_its_array),
        cmocka_unit_test(a_bucket_that_is_idle_keeps_its_state),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(what_is_not_finite_reaches_all_ranks),
        cmocka_unit_test(zeros_stay_finite),
        cmocka_unit_test(a_matrix_of_low_rank_arrives),
        cmocka_unit_test(a_constant_matrix_gets_its_largest_directions),
        cmocka_unit_test(a_bucket_has_the_whole_rows_of_its_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
