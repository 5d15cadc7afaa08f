/* SPDX-License-Identifier: Apache-2.0
 *
 * An exchange with every linear codec among ranks of one process, for the tests of linear.h. Include after cmocka.h.
 */
#ifndef TACITI_EXCHANGE_TEST_LINEAR_H
#define TACITI_EXCHANGE_TEST_LINEAR_H

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
    {.codec = "powersgd", .keys = {"powersgd.rank=1"}},
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
    taciti_route route;
    double factor;
    float *x, *residual, *error;
} bench;

static inline void make_layout(size_t bucket_bytes, taciti_layout *out) {
    static const size_t SHAPES[][2] = {{48, 40}, {7, 0}, {90, 33}, {40, 0}, {3, 3}, {64, 100}};
    CHECK(taciti_layout_create(6, out) == TACIT_OK);
    for (size_t i = 0; i < 6; i++) {
        const char name[2] = {(char)('a' + i), 0};
        CHECK(taciti_layout_append(out, name, SHAPES[i][1] > 0 ? 2 : 1, SHAPES[i], true) == TACIT_OK);
    }
    CHECK(taciti_layout_seal(out, bucket_bytes) == TACIT_OK);
}

static inline void set_options(const trial *t, const taciti_codec *codec, char *options) {
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

static inline void set_up(taciti_comm *comm, const trial *t, bench *b) {
    *b = (bench){.comm = comm, .factor = t->factor};
    const taciti_codec *codec = taciti_codec_find(t->codec);
    CHECK(codec != NULL && codec->aggregation == TACITI_CODEC_LINEAR);
    make_layout(t->bucket_bytes > 0 ? t->bucket_bytes : 10000, &b->layout);
    set_options(t, codec, b->options);
    const taciti_route_setup setup = {.hosts = taciti_comm_hosts(comm),
                                      .rank = taciti_comm_rank(comm),
                                      .segment_bytes = taciti_comm_segment_bytes(comm),
                                      .layout = &b->layout,
                                      .placement = {.scheme = (taciti_scheme)t->scheme},
                                      .wire = taciti_codec_find(t->wire == 0 ? "f32" : "bf16"),
                                      .encoding = {.codec = codec, .options = b->options, .seed = SEED}};
    CHECK(taciti_route_describe(&setup, &b->route) == TACIT_OK);
    CHECK(b->route.verbs->open(&b->route, comm, NULL) == TACIT_OK);
    b->x = taciti_calloc(b->layout.n, sizeof *b->x);
    b->residual = taciti_calloc(b->layout.n, sizeof *b->residual);
    b->error = taciti_calloc(b->layout.n, sizeof *b->error);
}

static inline void tear_down(bench *b) {
    taciti_route_close(&b->route);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->x);
    taciti_free(b->residual);
    taciti_free(b->error);
}

static inline float input(int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(9, (uint64_t)rank), (uint64_t)step);
    return (float)(taciti_rng_unit(key, i) - 0.5);
}

/* x of padding stays 0, as in a model. */
static inline void fill(const bench *b, int64_t step, float *x) {
    memset(x, 0, b->layout.n * sizeof *x);
    for (size_t t = 0; t < b->layout.tensor_count; t++)
        for (size_t i = b->layout.tensors[t].offset; i < b->layout.tensors[t].offset + b->layout.tensors[t].n; i++)
            x[i] = input(taciti_comm_rank(b->comm), step, i);
}

static inline void exchange_bucket(bench *b, int64_t step, size_t k, float *x) {
    const taciti_bucket *bucket = &b->layout.buckets[k];
    const taciti_bucket_task task = {.bucket = k, .step = step, .setting = {{.factor = b->factor}}};
    CHECK(taciti_linear_run(b->route.own, x + bucket->offset, bucket->n, &task, b->error + bucket->offset, NULL) ==
          TACIT_OK);
}

/* x += residual; x becomes the result, b->error the errors. */
static inline void exchange(bench *b, int64_t step, float *x) {
    for (size_t i = 0; i < b->layout.n; i++) x[i] += b->residual[i];
    for (size_t k = 0; k < b->layout.bucket_count; k++) exchange_bucket(b, step, k, x);
}

static inline void settle(bench *b, bool taken) {
    b->route.verbs->settle(&b->route, taken);
    if (taken) memcpy(b->residual, b->error, b->layout.n * sizeof *b->error);
}

static inline void has_rank_0s_bits(const bench *b, const float *x) {
    float *first = taciti_calloc(b->layout.n, sizeof *first);
    memcpy(first, x, b->layout.n * sizeof *x);
    CHECK(taciti_comm_broadcast(b->comm, 0, first, b->layout.n * sizeof *first) == TACIT_OK);
    CHECK(memcmp(first, x, b->layout.n * sizeof *x) == 0);
    taciti_free(first);
}

static inline void try_all(test_rank *law) {
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

#endif
