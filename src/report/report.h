/* SPDX-License-Identifier: Apache-2.0
 *
 * Output of a run: metrics.jsonl, TensorBoard events, one Chrome trace of all ranks on a common clock, and the
 * console's live line. Only rank 0 writes files. With --resume, append-only files are truncated to the resumed step.
 */
#ifndef TACITI_REPORT_REPORT_H
#define TACITI_REPORT_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/trace.h"
#include "comm/comm.h"

/* Metrics of one step on rank 0. NaN means "not measured" and is omitted from the JSON. */
typedef struct taciti_step_metrics {
    int64_t step;    /* 1-based: number of finished steps */
    double loss;     /* mean nats per token of the global batch */
    double val_loss; /* NaN but on evaluation steps */
    double lr, grad_norm;
    double tokens_per_s, step_s;
    double compute_s, encode_s, wait_s, update_s; /* split of step_s on rank 0; encode runs beside compute */
    uint64_t bytes_sent, bytes_received;          /* of rank 0, this step */
    double mfu;      /* model FLOP/s over the FMA probe of this machine; NaN when not measured */
    int64_t skipped; /* steps skipped so far; where replicas differ, the sum of the updates that single ranks skipped */
    int slowest_rank; /* rank with the longest compute time this step */
    double slowest_s, fastest_s;
    uint64_t tokens;    /* consumed so far */
    double consensus;   /* sqrt(1/N sum of |what mixing changed on a rank|^2): the local proxy of `distance`; NaN where
                         * replicas are equal */
    double distance;    /* sqrt(1/N sum |x_i - mean|^2); NaN but on evaluation steps where replicas differ */
    double compression; /* original / sent bytes of the gradients: 1 for dense f32; NaN or 0 when nothing is sent */
    double factor, gain, kept; /* of compressed sums: the factor that was used, |sent|^2 / |gradient + residual|^2,
                                * share of the elements that were sent; 0: none */
    double pending; /* elements of sums of sketches that did not decode and were fetched, all ranks together */
} taciti_step_metrics;

/* ---- metrics.jsonl ----------------------------------------------------------------------------------------------
 * One JSON object per line, each appended by one write(). A killed run leaves complete lines; at most the last one is
 * incomplete, and the next taciti_metrics_open() removes it. All functions: one thread, not collective. */
typedef struct taciti_metrics taciti_metrics;

/* Opens run_dir/metrics.jsonl and, if `tensorboard`, a new run_dir/tb/events.out.tfevents.*; the folder must exist.
 * Atomically removes the lines of an old metrics.jsonl with step > resume_step (all if resume_step is 0). Old event
 * files stay; the new one tells readers to discard what lies beyond resume_step. Returns owned. */
tacit_status taciti_metrics_open(const char *run_dir, int64_t resume_step, bool tensorboard, taciti_metrics **out);

/* Writes one step line and its TensorBoard scalars. Returns E_IO if it could not be written completely; the file is
 * then unchanged. */
tacit_status taciti_metrics_step(taciti_metrics *metrics, const taciti_step_metrics *m);

/* Writes an event line {"event": name, "step": ..., "time": ..., <members>}, for skipped steps or checkpoints.
 * members_json holds JSON members without the braces, "\"path\": \"run/ckpt\"", or is "" or NULL. Returns E_INTERNAL if
 * it is not JSON. */
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
    bool live;       /* the terminal shows a live line */
} taciti_console;

/* Borrows the stream. A terminal shows a live line unless TERM is "dumb", in colour unless NO_COLOR is set. */
void taciti_console_open(taciti_console *console, FILE *stream, bool quiet, int64_t steps, int64_t start_step);

/* Shows a step. A terminal rewrites the live line, at most ten times a second; other streams get a plain line every ten
 * seconds. Important steps (evaluations, the first, the last) always leave a permanent line. */
void taciti_console_step(taciti_console *console, const taciti_step_metrics *m, bool important);

/* Ends a live line so that other text can follow. */
void taciti_console_break(taciti_console *console);

/* Returns true if the lines go into a pipe that nobody reads any more, as those of `tacit train | head`. */
bool taciti_console_lost(const taciti_console *console);

/* Formats one step in at most `width` columns; the line ends before a field that does not fit. eta_s < 0: unknown.
 * Pure; ASCII, no newline. */
void taciti_console_line(const taciti_step_metrics *m, int64_t steps, double eta_s, size_t width, char *out,
                         size_t size);

/* ---- trace ------------------------------------------------------------------------------------------------------ */
/* Gathers the spans of both recorders of all ranks on rank 0, converts them to its clock and writes `path` there
 * atomically (Chrome trace JSON: pid = rank, tid 0 = compute, 1 = communication). The writers of both recorders must be
 * idle. Collective; all ranks return the same status. */
tacit_status taciti_trace_write(taciti_comm *comm, const taciti_trace *compute, const taciti_trace *communication,
                                const char *path);

/* Formats a table of how this rank spent its time since the recorders were created: one line, ending with a newline,
 * per kind of span that occurred. communication may be NULL. Truncates the text at size - 1. Pure. */
void taciti_trace_summary(const taciti_trace *compute, const taciti_trace *communication, char *out, size_t size);

#endif
