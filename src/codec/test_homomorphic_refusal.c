/* SPDX-License-Identifier: Apache-2.0
 *
 * What homomorphic sketches refuse: what is forged is refused, decoded exactly or pending.
 */
#include "codec/test_homomorphic.h"

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
        choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), 0);
        encode(&t);
        assert_int_equal(decode(&t), TACIT_OK);
        assert_true(t.left > 0 || !isfinite(t.out[1234]));
        close_trial(&t);
    }
}

/* ---- what is forged ---------------------------------------------------------------------------------------------- */

/* The index says more, less or something else than the sketch holds. Integers of which none is a rounding error of
 * others: exact, pending or refused. */
static void forged_indexes_give_no_wrong_value(void **state) {
    int refused = 0, exact = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        trial t;
        open_trial(&t, 2000, 2);
        draw(&t, INTEGERS, 0.2, 100, seed);
        choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), seed);
        encode(&t);
        for (uint64_t flips = 0; flips <= seed % 4; flips++) {
            const size_t i = taciti_rng_below(seed, flips, t.s.n);
            t.index[i / 64] ^= UINT64_C(1) << (i % 64);
        }
        const tacit_status status = decode(&t);
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
    choose(&t, taciti_sketch_rows(taciti_sketch_measure(t.index, t.s.n)), 1);
    for (size_t i = 0; i < t.s.n; i++) {
        if (fabsf(t.x[0][i]) < 0.1f) continue;
        encode(&t);
        t.index[i / 64] ^= UINT64_C(1) << (i % 64);
        assert_int_equal(decode(&t), TACIT_E_DATA);
        t.index[i / 64] ^= UINT64_C(1) << (i % 64);
    }
    close_trial(&t);
}

static void bits_behind_the_end_are_refused(void **state) {
    trial t;
    (void)state;
    open_trial(&t, 100, 1);
    draw(&t, INTEGERS, 0.3, 10, 0);
    choose(&t, 30, 0);
    encode(&t);
    t.index[1] |= UINT64_C(1) << 36;
    assert_int_equal(decode(&t), TACIT_E_DATA);
    assert_int_equal(taciti_sketch_pack(&t.s, t.index, t.x[0], t.values), TACIT_E_DATA);
    assert_int_equal(taciti_sketch_unpack(&t.s, t.index, t.values, t.out), TACIT_E_DATA);
    close_trial(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_that_are_not_finite_travel),
        cmocka_unit_test_setup_teardown(forged_indexes_give_no_wrong_value, quiet, loud),
        cmocka_unit_test_setup_teardown(lost_floats_are_noticed, quiet, loud),
        cmocka_unit_test_setup_teardown(bits_behind_the_end_are_refused, quiet, loud),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
