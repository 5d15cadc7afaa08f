/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of several ranks by homomorphic sketches, for tests. Ranks are arrays.
 */
#ifndef TACITI_CODEC_TEST_HOMOMORPHIC_H
#define TACITI_CODEC_TEST_HOMOMORPHIC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "codec/homomorphic.h"

static const char *const SETS[] = {"scalar", "avx2", "avx512"};

static inline void ignore(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

static inline int quiet(void **state) {
    (void)state;
    taciti_log_set_sink(ignore, NULL, TACITI_LOG_ERROR);
    return 0;
}

static inline int loud(void **state) {
    (void)state;
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
    return 0;
}

static inline void *memory(size_t bytes) {
    void *p = taciti_calloc(bytes + 64, 1);
    assert_non_null(p);
    return p;
}

/* ---- one sum of several ranks ------------------------------------------------------------------------------------ */

enum { TRIAL_RANKS = 16 };

typedef struct trial {
    taciti_sketch s;
    int ranks;
    float *x[TRIAL_RANKS], *sum, *out; /* of ranks; their sum; decoded */
    float *counters, *part, *values, *more;
    uint64_t *index, *own, *pending;
    void *workspace;
    size_t left; /* pending elements */
} trial;

static inline void open_trial(trial *t, size_t n, int ranks) {
    const size_t words = taciti_sketch_index_words(n);
    *t = (trial){.s = {.n = n}, .ranks = ranks};
    for (int r = 0; r < ranks; r++) t->x[r] = memory(n * sizeof(float));
    t->sum = memory(n * sizeof(float));
    t->out = memory(n * sizeof(float));
    t->index = memory(words * 8);
    t->own = memory(words * 8);
    t->pending = memory(words * 8);
    t->values = memory((n + 16) * 4);
    t->more = memory((n + 16) * 4);
}

static inline void close_counters(trial *t) {
    taciti_free(t->counters);
    taciti_free(t->part);
    taciti_free(t->workspace);
}

static inline void close_trial(trial *t) {
    for (int r = 0; r < TRIAL_RANKS; r++) taciti_free(t->x[r]);
    taciti_free(t->sum);
    taciti_free(t->out);
    taciti_free(t->index);
    taciti_free(t->own);
    taciti_free(t->pending);
    taciti_free(t->values);
    taciti_free(t->more);
    close_counters(t);
}

typedef enum { INTEGERS, NORMALS } numbers_kind;

static inline float number(numbers_kind kind, uint64_t key, size_t i, double limit) {
    const double u = taciti_rng_unit(key, 3 * i + 1), v = taciti_rng_unit(key, 3 * i + 2);
    if (kind == NORMALS) return (float)(sqrt(-2 * log(u + 1e-300)) * cos(6.283185307179586 * v));
    return (float)(floor(u * limit) + 1) * (v < 0.5 ? -1.0f : 1.0f);
}

/* Every rank has a share p of elements that are not zero. */
static inline void draw(trial *t, numbers_kind kind, double p, double limit, uint64_t seed) {
    memset(t->sum, 0, t->s.n * sizeof(float));
    memset(t->index, 0, taciti_sketch_index_words(t->s.n) * 8);
    for (int r = 0; r < t->ranks; r++) {
        const uint64_t key = taciti_rng_key(seed, (uint64_t)r);
        for (size_t i = 0; i < t->s.n; i++) {
            t->x[r][i] = taciti_rng_unit(key, 3 * i) < p ? number(kind, key, i, limit) : 0;
            t->sum[i] += t->x[r][i];
        }
        taciti_sketch_index(t->x[r], t->s.n, t->own);
        taciti_sketch_merge(t->index, t->own, t->s.n);
    }
}

static inline void encode(trial *t) {
    const size_t bytes = taciti_sketch_bytes(&t->s);
    close_counters(t);
    t->counters = memory(bytes);
    t->part = memory(bytes);
    t->workspace = memory(taciti_sketch_workspace_bytes(&t->s));
    for (int r = 0; r < t->ranks; r++) {
        memset(t->part, 0, bytes);
        taciti_sketch_add(&t->s, t->x[r], t->part);
        taciti_sketch_sum(&t->s, t->counters, t->part);
    }
}

static inline tacit_status decode(trial *t) {
    const tacit_status status = taciti_sketch_map(&t->s, t->index, t->workspace);
    if (status != TACIT_OK) return status;
    return taciti_sketch_peel(&t->s, t->counters, t->workspace, t->out, &t->left);
}

static inline void choose(trial *t, size_t rows, uint64_t seed) { t->s = taciti_sketch_init(t->s.n, rows, seed); }

static inline bool is_zero(const void *p, size_t bytes) {
    const unsigned char *b = p;
    for (size_t i = 0; i < bytes; i++)
        if (b[i] != 0) return false;
    return true;
}

/* Elements that are not pending are right; pending ones are 0. */
static inline void assert_right(const trial *t) {
    taciti_sketch_pending(&t->s, t->workspace, t->pending);
    size_t pending = 0;
    for (size_t i = 0; i < t->s.n; i++) {
        const bool open = (t->pending[i / 64] >> (i % 64) & 1u) != 0;
        pending += open;
        assert_true(t->out[i] == (open ? 0 : t->sum[i]));
    }
    assert_int_equal(pending, t->left);
}

static inline void assert_exact(const trial *t) {
    assert_int_equal(t->left, 0);
    assert_right(t);
}

/* The sums of what an index has, as a reduction of packed values gives them. */
static inline void sum_packed(trial *t, const uint64_t *index) {
    const size_t count = taciti_sketch_union(index, t->s.n);
    memset(t->values, 0, (count + TACITI_SKETCH_LINE) * TACITI_SKETCH_NUMBER_BYTES);
    for (int r = 0; r < t->ranks; r++) {
        assert_int_equal(taciti_sketch_pack(&t->s, index, t->x[r], t->more), TACIT_OK);
        taciti_kernels_get()->add(t->values, t->more, count);
    }
}

static inline void fetch_pending(trial *t) {
    sum_packed(t, t->pending);
    taciti_kernels_get()->sketch_unpack(t->out, t->pending, t->values, t->s.n);
}

static inline size_t union_rows(const trial *t, double load) {
    return (size_t)ceil((double)taciti_sketch_union(t->index, t->s.n) / (load * 16));
}

#endif
