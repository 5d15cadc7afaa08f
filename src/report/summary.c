/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"
#include "report/report.h"

static void add_recorder(const char *title, const taciti_trace *trace, char *out, size_t size) {
    /* A step holds the spans between its ends; evaluations, checkpoints and reading of data may lie outside of it. */
    int64_t sum_ns = 0;
    for (int kind = 0; kind < TACITI_SPAN_KINDS; kind++)
        if (kind != TACITI_SPAN_STEP) sum_ns += trace->run_ns[kind];
    const int64_t step_ns = trace->run_ns[TACITI_SPAN_STEP];
    const double total_s = (double)(step_ns > sum_ns ? step_ns : sum_ns) / 1e9;
    taciti_text_add(out, size, "%-24s %10s %7s\n", title, "seconds", "share");
    for (int kind = 0; kind < TACITI_SPAN_KINDS; kind++) {
        if (kind == TACITI_SPAN_STEP || trace->run_ns[kind] == 0) continue;
        const double seconds = (double)trace->run_ns[kind] / 1e9;
        taciti_text_add(out, size, "  %-22s %10.3f %6.1f%%\n", taciti_span_name((taciti_span_kind)kind), seconds,
                        100 * seconds / total_s);
    }
}

void taciti_trace_summary(const taciti_trace *compute, const taciti_trace *communication, char *out, size_t size) {
    if (size == 0) return;
    out[0] = '\0';
    add_recorder("training thread", compute, out, size);
    if (communication != NULL) add_recorder("communication thread", communication, out, size);
}
