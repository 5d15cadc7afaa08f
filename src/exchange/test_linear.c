/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of the exchange through codecs of class LINEAR, for every one of the registry and its options: the same bits on
 * all ranks, nothing is lost, a step that is dropped leaves no trace, bytes as predicted. Then the laws of low rank.
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
#include "comm/test_engine.h"
#include "exchange/linear.h"

/* A codec with options as text. */
typedef struct trial {
    const char *codec, *keys[4];
    int scheme, wire;
    double factor;
    size_t bucket_bytes; /* 0: 10000, which cuts matrices */
} trial;

static const trial TRIALS[] = {
    {.codec = "powersgd", .keys = {"powersgd.rank=2"}},
    {.codec = "powersgd", .keys = {"powersgd.rank=1", "powersgd.alternate=true"}},
    {.codec = "shared", .keys = {"shared.support=seed"}, .factor = 10},
    {.codec = "shared", .keys = {"shared.support=cyclic"}, .factor = 7},
    {.codec = "shared", .keys = {"shared.support=leader"}, .factor = 33},
    {.codec = "shared", .keys = {"shared.support=momentum"}, .factor = 20},
    {.codec = "thc", .keys = {"thc.block=256"}},
    {.codec = "thc", .keys = {"thc.bits=3"}},
};
enum { TRIAL_COUNT = sizeof TRIALS / sizeof *TRIALS, OPTION_BYTES = 256, SEED = 5 };

static const int ARRANGEMENTS[][8] = {
    {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 0}};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS };
static const int SIZES[] = {1, 2, 3, 5, 6, 7};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

/* One rank's exchange of a small model: matrices, vectors, and one matrix that buckets cut within a row. */
typedef struct bench {
    taciti_comm *comm;
    taciti_layout layout;
    _Alignas(64) char options[OPTION_BYTES];
    taciti_linear_reduce linear;
    double factor;
    float *x, *residual, *error;
} bench;

static void make_layout(size_t bucket_bytes, taciti_layout *out) {
    static const size_t SHAPES[][2] = {{48, 40}, {7, 0}, {90, 33}, {40, 0}, {3, 3}, {64, 100}};
    CHECK(taciti_layout_create(6, out) == TACIT_OK);
    for (size_t i = 0; i < 6; i++) {
        const char name[2] = {(char)('a' + i), 0};
        CHECK(taciti_layout_append(out, name, SHAPES[i][1] > 0 ? 2 : 1, SHAPES[i], true) == TACIT_OK);
    }
    CHECK(taciti_layout_seal(out, bucket_bytes) == TACIT_OK);
}

static void set_options(const trial *t, const taciti_codec *codec, char *options) {
    const taciti_section section = {codec->options, options, NULL};
    const taciti_config config = {&section, 1};
    CHECK(codec->options_size <= OPTION_BYTES);
    CHECK(taciti_config_defaults(&config) == TACIT_OK);
    for (int i = 0; i < 4 && t->keys[i] != NULL; i++) {
        char key[64];
        const char *value = strchr(t->keys[i], '=');
        (void)snprintf(key, sizeof key, "%.*s", (int)(value - t->keys[i]), t->keys[i]);
        CHECK(taciti_config_set(&config, key, value + 1, "the test") == TACIT_OK);
    }
}

static void set_up(taciti_comm *comm, const trial *t, bench *b) {
    *b = (bench){.comm = comm, .factor = t->factor};
    const taciti_codec *codec = taciti_codec_find(t->codec);
    CHECK(codec != NULL && codec->aggregation == TACITI_CODEC_LINEAR);
    make_layout(t->bucket_bytes > 0 ? t->bucket_bytes : 10000, &b->layout);
    set_options(t, codec, b->options);
    const taciti_encoding encoding = {.codec = codec, .options = b->options, .seed = SEED};
    const taciti_placement placement = {.scheme = (taciti_scheme)t->scheme};
    CHECK(taciti_linear_create(comm, &b->layout, &encoding, taciti_codec_find(t->wire == 0 ? "f32" : "bf16"), placement,
                               &b->linear) == TACIT_OK);
    b->x = taciti_calloc(b->layout.n, sizeof *b->x);
    b->residual = taciti_calloc(b->layout.n, sizeof *b->residual);
    b->error = taciti_calloc(b->layout.n, sizeof *b->error);
}

static void tear_down(bench *b) {
    taciti_linear_destroy(&b->linear);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->x);
    taciti_free(b->residual);
    taciti_free(b->error);
}

static float input(int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(9, (uint64_t)rank), (uint64_t)step);
    return (float)(taciti_rng_unit(key, i) - 0.5);
}

/* x of padding stays 0, as in a model. */
static void fill(const bench *b, int64_t step, float *x) {
    memset(x, 0, b->layout.n * sizeof *x);
    for (size_t t = 0; t < b->layout.tensor_count; t++)
        for (size_t i = b->layout.tensors[t].offset; i < b->layout.tensors[t].offset + b->layout.tensors[t].n; i++)
            x[i] = input(taciti_comm_rank(b->comm), step, i);
}

/* x += residual; x becomes the result, b->error the errors. */
static void exchange(bench *b, int64_t step, float *x) {
    for (size_t i = 0; i < b->layout.n; i++) x[i] += b->residual[i];
    for (size_t k = 0; k < b->layout.bucket_count; k++) {
        const taciti_bucket *bucket = &b->layout.buckets[k];
        const taciti_bucket_task task = {.bucket = k, .step = step, .setting = {{.factor = b->factor}}};
        CHECK(taciti_linear_run(&b->linear, x + bucket->offset, bucket->n, &task, b->error + bucket->offset, NULL) ==
              TACIT_OK);
    }
}

static void settle(bench *b, bool taken) {
    taciti_linear_settle(&b->linear, taken);
    if (taken) memcpy(b->residual, b->error, b->layout.n * sizeof *b->error);
}

static void has_rank_0s_bits(const bench *b, const float *x) {
    float *first = taciti_calloc(b->layout.n, sizeof *first);
    memcpy(first, x, b->layout.n * sizeof *x);
    CHECK(taciti_comm_broadcast(b->comm, 0, first, b->layout.n * sizeof *first) == TACIT_OK);
    CHECK(memcmp(first, x, b->layout.n * sizeof *x) == 0);
    taciti_free(first);
}

static void try_all(test_rank *law) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        taciti_comm_options options = test_comm_options(s % 2 != 0);
        options.segment_bytes = s % 2 == 0 ? 1024 : 16384;
        for (int c = 0; c < TRIAL_COUNT; c++)
            for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
                trial t = TRIALS[c];
                t.scheme = (c + i + s) % 3;
                test_hosts(ARRANGEMENTS[i]);
                test_world_run(SIZES[s], &options, law, &t);
            }
    }
    test_hosts(NULL);
}

/* ---- laws of all ---------------------------------------------------------------------------------------------------
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

static void count_bytes(taciti_comm *comm, void *context) {
    const trial *t = context;
    bench b;
    set_up(comm, t, &b);
    for (int64_t step = 0; step < 2; step++) {
        uint64_t predicted = 0;
        fill(&b, step, b.x);
        for (size_t k = 0; k < b.layout.bucket_count; k++)
            predicted += taciti_linear_bytes(&b.linear, k, (taciti_codec_setting){.factor = b.factor});
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
        taciti_linear_settle(&b.linear, true);
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
        taciti_linear_settle(&b.linear, true);
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
        taciti_linear_settle(&b.linear, true);
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
        taciti_linear_settle(&b.linear, true);
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
        taciti_linear_settle(&b.linear, true);
    }
    tear_down(&b);
}

static void what_was_large_is_sent_again(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    trial t = {.codec = "shared", .keys = {"shared.support=momentum", "shared.beta=0.9"}, .factor = 20};
    test_world_run(2, &options, remember, &t);
}

/* ---- sums of integers ----------------------------------------------------------------------------------------------
 */
/* Blocks of one element are not rotated. Rank 0 sends the range 7.5, so levels are the halves -7.5, -6.5 .. 7.5 and all
 * sums are exact: the result is the sum of what ranks decode of their own payloads. */
static void decode_the_sum(taciti_comm *comm, void *context) {
    bench b;
    set_up(comm, context, &b);
    const int rank = taciti_comm_rank(comm);
    double *sum = taciti_calloc(b.layout.n, sizeof *sum);
    for (int64_t step = 0; step < 3; step++) {
        for (size_t i = 0; i < b.layout.n; i++)
            b.x[i] = rank == 0 ? 7.5f : (float)taciti_rng_below(taciti_rng_key(8, (uint64_t)rank), i, 240) / 16 - 7.5f;
        for (size_t i = 0; i < b.layout.n; i++) sum[i] = (double)b.x[i];
        exchange(&b, step, b.x);
        for (size_t i = 0; i < b.layout.n; i++) {
            sum[i] -= (double)b.error[i];
            CHECK(fabs(sum[i]) <= 7.5 && sum[i] - 0.5 == floor(sum[i]) && fabsf(b.error[i]) < 1);
        }
        CHECK(taciti_comm_allreduce_f64(comm, sum, b.layout.n, TACITI_OP_SUM) == TACIT_OK);
        for (size_t i = 0; i < b.layout.n; i++) CHECK((double)b.x[i] == sum[i]);
    }
    taciti_free(sum);
    tear_down(&b);
}

static void the_sum_of_integers_decodes_to_the_sum(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    for (int s = 1; s < SIZE_COUNT; s++)
        for (int wire = 0; wire < 2; wire++) { /* integers travel in f32 whatever the wire */
            trial t = {.codec = "thc", .keys = {"thc.block=1"}, .wire = wire};
            test_world_run(SIZES[s], &options, decode_the_sum, &t);
        }
}

/* Range [-1, 1] and 16 levels: 0.3 is level 9.75. */
static void round_at_random(taciti_comm *comm, void *context) {
    bench b;
    size_t up = 0, down = 0;
    set_up(comm, context, &b);
    for (size_t i = 0; i < b.layout.n; i++) b.x[i] = taciti_comm_rank(comm) == 0 ? 1 : 0.3f;
    exchange(&b, 0, b.x);
    for (size_t i = 0; i < b.layout.n && taciti_comm_rank(comm) == 1; i++) {
        up += fabs((double)b.error[i] - (0.3 - 1 / 3.)) < 1e-6;
        down += fabs((double)b.error[i] - (0.3 - 0.2)) < 1e-6;
    }
    const double n = (double)b.layout.n;
    if (taciti_comm_rank(comm) == 1)
        CHECK(up + down == b.layout.n && fabs((double)up / n - 0.75) < 5 * sqrt(0.1875 / n));
    tear_down(&b);
}

static void levels_are_reached_without_bias(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    trial t = {.codec = "thc", .keys = {"thc.block=1"}};
    test_world_run(2, &options, round_at_random, &t);
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
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(what_is_not_finite_reaches_all_ranks),
        cmocka_unit_test(a_matrix_of_low_rank_arrives),
        cmocka_unit_test(a_constant_matrix_gets_its_largest_directions),
        cmocka_unit_test(selection_commutes_with_the_sum),
        cmocka_unit_test(factor_1_is_dense_bit_for_bit),
        cmocka_unit_test(ranks_lead_by_turns),
        cmocka_unit_test(no_element_waits_for_ever),
        cmocka_unit_test(what_was_large_is_sent_again),
        cmocka_unit_test(the_sum_of_integers_decodes_to_the_sum),
        cmocka_unit_test(levels_are_reached_without_bias),
        cmocka_unit_test(a_bucket_has_the_whole_rows_of_its_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
