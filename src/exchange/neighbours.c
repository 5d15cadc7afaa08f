/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/neighbours.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "exchange/payload.h"
#include "exchange/pipeline.h"
#include "kernel/kernel.h"

enum { SENDS_PER_NEIGHBOUR = 2 };

static bool is_encoded(const taciti_neighbours *nb) { return taciti_encoding_encodes(nb->encoding); }

/* ---- who they are ------------------------------------------------------------------------------------------------ */
/* Receivers after this rank come first, so that not all send to the lowest rank at the same time. */
static void collect_edges(taciti_neighbours *nb, const taciti_round *round, int rank) {
    size_t in = 0, after = 0, before = 0;
    for (size_t e = 0; e < round->edge_count; e++) before += round->edges[e].from == rank && round->edges[e].to > rank;
    for (size_t e = 0; e < round->edge_count; e++) {
        const taciti_edge *edge = &round->edges[e];
        if (edge->to == rank) nb->in[in++] = (taciti_neighbour){edge->from, edge->weight};
        if (edge->from != rank) continue;
        nb->out[edge->to > rank ? after++ : before++] = (taciti_neighbour){edge->to, edge->weight};
        nb->given += edge->weight;
    }
}

tacit_status taciti_neighbours_describe(const taciti_hosts *hosts, const taciti_round *round, int rank,
                                        const taciti_encoding *encoding, size_t segment_bytes, taciti_neighbours *out) {
    taciti_neighbours nb = {.encoding = encoding, .rank = rank, .self = round->self[rank]};
    size_t in_degree = 0, max_in = 0;
    bool one_host = true;
    for (size_t e = 0; e < round->edge_count; e++) {
        const taciti_edge *edge = &round->edges[e]; /* ascending by receivers */
        in_degree = e > 0 && edge[-1].to == edge->to ? in_degree + 1 : 1;
        max_in = taciti_max(max_in, in_degree);
        one_host = one_host && hosts->host_of[edge->to] == hosts->host_of[edge->from];
        nb.in_count += edge->to == rank;
        nb.out_count += edge->from == rank;
    }
    nb.in = taciti_calloc(nb.in_count + nb.out_count, sizeof *nb.in);
    if (nb.in == NULL) return TACIT_E_MEMORY;
    nb.out = nb.in + nb.in_count;
    collect_edges(&nb, round, rank);
    /* All ranks know this alike: sender and receiver must cut in the same way. */
    const taciti_pipeline pipeline = taciti_pipeline_of(encoding, segment_bytes, one_host, 1, max_in);
    nb.segment_n = pipeline.segment_n;
    nb.slots = pipeline.depth + 1;
    nb.stride_bytes = taciti_round_up(taciti_encoding_bound(encoding, nb.segment_n), TACITI_ALIGN_BYTES);
    *out = nb;
    return TACIT_OK;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */
static size_t segment_bytes_of(const taciti_neighbours *nb) {
    return taciti_round_up(nb->segment_n * sizeof(float), TACITI_ALIGN_BYTES);
}

size_t taciti_neighbours_workspace_bytes(const taciti_neighbours *nb) {
    const size_t arriving = nb->slots * nb->in_count * nb->stride_bytes;
    if (!is_encoded(nb)) return arriving;
    return arriving + nb->slots * nb->stride_bytes + segment_bytes_of(nb) +
           taciti_encoding_scratch_bytes(nb->encoding, nb->segment_n);
}

tacit_status taciti_neighbours_open(taciti_neighbours *nb, taciti_comm *comm, void *memory) {
    const size_t cells = nb->slots * nb->in_count, window = SENDS_PER_NEIGHBOUR * nb->out_count;
    nb->comm = comm;
    nb->heard = taciti_calloc(cells + window, sizeof *nb->heard);
    nb->sent = taciti_calloc(nb->slots, sizeof *nb->sent);
    if (nb->heard == NULL || nb->sent == NULL) return TACIT_E_MEMORY;
    nb->sends = (taciti_outbox){.comm = comm, .requests = nb->heard + cells, .window = window};
    nb->arriving = memory;
    if (!is_encoded(nb)) return TACIT_OK;
    nb->leaving = nb->arriving + cells * nb->stride_bytes;
    nb->decoded = (float *)(void *)(nb->leaving + nb->slots * nb->stride_bytes);
    nb->scratch = (char *)nb->decoded + segment_bytes_of(nb);
    return TACIT_OK;
}

void taciti_neighbours_destroy(taciti_neighbours *nb) {
    taciti_free(nb->in);
    taciti_free(nb->heard);
    taciti_free(nb->sent);
    *nb = (taciti_neighbours){0};
}

/* ---- one array --------------------------------------------------------------------------------------------------- */
typedef struct segment {
    size_t slot, at;
    float *x, *apart;
    size_t n;
    const taciti_bucket_task *task;
} segment;

static segment segment_at(const taciti_neighbours *nb, float *x, float *apart, size_t n, size_t index,
                          const taciti_bucket_task *task) {
    const size_t at = index * nb->segment_n, left = n - at;
    return (segment){.slot = index % nb->slots,
                     .at = at,
                     .x = x + at,
                     .apart = apart == NULL ? NULL : apart + at,
                     .n = left < nb->segment_n ? left : nb->segment_n,
                     .task = task};
}

static char *arriving_at(const taciti_neighbours *nb, const segment *s, size_t k) {
    return nb->arriving + (s->slot * nb->in_count + k) * nb->stride_bytes;
}

static taciti_codec_call call_of(const taciti_neighbours *nb, const segment *s, int rank) {
    taciti_codec_call call = taciti_payload_call(nb->encoding, s->task, rank, TACITI_PAYLOAD_CONTRIBUTION, s->at);
    call.scratch = nb->scratch;
    return call;
}

/* Encodes my segment. error[n], if not NULL, receives the encoding error. */
static tacit_status encode_segment(taciti_neighbours *nb, const segment *s, float *error, taciti_payload *out) {
    const taciti_codec_call call = call_of(nb, s, nb->rank);
    out->data = nb->leaving + s->slot * nb->stride_bytes;
    return taciti_payload_encode(nb->comm, nb->encoding->codec, &call, s->x, s->n, error, out);
}

static tacit_status start_segment(taciti_neighbours *nb, const segment *s) {
    for (size_t k = 0; k < nb->in_count; k++)
        TACITI_TRY(taciti_payload_receive(nb->comm, nb->encoding, nb->in[k].rank, arriving_at(nb, s, k), s->n,
                                          &nb->heard[s->slot * nb->in_count + k]));
    taciti_payload payload = {.data = s->x, .bytes = s->n * sizeof(float)};
    if (is_encoded(nb) && nb->out_count > 0) TACITI_TRY(encode_segment(nb, s, NULL, &payload));
    for (size_t k = 0; k < nb->out_count; k++)
        TACITI_TRY(taciti_outbox_send(&nb->sends, nb->out[k].rank, payload.data, payload.bytes));
    nb->sent[s->slot] = nb->sends.posted;
    return TACIT_OK;
}

/* apart = what receivers decode, with the same bits; x = 0. */
static tacit_status keep_apart(taciti_neighbours *nb, const segment *s) {
    taciti_payload payload;
    memset(s->apart, 0, s->n * sizeof *s->apart);
    if (nb->out_count > 0) {
        TACITI_TRY(encode_segment(nb, s, NULL, &payload));
        const taciti_codec_call call = call_of(nb, s, nb->rank);
        TACITI_TRY(nb->encoding->codec->decode(nb->encoding->codec, &call, payload.data, payload.bytes, s->apart, s->n,
                                               false));
    }
    memset(s->x, 0, s->n * sizeof *s->x);
    return TACIT_OK;
}

/* My own share of my result: self x, and what others did not get of theirs. Encoding a second time, when the payload
 * has left, is cheaper than to keep the error of every segment under way. */
static tacit_status keep_own(taciti_neighbours *nb, const segment *s) {
    const taciti_kernels *kernels = taciti_kernels_get();
    const bool rounded = is_encoded(nb) && nb->out_count > 0;
    taciti_payload again;
    if (s->apart != NULL) return keep_apart(nb, s);
    if (rounded) TACITI_TRY(encode_segment(nb, s, nb->decoded, &again));
    kernels->scale(s->x, (float)nb->self, s->n);
    if (rounded) kernels->add_scaled(s->x, nb->decoded, (float)nb->given, s->n);
    return TACIT_OK;
}

/* x += weight * what has arrived from neighbour k. */
static tacit_status add_arrived(taciti_neighbours *nb, const segment *s, size_t k, size_t bytes) {
    const float *values = (const float *)(const void *)arriving_at(nb, s, k);
    if (is_encoded(nb)) {
        const taciti_codec_call call = call_of(nb, s, nb->in[k].rank);
        TACITI_TRY(taciti_payload_refused(nb->encoding->codec->decode(nb->encoding->codec, &call, arriving_at(nb, s, k),
                                                                      bytes, nb->decoded, s->n, false),
                                          nb->encoding, s->task, nb->in[k].rank, bytes));
        values = nb->decoded;
    }
    taciti_kernels_get()->add_scaled(s->x, values, (float)nb->in[k].weight, s->n);
    return TACIT_OK;
}

static tacit_status finish_segment(taciti_neighbours *nb, const segment *s) {
    TACITI_TRY(taciti_outbox_await(&nb->sends, nb->sent[s->slot])); /* they may leave from x itself */
    int64_t begin_ns = taciti_now_ns(), spent_ns = 0;
    TACITI_TRY(keep_own(nb, s));
    for (size_t k = 0; k < nb->in_count; k++) {
        taciti_engine_request *request = &nb->heard[s->slot * nb->in_count + k];
        spent_ns += taciti_now_ns() - begin_ns;
        TACITI_TRY(taciti_comm_await(nb->comm, request));
        begin_ns = taciti_now_ns();
        TACITI_TRY(add_arrived(nb, s, k, request->bytes));
    }
    taciti_payload_time(nb->comm, TACITI_SPAN_DECODE, spent_ns + taciti_now_ns() - begin_ns);
    return TACIT_OK;
}

tacit_status taciti_neighbours_run(taciti_neighbours *nb, float *x, float *apart, size_t n,
                                   const taciti_bucket_task *task) {
    const size_t segments = n / nb->segment_n + (n % nb->segment_n != 0), depth = nb->slots - 1;
    for (size_t cycle = 0; cycle < segments + depth; cycle++) {
        if (cycle < segments) {
            const segment s = segment_at(nb, x, apart, n, cycle, task);
            TACITI_TRY(start_segment(nb, &s));
        }
        if (cycle >= depth && cycle - depth < segments) {
            const segment s = segment_at(nb, x, apart, n, cycle - depth, task);
            TACITI_TRY(finish_segment(nb, &s));
        }
    }
    return TACIT_OK;
}
