/* SPDX-License-Identifier: Apache-2.0
 *
 * Homomorphic sketches step by step: counts and rounds of peeling (T1, T3), and other ways to the same sums (T19).
 */
#include "codec/test_homomorphic.h"

/* ---- peeling by hand --------------------------------------------------------------------------------------------- */

typedef struct peeling {
    taciti_sketch_peeling p;
    size_t rows;
} peeling;

static peeling open_peeling(size_t lines, size_t rows, size_t n) {
    return (peeling){{.lines = memory(lines * sizeof(taciti_sketch_line)),
                      .pending = memory(lines * sizeof(uint16_t)),
                      .count = lines,
                      .counters = memory(rows * 16 * sizeof(float)),
                      .counts = memory(rows * 16),
                      .x = memory(n * sizeof(float))},
                     rows};
}

static void close_peeling(peeling *a) {
    taciti_free(a->p.lines);
    taciti_free(a->p.pending);
    taciti_free(a->p.counters);
    taciti_free(a->p.counts);
    taciti_free(a->p.x);
}

static void add_up(peeling *a, const trial *t) {
    const taciti_kernels *k = taciti_kernels_get();
    for (int r = 0; r < t->ranks; r++) k->sketch_add(a->p.counters, a->p.lines, a->p.count, t->x[r]);
    k->sketch_count(a->p.counts, a->p.pending, a->p.lines, a->p.count, t->index);
}

static void lane_0_is(const peeling *a, const float *y, const int *c) {
    for (size_t row = 0; row < a->rows; row++) {
        assert_true(a->p.counters[16 * row] == y[row]);
        assert_int_equal(a->p.counts[16 * row], c[row]);
    }
}

/* T1: the second round needs what the first has removed. Lane 0 of lines 0, 2, 3, 5. */
static void the_worked_example_takes_two_rounds(void **state) {
    enum { LINES = 6, ROWS = 8 };
    static const uint32_t OF_LINES[LINES][3] = {{0, 1, 4}, {2, 3, 5}, {1, 6, 7}, {3, 4, 6}, {0, 2, 5}, {0, 4, 6}};
    (void)state;
    for (size_t set = 0; set < 3; set++) {
        if (!taciti_kernels_switch(SETS[set])) continue;
        const taciti_kernels *k = taciti_kernels_get();
        peeling a = open_peeling(LINES, ROWS, 16 * LINES);
        trial t;
        open_trial(&t, 16 * LINES, 2);
        t.x[0][0] = 5, t.x[0][2 * 16] = -7, t.x[0][5 * 16] = 11;
        t.x[1][0] = -5, t.x[1][3 * 16] = 9, t.x[1][5 * 16] = 1;
        for (int r = 0; r < 2; r++) {
            taciti_sketch_index(t.x[r], t.s.n, t.own);
            taciti_sketch_merge(t.index, t.own, t.s.n);
        }
        for (uint32_t b = 0; b < LINES; b++) {
            a.p.lines[b].at = b;
            memcpy(a.p.lines[b].row, OF_LINES[b], sizeof OF_LINES[b]);
        }
        add_up(&a, &t);
        lane_0_is(&a, (const float[]){12, -7, 0, 9, 21, 0, 14, -7}, (const int[]){2, 2, 0, 1, 3, 0, 3, 1});
        assert_int_equal(k->sketch_sweep(&a.p), 2);
        assert_true(a.p.x[2 * 16] == -7 && a.p.x[3 * 16] == 9 && a.p.x[5 * 16] == 0);
        lane_0_is(&a, (const float[]){12, 0, 0, 0, 12, 0, 12, 0}, (const int[]){2, 1, 0, 0, 2, 0, 1, 0});
        assert_int_equal(k->sketch_sweep(&a.p), 2);
        assert_true(a.p.x[0] == 0 && a.p.x[5 * 16] == 12);
        lane_0_is(&a, (const float[8]){0}, (const int[8]){0});
        assert_int_equal(k->sketch_sweep(&a.p), 0);
        close_trial(&t);
        close_peeling(&a);
    }
    (void)taciti_kernels_switch(NULL);
}

/* T3. A round here uses at once what earlier blocks of 128 lines have decoded, so there are fewer: half as many or
 * more.
 */
static void rounds_grow_towards_the_threshold(void **state) {
    static const struct {
        double load;
        int rounds;
    } ROUNDS[] = {{.70, 8}, {.75, 11}, {.78, 14}, {.80, 25}, {.81, 61}};
    enum { N = 1179648 };
    trial t;
    (void)state;
    open_trial(&t, N, 2);
    draw(&t, INTEGERS, 0.2, 1000, 1);
    for (size_t i = 0; i < 5; i++) {
        const size_t rows = (size_t)ceil((double)taciti_sketch_measure(t.index, N) / (ROUNDS[i].load * 16));
        const taciti_sketch_zone zone = {.key = 77, .rows = (uint32_t)rows, .zones = 1};
        peeling a = open_peeling(N / 16, rows, N);
        int rounds = 0;
        taciti_kernels_get()->sketch_lines(a.p.lines, &zone, 0, N / 16);
        add_up(&a, &t);
        while (taciti_kernels_get()->sketch_sweep(&a.p) > 0) rounds++;
        assert_int_equal(a.p.count, 0);
        assert_in_range(rounds, (ROUNDS[i].rounds + 1) / 2, ROUNDS[i].rounds);
        assert_memory_equal(a.p.x, t.sum, N * sizeof(float));
        close_peeling(&a);
    }
    close_trial(&t);
}

/* ---- the same sums (T19) ----------------------------------------------------------------------------------------- */

enum { MODEL = 3001, MEMBERS = 5, STEPS = 100 };

/* Every rank sends its own index and its own packed values to the owner, who adds them where they belong. */
static void sparse_sum(trial *t, float *out) {
    memset(out, 0, MODEL * sizeof *out);
    for (int r = 0; r < MEMBERS; r++) {
        size_t k = 0;
        taciti_sketch_index(t->x[r], MODEL, t->own);
        assert_int_equal(taciti_sketch_pack(&t->s, t->own, t->x[r], t->values), TACIT_OK);
        for (size_t i = 0; i < MODEL; i++)
            if (t->own[i / 64] >> (i % 64) & 1u) out[i] += t->values[k++];
    }
}

static void packed_sum(trial *t, float *out) {
    sum_packed(t, t->index);
    assert_int_equal(taciti_sketch_unpack(&t->s, t->index, t->values, out), TACIT_OK);
}

static void sketched_sum(trial *t, float *out) {
    encode(t);
    assert_int_equal(decode(t), TACIT_OK);
    taciti_sketch_pending(&t->s, t->workspace, t->pending);
    fetch_pending(t);
    memcpy(out, t->out, MODEL * sizeof *out);
}

/* 100 steps of small integers, whose sums are exact: parameters have the same bytes, whichever way the sums came. */
static void all_ways_to_a_sum_train_alike(void **state) {
    static float parameters[4][MODEL], sum[MODEL];
    trial t;
    (void)state;
    open_trial(&t, MODEL, MEMBERS);
    for (uint64_t step = 0; step < STEPS; step++) {
        draw(&t, INTEGERS, 0.1, 1000, step);
        choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, MODEL)), step);
        for (int way = 0; way < 4; way++) {
            if (way == 0) memcpy(sum, t.sum, sizeof sum);
            if (way == 1) sparse_sum(&t, sum);
            if (way == 2) packed_sum(&t, sum);
            if (way == 3) sketched_sum(&t, sum);
            for (size_t i = 0; i < MODEL; i++) parameters[way][i] -= 0.01f * sum[i];
        }
    }
    for (int way = 1; way < 4; way++) assert_memory_equal(parameters[way], parameters[0], sizeof *parameters);
    close_trial(&t);
}

/* ---- counts that are too large ----------------------------------------------------------------------------------- */

/* 341 elements in each of three counters: their counts stop at 255, where a count modulo 256 would come to 0. Then the
 * rounding errors of numbers that cancel would be taken for elements that the index lacks. */
static void what_is_not_counted_is_not_checked(void **state) {
    enum { UNITS = 341, FIRST = 1, LAST = 170 };
    trial t;
    (void)state;
    open_trial(&t, 16 * UNITS, 1);
    for (uint32_t u = 0; u < UNITS; u++) t.x[0][16 * u] = 1;
    t.x[0][16 * FIRST] = 0x1p30f;
    t.x[0][16 * LAST] = -0x1p30f;
    memcpy(t.sum, t.x[0], t.s.n * sizeof(float));
    taciti_sketch_index(t.x[0], t.s.n, t.index);
    choose(&t, 3, 0);
    encode(&t);
    assert_int_equal(decode(&t), TACIT_OK);
    assert_right(&t);
    assert_int_equal(t.left, UNITS);
    fetch_pending(&t);
    assert_memory_equal(t.out, t.sum, t.s.n * sizeof(float));
    close_trial(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_example_takes_two_rounds),
        cmocka_unit_test(rounds_grow_towards_the_threshold),
        cmocka_unit_test(all_ways_to_a_sum_train_alike),
        cmocka_unit_test(what_is_not_counted_is_not_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
