/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>

#include "base/log.h"
#include "report/report.h"

typedef struct table {
    char *text;
    size_t count, size;
} table;

static void put(table *t, const char *format, ...) TACITI_PRINTF(2, 3);

static void put(table *t, const char *format, ...) {
    if (t->count + 1 >= t->size) return;
    va_list arguments;
    va_start(arguments, format);
    const int printed = vsnprintf(t->text + t->count, t->size - t->count, format, arguments);
    va_end(arguments);
    if (printed < 0) return;
    const size_t room = t->size - t->count - 1;
    t->count += (size_t)printed < room ? (size_t)printed : room;
}

static void put_recorder(table *t, const char *title, const taciti_trace *trace) {
    /* A step holds the spans between its ends; evaluations, checkpoints and reading of data may lie outside of it. */
    int64_t sum_ns = 0;
    for (int kind = 0; kind < TACITI_SPAN_KINDS; kind++)
        if (kind != TACITI_SPAN_STEP) sum_ns += trace->run_ns[kind];
    const int64_t step_ns = trace->run_ns[TACITI_SPAN_STEP];
    const double total_s = (double)(step_ns > sum_ns ? step_ns : sum_ns) / 1e9;
    put(t, "%-24s %10s %7s\n", title, "seconds", "share");
    for (int kind = 0; kind < TACITI_SPAN_KINDS; kind++) {
        if (kind == TACITI_SPAN_STEP || trace->run_ns[kind] == 0) continue;
        const double seconds = (double)trace->run_ns[kind] / 1e9;
        put(t, "  %-22s %10.3f %6.1f%%\n", taciti_span_name((taciti_span_kind)kind), seconds, 100 * seconds / total_s);
    }
}

void taciti_trace_summary(const taciti_trace *compute, const taciti_trace *communication, char *out, size_t size) {
    table t = {.text = out, .size = size};
    if (size > 0) out[0] = '\0';
    put_recorder(&t, "training thread", compute);
    if (communication != NULL) put_recorder(&t, "communication thread", communication);
}
