/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces say time: a fixed-size recorder of spans per thread of activity. Recording is two clock reads and a store;
 * nothing is allocated or formatted between start and end of a step. When the recorder is full, further spans are
 * counted in the totals but not kept. report/ writes them as a Chrome trace.
 */
#ifndef TACITI_BASE_TRACE_H
#define TACITI_BASE_TRACE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

/* What a span is about. The totals of these kinds are the time split of every step. */
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

/* One recorder has one writing thread. Totals may be read at any time by one other thread; spans when the writer is
 * known to be quiet. */
typedef struct taciti_trace {
    taciti_span *spans; /* owned */
    size_t capacity, count, dropped;
    _Atomic int64_t run_ns[TACITI_SPAN_KINDS]; /* since creation */
    int64_t taken_ns[TACITI_SPAN_KINDS];       /* of these, already given out by taciti_trace_take_totals() */
    int64_t step;                              /* stamped on new spans; set by the writer */
} taciti_trace;

/* capacity 0: totals only. */
tacit_status taciti_trace_create(size_t capacity, taciti_trace *out);
void taciti_trace_destroy(taciti_trace *trace);

/* Records [begin_ns, now) and returns now, so that adjoining spans chain: t = taciti_trace_add(tr, KIND, -1, t);
 * trace may be NULL (only the time is returned). */
int64_t taciti_trace_add(taciti_trace *trace, taciti_span_kind kind, int detail, int64_t begin_ns);

/* Adds to the totals what is too short and too frequent to be a span of its own. */
void taciti_trace_count(taciti_trace *trace, taciti_span_kind kind, int64_t spent_ns);

/* Writes the totals since the last call into out[TACITI_SPAN_KINDS]. */
void taciti_trace_take_totals(taciti_trace *trace, int64_t *out);

#endif
