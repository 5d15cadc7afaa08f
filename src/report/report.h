/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run leaves behind to look at: metrics.jsonl, TensorBoard events, one Chrome trace of all ranks on one clock,
 * the console's live line. Files on rank 0 only; append-only files are cut back to the resumed step on --resume.
 */
#ifndef TACITI_REPORT_REPORT_H
#define TACITI_REPORT_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/trace.h"
#include "comm/comm.h"

/* One step, as rank 0 knows it. NaN means "not measured" and is left out of the JSON. */
typedef struct taciti_step_metrics {
    int64_t step;    /* 1-based: number of finished steps */
    double loss;     /* mean nats per token of the global batch */
    double val_loss; /* NaN but on evaluation steps */
    double lr, grad_norm;
    double tokens_per_s, step_s;
    double compute_s, encode_s, wait_s, update_s; /* split of step_s on rank 0; encode runs beside compute */
    uint64_t bytes_sent, bytes_received;          /* of rank 0, this step */
    double mfu;       /* model FLOP/s over the FMA probe of this machine; NaN when not measured */
    int64_t skipped;  /* steps skipped so far */
    int slowest_rank; /* rank with the longest compute time this step */
    double slowest_s, fastest_s;
    uint64_t tokens; /* consumed so far */
} taciti_step_metrics;

/* ---- metrics.jsonl ---------------------------------------------------------------------------------------------- */
typedef struct taciti_metrics taciti_metrics;
/* Opens run/metrics.jsonl and run/tb/events.out.tfevents.*; steps > resume_step are dropped from an old file. */
tacit_status taciti_metrics_open(const char *run_dir, int64_t resume_step, bool tensorboard, taciti_metrics **out);
tacit_status taciti_metrics_step(taciti_metrics *metrics, const taciti_step_metrics *m);
/* One free event line {"event": name, "step": ..., <json members>}, e.g. skipped steps, checkpoints. */
tacit_status taciti_metrics_event(taciti_metrics *metrics, int64_t step, const char *event, const char *members_json);
void taciti_metrics_close(taciti_metrics *metrics);

/* ---- console ---------------------------------------------------------------------------------------------------- */
typedef struct taciti_console {
    FILE *stream;
    bool terminal; /* one live line, rewritten */
    bool quiet;
    int64_t steps; /* of the whole run, for the ETA */
    int64_t start_ns, start_step;
    int64_t last_ns; /* of the last plain line */
    bool live;       /* a live line stands on the terminal */
} taciti_console;
void taciti_console_open(taciti_console *console, FILE *stream, bool quiet, int64_t steps, int64_t start_step);
void taciti_console_step(taciti_console *console, const taciti_step_metrics *m, bool important);
/* Ends a live line so that other text can follow. */
void taciti_console_break(taciti_console *console);

/* ---- trace --------------------------------------------------------------------------------------------------------
 */
/* Gathers the spans of both recorders of all ranks on rank 0's clock and writes `path` there (Chrome trace JSON:
 * pid = rank, tid 0 = compute, 1 = communication). Collective. */
tacit_status taciti_trace_write(taciti_comm *comm, const taciti_trace *compute, const taciti_trace *communication,
                                const char *path);

#endif
