/* SPDX-License-Identifier: Apache-2.0
 *
 * What homomorphic sketches refuse: what is forged is refused, decoded exactly or pending.
 */
#include "codec/test_homomorphic.h"

/* ---- rings ------------------------------------------------------------------------------------------------------- */

static void rings_cannot_overflow(void **state) {
    (void)state;
    taciti_sketch s = taciti_sketch_init(1000, 100, 8, 0);
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U32, 0x0fffffff), TACIT_OK);
    assert_true(s.numbers.max == 0x1.fffffep27f && s.numbers.scale == 1); /* the largest float below 2^31 / 8 */
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U32, 0x1p28), TACIT_OK);
    assert_true(s.numbers.scale == 0.5f);
    for (int ranks = 1; ranks <= 9; ranks++)
        for (int ring = TACITI_RING_U32; ring < TACITI_RINGS; ring++)
            for (int e = -149; e < 128; e++)
                for (int step = 0; step < 2; step++) {
                    const double max = ldexp(step ? 1.999 : 1, e), limit = 0x1p31;
                    s.ranks = ranks;
                    assert_int_equal(taciti_sketch_set_ring(&s, (taciti_ring)ring, max), TACIT_OK);
                    assert_int_equal(taciti_sketch_check(&s), TACIT_OK);
                    const double q = max * (double)s.numbers.scale;
                    assert_true(q <= limit / ranks && ceil((double)s.numbers.max) * ranks < limit);
                    assert_true(2 * q > limit / ranks - 1 || s.numbers.scale == 0x1p126f); /* no bit is wasted */
                }
    s.numbers.max = 0x1p31f / 9; /* times 9 ranks, rounded up: too large by one rounding */
    assert_int_equal(taciti_sketch_check(&s), TACIT_E_USAGE);
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U32, (double)INFINITY), TACIT_E_NUMERICS);
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U32, (double)NAN), TACIT_E_NUMERICS);
    s.ranks = 0;
    assert_int_equal(taciti_sketch_set_ring(&s, TACITI_RING_U32, 1), TACIT_E_USAGE);
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
    const taciti_sketch good = taciti_sketch_init(1000, 30, 2, 0);
    assert_int_equal(taciti_sketch_check(&good), TACIT_OK);
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
    REFUSED(good, numbers.ring = TACITI_RINGS);
    REFUSED(good, numbers.ring = TACITI_RING_U32); /* without a bound */
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
