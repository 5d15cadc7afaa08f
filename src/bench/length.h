/* SPDX-License-Identifier: Apache-2.0
 *
 * The length of a comparison of settings: blocks, steps per block, and seconds. Arithmetic only.
 */
#ifndef TACITI_BENCH_LENGTH_H
#define TACITI_BENCH_LENGTH_H

#include <stdbool.h>
#include <stddef.h>

/* When the steps of a block are chosen here: as many as make the whole last about a minute, within bounds. */
enum { TACITI_LENGTH_AUTO_SECONDS = 60, TACITI_LENGTH_AUTO_MIN = 3, TACITI_LENGTH_AUTO_MAX = 20 };

typedef struct taciti_bench_length {
    size_t blocks;          /* per setting */
    size_t rounds, warm_up; /* steps of a block that count, and before them */
    bool keep_warm_up;      /* as the user gave it */
} taciti_bench_length;

/* Seconds of all blocks of all settings; step_sum_s: the sum over the settings of one step's time. */
double taciti_bench_length_seconds(const taciti_bench_length *length, double step_sum_s);

/* Chooses rounds, and a warm-up of one step where steps are long, for about a minute. */
void taciti_bench_length_choose(taciti_bench_length *length, double step_sum_s);

/* Rounds up rounds and warm-up to whole periods. Returns whether that changed them. */
bool taciti_bench_length_round_up(taciti_bench_length *length, size_t period);

#endif
