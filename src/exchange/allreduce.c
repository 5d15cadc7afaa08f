/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter by pairwise exchange followed by an all-gather (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
 * collective communication operations in MPICH", IJHPCA 19(1), 2005, sections 4.3 and 4.5), pipelined by segments.
 * Bytes per rank and direction: 2 (N-1)/N of the payload, the bound for any all-reduce.
 *
 * Deviation: contributions are added in rank order instead of arrival order, so the result is a function of the inputs
 * alone; the owner decodes its own broadcast payload, so all ranks hold the same bits.
 */
#include "exchange/allreduce.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "kernel/kernel.h"

/* How many segments are under way. Messages of one pair share the line and end together, so a network needs many to
 * stay busy in both directions (2 hosts at 1 Gbit/s, 32 MB: depth 3 takes 318 ms, 16 takes 272 ms); inside one host few
 * stay in the cache (64 MB: 8.9 against 10.2 ms). */
enum { DEPTH_NETWORK = 16, DEPTH_HOST = 3, DEPTH_LEAST = 2, GRAIN = 16 };

/* Arriving payloads of all ranks and slots together; many ranks have small chunks anyway. */
#define STAGING_BYTES ((size_t)64 << 20)

/* Both directions of a segment: where it lies and how long it is in every chunk. */
typedef struct turn {
    float *x;
    size_t n;       /* of the whole array */
    size_t segment; /* number */
    size_t slot;
} turn;

/* Segment and depth from what all ranks know alike: the options and who shares a host with whom. */
static void choose_pipeline(taciti_allreduce *reduce, bool one_host, size_t segment_bytes) {
    const size_t size = (size_t)reduce->size, most = STAGING_BYTES / size;
    size_t bytes = segment_bytes < most / (DEPTH_LEAST + 1) ? segment_bytes : most / (DEPTH_LEAST + 1);
    if (bytes < GRAIN * sizeof(float)) bytes = GRAIN * sizeof(float);
    reduce->segment_n = bytes / sizeof(float) / GRAIN * GRAIN;
    reduce->depth = one_host ? DEPTH_HOST : DEPTH_NETWORK;
    while (reduce->depth > DEPTH_LEAST && bytes * (reduce->depth + 1) > most) reduce->depth--;
    reduce->slots = reduce->depth + 1;
}

/* The object without its buffers. */
static taciti_allreduce describe(const taciti_comm *comm, const taciti_codec *codec, size_t segment_bytes) {
    taciti_allreduce reduce = {.codec = codec, .rank = taciti_comm_rank(comm), .size = taciti_comm_size(comm)};
    choose_pipeline(&reduce, taciti_comm_peer(comm, 0)->local_size == reduce.size, segment_bytes);
    reduce.stride_bytes = taciti_round_up(codec->bound(reduce.segment_n), TACITI_ALIGN_BYTES);
    reduce.prefix_bytes = taciti_round_up(reduce.segment_n * sizeof(float), TACITI_ALIGN_BYTES);
    const size_t one = reduce.slots * reduce.stride_bytes, block = one * (size_t)reduce.size;
    if (reduce.size > 1) reduce.memory_bytes = reduce.prefix_bytes + block + (codec->identity ? 0 : 2 * block + one);
    return reduce;
}

size_t taciti_allreduce_memory_bytes(const taciti_comm *comm, const taciti_codec *codec, size_t segment_bytes) {
    return describe(comm, codec, segment_bytes).memory_bytes;
}

static tacit_status allocate(taciti_allreduce *reduce) {
    const size_t requests = reduce->slots * (size_t)reduce->size, block = requests * reduce->stride_bytes;
    reduce->memory = taciti_calloc(reduce->memory_bytes, 1);
    reduce->scatter_in = taciti_calloc(4 * requests, sizeof *reduce->scatter_in);
    if (reduce->memory == NULL || reduce->scatter_in == NULL) {
        taciti_allreduce_destroy(reduce);
        return TACIT_E_MEMORY;
    }
    reduce->prefix = (float *)(void *)reduce->memory;
    reduce->arriving = reduce->memory + reduce->prefix_bytes;
    if (!reduce->codec->identity) {
        reduce->leaving = reduce->arriving + block;
        reduce->sums = reduce->leaving + block;
        reduce->sum = reduce->sums + block;
    }
    reduce->scatter_out = reduce->scatter_in + requests;
    reduce->gather_in = reduce->scatter_out + requests;
    reduce->gather_out = reduce->gather_in + requests;
    return TACIT_OK;
}

tacit_status taciti_allreduce_create(taciti_comm *comm, const taciti_codec *codec, size_t segment_bytes,
                                     taciti_allreduce *out) {
    if (codec->aggregation != TACITI_CODEC_SUM || codec->rounds != 1)
        return taciti_fail(TACIT_E_CONFIG, "codec %s cannot carry a dense all-reduce", codec->name);
    taciti_allreduce reduce = describe(comm, codec, segment_bytes);
    reduce.comm = comm;
    if (reduce.size > 1) TACITI_TRY(allocate(&reduce));
    *out = reduce;
    return TACIT_OK;
}

void taciti_allreduce_destroy(taciti_allreduce *reduce) {
    taciti_free(reduce->memory);
    taciti_free(reduce->scatter_in);
    *reduce = (taciti_allreduce){0};
}

/* Floats of one segment of `rank`'s chunk; *at receives where it begins in the array. */
static size_t part(const taciti_allreduce *reduce, const turn *t, int rank, size_t *at) {
    size_t begin = 0, end = 0;
    taciti_pool_part(t->n, GRAIN, rank, reduce->size, &begin, &end);
    const size_t from = begin + t->segment * reduce->segment_n;
    *at = from;
    if (from >= end) return 0;
    return end - from < reduce->segment_n ? end - from : reduce->segment_n;
}

static size_t index_of(const taciti_allreduce *reduce, const turn *t, int rank) {
    return t->slot * (size_t)reduce->size + (size_t)rank;
}

static char *buffer(const taciti_allreduce *reduce, char *block, const turn *t, int rank) {
    return block + index_of(reduce, t, rank) * reduce->stride_bytes;
}

/* Too short and too many to be spans of their own. */
static void add_time(const taciti_allreduce *reduce, taciti_span_kind kind, int64_t spent_ns) {
    taciti_trace *trace = taciti_comm_trace(reduce->comm);
    trace->total_ns[kind] += spent_ns;
    trace->run_ns[kind] += spent_ns;
}

/* Encodes x[n] into out; dense codecs have payloads of one size, which is what the receivers expect. */
static tacit_status encode(const taciti_allreduce *reduce, const float *x, size_t n, void *out) {
    const int64_t begin_ns = taciti_now_ns();
    const size_t bytes = reduce->codec->encode(x, n, 0, out); /* key 0: rounding to nearest needs no randomness */
    add_time(reduce, TACITI_SPAN_ENCODE, taciti_now_ns() - begin_ns);
    if (bytes == reduce->codec->bound(n)) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "codec %s wrote %zu bytes for %zu floats instead of %zu", reduce->codec->name,
                       bytes, n, reduce->codec->bound(n));
}

static tacit_status scatter(taciti_allreduce *reduce, const turn *t) {
    size_t at = 0;
    const size_t mine_n = part(reduce, t, reduce->rank, &at);
    for (int k = 1; k < reduce->size; k++) {
        const int from = (reduce->rank - k + reduce->size) % reduce->size;
        if (mine_n > 0)
            TACITI_TRY(taciti_comm_irecv(reduce->comm, from, buffer(reduce, reduce->arriving, t, from),
                                         reduce->codec->bound(mine_n), &reduce->scatter_in[index_of(reduce, t, from)]));
    }
    for (int k = 1; k < reduce->size; k++) {
        const int to = (reduce->rank + k) % reduce->size;
        const size_t n = part(reduce, t, to, &at);
        if (n == 0) continue;
        const void *payload = t->x + at;
        if (!reduce->codec->identity) {
            char *out = buffer(reduce, reduce->leaving, t, to);
            TACITI_TRY(encode(reduce, t->x + at, n, out));
            payload = out;
        }
        TACITI_TRY(taciti_comm_isend(reduce->comm, to, payload, reduce->codec->bound(n),
                                     &reduce->scatter_out[index_of(reduce, t, to)]));
    }
    return TACIT_OK;
}

/* This rank's own contribution is rounded like everybody's. */
static tacit_status round_own(taciti_allreduce *reduce, const turn *t, float *own, size_t n) {
    if (reduce->codec->identity) return TACIT_OK;
    char *payload = buffer(reduce, reduce->leaving, t, reduce->rank);
    TACITI_TRY(encode(reduce, own, n, payload));
    return reduce->codec->decode(payload, reduce->codec->bound(n), own, n);
}

/* own[n] = sum over ranks in rank order. Adding two numbers commutes, so own += (sum of the ranks before mine) is that
 * order; the payload of rank 0 is the place of that sum when it is plain floats. */
static tacit_status add_in_rank_order(taciti_allreduce *reduce, const turn *t, float *own, size_t n) {
    const taciti_codec *codec = reduce->codec;
    char *first = buffer(reduce, reduce->arriving, t, 0);
    float *prefix = codec->identity ? (float *)(void *)first : reduce->prefix;
    const size_t bytes = codec->bound(n);
    int64_t begin_ns = taciti_now_ns(), spent_ns = 0;
    for (int r = 0; r < reduce->size; r++) {
        if (r == reduce->rank) {
            TACITI_TRY(round_own(reduce, t, own, n));
            if (r > 0) taciti_kernels_get()->add(own, prefix, n);
            continue;
        }
        const char *payload = buffer(reduce, reduce->arriving, t, r);
        spent_ns += taciti_now_ns() - begin_ns;
        TACITI_TRY(taciti_comm_await(reduce->comm, &reduce->scatter_in[index_of(reduce, t, r)]));
        begin_ns = taciti_now_ns();
        if (r > reduce->rank)
            TACITI_TRY(codec->decode_add(payload, bytes, own, n));
        else if (r > 0)
            TACITI_TRY(codec->decode_add(payload, bytes, prefix, n));
        else if (!codec->identity)
            TACITI_TRY(codec->decode(payload, bytes, prefix, n));
    }
    add_time(reduce, TACITI_SPAN_DECODE, spent_ns + taciti_now_ns() - begin_ns);
    return TACIT_OK;
}

/* The sum of my chunk's segment goes to all. */
static tacit_status send_sum(taciti_allreduce *reduce, const turn *t, float *own, size_t n) {
    const void *payload = own;
    if (!reduce->codec->identity) {
        char *out = reduce->sum + t->slot * reduce->stride_bytes;
        TACITI_TRY(encode(reduce, own, n, out));
        TACITI_TRY(reduce->codec->decode(out, reduce->codec->bound(n), own, n));
        payload = out;
    }
    for (int k = 1; k < reduce->size; k++) {
        const int to = (reduce->rank + k) % reduce->size;
        TACITI_TRY(taciti_comm_isend(reduce->comm, to, payload, reduce->codec->bound(n),
                                     &reduce->gather_out[index_of(reduce, t, to)]));
    }
    return TACIT_OK;
}

static tacit_status combine(taciti_allreduce *reduce, const turn *t) {
    size_t at = 0;
    const size_t mine_n = part(reduce, t, reduce->rank, &at);
    float *own = t->x + at;
    if (mine_n > 0) TACITI_TRY(add_in_rank_order(reduce, t, own, mine_n));
    /* Their sums overwrite what was sent to them, so it must have left. */
    for (int k = 1; k < reduce->size; k++) {
        const int peer = (reduce->rank + k) % reduce->size;
        const size_t n = part(reduce, t, peer, &at);
        if (n == 0) continue;
        TACITI_TRY(taciti_comm_await(reduce->comm, &reduce->scatter_out[index_of(reduce, t, peer)]));
        void *into = reduce->codec->identity ? (void *)(t->x + at) : buffer(reduce, reduce->sums, t, peer);
        TACITI_TRY(taciti_comm_irecv(reduce->comm, peer, into, reduce->codec->bound(n),
                                     &reduce->gather_in[index_of(reduce, t, peer)]));
    }
    return mine_n > 0 ? send_sum(reduce, t, own, mine_n) : TACIT_OK;
}

static tacit_status collect(taciti_allreduce *reduce, const turn *t) {
    size_t at = 0;
    const size_t mine_n = part(reduce, t, reduce->rank, &at);
    for (int k = 1; k < reduce->size; k++) {
        const int from = (reduce->rank - k + reduce->size) % reduce->size;
        const size_t n = part(reduce, t, from, &at);
        if (n > 0) TACITI_TRY(taciti_comm_await(reduce->comm, &reduce->gather_in[index_of(reduce, t, from)]));
        if (n > 0 && !reduce->codec->identity)
            TACITI_TRY(
                reduce->codec->decode(buffer(reduce, reduce->sums, t, from), reduce->codec->bound(n), t->x + at, n));
        if (mine_n > 0) TACITI_TRY(taciti_comm_await(reduce->comm, &reduce->gather_out[index_of(reduce, t, from)]));
    }
    return TACIT_OK;
}

/* Segments of the longest chunk. */
static size_t segment_count(const taciti_allreduce *reduce, size_t n) {
    size_t longest = 0;
    for (int r = 0; r < reduce->size; r++) {
        size_t begin = 0, end = 0;
        taciti_pool_part(n, GRAIN, r, reduce->size, &begin, &end);
        if (end - begin > longest) longest = end - begin;
    }
    return (longest + reduce->segment_n - 1) / reduce->segment_n;
}

static turn turn_of(const taciti_allreduce *reduce, float *x, size_t n, size_t segment) {
    return (turn){.x = x, .n = n, .segment = segment, .slot = segment % reduce->slots};
}

tacit_status taciti_allreduce_run(taciti_allreduce *reduce, float *x, size_t n) {
    if (reduce->size == 1 || n == 0) return TACIT_OK;
    const size_t segments = segment_count(reduce, n), depth = reduce->depth;
    for (size_t i = 0; i < segments + 2 * depth; i++) {
        if (i < segments) {
            const turn t = turn_of(reduce, x, n, i);
            TACITI_TRY(scatter(reduce, &t));
        }
        if (i >= depth && i - depth < segments) {
            const turn t = turn_of(reduce, x, n, i - depth);
            TACITI_TRY(combine(reduce, &t));
        }
        if (i >= 2 * depth) {
            const turn t = turn_of(reduce, x, n, i - 2 * depth);
            TACITI_TRY(collect(reduce, &t));
        }
    }
    return TACIT_OK;
}

static uint64_t chunk_bytes(const taciti_allreduce *reduce, size_t n, int rank) {
    size_t begin = 0, end = 0;
    taciti_pool_part(n, GRAIN, rank, reduce->size, &begin, &end);
    const size_t whole = (end - begin) / reduce->segment_n, rest = (end - begin) % reduce->segment_n;
    return (uint64_t)whole * reduce->codec->bound(reduce->segment_n) + (rest > 0 ? reduce->codec->bound(rest) : 0);
}

uint64_t taciti_allreduce_bytes(const taciti_allreduce *reduce, size_t n) {
    uint64_t bytes = 0;
    for (int r = 0; r < reduce->size; r++)
        bytes += chunk_bytes(reduce, n, r) * (uint64_t)(r == reduce->rank ? reduce->size - 1 : 1);
    return reduce->size == 1 ? 0 : bytes;
}

uint64_t taciti_allreduce_nic_bytes(const taciti_allreduce *reduce, size_t n) {
    uint64_t bytes = 0;
    for (int r = 0; r < reduce->size; r++)
        for (int to = 0; to < reduce->size; to++)
            if (taciti_comm_same_host(reduce->comm, r, reduce->rank) && !taciti_comm_same_host(reduce->comm, r, to))
                bytes += chunk_bytes(reduce, n, r) + chunk_bytes(reduce, n, to);
    return bytes;
}
