/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes spans as a Chrome trace (the "JSON object format" of the Trace Event Format: complete events "X" and metadata
 * "M") for chrome://tracing, Perfetto and Speedscope. Times are microseconds with three decimals since the earliest
 * span of rank 0. A process is a rank, a thread is a recorder.
 */
#ifndef TACITI_REPORT_SPANS_H
#define TACITI_REPORT_SPANS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/trace.h"

enum { TACITI_TRACK_COMPUTE, TACITI_TRACK_COMMUNICATION };

/* The recording process; the viewer shows it as the process name. */
typedef struct taciti_trace_process {
    int rank;
    int64_t pid;
    const char *host;
    int64_t offset_ns; /* its clock minus rank 0's */
} taciti_trace_process;

typedef struct taciti_trace_file {
    FILE *stream;
    char path[4096], temporary[4096];
    int64_t zero_ns; /* of rank 0's clock; time 0 of the file */
    size_t events;
} taciti_trace_file;

/* Opens a temporary file beside `path`. */
tacit_status taciti_trace_file_open(const char *path, int64_t zero_ns, taciti_trace_file *out);
/* Writes the names of a process and its two threads. */
void taciti_trace_file_process(taciti_trace_file *file, const taciti_trace_process *process);
/* Writes the spans of one recorder (TACITI_TRACK_*). Skips unknown kinds. */
void taciti_trace_file_spans(taciti_trace_file *file, const taciti_trace_process *process, int track,
                             const taciti_span *spans, size_t count);
/* Completes the file and renames it to its final name; removes it if writing failed. dropped: the number of spans that
 * all ranks dropped. */
tacit_status taciti_trace_file_close(taciti_trace_file *file, uint64_t dropped);
/* Removes the temporary file. */
void taciti_trace_file_discard(taciti_trace_file *file);

#endif
