/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of homomorphic sketches. Every sum is compared with the sum of the arrays.
 */
#include "codec/test_homomorphic.h"

/* ---- sums (T2, T3, T4) ------------------------------------------------------------------------------------------- */

static void sketches_add_up(void **state) {
    static const int RANKS[] = {1, 2, 3, 5, 8};
    static const size_t ROWS[] = {3, 40, 500}; /* any load */
    (void)state;
    for (size_t i = 0; i < 5; i++)
        for (size_t rows = 0; rows < 3; rows++) {
            trial t;
            open_trial(&t, 5003, RANKS[i]);
            draw(&t, INTEGERS, 0.4, 1000, rows);
            choose(&t, ROWS[rows], rows);
            encode(&t);
            const size_t bytes = taciti_sketch_bytes(&t.s);
            memset(t.part, 0, bytes);
            taciti_sketch_add(&t.s, t.sum, t.part);
            assert_memory_equal(t.part, t.counters, bytes);
            close_trial(&t);
        }
}

static void sums_decode_exactly(void **state) {
    size_t failed = 0;
    trial t;
    (void)state;
    open_trial(&t, 200000, 2);
    for (uint64_t seed = 0; seed < 100; seed++) {
        draw(&t, INTEGERS, 0.2, 1000, seed);
        choose(&t, union_rows(&t, 0.75), seed);
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
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
        choose(&t, (size_t)ceil((double)taciti_sketch_measure(t.index, t.s.n) / (LOADS[i] * 16)), 0);
        t.s.zones = 1;
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
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
        choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), seed);
        assert_int_equal(t.s.zones, 4);
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
        assert_exact(&t);
    }
    close_trial(&t);
}

static void floats_decode_up_to_rounding(void **state) {
    trial t;
    (void)state;
    open_trial(&t, 1179648, 3);
    draw(&t, INTEGERS, 0.12, 1000, 3); /* partial sums below 2^24 are exact */
    choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), 1);
    encode(&t);
    assert_int_equal(decode(&t), TACIT_OK);
    assert_exact(&t);
    draw(&t, NORMALS, 0.12, 0, 4);
    choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), 1);
    encode(&t);
    assert_int_equal(decode(&t), TACIT_OK);
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
    } UNIONS[] = {{2, .36}, {4, .5904}, {8, .8322}, {16, .9719}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
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

/* By OR into every owner's part and then gathered; by OR in pairs, as an all-reduce; of all bitmaps, element by
 * element.
 */
static void any_way_to_merge_is_or(void **state) {
    enum { N = 4001, RANKS = 5 };
    const size_t words = taciti_sketch_index_words(N);
    trial t;
    uint64_t own[RANKS][64], parts[64] = {0}, pairs[RANKS][64];
    (void)state;
    open_trial(&t, N, RANKS);
    draw(&t, INTEGERS, 0.2, 10, 3);
    assert_true(words <= 64);
    for (int r = 0; r < RANKS; r++) taciti_sketch_index(t.x[r], N, own[r]);
    for (size_t owner = 0; owner < RANKS; owner++) {
        const size_t first = words * owner / RANKS, end = words * (owner + 1) / RANKS;
        for (int r = RANKS; r-- > 0;) taciti_sketch_merge(parts + first, own[r] + first, 64 * (end - first));
    }
    memcpy(pairs, own, sizeof pairs);
    for (int distance = 1; distance < RANKS; distance *= 2)
        for (int r = 0; r + distance < RANKS; r += 2 * distance) taciti_sketch_merge(pairs[r], pairs[r + distance], N);
    assert_memory_equal(parts, t.index, words * 8);
    assert_memory_equal(pairs[0], t.index, words * 8);
    for (size_t i = 0; i < N; i++) {
        bool any = false;
        for (int r = 0; r < RANKS; r++) any = any || t.x[r][i] != 0;
        assert_true(any == (t.index[i / 64] >> (i % 64) & 1u));
    }
    close_trial(&t);
}

/* ---- determinism (T9), shards (T10), bytes (T13), the exact fallback (T20) --------------------------------------- */

static void sets_give_the_same_bytes(void **state) {
    trial t;
    float *first = NULL;
    (void)state;
    open_trial(&t, 600003, 3);
    draw(&t, NORMALS, 0.2, 0, 5);
    for (size_t set = 0; set < 3; set++) {
        if (!taciti_kernels_switch(SETS[set])) continue;
        choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), 9);
        t.s.zones = 5;
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
        const size_t bytes = t.s.n * sizeof(float);
        if (first == NULL) {
            first = memory(bytes);
            memcpy(first, t.out, bytes);
        }
        assert_memory_equal(t.out, first, bytes);
        assert_true(t.left == 0);
    }
    taciti_free(first);
    (void)taciti_kernels_switch(NULL);
    close_trial(&t);
}

static void twenty_repeats_give_the_same_bytes(void **state) {
    enum { N = 60001, REPEATS = 20 };
    float *first = memory(N * sizeof(float));
    trial t;
    (void)state;
    open_trial(&t, N, 3);
    draw(&t, NORMALS, 0.2, 0, 5);
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, N)), 9);
        t.s.zones = 5;
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
        if (repeat == 0) memcpy(first, t.out, N * sizeof(float));
        assert_memory_equal(t.out, first, N * sizeof(float));
    }
    close_trial(&t);
    taciti_free(first);
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
            choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, share)), n);
            encode(&t);
            assert_int_equal(decode(&t), TACIT_OK);
            assert_right(&t);
            fetch_pending(&t);
            for (size_t i = 0; i < share; i++) assert_true(t.out[i] == t.sum[i]);
            close_trial(&t);
        }
}

static void bytes_are_those_of_the_formulas(void **state) {
    enum { N = 2359296, RANKS = 2, SHARE = N / RANKS };
    (void)state;
    const size_t dense = (RANKS - 1) * SHARE * sizeof(float), index = taciti_sketch_index_words(SHARE) * 8;
    taciti_sketch s = taciti_sketch_init(SHARE, taciti_sketch_rows_at(SHARE, 2), 0);
    assert_int_equal(dense, 4718592);
    assert_int_equal(2 * index, 294912); /* all-reduce: both halves */
    assert_int_equal(index, 147456);     /* reduce-scatter by OR */
    assert_int_equal(taciti_sketch_bytes(&s), 2359296);
    assert_int_equal(taciti_sketch_rows_at(SHARE, 2), 36864);
    assert_int_equal(taciti_sketch_rows_at(17, 1), 2);
    s = taciti_sketch_init(SHARE, taciti_sketch_rows(424673), 0);
    assert_int_equal(s.rows, 34029); /* ceil(424673 / (0.78 * 16)) */
    assert_int_equal(taciti_sketch_bytes(&s), 34029 * 16 * 4);
}

static void overfull_sketches_fall_back_to_exact_sums(void **state) {
    static const double LOADS[] = {0.83, 1.2, 3, 60, 1000};
    (void)state;
    for (size_t l = 0; l < 5; l++) {
        trial t;
        open_trial(&t, 70001, 3);
        draw(&t, INTEGERS, 0.2, 100, l);
        choose(&t, union_rows(&t, LOADS[l]) + 3, l);
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
        assert_right(&t);
        if (l > 0) assert_true(t.left > 0);
        fetch_pending(&t);
        for (size_t i = 0; i < t.s.n; i++) assert_true(t.out[i] == t.sum[i]);
        close_trial(&t);
    }
}

static void packed_values_are_the_same_sums(void **state) {
    (void)state;
    for (size_t set = 0; set < 3; set++) {
        if (!taciti_kernels_switch(SETS[set])) continue;
        for (size_t n = 0; n < 300; n += n < 70 ? 1 : 37) {
            trial t;
            open_trial(&t, n, 3);
            draw(&t, INTEGERS, 0.3, 1000, n);
            choose(&t, 20, 0);
            sum_packed(&t, t.index);
            memset(t.out, 0xa5, n * sizeof(float));
            assert_int_equal(taciti_sketch_unpack(&t.s, t.index, t.values, t.out), TACIT_OK);
            for (size_t i = 0; i < n; i++) assert_true(t.out[i] == t.sum[i]);
            close_trial(&t);
        }
    }
    (void)taciti_kernels_switch(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sketches_add_up),
        cmocka_unit_test(sums_decode_exactly),
        cmocka_unit_test(one_zone_decodes_up_to_load_081),
        cmocka_unit_test(zones_decode_at_their_size),
        cmocka_unit_test(floats_decode_up_to_rounding),
        cmocka_unit_test(index_marks_what_is_not_zero),
        cmocka_unit_test(unions_of_independent_ranks_grow),
        cmocka_unit_test(any_way_to_merge_is_or),
        cmocka_unit_test(sets_give_the_same_bytes),
        cmocka_unit_test(twenty_repeats_give_the_same_bytes),
        cmocka_unit_test(shards_decode_at_every_remainder),
        cmocka_unit_test(bytes_are_those_of_the_formulas),
        cmocka_unit_test(overfull_sketches_fall_back_to_exact_sums),
        cmocka_unit_test(packed_values_are_the_same_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
