/* SPDX-License-Identifier: Apache-2.0
 *
 * How often homomorphic sketches fail to decode, over their load.
 */
#include "codec/test_homomorphic.h"

/* ---- failures over load (T5, T6) --------------------------------------------------------------------------------- */

/* Every lane has units of its own, so it is a trial of its own. Returns the share of trials that succeed. */
static double success(size_t m, double load, int decodes) {
    const size_t k = (size_t)(load * (double)m + 0.5), units = 16 * k;
    int good = 0;
    trial t;
    open_trial(&t, 16 * units, 1);
    for (size_t u = 0; u < units; u++) t.x[0][16 * u + u / k] = 1;
    taciti_sketch_index(t.x[0], t.s.n, t.index);
    for (int d = 0; d < decodes; d++) {
        choose(&t, m, (uint64_t)d + 1);
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
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

/* Theirs, and ours. */
static void expect(double got, double p, double trials, size_t m, double load) {
    if (fabs(got - p) > 0.03 + 3 * sqrt(p * (1 - p) / trials))
        fail_msg("m %zu load %.2f: %.3f, not %.3f", m, load, got, p);
}

static void failures_follow_the_load(void **state) {
    (void)state;
    expect(success(576, 0.74, 60), .998, 960, 576, 0.74);
    expect(success(576, 0.78, 60), .891, 960, 576, 0.78);
}

/* Where success falls from 1 to 0 between two hundredths. All lanes are elements of the same units, so a decode is one
 * trial; at 0.82, where 7 % succeed, none is made. */
static void large_sketches_have_a_sharp_threshold(void **state) {
    enum { M = 131072 };
    static const double LOADS[] = {0.60, 0.70, 0.78, 0.80, 0.84};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        trial t;
        open_trial(&t, 16 * (size_t)(LOADS[i] * M), 1);
        for (size_t u = 0; 16 * u < t.s.n; u++) t.x[0][16 * u + 3] = (float)(u % 1000 + 1);
        taciti_sketch_index(t.x[0], t.s.n, t.index);
        choose(&t, M, 0);
        t.s.zones = 1;
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
        assert_true((t.left == 0) == (LOADS[i] < 0.82));
        close_trial(&t);
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
        choose(&t, ROWS, i);
        t.s.zones = 1;
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
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
                choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), seed);
                encode(&t);
                assert_int_equal(decode(&t), TACIT_OK);
                assert_right(&t);
                failed += t.left > 0;
            }
            close_trial(&t);
        }
    if (failed * 100 > 3 * all) fail_msg("%d of %d sketches were not decoded", failed, all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_follow_the_load),
        cmocka_unit_test(large_sketches_have_a_sharp_threshold),
        cmocka_unit_test(beyond_the_threshold_most_is_pending),
        cmocka_unit_test(rows_suffice_at_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
