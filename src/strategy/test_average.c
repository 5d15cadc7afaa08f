/* SPDX-License-Identifier: Apache-2.0 */
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
#include "exchange/test_wire.h"
#include "strategy/average.h"

enum { MAX_RANKS = 8, BUCKET_BYTES = 4096 };
static const int RANKS[] = {1, 2, 3, 4, 5, 7, 8};
enum { RANK_COUNTS = sizeof RANKS / sizeof *RANKS };

enum { INTEGERS, REALS, ALIKE, ONE_NAN, ONE_INF, ZEROS };

/* The arrays that are averaged, and the results of every rank. */
typedef struct trial {
    int kind;
    size_t n;       /* floats of the one tensor */
    bool reference; /* with one; ALIKE data equal it */
    bool copy;      /* with a bf16 copy */
    int wire, threads;
    float *means[MAX_RANKS];
    double distances[MAX_RANKS];
} trial;

static float value(const trial *t, int rank, size_t i) {
    const uint64_t key = taciti_rng_key(5, t->kind == ALIKE ? 0 : (uint64_t)rank);
    const int64_t integer = (int64_t)taciti_rng_below(key, i, 2001) - 1000;
    if (t->kind == ZEROS) return 0;
    if (t->kind == ONE_NAN && rank == 0 && i == t->n / 2) return NAN;
    if (t->kind == ONE_INF && rank == 0 && i == t->n / 2) return INFINITY;
    return t->kind == INTEGERS ? (float)integer : (float)integer / 777.0f;
}

static float reference_value(const trial *t, size_t i) {
    return t->kind == ALIKE ? value(t, 0, i) : value(t, 0, i) + (float)(i % 5);
}

static void average(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    taciti_layout layout;
    taciti_pool *pool = NULL;
    taciti_average *self = NULL;
    CHECK(taciti_layout_create(1, &layout) == TACIT_OK);
    CHECK(taciti_layout_append(&layout, "a", 1, &t->n, true) == TACIT_OK);
    CHECK(taciti_layout_seal(&layout, BUCKET_BYTES) == TACIT_OK);
    CHECK(taciti_pool_create(t->threads, 0, &pool) == TACIT_OK);
    float *p = taciti_calloc(layout.n, sizeof *p), *g = taciti_calloc(layout.n, sizeof *g);
    float *own = taciti_calloc(layout.n, sizeof *own), *reference = taciti_calloc(layout.n, sizeof *reference);
    taciti_bf16 *copy = taciti_calloc(layout.n, sizeof *copy), *own_copy = taciti_calloc(layout.n, sizeof *copy);
    const taciti_exchange_options options = {.wire = test_wire(t->wire), .bucket_bytes = BUCKET_BYTES};
    for (size_t i = 0; i < t->n; i++) {
        p[i] = own[i] = value(t, rank, i);
        reference[i] = reference_value(t, i);
    }
    taciti_kernels_get()->bf16_encode(copy, p, layout.n);
    memcpy(own_copy, copy, layout.n * sizeof *copy);
    const taciti_strategy_context c = {.comm = comm,
                                       .layout = &layout,
                                       .pool = pool,
                                       .exchange_options = &options,
                                       .parameters = p,
                                       .gradients = g,
                                       .copy16 = t->copy ? copy : NULL};
    CHECK(taciti_average_create(&c, &self) == TACIT_OK);
    CHECK(taciti_average_run(self, t->reference ? reference : NULL, &t->distances[rank]) == TACIT_OK);
    t->means[rank] = taciti_calloc(layout.n, sizeof *p);
    memcpy(t->means[rank], p, layout.n * sizeof *p);
    taciti_bf16 *expected = taciti_calloc(layout.n, sizeof *expected);
    taciti_kernels_get()->bf16_encode(expected, t->copy ? p : own, layout.n);
    CHECK(memcmp(copy, expected, layout.n * sizeof *copy) == 0);
    taciti_average_revert(self);
    CHECK(memcmp(p, own, layout.n * sizeof *p) == 0);
    CHECK(memcmp(copy, own_copy, layout.n * sizeof *copy) == 0);
    taciti_average_destroy(self);
    taciti_pool_destroy(pool);
    taciti_layout_destroy(&layout);
    void *const owned[] = {p, g, own, reference, copy, own_copy, expected};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) taciti_free(owned[i]);
}

static void play(trial *t, int ranks) {
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(ranks, &options, average, t);
    for (int r = 1; r < ranks; r++) {
        assert_memory_equal(t->means[r], t->means[0], t->n * sizeof(float));
        assert_memory_equal(&t->distances[r], &t->distances[0], sizeof(double));
    }
}

static void forget(trial *t, int ranks) {
    for (int r = 0; r < ranks; r++) taciti_free(t->means[r]);
}

static double mean_of(const trial *t, int ranks, size_t i) {
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += (double)value(t, r, i);
    return sum / ranks;
}

static double distance_of(const trial *t, int ranks) {
    double sum = 0;
    for (size_t i = 0; i < t->n; i++)
        for (int r = 0; r < ranks; r++) {
            const double d = (double)value(t, r, i) - mean_of(t, ranks, i);
            sum += d * d;
        }
    return sqrt(sum / ranks);
}

/* Sums of these integers are exact in any order; the mean is rounded once or twice, the differences once. */
static void the_mean_is_that_of_a_double_reference(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++)
        for (int with = 0; with < 4; with++) {
            const int ranks = RANKS[k];
            trial t = {
                .kind = with < 2 ? INTEGERS : REALS, .n = 2500, .reference = with % 2 == 1, .copy = true, .threads = 1};
            play(&t, ranks);
            for (size_t i = 0; i < t.n; i++) {
                const double exact = mean_of(&t, ranks, i), max = with < 2 ? 1004 : 6;
                assert_true(fabs((double)t.means[0][i] - exact) <= (ranks + 2) * max * 0x1p-23);
                if (with < 2 && (ranks & (ranks - 1)) == 0) assert_true((double)t.means[0][i] == exact);
            }
            assert_true(fabs(t.distances[0] - distance_of(&t, ranks)) <= 1e-5 * (distance_of(&t, ranks) + 1e-3));
            forget(&t, ranks);
        }
}

static void replicas_that_equal_the_reference_stay_to_the_bit(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++) {
        trial t = {.kind = ALIKE, .n = 3000, .reference = true, .threads = 1};
        play(&t, RANKS[k]);
        for (size_t i = 0; i < t.n; i++) assert_true(t.means[0][i] == value(&t, 0, i));
        assert_true(t.distances[0] == 0);
        forget(&t, RANKS[k]);
    }
}

/* Without a reference the sum of equal values is rounded: near 0, and 0 where no rounding occurs. */
static void replicas_that_are_equal_are_near(void **state) {
    (void)state;
    for (int k = 0; k < RANK_COUNTS; k++) {
        trial t = {.kind = ALIKE, .n = 3000, .threads = 1}, zeros = {.kind = ZEROS, .n = 100, .threads = 1};
        play(&t, RANKS[k]);
        play(&zeros, RANKS[k]);
        assert_true(t.distances[0] <= sqrt(3000) * 1.3 * (RANKS[k] + 1) * 0x1p-24);
        if (RANKS[k] <= 2) assert_true(t.distances[0] == 0);
        assert_true(zeros.distances[0] == 0);
        forget(&t, RANKS[k]);
        forget(&zeros, RANKS[k]);
    }
}

static void one_rank_keeps_its_own(void **state) {
    (void)state;
    for (int with = 0; with < 2; with++) {
        trial t = {.kind = REALS, .n = 777, .reference = with == 1, .copy = true, .threads = 1};
        play(&t, 1);
        for (size_t i = 0; i < t.n; i++) assert_true(t.means[0][i] == value(&t, 0, i));
        assert_true(t.distances[0] == 0);
        forget(&t, 1);
    }
}

static void neither_threads_nor_the_wire_change_a_bit(void **state) {
    (void)state;
    trial one = {.kind = REALS, .n = 300001, .threads = 1},
          other = {.kind = REALS, .n = 300001, .threads = 3, .wire = 1};
    play(&one, 3);
    play(&other, 3);
    assert_memory_equal(one.means[0], other.means[0], one.n * sizeof(float));
    assert_memory_equal(&one.distances[0], &other.distances[0], sizeof(double));
    forget(&one, 3);
    forget(&other, 3);
}

/* The distance says so, the other elements are averaged, and revert (see average()) brings all of it back. */
static void what_is_not_finite_shows(void **state) {
    (void)state;
    for (int with = 0; with < 4; with++) {
        trial t = {
            .kind = with < 2 ? ONE_NAN : ONE_INF, .n = 100, .reference = with % 2 == 1, .copy = true, .threads = 1};
        play(&t, 3);
        assert_true(isnan(t.distances[0]));
        for (size_t i = 0; i < t.n; i++) assert_true(isfinite(t.means[0][i]) == (i != t.n / 2));
        forget(&t, 3);
    }
}

static void a_single_number_is_averaged(void **state) {
    (void)state;
    trial t = {.kind = INTEGERS, .n = 1, .threads = 1};
    play(&t, 2);
    assert_true((double)t.means[0][0] == mean_of(&t, 2, 0));
    assert_true(fabs(t.distances[0] - distance_of(&t, 2)) < 1e-9);
    forget(&t, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_is_that_of_a_double_reference),
        cmocka_unit_test(replicas_that_equal_the_reference_stay_to_the_bit),
        cmocka_unit_test(replicas_that_are_equal_are_near),
        cmocka_unit_test(one_rank_keeps_its_own),
        cmocka_unit_test(neither_threads_nor_the_wire_change_a_bit),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(a_single_number_is_averaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
