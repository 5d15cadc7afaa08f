/* SPDX-License-Identifier: Apache-2.0
 *
 * A replica of a small model and its mixes by low rank, for the tests of power.h. Include after cmocka.h.
 */
#ifndef TACITI_EXCHANGE_TEST_POWER_H
#define TACITI_EXCHANGE_TEST_POWER_H

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "comm/test_engine.h"
#include "exchange/bucket_job.h"
#include "exchange/power.h"

enum { WIDTH = 2, BUCKET_BYTES = 10000, SEED = 5, MAX_MATRICES = 16, MAX_RANKS = 8 };

static const int ARRANGEMENTS[][MAX_RANKS] = {
    {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 0}};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS };
static const int SIZES[] = {2, 3, 5, 6};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

/* Matrices of both orientations, of which buckets cut the third and the fifth within a row; vectors; one of three
 * dimensions; one that does not pay. */
static inline void make_layout(taciti_layout *out) {
    static const struct {
        int dims;
        size_t shape[3];
    } TENSORS[] = {{2, {41, 7}}, {1, {10}}, {2, {100, 33}}, {2, {3, 3}}, {2, {120, 40}}, {3, {20, 5, 12}}, {1, {700}}};
    enum { COUNT = sizeof TENSORS / sizeof *TENSORS };
    CHECK(taciti_layout_create(COUNT, out) == TACIT_OK);
    for (size_t i = 0; i < COUNT; i++) {
        const char name[2] = {(char)('a' + i), 0};
        CHECK(taciti_layout_append(out, name, TENSORS[i].dims, TENSORS[i].shape, true) == TACIT_OK);
    }
    CHECK(taciti_layout_seal(out, BUCKET_BYTES) == TACIT_OK);
    CHECK(out->bucket_count > 3);
}

/* ---- one rank ---------------------------------------------------------------------------------------------------- */
typedef struct bench {
    taciti_comm *comm;
    int rank, size;
    taciti_layout layout;
    taciti_power power;
    taciti_power *current; /* whose mix is under way: `power` or another one */
    taciti_bucket_jobs jobs;
    bool *inside; /* [n] belongs to a matrix that is compressed */
    float *x;     /* replica */
    double *mean; /* of the replicas before the mixes */
    double *sum;  /* workspace of sums over ranks */
} bench;

static inline taciti_power_setup setup_of(const bench *b, taciti_members members, int scheme) {
    return (taciti_power_setup){.hosts = taciti_comm_hosts(b->comm),
                                .rank = b->rank,
                                .layout = &b->layout,
                                .members = members,
                                .placement = {.scheme = (taciti_scheme)scheme},
                                .segment_bytes = taciti_comm_segment_bytes(b->comm),
                                .width = WIDTH,
                                .seed = SEED};
}

static inline void mark_inside(bench *b) {
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        for (size_t i = 0; i < b->power.buckets[k].count; i++) {
            const taciti_codec_matrix *m = &b->power.buckets[k].matrices[i];
            memset(b->inside + b->layout.buckets[k].offset + m->at, true, m->rows * m->columns);
        }
}

static inline tacit_status move_bucket(void *owner, float *x, size_t n, const taciti_bucket_task *task) {
    return taciti_power_run(((bench *)owner)->current, x, n, task);
}

/* scheme: of taciti_placement. *b must not move afterwards. */
static inline void set_up(taciti_comm *comm, int scheme, bench *b) {
    *b = (bench){.comm = comm, .rank = taciti_comm_rank(comm), .size = taciti_comm_size(comm)};
    make_layout(&b->layout);
    const taciti_power_setup setup = setup_of(b, (taciti_members){0}, scheme);
    CHECK(taciti_power_describe(&setup, &b->power) == TACIT_OK);
    CHECK(taciti_power_open(&b->power, comm, NULL) == TACIT_OK);
    CHECK(taciti_bucket_jobs_create(comm, &b->layout, move_bucket, b, &b->jobs) == TACIT_OK);
    b->inside = taciti_calloc(b->layout.n, sizeof *b->inside);
    b->x = taciti_calloc(b->layout.n, sizeof *b->x);
    b->mean = taciti_calloc(b->layout.n, sizeof *b->mean);
    b->sum = taciti_calloc(b->layout.n, sizeof *b->sum);
    mark_inside(b);
}

static inline void tear_down(bench *b) {
    taciti_bucket_jobs_destroy(&b->jobs);
    taciti_power_destroy(&b->power);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->inside);
    taciti_free(b->x);
    taciti_free(b->mean);
    taciti_free(b->sum);
}

static inline float draw(uint64_t stream, size_t i) {
    return (float)(taciti_rng_unit(taciti_rng_key(9, stream), i) - 0.5);
}

/* The same on all ranks. */
static inline float shared_value(size_t i) { return 0.25F + draw(100, i); }

static inline float own_value(const bench *b, size_t i) { return draw((uint64_t)b->rank, i); }

static inline void add_over_ranks(const bench *b, double *x, size_t n) {
    CHECK(taciti_comm_allreduce_f64(b->comm, x, n, TACITI_OP_SUM) == TACIT_OK);
}

static inline void find_mean(bench *b) {
    for (size_t i = 0; i < b->layout.n; i++) b->mean[i] = (double)b->x[i] / b->size;
    add_over_ranks(b, b->mean, b->layout.n);
}

/* x = shared value + scale * deviation, and the mean of that; x of padding stays 0, as in a model. */
static inline void fill(bench *b, float scale) {
    for (size_t t = 0; t < b->layout.tensor_count; t++) {
        const taciti_tensor *tensor = &b->layout.tensors[t];
        for (size_t i = tensor->offset; i < tensor->offset + tensor->n; i++)
            b->x[i] = shared_value(i) + scale * own_value(b, i);
    }
    find_mean(b);
}

static inline void mix_bucket(bench *b, taciti_power *power, int64_t number, size_t k, float *x) {
    const taciti_bucket_task task = {.bucket = k, .step = number};
    b->current = power;
    CHECK(taciti_bucket_begin(&b->jobs, x, &task, "mix of bucket") == TACIT_OK);
    CHECK(taciti_bucket_wait(&b->jobs, k) == TACIT_OK);
}

/* All buckets under way at the same time. */
static inline void mix_once(bench *b, taciti_power *power, int64_t number, float *x) {
    b->current = power;
    for (size_t k = 0; k < b->layout.bucket_count; k++) {
        const taciti_bucket_task task = {.bucket = k, .step = number};
        CHECK(taciti_bucket_begin(&b->jobs, x, &task, "mix of bucket") == TACIT_OK);
    }
    for (size_t k = 0; k < b->layout.bucket_count; k++) CHECK(taciti_bucket_wait(&b->jobs, k) == TACIT_OK);
}

static inline void settle_all(bench *b, taciti_power *power) {
    for (size_t k = 0; k < b->layout.bucket_count; k++) taciti_power_settle(power, k);
}

static inline void mix_often(bench *b, int64_t mixes) {
    for (int64_t number = 0; number < mixes; number++) {
        mix_once(b, &b->power, number, b->x);
        settle_all(b, &b->power);
    }
}

/* Distance of all replicas from the mean of before, in matrices. */
static inline double distance_of(bench *b) {
    double squares = 0;
    for (size_t i = 0; i < b->layout.n; i++)
        if (b->inside[i]) squares += ((double)b->x[i] - b->mean[i]) * ((double)b->x[i] - b->mean[i]);
    add_over_ranks(b, &squares, 1);
    return sqrt(squares);
}

static inline void has_rank_0s_bits(const bench *b, const float *x, size_t n) {
    float *first = taciti_calloc(n, sizeof *first);
    memcpy(first, x, n * sizeof *x);
    CHECK(taciti_comm_broadcast(b->comm, 0, first, n * sizeof *first) == TACIT_OK);
    CHECK(memcmp(first, x, n * sizeof *x) == 0);
    taciti_free(first);
}

/* Runs `law` for every number of ranks and arrangement; its context is the scheme. */
static inline void try_all(test_rank *law) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        taciti_comm_options options = test_comm_options(s % 2 != 0);
        options.segment_bytes = s % 2 == 0 ? 1024 : 16384;
        for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
            int scheme = (i + s) % 3;
            test_hosts(ARRANGEMENTS[i]);
            test_world_run(SIZES[s], &options, law, &scheme);
        }
    }
    test_hosts(NULL);
}

#endif
