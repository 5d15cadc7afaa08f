/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that hold parts: against dp, which holds everything.
 */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "strategy/test_sharding.h"

/* ---- laws -------------------------------------------------------------------------------------------------------- */

static void every_stage_is_dp_bit_for_bit(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++)
        for (size_t passes = 1; passes <= 2; passes++) {
            trial dp = trial_of(RANKS[i], 0);
            dp.passes = passes;
            play(&dp);
            for (int stage = 1; stage <= 3; stage++)
                for (int kind = 0; kind < 8; kind++) {
                    trial t = trial_of(RANKS[i], stage);
                    t.passes = passes;
                    t.blocking = kind % 2 == 1;
                    t.evaluates = kind / 2 % 2 == 1;
                    t.no_thread = kind == 4;
                    t.whole = kind >= 6;
                    agrees(&t, &dp);
                }
            forget(&dp);
        }
}

static void every_optimizer_is_updated_in_parts(void **state) {
    (void)state;
    static const int NAMES[] = {TACITI_OPTIM_SGD, TACITI_OPTIM_ADAM, TACITI_OPTIM_ACCUM_ADAMW, TACITI_OPTIM_ACCUM_ADAM};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        trial dp = trial_of(3, 0);
        dp.optim.name = NAMES[i];
        dp.optim.accum = 3;
        dp.optim.momentum = 0.9;
        play(&dp);
        trial t = trial_of(3, 3);
        t.optim = dp.optim;
        agrees(&t, &dp);
        forget(&dp);
    }
}

/* The squares are added in another order. */
static void clipping_is_that_of_dp_up_to_rounding(void **state) {
    (void)state;
    for (int i = 0; i < RANK_COUNT; i++) {
        trial dp = trial_of(RANKS[i], 0);
        dp.optim.clip = 0.5;
        play(&dp);
        for (int stage = 1; stage <= 3; stage++) {
            trial t = trial_of(RANKS[i], stage);
            t.optim = dp.optim;
            play(&t);
            for (int r = 0; r < t.ranks; r++) {
                assert_memory_equal(t.parameters[r], t.parameters[0], t.n * sizeof(float));
                for (int s = 0; s < STEPS; s++) assert_true(t.reports[r][s].grad_norm > dp.optim.clip);
            }
            for (size_t k = 0; k < t.n; k++) assert_true(fabsf(t.parameters[0][k] - dp.parameters[0][k]) <= 1e-5F);
            forget(&t);
        }
        forget(&dp);
    }
}

static void a_bad_gradient_anywhere_makes_all_skip(void **state) {
    (void)state;
    static const float BAD[] = {NAN, INFINITY};
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int bad_rank = 0; bad_rank < ranks; bad_rank++) {
            trial dp = trial_of(ranks, 0);
            dp.bad = BAD[bad_rank % 2];
            dp.bad_rank = bad_rank;
            play(&dp);
            for (int s = 0; s < STEPS; s++) assert_true(dp.reports[0][s].skipped == (s == BAD_STEP));
            for (int stage = 1; stage <= 3; stage++) {
                trial t = trial_of(ranks, stage);
                t.bad = dp.bad;
                t.bad_rank = bad_rank;
                agrees(&t, &dp);
            }
            forget(&dp);
        }
}

/* Gradients on a 16-bit wire are rounded once, then added in f32: the ranks agree, whatever the stage. */
static void stages_agree_on_every_wire_and_gather(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks += 3)
        for (int kind = 1; kind < 4; kind++) {
            trial first = trial_of(ranks, 1);
            first.wire = kind & 1;
            first.gather = kind >> 1;
            play(&first);
            for (int stage = 1; stage <= 3; stage++) {
                trial t = trial_of(ranks, stage);
                t.wire = first.wire;
                t.gather = first.gather;
                t.blocking = stage == 1;
                agrees(&t, &first);
            }
            forget(&first);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_stage_is_dp_bit_for_bit),
        cmocka_unit_test(every_optimizer_is_updated_in_parts),
        cmocka_unit_test(clipping_is_that_of_dp_up_to_rounding),
        cmocka_unit_test(a_bad_gradient_anywhere_makes_all_skip),
        cmocka_unit_test(stages_agree_on_every_wire_and_gather),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
