/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>

#include "bench/length.h"

static const size_t PERIODS[] = {1, 2, 4, 5, 12, 60};
enum { PERIOD_COUNT = sizeof PERIODS / sizeof *PERIODS };

static void seconds_are_steps_times_their_time(void **state) {
    (void)state;
    const taciti_bench_length length = {.blocks = 3, .rounds = 60, .warm_up = 60};
    assert_true(taciti_bench_length_seconds(&length, 5.0) == 3 * 120 * 5.0);
}

static void rounding_up_makes_whole_periods_and_no_more(void **state) {
    (void)state;
    for (size_t p = 0; p < PERIOD_COUNT; p++)
        for (size_t rounds = 1; rounds <= 70; rounds++) {
            taciti_bench_length length = {.blocks = 2, .rounds = rounds, .warm_up = rounds - 1};
            const size_t period = PERIODS[p];
            const bool changed = taciti_bench_length_round_up(&length, period);
            assert_true(length.rounds % period == 0 && length.warm_up % period == 0);
            assert_true(length.rounds >= rounds && length.rounds < rounds + period);
            assert_true(length.warm_up + 1 >= rounds && length.warm_up + 1 < rounds + period);
            assert_true(changed == (length.rounds != rounds || length.warm_up + 1 != rounds));
            assert_int_equal(length.blocks, 2);
        }
}

static void what_is_chosen_lasts_about_a_minute(void **state) {
    (void)state;
    for (double step_sum_s = 1e-4; step_sum_s < 100; step_sum_s *= 1.7) {
        taciti_bench_length length = {.blocks = 3, .warm_up = 3};
        taciti_bench_length_choose(&length, step_sum_s);
        const double seconds = taciti_bench_length_seconds(&length, step_sum_s);
        assert_in_range(length.rounds, TACITI_LENGTH_AUTO_MIN, TACITI_LENGTH_AUTO_MAX);
        if (length.rounds < TACITI_LENGTH_AUTO_MAX) assert_true(seconds >= TACITI_LENGTH_AUTO_SECONDS);
        if (length.rounds > TACITI_LENGTH_AUTO_MIN) assert_true(seconds - 3 * step_sum_s < TACITI_LENGTH_AUTO_SECONDS);
        assert_true(length.warm_up == 3 || (length.warm_up == 1 && 3 * 6 * step_sum_s > TACITI_LENGTH_AUTO_SECONDS));
    }
    taciti_bench_length kept = {.blocks = 3, .warm_up = 3, .keep_warm_up = true};
    taciti_bench_length_choose(&kept, 100);
    assert_int_equal(kept.warm_up, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seconds_are_steps_times_their_time),
        cmocka_unit_test(rounding_up_makes_whole_periods_and_no_more),
        cmocka_unit_test(what_is_chosen_lasts_about_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
