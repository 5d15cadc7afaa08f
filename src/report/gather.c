/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of all ranks on rank 0's clock. Tracks travel one after the other, so that no rank holds more than one
 * foreign track. The clock offset is measured here, at the end of a run; clocks of different hosts drift by some
 * microseconds per second of run, so what lies far back is aligned less well.
 */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "report/report.h"
#include "report/spans.h"

typedef struct header {
    int64_t offset_ns, first_ns; /* first_ns: begin of the earliest span, INT64_MAX without spans; own clock */
    uint64_t count[2], dropped[2];
} header;

typedef struct gather {
    taciti_comm *comm;
    const header *headers;
    taciti_span *spans; /* room for the largest track */
    taciti_trace_file file;
    tacit_status written; /* of rank 0's file; the collectives go on whatever happens to it */
} gather;

static void gather_track(gather *g, int rank, int track, const taciti_trace *mine, tacit_status *status) {
    const size_t count = (size_t)g->headers[rank].count[track];
    if (*status != TACIT_OK || count == 0) return;
    if (taciti_comm_rank(g->comm) == rank) memcpy(g->spans, mine->spans, count * sizeof *g->spans);
    *status = taciti_comm_broadcast(g->comm, rank, g->spans, count * sizeof *g->spans);
    if (*status != TACIT_OK || taciti_comm_rank(g->comm) != 0 || g->written != TACIT_OK) return;
    const taciti_peer *peer = taciti_comm_peer(g->comm, rank);
    const taciti_trace_process process = {
        .rank = rank, .pid = peer->pid, .host = peer->host, .offset_ns = g->headers[rank].offset_ns};
    taciti_trace_file_spans(&g->file, &process, track, g->spans, count);
}

static void open_file(gather *g, const char *path) {
    if (taciti_comm_rank(g->comm) != 0) return;
    int64_t zero_ns = INT64_MAX;
    for (int rank = 0; rank < taciti_comm_size(g->comm); rank++) {
        const header *h = &g->headers[rank];
        if (h->first_ns != INT64_MAX && h->first_ns - h->offset_ns < zero_ns) zero_ns = h->first_ns - h->offset_ns;
    }
    g->written = taciti_trace_file_open(path, zero_ns == INT64_MAX ? 0 : zero_ns, &g->file);
    for (int rank = 0; rank < taciti_comm_size(g->comm) && g->written == TACIT_OK; rank++) {
        const taciti_peer *peer = taciti_comm_peer(g->comm, rank);
        taciti_trace_file_process(&g->file,
                                  &(taciti_trace_process){.rank = rank, .pid = peer->pid, .host = peer->host});
    }
}

static tacit_status gather_all(gather *g, const taciti_trace tracks[2], const char *path) {
    open_file(g, path);
    uint64_t dropped = 0;
    tacit_status status = TACIT_OK;
    for (int rank = 0; rank < taciti_comm_size(g->comm); rank++)
        for (int track = 0; track < 2; track++) {
            gather_track(g, rank, track, &tracks[track], &status);
            dropped += g->headers[rank].dropped[track];
        }
    if (taciti_comm_rank(g->comm) == 0 && g->written == TACIT_OK) {
        if (status == TACIT_OK)
            g->written = taciti_trace_file_close(&g->file, dropped);
        else
            taciti_trace_file_discard(&g->file);
    }
    return status != TACIT_OK ? status : taciti_comm_agree(g->comm, g->written);
}

static tacit_status exchange_headers(taciti_comm *comm, const taciti_trace tracks[2], header *headers) {
    header mine = {.first_ns = INT64_MAX};
    TACITI_TRY(taciti_comm_clock_offset(comm, &mine.offset_ns));
    for (int track = 0; track < 2; track++) {
        mine.count[track] = tracks[track].count;
        mine.dropped[track] = tracks[track].dropped;
        for (size_t i = 0; i < tracks[track].count; i++)
            if (tracks[track].spans[i].begin_ns < mine.first_ns) mine.first_ns = tracks[track].spans[i].begin_ns;
    }
    return taciti_comm_allgather(comm, &mine, sizeof mine, headers);
}

tacit_status taciti_trace_write(taciti_comm *comm, const taciti_trace *compute, const taciti_trace *communication,
                                const char *path) {
    /* Copies of the recorders' heads: the communication thread's own goes on growing while it carries the tracks. */
    const taciti_trace tracks[2] = {*compute, *communication};
    header *headers = taciti_calloc((size_t)taciti_comm_size(comm), sizeof *headers);
    tacit_status status = taciti_comm_agree(comm, headers == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = exchange_headers(comm, tracks, headers);
    gather g = {.comm = comm, .headers = headers};
    if (status == TACIT_OK) {
        uint64_t largest = 1;
        for (int i = 0; i < 2 * taciti_comm_size(comm); i++)
            if (headers[i / 2].count[i % 2] > largest) largest = headers[i / 2].count[i % 2];
        g.spans = taciti_calloc((size_t)largest, sizeof *g.spans);
        status = taciti_comm_agree(comm, g.spans == NULL ? TACIT_E_MEMORY : TACIT_OK);
    }
    if (status == TACIT_OK) status = gather_all(&g, tracks, path);
    taciti_free(g.spans);
    taciti_free(headers);
    return status;
}
