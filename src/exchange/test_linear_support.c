/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear codecs of low rank and of a shared support, through their exchange.
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
    t.keys[1] = "powersgd.alternate=true";
    test_world_run(2, &options, converge, &t);
}

/* ---- a shared support ----------------------------------------------------------------------------------------------
 */
static float small_integer(int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(9, (uint64_t)rank), (uint64_t)step);
    return (float)((int)taciti_rng_below(key, i, 17) - 8);
}

static float sum_of(const bench *b, int64_t step, size_t i) {
    float sum = 0;
    for (int r = 0; r < taciti_comm_size(b->comm); r++) sum += small_integer(r, step, i);
    return sum;
}

/* Without a residual: selection commutes with the sum. Elements are the sum, or 0 and in the error. */
static void commute(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, &b);
    for (int64_t step = 0; step < 3; step++) {
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = small_integer(taciti_comm_rank(comm), step, i);
        exchange(&b, step, b.x);
        has_rank_0s_bits(&b, b.x);
        for (size_t k = 0; k < b.layout.bucket_count; k++) {
            const taciti_bucket *bucket = &b.layout.buckets[k];
            size_t sent = 0, zeros = 0;
            for (size_t i = bucket->offset; i < bucket->offset + bucket->n; i++) {
                const float mine = small_integer(taciti_comm_rank(comm), step, i);
                CHECK(b.error[i] == 0 || (b.error[i] == mine && b.x[i] == 0));
                CHECK(b.x[i] == 0 || b.x[i] == sum_of(&b, step, i));
                if (mine != 0) sent += b.error[i] == 0;
                zeros += mine == 0;
            }
            const size_t kept = (size_t)((double)bucket->n / t->factor);
            CHECK(sent <= kept && sent + zeros >= kept);
        }
        b.route.verbs->settle(&b.route, true);
    }
    tear_down(&b);
}

static void selection_commutes_with_the_sum(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    for (int s = 1; s < SIZE_COUNT; s++)
        for (int c = 0; c < TRIAL_COUNT; c++)
            for (int wire = 0; wire < 2; wire++) {
                trial t = TRIALS[c];
                t.wire = wire; /* sums of small integers are exact in bf16, too */
                if (strcmp(t.codec, "shared") == 0) test_world_run(SIZES[s], &options, commute, &t);
            }
}

static void send_all(taciti_comm *comm, void *context) {
    bench b;
    taciti_allreduce dense;
    set_up(comm, context, &b);
    float *y = taciti_calloc(b.layout.n, sizeof *y);
    const taciti_encoding f32 = {.codec = taciti_codec_find("f32")};
    CHECK(taciti_allreduce_create(comm, &f32, (taciti_members){0}, (taciti_placement){0}, 16384, &dense) == TACIT_OK);
    for (int64_t step = 0; step < 3; step++) {
        fill(&b, step, b.x);
        memcpy(y, b.x, b.layout.n * sizeof *y);
        exchange(&b, step, b.x);
        for (size_t k = 0; k < b.layout.bucket_count; k++)
            CHECK(taciti_allreduce_run(&dense, y + b.layout.buckets[k].offset, b.layout.buckets[k].n, NULL, NULL) ==
                  TACIT_OK);
        CHECK(memcmp(b.x, y, b.layout.n * sizeof *y) == 0);
        for (size_t i = 0; i < b.layout.n; i++) CHECK(b.error[i] == 0);
        settle(&b, true);
    }
    taciti_allreduce_destroy(&dense);
    taciti_free(y);
    tear_down(&b);
}

static void factor_1_is_dense_bit_for_bit(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(false); /* the all-reduce beside runs on this thread */
    for (int s = 1; s < SIZE_COUNT; s++)
        for (int c = 0; c < TRIAL_COUNT; c++) {
            trial t = TRIALS[c];
            t.factor = 1;
            if (strcmp(t.codec, "shared") == 0) test_world_run(SIZES[s], &options, send_all, &t);
        }
}

/* The leader of step s is rank s mod N; its own largest elements are what is sent. */
static void follow_the_leader(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    const int size = taciti_comm_size(comm), rank = taciti_comm_rank(comm);
    for (int64_t step = 0; step < 2 * size; step++) {
        fill(&b, step, b.x);
        exchange(&b, step, b.x);
        for (size_t k = 0; k < b.layout.bucket_count && step % size == rank; k++) {
            float smallest = INFINITY, largest = 0;
            const taciti_bucket *bucket = &b.layout.buckets[k];
            for (size_t i = bucket->offset; i < bucket->offset + bucket->n; i++) {
                float x = b.error[i];
                if (x != 0 && fabsf(x) > largest) largest = fabsf(x);
                if (x == 0 && b.x[i] != 0 && fabsf(input(rank, step, i)) < smallest)
                    smallest = fabsf(input(rank, step, i));
            }
            CHECK(smallest >= largest && smallest < INFINITY);
        }
        b.route.verbs->settle(&b.route, true);
    }
    tear_down(&b);
}

static void ranks_lead_by_turns(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    for (int s = 1; s < SIZE_COUNT; s++) {
        trial t = {.codec = "shared", .keys = {"shared.support=leader"}, .factor = 33};
        test_world_run(SIZES[s], &options, follow_the_leader, &t);
    }
}

/* Steps after which every element has been sent, although all but one part of the array have larger gradients. */
static void wait_for_all(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, &b);
    char *sent = taciti_calloc(b.layout.n, 1);
    const int64_t steps = (int64_t)ceil(t->factor * (strcmp(t->keys[0], "shared.support=cyclic") == 0 ? 1 : 4) + 1);
    for (int64_t step = 0; step < steps; step++) {
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = i % 100 < 10 ? 1 : 1000;
        exchange(&b, step, b.x);
        for (size_t i = 0; i < b.layout.n; i++) sent[i] |= b.x[i] != 0;
        b.route.verbs->settle(&b.route, true);
    }
    for (size_t i = 0; i < b.layout.n; i++) CHECK(sent[i]);
    taciti_free(sent);
    tear_down(&b);
}

static void no_element_waits_for_ever(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    trial cyclic = {.codec = "shared", .keys = {"shared.support=cyclic"}, .factor = 7};
    trial momentum = {.codec = "shared", .keys = {"shared.support=momentum"}, .factor = 20};
    test_world_run(3, &options, wait_for_all, &cyclic);
    test_world_run(3, &options, wait_for_all, &momentum);
}

/* Elements 0, 100, 200, .. are large: once they have been met by turns they are sent in every step. */
static void remember(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, &b);
    const int64_t met = (int64_t)ceil(t->factor * 4) + 1;
    for (int64_t step = 0; step < met + 10; step++) {
        for (size_t i = 0; i < b.layout.n; i++) b.x[i] = i % 100 == 0 ? 50 : 0.01f;
        exchange(&b, step, b.x);
        for (size_t i = 0; i < b.layout.n && step >= met; i += 100) CHECK(b.x[i] == 50 * (float)taciti_comm_size(comm));
        b.route.verbs->settle(&b.route, true);
    }
    tear_down(&b);
}

static void what_was_large_is_sent_again(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    trial t = {.codec = "shared", .keys = {"shared.support=momentum", "shared.beta=0.9"}, .factor = 20};
    test_world_run(2, &options, remember, &t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_of_low_rank_arrives),
        cmocka_unit_test(a_constant_matrix_gets_its_largest_directions),
        cmocka_unit_test(selection_commutes_with_the_sum),
        cmocka_unit_test(factor_1_is_dense_bit_for_bit),
        cmocka_unit_test(ranks_lead_by_turns),
        cmocka_unit_test(no_element_waits_for_ever),
        cmocka_unit_test(what_was_large_is_sent_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
