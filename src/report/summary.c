/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_text.h"
#include "base/memory.h"
#include "report/report.h"

/* The recorders of the training thread and of the communication thread. */
typedef struct recorders {
    const taciti_trace *compute, *communication;
} recorders;

static void put_recorder(FILE *out, const char *title, const taciti_trace *trace) {
    /* A step holds the spans between its ends; evaluations, checkpoints and reading of data may lie outside of it. */
    int64_t sum_ns = 0;
    for (int kind = 0; kind < TACITI_SPAN_KINDS; kind++)
        if (kind != TACITI_SPAN_STEP) sum_ns += trace->run_ns[kind];
    const int64_t step_ns = trace->run_ns[TACITI_SPAN_STEP];
    const double total_s = (double)(step_ns > sum_ns ? step_ns : sum_ns) / 1e9;
    fprintf(out, "%-24s %10s %7s\n", title, "seconds", "share");
    for (int kind = 0; kind < TACITI_SPAN_KINDS; kind++) {
        if (kind == TACITI_SPAN_STEP || trace->run_ns[kind] == 0) continue;
        const double seconds = (double)trace->run_ns[kind] / 1e9;
        fprintf(out, "  %-22s %10.3f %6.1f%%\n", taciti_span_name((taciti_span_kind)kind), seconds,
                100 * seconds / total_s);
    }
}

static void put_recorders(FILE *out, const void *object) {
    const recorders *r = object;
    put_recorder(out, "training thread", r->compute);
    if (r->communication != NULL) put_recorder(out, "communication thread", r->communication);
}

void taciti_trace_summary(const taciti_trace *compute, const taciti_trace *communication, char *out, size_t size) {
    char *text = taciti_text_of(put_recorders, &(recorders){compute, communication});
    (void)snprintf(out, size, "%s", text == NULL ? "" : text);
    taciti_free(text);
}
