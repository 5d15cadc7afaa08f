/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of homomorphic sketches. Ranks are arrays. Every sum is compared with the sum of the arrays; what is forged is
 * refused, decoded exactly or pending.
 */
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

static void ignore(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)level;
    (void)line;
}

static int quiet(void **state) {
    (void)state;
    taciti_log_set_sink(ignore, NULL, TACITI_LOG_ERROR);
    return 0;
}

static int loud(void **state) {
    (void)state;
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_INFO);
    return 0;
}

static void *memory(size_t bytes) {
    void *p = taciti_calloc(bytes + 64, 1);
    assert_non_null(p);
    return p;
}

/* ---- one sum of several ranks ------------------------------------------------------------------------------------ */

typedef struct trial {
    taciti_sketch s;
    float *x[9], *sum, *out; /* of ranks; their sum; decoded */
    uint64_t *index, *own, *pending;
    void *counters, *part, *workspace, *values, *more;
    size_t left; /* pending elements */
} trial;

static void open_trial(trial *t, size_t n, int ranks) {
    const size_t words = taciti_sketch_index_words(n);
    *t = (trial){.s = {.n = n, .ranks = ranks}};
    for (int r = 0; r < ranks; r++) t->x[r] = memory(n * sizeof(float));
    t->sum = memory(n * sizeof(float));
    t->out = memory(n * sizeof(float));
    t->index = memory(words * 8);
    t->own = memory(words * 8);
    t->pending = memory(words * 8);
    t->values = memory((n + 16) * 4);
    t->more = memory((n + 16) * 4);
}

static void close_counters(trial *t) {
    taciti_free(t->counters);
    taciti_free(t->part);
    taciti_free(t->workspace);
}

static void close_trial(trial *t) {
    for (int r = 0; r < 9; r++) taciti_free(t->x[r]);
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

static float number(numbers_kind kind, uint64_t key, size_t i, double limit) {
    const double u = taciti_rng_unit(key, 3 * i + 1), v = taciti_rng_unit(key, 3 * i + 2);
    if (kind == NORMALS) return (float)(sqrt(-2 * log(u + 1e-300)) * cos(6.283185307179586 * v));
    return (float)(floor(u * limit) + 1) * (v < 0.5 ? -1.0f : 1.0f);
}

/* Every rank has a share p of elements that are not zero. */
static void draw(trial *t, numbers_kind kind, double p, double limit, uint64_t seed) {
    memset(t->sum, 0, t->s.n * sizeof(float));
    memset(t->index, 0, taciti_sketch_index_words(t->s.n) * 8);
    for (int r = 0; r < t->s.ranks; r++) {
        const uint64_t key = taciti_rng_key(seed, (uint64_t)r);
        for (size_t i = 0; i < t->s.n; i++) {
            t->x[r][i] = taciti_rng_unit(key, 3 * i) < p ? number(kind, key, i, limit) : 0;
            t->sum[i] += t->x[r][i];
        }
        taciti_sketch_index(t->x[r], t->s.n, t->own);
        taciti_sketch_merge(t->index, t->own, t->s.n);
    }
}

static double max_abs(const trial *t) {
    double max = 0;
    for (int r = 0; r < t->s.ranks; r++)
        for (size_t i = 0; i < t->s.n; i++) max = fabs((double)t->x[r][i]) > max ? fabs((double)t->x[r][i]) : max;
    return max;
}

static void encode(trial *t) {
    const size_t bytes = taciti_sketch_bytes(&t->s);
    close_counters(t);
    t->counters = memory(bytes);
    t->part = memory(bytes);
    t->workspace = memory(taciti_sketch_workspace_bytes(&t->s));
    for (int r = 0; r < t->s.ranks; r++) {
        memset(t->part, 0, bytes);
        assert_int_equal(taciti_sketch_add(&t->s, t->x[r], t->part), TACIT_OK);
        taciti_sketch_sum(&t->s, t->counters, t->part);
    }
}

static tacit_status decode(trial *t, taciti_pool *pool) {
    const tacit_status status = taciti_sketch_map(&t->s, t->index, t->workspace, pool);
    if (status != TACIT_OK) return status;
    return taciti_sketch_peel(&t->s, t->counters, t->workspace, pool, t->out, &t->left);
}

static void choose(trial *t, size_t rows, taciti_ring ring, uint64_t seed) {
    t->s = taciti_sketch_init(t->s.n, rows, t->s.ranks, seed);
    assert_int_equal(taciti_sketch_set_ring(&t->s, ring, max_abs(t)), TACIT_OK);
}

static bool is_zero(const void *p, size_t bytes) {
    const unsigned char *b = p;
    for (size_t i = 0; i < bytes; i++)
        if (b[i] != 0) return false;
    return true;
}

/* What is not pending is right; what is pending is 0. */
static void assert_right(const trial *t) {
    taciti_sketch_pending(&t->s, t->workspace, t->pending);
    size_t pending = 0;
    for (size_t i = 0; i < t->s.n; i++) {
        const bool open = (t->pending[i / 64] >> (i % 64) & 1u) != 0;
        pending += open;
        assert_true(t->out[i] == (open ? 0 : t->sum[i]));
    }
    assert_int_equal(pending, t->left);
}

static void assert_exact(const trial *t) {
    assert_int_equal(t->left, 0);
    assert_right(t);
}

/* Sums of the pending elements, as a reduction of packed values gives them. */
static void insert_pending(trial *t) {
    const size_t count = taciti_sketch_union(t->pending, t->s.n);
    memset(t->values, 0, taciti_sketch_pack_bytes(&t->s, count));
    for (int r = 0; r < t->s.ranks; r++) {
        assert_int_equal(taciti_sketch_pack(&t->s, t->pending, t->x[r], t->more), TACIT_OK);
        taciti_kernels_get()->sketch_sum(t->s.numbers.ring, t->values, t->more, count);
    }
    assert_int_equal(taciti_sketch_insert(&t->s, t->pending, t->values, t->counters, t->workspace, t->out), TACIT_OK);
}

/* ---- hashes and the worked example (T1, T8) ---------------------------------------------------------------------- */

static void murmur_has_its_known_answers(void **state) {
    static const uint32_t ANSWERS[6][3] = {{0x2362f9de, 0x78ed212d, 0x06dfadfc}, {0xfbf1402a, 0x5e11e574, 0x13d35112},
                                           {0x40b23b7f, 0xdb9a7e8c, 0x2cdefd20}, {0x32850971, 0xcf6cc8a9, 0xde0eb68b},
                                           {0x70a3c107, 0x5626c6f7, 0x1d5df7d5}, {0x0e1bbb7e, 0x6bc871c0, 0x3585249e}};
    (void)state;
    for (uint32_t b = 0; b < 6; b++)
        for (uint32_t seed = 0; seed < 3; seed++) assert_int_equal(taciti_murmur3(b, seed), ANSWERS[b][seed]);
}

static void lhc_blocks_have_coinciding_rows(void **state) {
    static const uint32_t GOLDEN[][3] = {{1152, 576, 8}, {18864, 9432, 3}, {1152, 288, 18}, {576, 288, 8},
                                         {288, 144, 7},  {144, 72, 7},     {9432, 4716, 4}, {4716, 2358, 5}};
    (void)state;
    for (size_t g = 0; g < sizeof GOLDEN / sizeof *GOLDEN; g++) {
        uint32_t two = 0, three = 0;
        for (uint32_t b = 0; b < GOLDEN[g][0]; b++) {
            const uint32_t r = GOLDEN[g][1], i = taciti_murmur3(b, 0) % r, j = taciti_murmur3(b, 1) % r,
                           k = taciti_murmur3(b, 2) % r;
            three += i == j && j == k;
            two += (i == j) + (j == k) + (i == k) == 1;
        }
        assert_int_equal(two, GOLDEN[g][2]);
        assert_int_equal(three, 0);
    }
}

/* Lane 0 of units of 16; unit b is element 16 b. */
static void worked_example(void **state) {
    enum { UNITS = 6, ROWS = 8 };
    static const float Y[3][ROWS] = {
        {4, 0, 0, 0, 12, 5, 27, -7}, {1, 0, 0, -9, -5, -5, -3, 0}, {5, 0, 0, -9, 7, 0, 24, -7}};
    trial t;
    (void)state;
    for (size_t set = 0; set < 3; set++) {
        if (!taciti_kernels_switch(SETS[set])) continue;
        open_trial(&t, 16 * (UNITS - 1) + 1, 2);
        t.s = taciti_sketch_init_compat(t.s.n, 16, ROWS, 2);
        t.x[0][0] = 5, t.x[0][2 * 16] = -7, t.x[0][5 * 16] = 11;
        t.x[1][0] = -5, t.x[1][3 * 16] = 9, t.x[1][5 * 16] = 1;
        t.sum[2 * 16] = -7, t.sum[3 * 16] = 9, t.sum[5 * 16] = 12;
        for (int r = 0; r < 3; r++) {
            float counters[ROWS * 16] = {0};
            if (r != 1) assert_int_equal(taciti_sketch_add(&t.s, t.x[0], counters), TACIT_OK);
            if (r != 0) assert_int_equal(taciti_sketch_add(&t.s, t.x[1], counters), TACIT_OK);
            for (int i = 0; i < ROWS; i++) assert_true(counters[16 * i] == Y[r][i]);
        }
        uint64_t own[2][2];
        uint32_t bits[2] = {0, 0}, merged = 0;
        for (int r = 0; r < 2; r++) {
            taciti_sketch_index(t.x[r], t.s.n, own[r]);
            for (uint32_t u = 0; u < UNITS; u++) bits[r] |= (uint32_t)(own[r][u / 4] >> (16 * (u % 4)) & 1u) << u;
            taciti_sketch_merge(t.index, own[r], t.s.n);
        }
        for (uint32_t u = 0; u < UNITS; u++) merged |= (uint32_t)(t.index[u / 4] >> (16 * (u % 4)) & 1u) << u;
        assert_int_equal(bits[0], 0x25);
        assert_int_equal(bits[1], 0x29);
        assert_int_equal(merged, 0x2d); /* a sum of bytes would be 0x4e */
        encode(&t);
        assert_int_equal(decode(&t, NULL), TACIT_OK);
        assert_exact(&t);
        assert_true(is_zero(t.counters, taciti_sketch_bytes(&t.s)));
        close_trial(&t);
    }
    (void)taciti_kernels_switch(NULL);
}

/* ---- sums (T2, T3, T4) ------------------------------------------------------------------------------------------- */

static void sketches_add_up(void **state) {
    static const int RANKS[] = {1, 2, 3, 5, 8};
    static const size_t ROWS[] = {3, 40, 500}; /* any load */
    (void)state;
    for (size_t i = 0; i < 5; i++)
        for (size_t rows = 0; rows < 3; rows++)
            for (int ring = TACITI_RING_U32; ring < TACITI_RINGS; ring++) {
                trial t;
                open_trial(&t, 5003, RANKS[i]);
                draw(&t, INTEGERS, 0.4, ring == TACITI_RING_U16 ? 3000 : 1000000, rows);
                choose(&t, ROWS[rows], (taciti_ring)ring, rows);
                t.s.numbers.scale = 1; /* the sum has the scale of its parts */
                encode(&t);
                const size_t bytes = taciti_sketch_bytes(&t.s);
                memset(t.part, 0, bytes);
                taciti_sketch of_sum = t.s;
                of_sum.ranks = 1;
                of_sum.numbers.max = ring == TACITI_RING_U16 ? 32767.0f : 2147483520.0f;
                assert_int_equal(taciti_sketch_add(&of_sum, t.sum, t.part), TACIT_OK);
                assert_memory_equal(t.part, t.counters, bytes);
                close_trial(&t);
            }
}

static size_t union_rows(const trial *t, double load) {
    return (size_t)ceil((double)taciti_sketch_union(t->index, t->s.n) / (load * 16));
}

static void integers_decode_exactly(void **state) {
    size_t failed = 0;
    trial t;
    (void)state;
    open_trial(&t, 200000, 2);
    for (uint64_t seed = 0; seed < 100; seed++) {
        draw(&t, INTEGERS, 0.2, 1000, seed);
        choose(&t, union_rows(&t, 0.75), seed % 2 ? TACITI_RING_U16 : TACITI_RING_U32, seed);
        encode(&t);
        assert_int_equal(decode(&t, NULL), TACIT_OK);
        assert_right(&t);
        failed += t.left > 0;
        if (t.left == 0) assert_true(is_zero(t.counters, taciti_sketch_bytes(&t.s)));
    }
    close_trial(&t);
    assert_true(failed <= 2); /* two lines with the same three rows: 0.5 % of the draws */
}

static void one_zone_decodes_up_to_load_081(void **state) {
    static const double LOADS[] = {0.70, 0.75, 0.78, 0.80, 0.81};
    trial t;
    (void)state;
    open_trial(&t, 1179648, 2);
    draw(&t, INTEGERS, 0.2, 1000, 1);
    for (size_t i = 0; i < 5; i++) {
        /* the load of the fullest lane: at 0.81 the scatter of lanes counts */
        choose(&t, (size_t)ceil((double)taciti_sketch_measure(t.index, t.s.n) / (LOADS[i] * 16)), TACITI_RING_U32, 0);
        t.s.zones = 1;
        encode(&t);
        assert_int_equal(decode(&t, NULL), TACIT_OK);
        assert_exact(&t);
    }
    close_trial(&t);
}

static void zones_decode_at_their_size(void **state) {
    trial t;
    (void)state;
    open_trial(&t, 1179648, 2);
    for (uint64_t seed = 0; seed < 4; seed++) {
        draw(&t, INTEGERS, 0.2, 1000, seed);
        choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), TACITI_RING_U16, seed);
        assert_int_equal(t.s.zones, 4);
        encode(&t);
        assert_int_equal(decode(&t, NULL), TACIT_OK);
        assert_exact(&t);
    }
    close_trial(&t);
}

static void floats_decode_up_to_rounding(void **state) {
    trial t;
    (void)state;
    open_trial(&t, 1179648, 3);
    draw(&t, INTEGERS, 0.12, 1000, 3); /* partial sums below 2^24 are exact */
    choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), TACITI_RING_F32, 1);
    encode(&t);
    assert_int_equal(decode(&t, NULL), TACIT_OK);
    assert_exact(&t);
    draw(&t, NORMALS, 0.12, 0, 4);
    choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), TACITI_RING_F32, 1);
    encode(&t);
    assert_int_equal(decode(&t, NULL), TACIT_OK);
    assert_int_equal(t.left, 0);
    double squares = 0, errors = 0, worst = 0, max = 0;
    for (size_t i = 0; i < t.s.n; i++) {
        const double error = fabs((double)t.out[i] - (double)t.sum[i]), x = fabs((double)t.sum[i]);
        squares += x * x;
        errors += error * error;
        worst = error > worst ? error : worst;
        max = x > max ? x : max;
    }
    assert_true(sqrt(errors / squares) < 1e-6);
    assert_true(worst < 1e-5 * max);
    close_trial(&t);
}

/* ---- failures over load (T5, T6) --------------------------------------------------------------------------------- */

/* Rows with replacement: LHC's hash. Every lane has units of its own, so it is a trial of its own. Returns the share of
 * trials that succeed. */
static double success(size_t m, double load, int decodes) {
    const size_t k = (size_t)(load * (double)m + 0.5), units = 16 * k;
    int good = 0;
    trial t;
    open_trial(&t, 16 * units, 1);
    for (size_t u = 0; u < units; u++) t.x[0][16 * u + u / k] = 1;
    taciti_sketch_index(t.x[0], t.s.n, t.index);
    for (int d = 0; d < decodes; d++) {
        t.s = taciti_sketch_init_compat(t.s.n, 16, m, 1);
        t.s.seed = (uint64_t)d + 1;
        encode(&t);
        assert_int_equal(decode(&t, NULL), TACIT_OK);
        taciti_sketch_pending(&t.s, t.workspace, t.pending);
        for (size_t lane = 0; lane < 16; lane++) {
            size_t open = 0;
            for (size_t u = lane * k; u < (lane + 1) * k; u++) open += t.pending[u / 4] >> (16 * (u % 4) + lane) & 1u;
            good += open == 0;
        }
    }
    close_trial(&t);
    return (double)good / (16 * decodes);
}

static void failures_follow_the_load(void **state) {
    static const double LOADS[] = {0.60, 0.66, 0.70, 0.74, 0.76, 0.78, 0.80, 0.82, 0.84};
    static const struct {
        size_t m;
        int decodes;
        double success[9];
    } ROWS[] = {{64, 250, {.904, .834, .705, .583, .416, .346, .269, .182, .074}},
                {576, 60, {.992, .995, .992, .991, .968, .881, .599, .239, .029}},
                {1152, 40, {.996, .996, .998, .994, .995, .973, .740, .238, .012}},
                {8192, 3, {1, 1, 1, 1, 1, 1, 1, .245, 0}}};
    (void)state;
    for (size_t r = 0; r < 4; r++)
        for (size_t l = 0; l < 9; l++) {
            const double p = ROWS[r].success[l], trials = 16 * ROWS[r].decodes;
            const double tolerance = 0.03 + 3 * sqrt(p * (1 - p) / trials); /* theirs, and ours */
            const double got = success(ROWS[r].m, LOADS[l], ROWS[r].decodes);
            if (fabs(got - p) > tolerance) fail_msg("m %zu load %.2f: %.3f, not %.3f", ROWS[r].m, LOADS[l], got, p);
        }
}

static void beyond_the_threshold_most_is_pending(void **state) {
    static const double LOADS[] = {0.85, 0.90, 0.95, 1.00}, LOST[] = {0.551, 0.661, 0.732, 0.784};
    enum { ROWS = 65536 };
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        trial t;
        open_trial(&t, 16 * (size_t)(LOADS[i] * ROWS), 1);
        draw(&t, INTEGERS, 1.0, 1000, i);
        choose(&t, ROWS, TACITI_RING_U32, i);
        t.s.zones = 1;
        encode(&t);
        assert_int_equal(decode(&t, NULL), TACIT_OK);
        assert_right(&t);
        assert_true(fabs((double)t.left / (double)t.s.n - LOST[i]) < 0.01);
        close_trial(&t);
    }
}

/* The rows that a measured union gets: failures are rare at any size. With few rows they are pairs of lines that drew
 * the same three. */
static void rows_suffice_at_any_size(void **state) {
    static const size_t SIZES[] = {1, 2, 17, 100, 300, 1000, 3000, 10000, 40000, 150000};
    static const double SHARES[] = {0.01, 0.1, 0.5, 1};
    int failed = 0, all = 0;
    (void)state;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (size_t p = 0; p < 4; p++) {
            trial t;
            open_trial(&t, SIZES[i], 1);
            for (uint64_t seed = 0; seed < 25; seed++, all++) {
                draw(&t, INTEGERS, SHARES[p], 1000, seed);
                choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), TACITI_RING_U32, seed);
                encode(&t);
                assert_int_equal(decode(&t, NULL), TACIT_OK);
                assert_right(&t);
                failed += t.left > 0;
            }
            close_trial(&t);
        }
    if (failed * 100 > 3 * all) fail_msg("%d of %d sketches were not decoded", failed, all);
}

/* ---- the index (T7) ---------------------------------------------------------------------------------------------- */

static void index_marks_what_is_not_zero(void **state) {
    static const float NUMBERS[] = {0.0f, -0.0f, 1.0f, -1e-45f, INFINITY, -INFINITY, NAN, 3e38f};
    (void)state;
    for (size_t set = 0; set < 3; set++) {
        if (!taciti_kernels_switch(SETS[set])) continue;
        for (size_t n = 0; n <= 200; n++) {
            float x[200];
            uint64_t words[5], guard = UINT64_C(0xa5a5a5a5a5a5a5a5);
            size_t marked = 0;
            for (size_t i = 0; i < n; i++) x[i] = NUMBERS[taciti_rng_u64(n, i) % 8];
            words[taciti_sketch_index_words(n)] = guard;
            taciti_sketch_index(x, n, words);
            for (size_t i = 0; i < n; i++) {
                const bool marks = (words[i / 64] >> (i % 64) & 1u) != 0;
                assert_true(marks == !(x[i] == 0));
                marked += marks;
            }
            assert_int_equal(taciti_sketch_union(words, n), marked);
            assert_true(words[taciti_sketch_index_words(n)] == guard);
        }
    }
    (void)taciti_kernels_switch(NULL);
}

static void unions_of_independent_ranks_grow(void **state) {
    enum { N = 200000 };
    static const struct {
        int ranks;
        double share;
    } UNIONS[] = {{2, .36}, {4, .5904}, {8, .8322}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        trial t;
        open_trial(&t, N, UNIONS[i].ranks);
        draw(&t, INTEGERS, 0.2, 10, 7);
        const double d = UNIONS[i].share;
        assert_true(fabs((double)taciti_sketch_union(t.index, N) / N - d) < 4 * sqrt(d * (1 - d) / N));
        const size_t measured = taciti_sketch_measure(t.index, N);
        assert_true(measured >= taciti_sketch_union(t.index, N) && (double)measured < 1.05 * d * N);
        close_trial(&t);
    }
}

/* ---- determinism (T9), shards (T10), bytes (T13), the exact fallback (T20) --------------------------------------- */

static void threads_and_sets_give_the_same_bytes(void **state) {
    static const int THREADS[] = {1, 2, 8};
    trial t;
    float *first = NULL;
    (void)state;
    open_trial(&t, 600003, 3);
    draw(&t, NORMALS, 0.2, 0, 5);
    for (int kind = 0; kind < 4; kind++) {
        first = NULL;
        for (size_t set = 0; set < 3; set++) {
            if (!taciti_kernels_switch(SETS[set])) continue;
            for (size_t c = 0; c < 3; c++) {
                taciti_pool *pool = NULL;
                choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), (taciti_ring)(kind % 3), 9);
                if (kind == 3) {
                    t.s = taciti_sketch_init_compat(t.s.n, 64, 6000, t.s.ranks);
                }
                t.s.zones = kind == 3 ? 1 : 5;
                assert_int_equal(taciti_pool_create(THREADS[c], 0, &pool), TACIT_OK);
                encode(&t);
                assert_int_equal(decode(&t, pool), TACIT_OK);
                taciti_pool_destroy(pool);
                const size_t bytes = t.s.n * sizeof(float);
                if (first == NULL) {
                    first = memory(bytes);
                    memcpy(first, t.out, bytes);
                }
                assert_memory_equal(t.out, first, bytes);
                assert_true(kind == 3 || t.left == 0);
            }
        }
        taciti_free(first);
    }
    (void)taciti_kernels_switch(NULL);
    close_trial(&t);
}

/* Shards of N ranks: every remainder, and none may be lost. */
static void shards_decode_at_every_remainder(void **state) {
    static const size_t SIZES[] = {0, 1, 15, 16, 17, 63, 64, 65, 767, 768};
    (void)state;
    for (int ranks = 1; ranks <= 9; ranks++)
        for (size_t size = 0; size < 10 + 8; size++) {
            const size_t n = size < 10 ? SIZES[size] : (4000 + size) * (size_t)ranks;
            const size_t pad = ((size_t)ranks - n % (size_t)ranks) % (size_t)ranks, share = (n + pad) / (size_t)ranks;
            trial t;
            open_trial(&t, share, ranks);
            draw(&t, INTEGERS, 0.15, 1000, n);
            choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, share)), (taciti_ring)(size % 3), n);
            encode(&t);
            assert_int_equal(decode(&t, NULL), TACIT_OK);
            assert_right(&t);
            insert_pending(&t);
            for (size_t i = 0; i < share; i++) assert_true(t.out[i] == t.sum[i]);
            close_trial(&t);
        }
}

static void bytes_are_those_of_the_formulas(void **state) {
    enum { N = 2359296, RANKS = 2, SHARE = N / RANKS };
    (void)state;
    const size_t dense = (RANKS - 1) * SHARE * sizeof(float), index = taciti_sketch_index_words(SHARE) * 8;
    taciti_sketch s = taciti_sketch_init_compat(SHARE, 1024, taciti_sketch_compat_rows(SHARE, 1024, 2), RANKS);
    assert_int_equal(dense, 4718592);
    assert_int_equal(2 * index, 294912); /* all-reduce: both halves */
    assert_int_equal(index, 147456);     /* reduce-scatter by OR */
    assert_int_equal(taciti_sketch_bytes(&s), 2359296);
    assert_int_equal(taciti_sketch_compat_rows(SHARE, 1024, 2), 576);
    assert_int_equal(taciti_sketch_compat_rows(1025, 1024, 1), 2);
    s = taciti_sketch_init(SHARE, taciti_sketch_rows(424673), RANKS, 0);
    assert_int_equal(s.rows, 34029); /* ceil(424673 / (0.78 * 16)) */
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U16, 1), TACIT_OK);
    assert_int_equal(taciti_sketch_bytes(&s), 34029 * 16 * 2);
}

static void overfull_sketches_fall_back_to_exact_sums(void **state) {
    static const double LOADS[] = {0.83, 1.2, 3, 60, 1000};
    (void)state;
    for (int ring = 0; ring < TACITI_RINGS; ring++)
        for (size_t l = 0; l < 5; l++)
            for (int compat = 0; compat < 2; compat++) {
                trial t;
                open_trial(&t, 70001, 3);
                draw(&t, INTEGERS, 0.2, 100, l);
                choose(&t, union_rows(&t, LOADS[l]) + 3, (taciti_ring)ring, l);
                if (compat) {
                    t.s.compat = true;
                    t.s.numbers.compat = 1;
                }
                encode(&t);
                assert_int_equal(decode(&t, NULL), TACIT_OK);
                assert_right(&t);
                if (l > 0) assert_true(t.left > 0);
                insert_pending(&t);
                for (size_t i = 0; i < t.s.n; i++) assert_true(t.out[i] == t.sum[i]);
                assert_true(is_zero(t.counters, ring == TACITI_RING_F32 ? 0 : taciti_sketch_bytes(&t.s)));
                close_trial(&t);
            }
}

static void packed_values_are_the_same_sums(void **state) {
    (void)state;
    for (size_t set = 0; set < 3; set++) {
        if (!taciti_kernels_switch(SETS[set])) continue;
        for (size_t n = 0; n < 300; n += n < 70 ? 1 : 37)
            for (int ring = 0; ring < TACITI_RINGS; ring++) {
                trial t;
                open_trial(&t, n, 3);
                draw(&t, INTEGERS, 0.3, 1000, n);
                choose(&t, 20, (taciti_ring)ring, 0);
                encode(&t);
                memcpy(t.pending, t.index, taciti_sketch_index_words(n) * 8);
                const size_t count = taciti_sketch_union(t.index, n);
                memset(t.values, 0, taciti_sketch_pack_bytes(&t.s, count));
                for (int r = 0; r < 3; r++) {
                    assert_int_equal(taciti_sketch_pack(&t.s, t.index, t.x[r], t.more), TACIT_OK);
                    taciti_kernels_get()->sketch_sum(t.s.numbers.ring, t.values, t.more, count);
                }
                memset(t.out, 0xa5, n * sizeof(float));
                assert_int_equal(taciti_sketch_unpack(&t.s, t.index, t.values, t.out), TACIT_OK);
                for (size_t i = 0; i < n; i++) assert_true(t.out[i] == t.sum[i]);
                close_trial(&t);
            }
    }
    (void)taciti_kernels_switch(NULL);
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

static void rings_cannot_overflow(void **state) {
    (void)state;
    taciti_sketch s = taciti_sketch_init(1000, 100, 8, 0);
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U16, 4095), TACIT_OK);
    assert_true(s.numbers.max == 4095 && s.numbers.scale == 1);
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U16, 4096), TACIT_OK);
    assert_true(s.numbers.scale == 0.5f);
    for (int ranks = 1; ranks <= 9; ranks++)
        for (int ring = TACITI_RING_U32; ring < TACITI_RINGS; ring++)
            for (int e = -149; e < 128; e++)
                for (int step = 0; step < 2; step++) {
                    const double max = ldexp(step ? 1.999 : 1, e), limit = ring == TACITI_RING_U16 ? 0x1p15 : 0x1p31;
                    s.ranks = ranks;
                    assert_int_equal(taciti_sketch_set_ring(&s, (taciti_ring)ring, max), TACIT_OK);
                    assert_int_equal(taciti_sketch_check(&s), TACIT_OK);
                    const double q = max * (double)s.numbers.scale;
                    assert_true(q <= limit / ranks && ceil((double)s.numbers.max) * ranks < limit);
                    assert_true(2 * q > limit / ranks - 1 || s.numbers.scale == 0x1p126f); /* no bit is wasted */
                }
    s.numbers.max = 32768.0f / 9; /* times 9 ranks, rounded up: too large by one rounding */
    assert_int_equal(taciti_sketch_check(&s), TACIT_E_USAGE);
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U32, (double)INFINITY), TACIT_E_NUMERICS);
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U32, (double)NAN), TACIT_E_NUMERICS);
    s.ranks = 32768;
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U16, 1), TACIT_E_USAGE);
}

static void integers_refuse_what_does_not_fit(void **state) {
    static const float BAD[] = {1001.0f, -1001.0f, INFINITY, -INFINITY, NAN};
    (void)state;
    for (size_t set = 0; set < 3; set++) {
        if (!taciti_kernels_switch(SETS[set])) continue;
        for (size_t b = 0; b < 5; b++)
            for (size_t place = 0; place < 33; place += 16) {
                trial t;
                open_trial(&t, 33, 1);
                t.x[0][0] = 1000;
                choose(&t, 20, TACITI_RING_U32, 0);
                t.s.numbers.max = t.s.numbers.scale * 1000;
                encode(&t);
                t.x[0][place] = BAD[b];
                assert_int_equal(taciti_sketch_add(&t.s, t.x[0], t.counters), TACIT_E_NUMERICS);
                t.index[0] = UINT64_MAX >> 31;
                assert_int_equal(taciti_sketch_pack(&t.s, t.index, t.x[0], t.values), TACIT_E_NUMERICS);
                close_trial(&t);
            }
    }
    (void)taciti_kernels_switch(NULL);
}

/* They reach the decoder or stay pending: the step is skipped everywhere. */
static void floats_that_are_not_finite_travel(void **state) {
    static const float BAD[] = {INFINITY, -INFINITY, NAN};
    (void)state;
    for (size_t b = 0; b < 3; b++) {
        trial t;
        open_trial(&t, 3000, 2);
        draw(&t, NORMALS, 0.2, 0, b);
        t.x[1][1234] = BAD[b];
        taciti_sketch_index(t.x[1], t.s.n, t.own);
        taciti_sketch_merge(t.index, t.own, t.s.n);
        t.s = taciti_sketch_init(t.s.n, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), 2, 0);
        encode(&t);
        assert_int_equal(decode(&t, NULL), TACIT_OK);
        assert_true(t.left > 0 || !isfinite(t.out[1234]));
        close_trial(&t);
    }
}

/* ---- what is forged ---------------------------------------------------------------------------------------------- */

static void shapes_are_checked(void **state) {
    (void)state;
    const taciti_sketch good = taciti_sketch_init(1000, 30, 2, 0), old = taciti_sketch_init_compat(5000, 1024, 3, 2);
    assert_int_equal(taciti_sketch_check(&good), TACIT_OK);
    assert_int_equal(taciti_sketch_check(&old), TACIT_OK);
#define REFUSED(from, change)                                                                                          \
    do {                                                                                                               \
        taciti_sketch s = from;                                                                                        \
        s.change;                                                                                                      \
        assert_int_equal(taciti_sketch_check(&s), TACIT_E_USAGE);                                                      \
    } while (0)
    REFUSED(good, rows = 0);
    REFUSED(good, rows = 2); /* three different rows */
    REFUSED(good, rows = SIZE_MAX);
    REFUSED(good, rows = (size_t)1 << 29);
    REFUSED(good, zones = 0);
    REFUSED(good, zones = 11);
    REFUSED(good, zones = 17); /* more than words of the index */
    REFUSED(good, n = (size_t)1 << 32);
    REFUSED(good, unit = 32);
    REFUSED(good, compat = true); /* but not the numbers */
    REFUSED(good, numbers.ring = TACITI_RINGS);
    REFUSED(good, numbers.ring = TACITI_RING_U16); /* without a bound */
    REFUSED(old, unit = 8);
    REFUSED(old, unit = 24);
    REFUSED(old, unit = 2048);
    REFUSED(old, zones = 2);
    REFUSED(old, rows = (size_t)1 << 23);
}

/* The index says more, less or something else than the sketch holds. Integers: exact, pending or refused. */
static void forged_indexes_give_no_wrong_value(void **state) {
    int refused = 0, exact = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        trial t;
        open_trial(&t, 2000, 2);
        draw(&t, INTEGERS, 0.2, 1000, seed);
        choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), TACITI_RING_U32, seed);
        encode(&t);
        for (uint64_t flips = 0; flips <= seed % 4; flips++) {
            const size_t i = taciti_rng_below(seed, flips, t.s.n);
            t.index[i / 64] ^= UINT64_C(1) << (i % 64);
        }
        const tacit_status status = decode(&t, NULL);
        refused += status == TACIT_E_DATA;
        if (status == TACIT_OK) {
            if (t.left == 0)
                for (size_t i = 0; i < t.s.n; i++) assert_true(t.out[i] == t.sum[i]);
            exact += t.left == 0;
        } else {
            assert_int_equal(status, TACIT_E_DATA);
        }
        close_trial(&t);
    }
    assert_true(refused > 50 && exact > 50);
}

static void lost_floats_are_noticed(void **state) {
    trial t;
    (void)state;
    open_trial(&t, 2000, 1);
    draw(&t, NORMALS, 0.3, 0, 1);
    choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), TACITI_RING_F32, 1);
    for (size_t i = 0; i < t.s.n; i++) {
        if (fabsf(t.x[0][i]) < 0.1f) continue;
        encode(&t);
        t.index[i / 64] ^= UINT64_C(1) << (i % 64);
        assert_int_equal(decode(&t, NULL), TACIT_E_DATA);
        t.index[i / 64] ^= UINT64_C(1) << (i % 64);
    }
    close_trial(&t);
}

static void bits_behind_the_end_are_refused(void **state) {
    trial t;
    (void)state;
    open_trial(&t, 100, 1);
    draw(&t, INTEGERS, 0.3, 10, 0);
    choose(&t, 30, TACITI_RING_U32, 0);
    encode(&t);
    t.index[1] |= UINT64_C(1) << 36;
    assert_int_equal(decode(&t, NULL), TACIT_E_DATA);
    assert_int_equal(taciti_sketch_pack(&t.s, t.index, t.x[0], t.values), TACIT_E_DATA);
    assert_int_equal(taciti_sketch_unpack(&t.s, t.index, t.values, t.out), TACIT_E_DATA);
    close_trial(&t);
}

static void wrong_fallback_values_are_refused(void **state) {
    trial t;
    (void)state;
    open_trial(&t, 5000, 1);
    draw(&t, INTEGERS, 0.5, 1000, 0);
    choose(&t, union_rows(&t, 1.2), TACITI_RING_U32, 0);
    encode(&t);
    assert_int_equal(decode(&t, NULL), TACIT_OK);
    taciti_sketch_pending(&t.s, t.workspace, t.pending);
    assert_int_equal(taciti_sketch_pack(&t.s, t.pending, t.x[0], t.values), TACIT_OK);
    ((uint32_t *)t.values)[3] += 1;
    assert_int_equal(taciti_sketch_insert(&t.s, t.pending, t.values, t.counters, t.workspace, t.out), TACIT_E_DATA);
    close_trial(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(murmur_has_its_known_answers),
        cmocka_unit_test(lhc_blocks_have_coinciding_rows),
        cmocka_unit_test(worked_example),
        cmocka_unit_test(sketches_add_up),
        cmocka_unit_test(integers_decode_exactly),
        cmocka_unit_test(one_zone_decodes_up_to_load_081),
        cmocka_unit_test(zones_decode_at_their_size),
        cmocka_unit_test(floats_decode_up_to_rounding),
        cmocka_unit_test(failures_follow_the_load),
        cmocka_unit_test(beyond_the_threshold_most_is_pending),
        cmocka_unit_test(rows_suffice_at_any_size),
        cmocka_unit_test(index_marks_what_is_not_zero),
        cmocka_unit_test(unions_of_independent_ranks_grow),
        cmocka_unit_test(threads_and_sets_give_the_same_bytes),
        cmocka_unit_test(shards_decode_at_every_remainder),
        cmocka_unit_test(bytes_are_those_of_the_formulas),
        cmocka_unit_test(overfull_sketches_fall_back_to_exact_sums),
        cmocka_unit_test(packed_values_are_the_same_sums),
        cmocka_unit_test_setup_teardown(rings_cannot_overflow, quiet, loud),
        cmocka_unit_test_setup_teardown(integers_refuse_what_does_not_fit, quiet, loud),
        cmocka_unit_test(floats_that_are_not_finite_travel),
        cmocka_unit_test_setup_teardown(shapes_are_checked, quiet, loud),
        cmocka_unit_test_setup_teardown(forged_indexes_give_no_wrong_value, quiet, loud),
        cmocka_unit_test_setup_teardown(lost_floats_are_noticed, quiet, loud),
        cmocka_unit_test_setup_teardown(bits_behind_the_end_are_refused, quiet, loud),
        cmocka_unit_test_setup_teardown(wrong_fallback_values_are_refused, quiet, loud),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
