/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/length.h"

static size_t whole_periods(size_t steps, size_t period) { return (steps + period - 1) / period * period; }

double taciti_bench_length_seconds(const taciti_bench_length *length, double step_sum_s) {
    return step_sum_s * (double)(length->rounds + length->warm_up) * (double)length->blocks;
}

void taciti_bench_length_choose(taciti_bench_length *length, double step_sum_s) {
    const double per_block = TACITI_LENGTH_AUTO_SECONDS / step_sum_s / (double)length->blocks;
    if (per_block < TACITI_LENGTH_AUTO_MIN + (double)length->warm_up && !length->keep_warm_up) length->warm_up = 1;
    length->rounds = TACITI_LENGTH_AUTO_MIN;
    while (length->rounds < TACITI_LENGTH_AUTO_MAX && (double)(length->rounds + length->warm_up) < per_block)
        length->rounds++;
}

bool taciti_bench_length_round_up(taciti_bench_length *length, size_t period) {
    const taciti_bench_length before = *length;
    length->rounds = whole_periods(before.rounds, period);
    length->warm_up = whole_periods(before.warm_up, period);
    return length->rounds != before.rounds || length->warm_up != before.warm_up;
}
