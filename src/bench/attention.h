/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures causal attention, forward and backward, against the multiply-add peak of one core. Probe and kernel
 * alternate; the result is the ratio within each round.
 */
#ifndef TACITI_BENCH_ATTENTION_H
#define TACITI_BENCH_ATTENTION_H

#include <stddef.h>

#include "bench/statistics.h"
#include "tacit/tacit.h"

/* Index 0: forward; 1: backward. */
typedef struct taciti_attention_figure {
    size_t time, head_size;
    taciti_statistics flops[2]; /* of the causal half alone: 4 or 10 times head_size time (time + 1) / 2 per head */
    taciti_statistics share[2]; /* of the peak in the same rounds */
} taciti_attention_figure;

enum { TACITI_BENCH_ATTENTIONS = 5 };

/* 1 <= rounds <= TACITI_BENCH_MAX_ROUNDS. Not collective, main thread. */
tacit_status taciti_attention_bench_run(int rounds, taciti_attention_figure out[TACITI_BENCH_ATTENTIONS]);

#endif
