/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/rng.h"
#include "codec/test_sparse.h"
#include "comm/test_engine.h"
#include "exchange/mix.h"
#include "exchange/mix_ways.h"
#include "exchange/test_layout.h"
#include "exchange/test_rounds.h"
#include "exchange/test_wire.h"

/* rank r is on host ARRANGEMENTS[i][r] */
static const int ARRANGEMENTS[][8] = {
    {0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 1, 1, 2, 2, 3, 3},
    {1, 0, 1, 1, 0, 0, 1, 1}, {2, 2, 2, 0, 1, 1, 2, 2},
};
enum { ARRANGEMENT_COUNT = sizeof ARRANGEMENTS / sizeof *ARRANGEMENTS, F32 = 0, BF16 = 1 };

static const int SIZES[] = {1, 2, 3, 4, 5, 7, 8};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

/* The thread sanitizer makes a message thirty times slower, that of addresses three times; there every third and every
 * other number of ranks have to do. */
#if defined(__SANITIZE_THREAD__)
enum { SIZE_STEP = 3 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SIZE_STEP = 2 };
#else
enum { SIZE_STEP = 1 };
#endif

/* The contributions of every rank are drawn once, because the tests below read them many times. */
enum { VALUES = 20000 };
typedef float values[VALUES];
static values small_integers[TEST_MAX_RANKS], wild_values[TEST_MAX_RANKS];

static float draw_small_integer(int rank, size_t i) {
    return (float)((int)taciti_rng_below(taciti_rng_key(5, (uint64_t)rank), i, 17) - 8);
}

static float draw_wild(int rank, size_t i) {
    const uint64_t key = taciti_rng_key(6, (uint64_t)rank);
    const float x = (float)ldexp(taciti_rng_unit(key, 2 * i) - 0.5, (int)taciti_rng_below(key, 2 * i + 1, 40) - 20);
    return i % 101 == 0 ? 0.0f : i % 103 == 0 ? 0x1p-140f : x;
}

static void draw_values(void) {
    for (int rank = 0; rank < TEST_MAX_RANKS; rank++)
        for (size_t i = 0; i < VALUES; i++) {
            small_integers[rank][i] = draw_small_integer(rank, i);
            wild_values[rank][i] = draw_wild(rank, i);
        }
}

static float small_integer(int rank, size_t i) { return small_integers[rank][i]; }
static float wild(int rank, size_t i) { return wild_values[rank][i]; }

typedef float fill(int rank, size_t i);

/* One trial and its results: results[rank] holds one flat array per mix, one after the other. */
typedef struct trial {
    const taciti_topology *topology;
    fill *value;
    int wire, scheme;
    const taciti_encoding *encoding; /* in place of the wire's codec; NULL: none */
    int64_t mixes;
    bool blocking, delays;
    size_t n;
    taciti_mix_weights weights[TEST_MAX_RANKS][TEST_MAX_ROUNDS];
    float *results[TEST_MAX_RANKS];
} trial;

static void pause_a_little(const trial *t, int rank, size_t bucket) {
    if (!t->delays) return;
    const struct timespec pause = {.tv_nsec =
                                       (long)taciti_rng_below(taciti_rng_key(9, (uint64_t)rank), bucket, 300000)};
    (void)nanosleep(&pause, NULL);
}

static void mix_once(taciti_mix *mix, const taciti_layout *layout, const trial *t, int rank, float *x, int64_t number) {
    for (size_t b = 0; b < layout->bucket_count; b++) {
        pause_a_little(t, rank, b);
        CHECK(taciti_mix_begin(mix, x, b, number) == TACIT_OK);
        if (t->blocking) CHECK(taciti_mix_wait(mix, x, b, number) == TACIT_OK);
    }
    for (size_t b = 0; b < layout->bucket_count && !t->blocking; b++)
        CHECK(taciti_mix_wait(mix, x, b, number) == TACIT_OK);
}

/* y = keep x + share buffer, as a strategy does it. */
static void finish(const taciti_mix *mix, const taciti_layout *layout, int64_t number, const float *x, float *y) {
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const taciti_mix_weights w = taciti_mix_weights_of(mix, b, number);
        const size_t begin = layout->buckets[b].offset, end = begin + layout->buckets[b].n;
        for (size_t i = begin; i < end; i++) y[i] = w.keep == 1 && w.share == 0 ? x[i] : w.keep * x[i] + w.share * y[i];
    }
}

static void mix_all(taciti_comm *comm, void *context) {
    trial *t = context;
    const int rank = taciti_comm_rank(comm);
    taciti_layout layout;
    test_layout_of_five(&layout);
    CHECK(layout.n <= VALUES);
    const taciti_exchange_options options = {.wire = test_wire(t->wire), .scheme = t->scheme, .bucket_bytes = 10000};
    taciti_mix *mix = NULL;
    taciti_mix_form form = {.differences = false};
    if (t->encoding != NULL) form.encoding = *t->encoding;
    CHECK(taciti_mix_create(comm, &layout, t->topology, &options, &form, &mix) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x), *results = taciti_calloc(layout.n * (size_t)t->mixes, sizeof *x);
    for (size_t i = 0; i < layout.n; i++) x[i] = t->value(rank, i);
    for (int64_t number = 0; number < t->mixes; number++) {
        float *y = results + layout.n * (size_t)number;
        memcpy(y, x, layout.n * sizeof *x);
        const uint64_t before = taciti_comm_count(comm).bytes_sent;
        mix_once(mix, &layout, t, rank, y, number);
        const uint64_t sent = taciti_comm_count(comm).bytes_sent - before;
        const bool fixed = t->encoding == NULL;
        CHECK(fixed ? sent == taciti_mix_bytes(mix, number) : sent <= taciti_mix_bytes(mix, number));
        CHECK(sent == taciti_mix_sent(mix, number));
        t->weights[rank][(size_t)number % t->topology->period] = taciti_mix_weights_of(mix, 0, number);
        finish(mix, &layout, number, x, y);
    }
    if (rank == 0) t->n = layout.n;
    taciti_mix_destroy(mix);
    taciti_layout_destroy(&layout);
    taciti_free(x);
    t->results[rank] = results;
}

static void drop(trial *t) {
    for (int r = 0; r < t->topology->ranks; r++) taciti_free(t->results[r]);
}

static void run_trial(trial *t, int arrangement) {
    taciti_comm_options options = test_comm_options(arrangement % 2 == 0);
    options.segment_bytes = t->topology->ranks % 2 == 0 ? 1024 : 16384;
    test_hosts(ARRANGEMENTS[arrangement]);
    t->mixes = (int64_t)t->topology->period + 1; /* round 0 twice */
    test_world_run(t->topology->ranks, &options, mix_all, t);
    test_hosts(NULL);
}

/* Calls `look` on the results of every topology, number of ranks and arrangement. */
typedef void looker(const trial *t);

static void try_all(const trial *what, looker *look) {
    for (int s = 0; s < SIZE_COUNT; s += SIZE_STEP)
        for (int kind = 0; kind < 2; kind++)
            for (int i = 0; i < ARRANGEMENT_COUNT; i++) {
                test_topology *made = taciti_calloc(1, sizeof *made);
                (kind == 0 ? test_topology_of_groups : test_topology_of_edges)(made, SIZES[s]);
                trial t = *what;
                t.topology = &made->topology;
                run_trial(&t, i);
                look(&t);
                drop(&t);
                taciti_free(made);
            }
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */
static float result_of(const trial *t, int rank, int64_t mix, size_t i) {
    return t->results[rank][t->n * (size_t)mix + i];
}

/* w[from] of every rank for what `to` gets in this mix. */
static void row_of(const trial *t, int64_t mix, int to, double *w) {
    for (int from = 0; from < t->topology->ranks; from++)
        w[from] = test_weight(t->topology, (size_t)mix % t->topology->period, to, from);
}

/* Where i is padding of the layout, all values are those of `value` as well. */
static void is_matrix_times_values(const trial *t) {
    const int ranks = t->topology->ranks;
    for (int64_t mix = 0; mix < t->mixes; mix++)
        for (int to = 0; to < ranks; to++) {
            double w[TEST_MAX_RANKS];
            row_of(t, mix, to, w);
            for (size_t i = 0; i < t->n; i += 7) {
                double sum = 0, size = 0;
                for (int from = 0; from < ranks; from++) {
                    sum += w[from] * (double)t->value(from, i);
                    size += fabs(w[from] * (double)t->value(from, i));
                }
                /* Products and sums of `ranks` numbers, each rounded once. */
                const double bound = (ranks + 2) * (double)FLT_EPSILON * size + 2 * ranks * 0x1p-149;
                assert_true(fabs((double)result_of(t, to, mix, i) - sum) <= bound);
            }
        }
}

static void every_round_is_its_matrix_times_the_arrays(void **state) {
    (void)state;
    for (int scheme = TACITI_SCHEME_AUTO; scheme <= TACITI_SCHEME_HOSTS; scheme++) {
        const trial t = {.value = wild, .wire = F32, .scheme = scheme};
        try_all(&t, is_matrix_times_values);
    }
}

static void is_exact(const trial *t) {
    const int ranks = t->topology->ranks;
    for (int64_t mix = 0; mix < t->mixes; mix++)
        for (int to = 0; to < ranks; to++) {
            const size_t round = (size_t)mix % t->topology->period;
            if (t->topology->rounds[round].groups == 0) continue;
            double in_row[TEST_MAX_RANKS];
            row_of(t, mix, to, in_row);
            for (size_t i = 0; i < t->n; i++) {
                float sum = 0;
                for (int from = 0; from < ranks; from++)
                    if (in_row[from] > 0) sum += t->value(from, i);
                const taciti_mix_weights w = t->weights[to][round];
                assert_true(result_of(t, to, mix, i) == (w.share == 0 ? t->value(to, i) : w.share * sum));
            }
        }
}

static void groups_sum_small_integers_exactly_on_every_wire(void **state) {
    (void)state;
    for (int wire = F32; wire <= BF16; wire++) {
        const trial t = {.value = small_integer, .wire = wire};
        try_all(&t, is_exact);
    }
}

static void members_are_equal(const trial *t) {
    const int ranks = t->topology->ranks;
    for (int64_t mix = 0; mix < t->mixes; mix++) {
        const taciti_round *round = &t->topology->rounds[(size_t)mix % t->topology->period];
        for (int a = 0; a < ranks && round->groups > 0; a++)
            for (int b = 0; b < a; b++) {
                if (test_weight(t->topology, (size_t)mix % t->topology->period, a, b) == 0) continue;
                assert_memory_equal(t->results[a] + t->n * (size_t)mix, t->results[b] + t->n * (size_t)mix,
                                    t->n * sizeof(float));
            }
    }
}

static void members_of_a_group_hold_the_same_bits(void **state) {
    (void)state;
    const trial t = {.value = wild, .wire = F32};
    try_all(&t, members_are_equal);
}

/* ---- time -------------------------------------------------------------------------------------------------------- */
static void compare_with_blocking(const trial *t) {
    trial other = *t;
    other.blocking = !t->blocking;
    other.delays = !t->delays;
    /* the arrangement that is set decides about the bits, so it has to be the same one */
    for (int i = 0; i < ARRANGEMENT_COUNT; i += 2) {
        trial here = *t;
        run_trial(&here, i);
        run_trial(&other, i);
        for (int r = 0; r < t->topology->ranks; r++)
            assert_memory_equal(here.results[r], other.results[r], t->n * (size_t)t->mixes * sizeof(float));
        drop(&here);
        drop(&other);
    }
}

static void delays_and_overlap_change_no_bit(void **state) {
    (void)state;
    for (int wire = F32; wire <= BF16; wire++)
        for (int kind = 0; kind < 2; kind++)
            for (int size = 2; size <= 5; size += SIZE_STEP) {
                test_topology *made = taciti_calloc(1, sizeof *made);
                (kind == 0 ? test_topology_of_groups : test_topology_of_edges)(made, size);
                trial t = {.topology = &made->topology, .value = wild, .wire = wire, .n = 0};
                taciti_layout layout;
                test_layout_of_five(&layout);
                t.n = layout.n;
                t.mixes = (int64_t)made->topology.period + 1;
                compare_with_blocking(&t);
                taciti_layout_destroy(&layout);
                taciti_free(made);
            }
}

static void compare_in_twos(const trial *whole, const trial *alternating) {
    taciti_layout layout;
    test_layout_of_five(&layout);
    assert_true(layout.bucket_count > 4);
    for (int r = 0; r < whole->topology->ranks; r++)
        for (int64_t mix = 0; mix + 1 < whole->mixes; mix++)
            for (size_t b = 0; b < layout.bucket_count; b++) {
                const int64_t round = layout.buckets[b].half == 0 ? mix : mix ^ 1;
                const size_t at = layout.buckets[b].offset;
                assert_memory_equal(whole->results[r] + whole->n * (size_t)round + at,
                                    alternating->results[r] + whole->n * (size_t)mix + at,
                                    layout.buckets[b].n * sizeof(float));
            }
    taciti_layout_destroy(&layout);
}

static void half_of_an_alternating_graph_takes_the_other_of_two_rounds(void **state) {
    (void)state;
    for (int wire = F32; wire <= BF16; wire++)
        for (int size = 2; size <= 5; size++)
            for (int i = 0; i < ARRANGEMENT_COUNT; i += 2) {
                test_topology *made = taciti_calloc(1, sizeof *made);
                test_topology_of_groups(made, size);
                assert_int_equal(made->topology.period % 2, 0);
                trial whole = {.topology = &made->topology, .value = wild, .wire = wire}, alternating = whole;
                run_trial(&whole, i);
                made->topology.alternates = true;
                run_trial(&alternating, i);
                compare_in_twos(&whole, &alternating);
                drop(&whole);
                drop(&alternating);
                taciti_free(made);
            }
}

/* ---- rounding ---------------------------------------------------------------------------------------------------- */
static void sum_is_kept(const trial *t) {
    const int ranks = t->topology->ranks;
    for (int64_t mix = 0; mix < t->mixes; mix++)
        for (size_t i = 0; i < t->n; i++) {
            double before = 0, after = 0, size = 0;
            for (int r = 0; r < ranks; r++) {
                before += (double)t->value(r, i);
                after += (double)result_of(t, r, mix, i);
                size += fabs((double)t->value(r, i));
            }
            /* Every rank rounds to f32 a few times what is at most `size`; a bf16 wire alone would miss by 2^-9. */
            assert_true(fabs(after - before) <= (ranks + 4) * (double)FLT_EPSILON * size + 8 * ranks * 0x1p-149);
        }
}

static void a_lossy_wire_keeps_the_sum_over_ranks(void **state) {
    (void)state;
    for (int scheme = TACITI_SCHEME_AUTO; scheme <= TACITI_SCHEME_HOSTS; scheme++) {
        const trial t = {.value = wild, .wire = BF16, .scheme = scheme};
        try_all(&t, sum_is_kept);
    }
}

static void a_codec_of_variable_size_keeps_the_sum_over_ranks(void **state) {
    (void)state;
    static const test_sparse_options THRESHOLD = {.threshold = 1e-3};
    static const taciti_encoding SPARSE = {.codec = &test_sparse, .options = &THRESHOLD, .seed = 5};
    const trial t = {.value = wild, .encoding = &SPARSE};
    try_all(&t, sum_is_kept);
}

static float alike(int rank, size_t i) {
    (void)rank;
    return wild(1, i);
}

static bool sums_of_equals_are_exact(const trial *t, size_t round, int rank) {
    int count = 0;
    for (int r = 0; r < t->topology->ranks; r++) count += test_weight(t->topology, round, rank, r) > 0;
    return t->topology->rounds[round].groups > 0 && (count & (count - 1)) == 0;
}

static double row_sum(const trial *t, size_t round, int to) {
    double sum = 0;
    for (int from = 0; from < t->topology->ranks; from++) sum += test_weight(t->topology, round, to, from);
    return sum;
}

static void equals_are_equal(const trial *t) {
    for (int64_t mix = 0; mix < t->mixes; mix++)
        for (int to = 0; to < t->topology->ranks; to++) {
            const size_t round = (size_t)mix % t->topology->period;
            const bool exact = sums_of_equals_are_exact(t, round, to), edges = t->topology->rounds[round].groups == 0;
            const bool sums_to_one = edges && fabs(row_sum(t, round, to) - 1) < 1e-9;
            for (size_t i = 0; i < t->n; i++) {
                const double x = (double)alike(to, i), y = (double)result_of(t, to, mix, i), off = fabs(x - y);
                if (exact) assert_true(off == 0);
                if (sums_to_one)
                    assert_true(off <= 2 * t->topology->ranks * ((double)FLT_EPSILON * fabs(x) + 0x1p-149));
            }
        }
}

static void equal_replicas_stay_equal_where_sums_are_exact(void **state) {
    (void)state;
    const trial t = {.value = alike, .wire = BF16, .scheme = TACITI_SCHEME_FLAT};
    try_all(&t, equals_are_equal);
}

/* Ranks 5 and 7 alone are a pair on two hosts. */
static void members_of_one_host_are_not_rounded(void **state) {
    (void)state;
    enum { ON_TWO_HOSTS = 3 };
    test_topology *made = taciti_calloc(1, sizeof *made);
    test_topology_start(made, "pairs", 8, false);
    test_topology_add_groups(made, (const int[8]){0, 1, 0, 2, 1, 3, 2, 3}); /* hosts: 1 0 1 1 0 0 1 1 */
    trial exact = {.topology = &made->topology, .value = wild, .wire = F32};
    trial rounded = {.topology = &made->topology, .value = wild, .wire = BF16};
    run_trial(&exact, ON_TWO_HOSTS);
    run_trial(&rounded, ON_TWO_HOSTS);
    for (int r = 0; r < 8; r++) {
        const bool on_one_host = r != 5 && r != 7;
        const int differs = memcmp(exact.results[r], rounded.results[r], exact.n * sizeof(float));
        assert_true(on_one_host == (differs == 0));
    }
    drop(&exact);
    drop(&rounded);
    taciti_free(made);
}

static float irregular(int rank, size_t i) {
    if (rank == 0 && i == 5) return NAN;
    if (rank == 0 && i == 6010) return INFINITY;
    return (float)i;
}

static void rest_is_unharmed(const trial *t) {
    const int ranks = t->topology->ranks;
    for (int64_t mix = 0; mix < t->mixes; mix++)
        for (int to = 0; to < ranks; to++) {
            if (test_weight(t->topology, (size_t)mix % t->topology->period, to, 0) > 0) {
                assert_true(isnan(result_of(t, to, mix, 5)));
                assert_true(!isfinite(result_of(t, to, mix, 6010)));
            } else {
                assert_true(isfinite(result_of(t, to, mix, 5)) && isfinite(result_of(t, to, mix, 6010)));
            }
            /* the rows of a directed round need not add up to 1 */
            const double weights = row_sum(t, (size_t)mix % t->topology->period, to);
            assert_true(fabs((double)result_of(t, to, mix, 6000) - 6000 * weights) <= 6000 * 0x1p-5);
        }
}

static void what_is_not_finite_reaches_neighbours_and_nobody_else(void **state) {
    (void)state;
    for (int wire = F32; wire <= BF16; wire++) {
        const trial t = {.value = irregular, .wire = wire};
        try_all(&t, rest_is_unharmed);
    }
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */
static void refuse_misuse(taciti_comm *comm, void *context) {
    (void)context;
    taciti_layout layout;
    test_layout_of_five(&layout);
    test_topology *made = taciti_calloc(2, sizeof *made);
    test_topology_of_groups(&made[0], 3);
    test_topology_of_groups(&made[1], 2);
    const taciti_exchange_options options = {.wire = test_wire(F32)};
    taciti_mix *mix = NULL;
    CHECK(taciti_mix_create(comm, &layout, &made[0].topology, &options, NULL, &mix) == TACIT_E_CONFIG);
    CHECK(taciti_mix_predict_bytes(comm, &layout, &made[0].topology, &options, NULL) == 0);
    CHECK(taciti_mix_create(comm, &layout, &made[1].topology, &options, NULL, &mix) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x);
    for (int64_t number = 0; number < 4; number += 2) { /* all; nobody */
        CHECK(taciti_mix_wait(mix, x, 0, number) == TACIT_E_INTERNAL);
        CHECK(taciti_mix_begin(mix, x, 0, number) == TACIT_OK);
        CHECK(taciti_mix_begin(mix, x, 0, number) == TACIT_E_INTERNAL);
        CHECK(taciti_mix_wait(mix, x, 0, number) == TACIT_OK);
    }
    taciti_mix_destroy(mix);
    taciti_mix_destroy(NULL);
    taciti_free(x);
    taciti_free(made);
    taciti_layout_destroy(&layout);
}

static void misuse_is_refused(void **state) {
    (void)state;
    test_log_keep();
    const taciti_comm_options options = test_comm_options(true);
    test_world_run(2, &options, refuse_misuse, NULL);
    assert_int_equal(test_log_count("topology groups is for 3 ranks, but there are 2"), 4);
    test_log_drop();
}

static int64_t time_of(taciti_comm *comm, taciti_span_kind kind) {
    return atomic_load(&taciti_comm_trace(comm)->run_ns[kind]);
}

/* *context: of groups or of edges. */
static void look_at_time(taciti_comm *comm, void *context) {
    taciti_layout layout;
    test_layout_of_five(&layout);
    const taciti_exchange_options options = {.wire = test_wire(BF16), .scheme = TACITI_SCHEME_FLAT};
    taciti_mix *mix = NULL;
    CHECK(taciti_mix_create(comm, &layout, context, &options, NULL, &mix) == TACIT_OK);
    float *x = taciti_calloc(layout.n, sizeof *x);
    CHECK(time_of(comm, TACITI_SPAN_ENCODE) == 0 && time_of(comm, TACITI_SPAN_DECODE) == 0);
    for (size_t b = 0; b < layout.bucket_count; b++) {
        CHECK(taciti_mix_begin(mix, x, b, 0) == TACIT_OK);
        CHECK(taciti_mix_wait(mix, x, b, 0) == TACIT_OK);
    }
    CHECK(time_of(comm, TACITI_SPAN_ENCODE) > 0 && time_of(comm, TACITI_SPAN_DECODE) > 0);
    taciti_mix_destroy(mix);
    taciti_free(x);
    taciti_layout_destroy(&layout);
}

static void time_of_codecs_is_counted(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(true);
    test_topology *made = taciti_calloc(2, sizeof *made);
    test_topology_of_groups(&made[0], 4);
    test_topology_of_edges(&made[1], 4);
    for (int kind = 0; kind < 2; kind++) test_world_run(4, &options, look_at_time, &made[kind].topology);
    taciti_free(made);
}

static size_t memory_of(taciti_comm *comm, const taciti_layout *layout, int rounds) {
    test_topology *made = taciti_calloc(1, sizeof *made);
    test_topology_start(made, "pairs", 8, false);
    for (int t = 0; t < rounds; t++) {
        int group_of[8];
        for (int r = 0; r < 8; r++) group_of[r] = r < 4 ? (r + t) % 4 : r - 4;
        test_topology_add_groups(made, group_of);
    }
    const taciti_exchange_options options = {.wire = test_wire(BF16)};
    const size_t bytes = taciti_mix_predict_bytes(comm, layout, &made->topology, &options, NULL);
    taciti_free(made);
    return bytes;
}

static void look_at_memory(taciti_comm *comm, void *context) {
    (void)context;
    taciti_layout layout;
    test_layout_of_five(&layout);
    CHECK(memory_of(comm, &layout, 1) > 0 && memory_of(comm, &layout, 1) == memory_of(comm, &layout, 8));
    taciti_layout_destroy(&layout);
}

static void memory_does_not_grow_with_the_period(void **state) {
    (void)state;
    const taciti_comm_options options = test_comm_options(false);
    test_world_run(8, &options, look_at_memory, NULL);
}

/* So that the graph that refusals name is one that takes PowerGossip. */
static void base_k_takes_power_on_any_number_of_ranks(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 64; ranks++) {
        taciti_topology topology;
        assert_int_equal(taciti_topology_create(&(taciti_topo_request){.name = "base-k", .ranks = ranks}, &topology),
                         TACIT_OK);
        assert_true(taciti_mix_takes_power(&topology));
        taciti_topology_destroy(&topology);
    }
}

int main(void) {
    draw_values();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base_k_takes_power_on_any_number_of_ranks),
        cmocka_unit_test(every_round_is_its_matrix_times_the_arrays),
        cmocka_unit_test(groups_sum_small_integers_exactly_on_every_wire),
        cmocka_unit_test(members_of_a_group_hold_the_same_bits),
        cmocka_unit_test(delays_and_overlap_change_no_bit),
        cmocka_unit_test(half_of_an_alternating_graph_takes_the_other_of_two_rounds),
        cmocka_unit_test(a_lossy_wire_keeps_the_sum_over_ranks),
        cmocka_unit_test(a_codec_of_variable_size_keeps_the_sum_over_ranks),
        cmocka_unit_test(equal_replicas_stay_equal_where_sums_are_exact),
        cmocka_unit_test(members_of_one_host_are_not_rounded),
        cmocka_unit_test(what_is_not_finite_reaches_neighbours_and_nobody_else),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(time_of_codecs_is_counted),
        cmocka_unit_test(memory_does_not_grow_with_the_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
