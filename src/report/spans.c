/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "report/spans.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/log.h"

static const char *const TRACK_NAMES[] = {
    [TACITI_TRACK_COMPUTE] = "compute", [TACITI_TRACK_COMMUNICATION] = "communication"};

tacit_status taciti_trace_file_open(const char *path, int64_t zero_ns, taciti_trace_file *out) {
    taciti_trace_file file = {.zero_ns = zero_ns};
    const int count = snprintf(file.temporary, sizeof file.temporary, "%s.new", path);
    if (count < 0 || (size_t)count >= sizeof file.temporary)
        return taciti_fail(TACIT_E_IO, "%.64s...: the path is longer than %zu bytes", path, sizeof file.temporary - 5);
    memcpy(file.path, path, strlen(path) + 1);
    file.stream = fopen(file.temporary, "we");
    if (file.stream == NULL)
        return taciti_fail(TACIT_E_IO, "%s: cannot create it: %s", file.temporary, strerror(errno));
    fputs("{\"traceEvents\":[", file.stream);
    *out = file;
    return TACIT_OK;
}

static void next_event(taciti_trace_file *file) { fputs(file->events++ > 0 ? ",\n" : "\n", file->stream); }

/* Writes the name of a process or thread or, with name NULL, its place among others. */
static void put_metadata(taciti_trace_file *file, const char *what, int rank, int track, const char *name, int order) {
    next_event(file);
    fprintf(file->stream, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{", what, rank, track);
    if (name != NULL) {
        fputs("\"name\":", file->stream);
        taciti_json_quote(file->stream, name);
    } else {
        fprintf(file->stream, "\"sort_index\":%d", order);
    }
    fputs("}}", file->stream);
}

void taciti_trace_file_process(taciti_trace_file *file, const taciti_trace_process *process) {
    char name[128];
    snprintf(name, sizeof name, "rank %d (%.64s, pid %" PRId64 ")", process->rank, process->host, process->pid);
    put_metadata(file, "process_name", process->rank, 0, name, 0);
    put_metadata(file, "process_sort_index", process->rank, 0, NULL, process->rank);
    for (int track = 0; track < 2; track++) {
        put_metadata(file, "thread_name", process->rank, track, TRACK_NAMES[track], 0);
        put_metadata(file, "thread_sort_index", process->rank, track, NULL, track);
    }
}

/* Microseconds with the sign and three decimals of `ns`. */
static void put_us(FILE *stream, const char *key, int64_t ns) {
    const uint64_t magnitude = ns < 0 ? (uint64_t)0 - (uint64_t)ns : (uint64_t)ns;
    fprintf(stream, ",\"%s\":%s%" PRIu64 ".%03" PRIu64, key, ns < 0 ? "-" : "", magnitude / 1000, magnitude % 1000);
}

void taciti_trace_file_spans(taciti_trace_file *file, const taciti_trace_process *process, int track,
                             const taciti_span *spans, size_t count) {
    const int64_t origin_ns = file->zero_ns + process->offset_ns;
    for (const taciti_span *span = spans; span < spans + count; span++) {
        if (span->kind < 0 || span->kind >= TACITI_SPAN_KINDS) continue;
        next_event(file);
        fprintf(file->stream, "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d",
                taciti_span_name((taciti_span_kind)span->kind), TRACK_NAMES[track], process->rank, track);
        put_us(file->stream, "ts", span->begin_ns - origin_ns);
        put_us(file->stream, "dur", span->end_ns - span->begin_ns);
        fprintf(file->stream, ",\"args\":{\"step\":%" PRId64, span->step);
        if (span->detail >= 0) fprintf(file->stream, ",\"index\":%" PRId32, span->detail);
        fputs("}}", file->stream);
    }
}

void taciti_trace_file_discard(taciti_trace_file *file) {
    if (file->stream == NULL) return;
    fclose(file->stream);
    unlink(file->temporary);
    file->stream = NULL;
}

tacit_status taciti_trace_file_close(taciti_trace_file *file, uint64_t dropped) {
    fprintf(file->stream, "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"spans_not_kept\":%" PRIu64 "}}\n", dropped);
    const bool written = !ferror(file->stream) && fflush(file->stream) == 0 && fsync(fileno(file->stream)) == 0;
    if (!written || rename(file->temporary, file->path) != 0) {
        const int reason = errno;
        taciti_trace_file_discard(file);
        return taciti_fail(TACIT_E_IO, "%s: cannot write it: %s", file->path, strerror(reason));
    }
    fclose(file->stream);
    file->stream = NULL;
    return TACIT_OK;
}
