/* SPDX-License-Identifier: Apache-2.0
 *
 * An exchange by sums of sketches among ranks of one process, and the same with sparse payloads, for the tests of
 * sketch_reduce.h. Include after cmocka.h.
 */
#ifndef TACITI_EXCHANGE_TEST_SKETCHES_H
#define TACITI_EXCHANGE_TEST_SKETCHES_H

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/sketch.h"
#include "codec/trial.h"
#include "comm/state.h"
#include "comm/test_engine.h"
#include "exchange/exchange.h"
#include "exchange/sketch_reduce.h"
#include "exchange/test_layout.h"

static const int ARRANGEMENTS[][8] = {
    {0, 1, 2, 3, 4, 5, 6, 7}, {1, 0, 1, 1, 0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 0}};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS, STEPS = 5, BUCKET_BYTES = 140000 };
static const int SIZES[] = {1, 2, 3, 5, 6, 7};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

typedef struct trial {
    const char *codec;
    double ratio;
    int scheme;
    taciti_feedback feedback;
    double factor, threshold;
    bool blocking, contiguous;
    bool rare; /* in most stretches and steps inputs are so small that nothing is selected */
} trial;

static const taciti_feedback ERRORS = {.errors = true, .decay = 1};

typedef struct bench {
    taciti_comm *comm;
    taciti_layout layout;
    void *options;
    taciti_exchange *exchange;
    taciti_bucket_task setting;
    float *x, *whole;
    bool blocking, rare;
} bench;

static inline void set_up(taciti_comm *comm, const trial *t, bench *b) {
    static const size_t LENGTHS[] = {9000, 3, 26000, 700, 64, 9000};
    const taciti_exchange_options options = {
        .bucket_bytes = BUCKET_BYTES, .scheme = t->scheme, .contiguous = t->contiguous, .overlap = !t->blocking};
    const taciti_codec *codec = taciti_codec_find(t->codec);
    *b = (bench){.comm = comm, .blocking = t->blocking, .rare = t->rare};
    test_layout(LENGTHS, 6, BUCKET_BYTES, &b->layout);
    CHECK(codec != NULL && taciti_codec_defaults(codec, &b->options) == TACIT_OK);
    if (b->options != NULL && codec->sketches) ((taciti_sketch_options *)b->options)->ratio = t->ratio;
    b->setting.setting[TACITI_PAYLOAD_CONTRIBUTION] =
        (taciti_codec_setting){.factor = t->factor, .threshold = t->threshold};
    b->setting.setting[TACITI_PAYLOAD_RESULT] = (taciti_codec_setting){.factor = 1};
    const taciti_encoding compression = {.codec = codec,
                                         .options = b->options,
                                         .seed = 3,
                                         .expected = {.factor = t->factor},
                                         .feedback = t->feedback,
                                         .way = codec->sketches ? TACITI_WAY_AUTO : TACITI_WAY_SCATTER};
    CHECK(taciti_exchange_create(comm, &b->layout, &options, &compression, &b->exchange) == TACIT_OK);
    b->x = taciti_calloc(b->layout.n, sizeof *b->x);
    b->whole = taciti_calloc(b->layout.n, sizeof *b->whole);
}

static inline void tear_down(bench *b) {
    taciti_exchange_destroy(b->exchange);
    taciti_layout_destroy(&b->layout);
    taciti_free(b->options);
    taciti_free(b->x);
    taciti_free(b->whole);
}

/* Integers up to 127, of which few are large; 0 in gaps, as always. */
static inline float input(const taciti_layout *layout, int rank, int64_t step, size_t i) {
    const uint64_t key = taciti_rng_key(taciti_rng_key(9, (uint64_t)rank), (uint64_t)step);
    const int64_t v = (int64_t)taciti_rng_below(key, i, 255) - 127;
    return test_is_gap(layout, i) ? 0 : (float)(v * v * v / 16384);
}

static inline void run(bench *b, int64_t step, taciti_phase phase, float *x) {
    taciti_exchange_at(b->exchange, step, &b->setting);
    for (size_t k = 0; k < b->layout.bucket_count; k++) {
        CHECK(taciti_exchange_begin_phase(b->exchange, x, k, phase) == TACIT_OK);
        if (b->blocking) CHECK(taciti_exchange_wait(b->exchange, k) == TACIT_OK);
    }
    for (size_t k = 0; k < b->layout.bucket_count && !b->blocking; k++)
        CHECK(taciti_exchange_wait(b->exchange, k) == TACIT_OK);
}

/* Whether a stretch of elements has large inputs in that step; in the first two, only the first stretch. */
static inline bool is_busy(int64_t step, size_t i) {
    enum { STRETCH = 1500 };
    return step < 2 ? i < STRETCH : taciti_rng_below(21, (uint64_t)step * 1000 + i / STRETCH, 8) == 0;
}

static inline void step_of(bench *b, int64_t step, float *x) {
    for (size_t i = 0; i < b->layout.n; i++) {
        x[i] = input(&b->layout, taciti_comm_rank(b->comm), step, i);
        if (b->rare && !is_busy(step, i)) x[i] = roundf(x[i] / 16);
    }
    run(b, step, TACITI_PHASE_ALL_REDUCE, x);
}

static inline uint64_t pending_of(const bench *b) {
    uint64_t pending = 0;
    for (size_t k = 0; k < b->layout.bucket_count; k++)
        pending += taciti_exchange_tally_of(b->exchange, k)[TACITI_PAYLOAD_CONTRIBUTION].pending;
    return pending;
}

static inline double over_ranks(taciti_comm *comm, double value) {
    CHECK(taciti_comm_allreduce_f64(comm, &value, 1, TACITI_OP_SUM) == TACIT_OK);
    return value;
}

static inline void has_rank_0s_bits(bench *b, const float *x) {
    memcpy(b->whole, x, b->layout.n * sizeof *x);
    CHECK(taciti_comm_broadcast(b->comm, 0, b->whole, b->layout.n * sizeof *x) == TACIT_OK);
    CHECK(memcmp(b->whole, x, b->layout.n * sizeof *x) == 0);
}

static inline void try_all(test_rank *property, const trial *one) {
    for (int s = 0; s < SIZE_COUNT; s++) {
        taciti_comm_options options = test_comm_options(SIZES[s] % 3 != 0);
        options.segment_bytes = SIZES[s] % 2 == 0 ? 1024 : 65536; /* many blocks, or one */
        for (int i = s % 2; i < ARRANGEMENT_COUNT; i += 2) {
            if (test_spares(s + i / 2)) continue;
            trial t = *one;
            t.scheme = (i + SIZES[s]) % 3;
            test_hosts(ARRANGEMENTS[i]);
            test_world_run(SIZES[s], &options, property, &t);
        }
    }
    test_hosts(NULL);
}

static inline bool all_on_one_host(const bench *b, const trial *t) {
    return t->scheme == TACITI_SCHEME_HOSTS && taciti_comm_hosts(b->comm)->count == 1;
}

/* topk with the same selection, whose sums nothing is selected of. Both select from the same ranges only if pieces are
 * the same: by a threshold they always do. */
static inline void compare_with_topk(taciti_comm *comm, void *context) {
    const trial *t = context;
    trial sparse = *t;
    bench b, other;
    double pending = 0;
    sparse.codec = "topk";
    set_up(comm, t, &b);
    set_up(comm, &sparse, &other);
    for (int64_t step = 0; step < STEPS; step++) {
        step_of(&b, step, b.x);
        step_of(&other, step, other.x);
        pending += over_ranks(comm, (double)pending_of(&b));
        for (size_t i = 0; i < b.layout.n; i++) CHECK(b.x[i] == other.x[i]);
        has_rank_0s_bits(&b, b.x);
        CHECK(taciti_exchange_settle(b.exchange, step != 2) == TACIT_OK);
        CHECK(taciti_exchange_settle(other.exchange, step != 2) == TACIT_OK);
        float *mine = taciti_exchange_residual(b.exchange, TACITI_RESIDUAL_CONTRIBUTION);
        float *theirs = taciti_exchange_residual(other.exchange, TACITI_RESIDUAL_CONTRIBUTION);
        CHECK((mine == NULL) == (theirs == NULL));
        for (size_t i = 0; i < b.layout.n && mine != NULL; i++) CHECK(mine[i] == theirs[i]);
    }
    if (taciti_comm_size(comm) > 1 && !all_on_one_host(&b, t)) CHECK(t->ratio < 8 || pending > 0);
    tear_down(&b);
    tear_down(&other);
}

#endif
