/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures training steps (forward, backward, fused optimizer) on random tokens. Steps alternate with a probe of the
 * machine's arithmetic peak; because the speed of a machine drifts, the result is the ratio within each round.
 */
#ifndef TACITI_BENCH_LOCAL_STEP_H
#define TACITI_BENCH_LOCAL_STEP_H

#include "bench/statistics.h"
#include "model/model.h"

enum { TACITI_STEP_BENCH_MAX_ROUNDS = 1001 };

typedef struct taciti_step_bench_options {
    taciti_model_options model; /* resolved */
    size_t batch, time;
    int threads, rounds; /* rounds: measured ones, after two that are discarded */
} taciti_step_bench_options;

/* The figures of a round; taciti_step_figure_names has their names. */
enum {
    TACITI_STEP_WHOLE, /* seconds of the step and of its parts ... */
    TACITI_STEP_FORWARD,
    TACITI_STEP_BACKWARD,
    TACITI_STEP_UPDATE,
    TACITI_STEP_OPS, /* ... and by operation, where forward and backward spent their time */
    TACITI_STEP_TIMES = TACITI_STEP_OPS + TACITI_MODEL_OPS,
    TACITI_STEP_FLOPS = TACITI_STEP_TIMES, /* per second: of the step, ... */
    TACITI_STEP_PEAK,                      /* ... and of the probe in the same round */
    TACITI_STEP_RATIO,                     /* of the two */
    TACITI_STEP_BUSY, /* processor time of the process / (threads x seconds of the step): 1 on an idle machine */
    TACITI_STEP_FIGURES
};

extern const char *const taciti_step_figure_names[TACITI_STEP_FIGURES]; /* "step", ..., "flops_per_s", ... */

typedef struct taciti_step_bench {
    double flops_per_step; /* 6 N + 12 layers channels time, per token */
    taciti_statistics figures[TACITI_STEP_FIGURES];
    bool peak_is_bf16;            /* the probe's instruction; without bf16 units it is the f32 multiply-add */
    double first_loss, last_loss; /* nats per token */
    size_t parameters;
    size_t predicted_bytes,
        resident_bytes; /* memory: of model and optimizer as predicted; most that the process held */
} taciti_step_bench;

/* Not collective, main thread. Outputs are written only on success. */
tacit_status taciti_step_bench_run(const taciti_step_bench_options *options, taciti_step_bench *out);

#endif
