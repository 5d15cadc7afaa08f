/* SPDX-License-Identifier: Apache-2.0
 *
 * Tracing: one fixed-size recorder of time spans per thread. Recording costs two clock reads and a store, without
 * allocation or formatting. When the recorder is full, further spans are added to the totals and otherwise dropped.
 * report/ writes the spans as a Chrome trace.
 */
#ifndef TACITI_BASE_TRACE_H
#define TACITI_BASE_TRACE_H

#include <stdatomic.h>

#include "tacit/tacit.h"

/* Kinds of spans. Their totals are the breakdown of every step's time. */
#define TACITI_SPAN_LIST(X)                                                                                            \
    X(FORWARD, "forward")                                                                                              \
    X(BACKWARD, "backward")                                                                                            \
    X(ENCODE, "encode")                                                                                                \
    X(TRANSFER, "transfer")                                                                                            \
    X(DECODE, "decode")                                                                                                \
    X(WAIT, "wait")                                                                                                    \
    X(UPDATE, "update")                                                                                                \
    X(DATA, "data")                                                                                                    \
    X(EVAL, "eval")                                                                                                    \
    X(CHECKPOINT, "checkpoint")                                                                                        \
    X(STEP, "step")

typedef enum taciti_span_kind {
#define TACITI_SPAN_ENUM(name, text) TACITI_SPAN_##name,
    TACITI_SPAN_LIST(TACITI_SPAN_ENUM)
#undef TACITI_SPAN_ENUM
        TACITI_SPAN_KINDS
} taciti_span_kind;

const char *taciti_span_name(taciti_span_kind kind);

typedef struct taciti_span {
    int64_t begin_ns, end_ns; /* taciti_now_ns() */
    int32_t kind;             /* taciti_span_kind */
    int32_t detail;           /* bucket, layer or -1 */
    int64_t step;
} taciti_span;

/* A recorder has one writer thread. One other thread may read the totals at any time, and the spans while the writer is
 * idle. */
typedef struct taciti_trace {
    taciti_span *spans; /* owned */
    size_t capacity, count, dropped;
    _Atomic int64_t run_ns[TACITI_SPAN_KINDS]; /* since creation */
    int64_t taken_ns[TACITI_SPAN_KINDS];       /* of these, already returned by taciti_trace_take_totals() */
    int64_t step;                              /* stamped on new spans; set by the writer */
} taciti_trace;

/* Creates a recorder for `capacity` spans; 0 records totals only. */
tacit_status taciti_trace_create(size_t capacity, taciti_trace *out);
void taciti_trace_destroy(taciti_trace *trace);

/* Records the span [begin_ns, now) and returns now, so adjacent spans can be chained: t = taciti_trace_add(trace, KIND,
 * -1, t). If trace is NULL, only returns the time. */
int64_t taciti_trace_add(taciti_trace *trace, taciti_span_kind kind, int detail, int64_t begin_ns);

/* Adds to the totals without recording a span, for events that are short and frequent. */
void taciti_trace_count(taciti_trace *trace, taciti_span_kind kind, int64_t spent_ns);

/* Writes the totals since the last call into out[TACITI_SPAN_KINDS]. */
void taciti_trace_take_totals(taciti_trace *trace, int64_t *out);

#endif
