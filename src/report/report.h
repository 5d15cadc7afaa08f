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
    int64_t skipped;  /* steps skipped so far; where replicas differ, updates skipped by single ranks, all together */
    int slowest_rank; /* rank with the longest compute time this step */
    double slowest_s, fastest_s;
    uint64_t tokens;    /* consumed so far */
    double consensus;   /* sqrt(1/N sum of |what mixing changed on a rank|^2): the local proxy of `distance`; NaN where
                         * replicas are equal */
    double distance;    /* sqrt(1/N sum |x_i - mean|^2); NaN but on evaluation steps where replicas differ */
    double compression; /* original / sent bytes of the gradients: 1 for dense f32; NaN or 0 when nothing is sent */
} taciti_step_metrics;

/* ---- metrics.jsonl ----------------------------------------------------------------------------------------------
 * One JSON object per line, each appended by one write(), so that a killed run leaves whole lines behind (at most the
 * last one is torn, and the next taciti_metrics_open() drops it). All functions: one thread, not collective. */
typedef struct taciti_metrics taciti_metrics;

/* Opens run_dir/metrics.jsonl and, when asked, a new run_dir/tb/events.out.tfevents.*; the folder must exist. Of an old
 * metrics.jsonl the lines with step > resume_step go away (all of them when resume_step is 0), atomically; old event
 * files stay and the new one tells readers to forget what lies beyond resume_step. Returns owned. */
tacit_status taciti_metrics_open(const char *run_dir, int64_t resume_step, bool tensorboard, taciti_metrics **out);

/* One step line (and its TensorBoard scalars). E_IO when it could not be written completely; the file is then as
 * before. */
tacit_status taciti_metrics_step(taciti_metrics *metrics, const taciti_step_metrics *m);

/* One free event line {"event": name, "step": ..., "time": ..., <members>}, e.g. skipped steps, checkpoints.
 * members_json: JSON members without the braces, e.g. "\"path\": \"run/ckpt\"", or "" or NULL; E_INTERNAL when that is
 * not JSON. */
tacit_status taciti_metrics_event(taciti_metrics *metrics, int64_t step, const char *event, const char *members_json);

void taciti_metrics_close(taciti_metrics *metrics); /* NULL is fine */

/* ---- console ---------------------------------------------------------------------------------------------------- */
typedef struct taciti_console {
    FILE *stream;
    bool terminal; /* one live line, rewritten */
    bool color;
    bool quiet;
    int64_t steps; /* of the whole run, for the ETA */
    int64_t start_ns, start_step;
    int64_t last_ns; /* of the last line, live or plain; 0: none yet */
    bool live;       /* a live line stands on the terminal */
} taciti_console;

/* Borrows the stream. A terminal gets a live line (not when TERM is "dumb"), in colour unless NO_COLOR is set. */
void taciti_console_open(taciti_console *console, FILE *stream, bool quiet, int64_t steps, int64_t start_step);

/* Shows a step: on a terminal the live line is rewritten (ten times a second at most), else a plain line appears every
 * ten seconds. Important steps (evaluations, the first, the last) always leave a line that stays. */
void taciti_console_step(taciti_console *console, const taciti_step_metrics *m, bool important);

/* Ends a live line so that other text can follow. */
void taciti_console_break(taciti_console *console);

/* The text of one step in at most `width` columns: what matters less is left out first. eta_s < 0: not known.
 * Pure; ASCII, no newline. */
void taciti_console_line(const taciti_step_metrics *m, int64_t steps, double eta_s, size_t width, char *out,
                         size_t size);

/* ---- trace ------------------------------------------------------------------------------------------------------ */
/* Gathers the spans of both recorders of all ranks on rank 0's clock and writes `path` there (Chrome trace JSON:
 * pid = rank, tid 0 = compute, 1 = communication), atomically. Both recorders' writers must be done with their jobs.
 * Collective; all ranks return the same status. */
tacit_status taciti_trace_write(taciti_comm *comm, const taciti_trace *compute, const taciti_trace *communication,
                                const char *path);

/* A small table of where this rank's time went since the recorders' creation, one line per kind of span that occurred,
 * each ending with a newline. communication may be NULL. The text is cut at size - 1. Pure. */
void taciti_trace_summary(const taciti_trace *compute, const taciti_trace *communication, char *out, size_t size);

#endif
