/* SPDX-License-Identifier: Apache-2.0 */
#include "base/trace.h"

#include "base/clock.h"
#include "base/memory.h"

static const char *const NAMES[TACITI_SPAN_KINDS] = {
#define NAME(name, text) [TACITI_SPAN_##name] = text,
    TACITI_SPAN_LIST(NAME)
#undef NAME
};

const char *taciti_span_name(taciti_span_kind kind) { return NAMES[kind]; }

tacit_status taciti_trace_create(size_t capacity, taciti_trace *out) {
    taciti_trace trace = {.capacity = capacity};
    if (capacity > 0) {
        trace.spans = taciti_calloc(capacity, sizeof *trace.spans);
        if (trace.spans == NULL) return TACIT_E_MEMORY;
    }
    *out = trace;
    return TACIT_OK;
}

void taciti_trace_destroy(taciti_trace *trace) {
    taciti_free(trace->spans);
    *trace = (taciti_trace){0};
}

void taciti_trace_count(taciti_trace *trace, taciti_span_kind kind, int64_t spent_ns) {
    atomic_fetch_add_explicit(&trace->run_ns[kind], spent_ns, memory_order_relaxed);
}

int64_t taciti_trace_add(taciti_trace *trace, taciti_span_kind kind, int detail, int64_t begin_ns) {
    const int64_t now = taciti_now_ns();
    if (trace == NULL) return now;
    taciti_trace_count(trace, kind, now - begin_ns);
    if (trace->count < trace->capacity)
        trace->spans[trace->count++] = (taciti_span){
            .begin_ns = begin_ns, .end_ns = now, .kind = (int32_t)kind, .detail = detail, .step = trace->step};
    else
        trace->dropped++;
    return now;
}

void taciti_trace_take_totals(taciti_trace *trace, int64_t *out) {
    for (int kind = 0; kind < TACITI_SPAN_KINDS; kind++) {
        const int64_t run_ns = atomic_load_explicit(&trace->run_ns[kind], memory_order_relaxed);
        out[kind] = run_ns - trace->taken_ns[kind];
        trace->taken_ns[kind] = run_ns;
    }
}
