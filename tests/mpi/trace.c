/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of all ranks: every span arrives, on rank 0's clock, from recorders of different length (one of them
 * empty); a file that cannot be written is an error on every rank.
 */
#define _XOPEN_SOURCE 700
#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "check.h"
#include "report/report.h"

/* `count` spans are kept and one more is only counted. */
static taciti_trace fill(taciti_span_kind kind, size_t count) {
    taciti_trace trace = {0};
    CHECK(taciti_trace_create(count, &trace) == TACIT_OK);
    trace.step = g_rank;
    for (size_t i = 0; i < count + 1; i++) taciti_trace_add(&trace, kind, (int)i, taciti_now_ns());
    return trace;
}

static void check_events(const json_t *root, int ranks) {
    int spans[2] = {0, 0}, expected = 0, names = 0;
    size_t i = 0;
    const json_t *event = NULL;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        const json_int_t pid = json_integer_value(json_object_get(event, "pid"));
        const json_int_t tid = json_integer_value(json_object_get(event, "tid"));
        CHECK(pid >= 0 && pid < ranks && (tid == 0 || tid == 1));
        names += strcmp(json_string_value(json_object_get(event, "name")), "process_name") == 0;
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        spans[tid]++;
        const double ts = json_number_value(json_object_get(event, "ts"));
        CHECK(ts >= 0 && ts < 60e6); /* one host, one clock: within this program's life */
        CHECK(json_integer_value(json_object_get(json_object_get(event, "args"), "step")) == pid);
    }
    for (int r = 0; r < ranks; r++) expected += r % 3 * 10;
    CHECK(names == ranks && spans[0] == expected && spans[1] == expected);
    const json_t *other = json_object_get(root, "otherData");
    CHECK(json_integer_value(json_object_get(other, "spans_not_kept")) == 2 * ranks);
}

int main(void) {
    taciti_comm *comm = open_comm();
    char path[] = "/tmp/tacit-trace-XXXXXX";
    if (g_rank == 0) CHECK(close(mkstemp(path)) == 0);
    taciti_trace compute = fill(TACITI_SPAN_BACKWARD, (size_t)(g_rank % 3) * 10);
    taciti_trace communication = fill(TACITI_SPAN_TRANSFER, (size_t)(g_rank % 3) * 10);
    CHECK(taciti_trace_write(comm, &compute, &communication, path) == TACIT_OK);
    if (g_rank == 0) {
        json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
        CHECK(root != NULL);
        check_events(root, taciti_comm_size(comm));
        json_decref(root);
        CHECK(unlink(path) == 0);
    }
    taciti_log_set_sink(NULL, NULL, TACITI_LOG_ERROR);
    CHECK(taciti_trace_write(comm, &compute, &communication, "/nonexistent/trace.json") == TACIT_E_IO);
    taciti_log_set_sink(print_line, NULL, TACITI_LOG_INFO);
    CHECK(taciti_comm_barrier(comm) == TACIT_OK);
    taciti_trace_destroy(&compute);
    taciti_trace_destroy(&communication);
    taciti_comm_close(comm);
    return 0;
}
