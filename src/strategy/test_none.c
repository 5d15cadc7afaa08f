/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "strategy/test_replicas.h"

static const int RANKS[] = {1, 2, 3, 5, 7};
enum { RANK_COUNT = sizeof RANKS / sizeof *RANKS };

static test_replicas alone(int ranks, int steps) {
    test_replicas t = test_replicas_of_adam(ranks, steps, "complete");
    t.strategy = "none";
    t.optim.clip = 0;
    return t;
}

/* Both add up squares in another order, so they are compared without clipping. */
static void a_replica_is_that_of_gossip_without_mixing(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++) {
        test_replicas none = alone(RANKS[i], 8), gossip = alone(RANKS[i], 8);
        gossip.strategy = "gossip";
        gossip.gossip.order = TACITI_GOSSIP_ATC;
        gossip.gossip.gamma = 0;
        assert_true(test_replicas_agree(&none, &gossip));
    }
}

static void one_rank_is_dp(void **state) {
    (void)state;
    test_replicas none = alone(1, 8), dp = alone(1, 8);
    none.optim.clip = dp.optim.clip = 0.1;
    dp.strategy = "dp";
    assert_true(test_replicas_agree(&none, &dp));
}

static void steps_send_nothing(void **state) {
    (void)state;
    test_replicas t = alone(5, 4);
    t.check_bytes = true;
    test_replicas_run(&t);
    for (int r = 0; r < 5; r++)
        for (int s = 0; s < 4; s++) assert_true(!t.reports[r][s].skipped && t.reports[r][s].bytes == 0);
    test_replicas_free(&t);
}

static void a_run_goes_on_to_the_bit(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++) {
        test_replicas straight = alone(RANKS[i], 7), stopped = alone(RANKS[i], 7);
        straight.optim.clip = stopped.optim.clip = 0.1;
        stopped.stop_after = 4;
        assert_true(test_replicas_agree(&straight, &stopped));
    }
}

/* f_i(x) = |x - i|^2 / 2: replicas reach i, so their mean is (N - 1) / 2, and what lies between is known. */
static void the_mean_is_that_of_replicas_apart(void **state) {
    (void)state;
    static const double C[] = {0, 1, 2, 3, 4, 5, 6};
    for (int i = 0; i < RANK_COUNT; i++) {
        const int ranks = RANKS[i];
        test_replicas t = test_replicas_of(ranks, 3);
        double spread = 0;
        t.strategy = "none";
        t.problem = TEST_QUADRATIC;
        t.c = C;
        t.lr = 1; /* one step leads to c_i */
        t.average_at = 2;
        test_replicas_run(&t);
        for (int r = 0; r < ranks; r++) spread += pow(r - (ranks - 1) / 2.0, 2);
        const double floats = 700 + 17 + 351, expected = sqrt(floats * spread / ranks);
        for (int r = 0; r < ranks; r++) {
            assert_memory_equal(t.averages[r], t.averages[0], t.n * sizeof(float));
            assert_true(fabs((double)t.averages[r][0] - (ranks - 1) / 2.0) <= 1e-5);
            assert_true(fabs(t.distance[r] - expected) <= 1e-6 * expected);
            assert_true(fabs((double)t.parameters[r][0] - r) <= 1e-5);
        }
        test_replicas_free(&t);
    }
}

/* Nobody waits for the rank whose gradient is not finite, and it alone skips. */
static void a_bad_gradient_is_one_rank_s_alone(void **state) {
    (void)state;
    test_replicas t = alone(3, 4);
    t.bad_rank = t.bad_step = 1;
    test_replicas_run(&t);
    for (int r = 0; r < 3; r++)
        for (int s = 0; s < 4; s++) assert_int_equal(t.reports[r][s].skipped, r == 1 && s == 1);
    test_replicas_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_is_that_of_gossip_without_mixing),
        cmocka_unit_test(one_rank_is_dp),
        cmocka_unit_test(steps_send_nothing),
        cmocka_unit_test(a_run_goes_on_to_the_bit),
        cmocka_unit_test(the_mean_is_that_of_replicas_apart),
        cmocka_unit_test(a_bad_gradient_is_one_rank_s_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
