/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/allreduce.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "exchange/pipeline.h"
#include "kernel/kernel.h"

/* DEPTH_LOCAL: pieces under way inside a host; see pipeline.h for those between hosts. */
enum { DEPTH_LOCAL = 1, GRAIN = 16, SENDS_PER_MEMBER = 2 };

static taciti_range share_of(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int member) {
    if (member >= arrangement->lanes) return (taciti_range){0};
    return taciti_cut_share(arrangement, cut, piece, member);
}

static taciti_range chunk_of(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int member) {
    return taciti_cut_chunk(arrangement, cut, piece, arrangement->number, member);
}

static size_t max(size_t a, size_t b) { return a > b ? a : b; }

/* Segment and depths from what all ranks know alike: the options and who shares a host with whom. */
static void choose_pipeline(taciti_allreduce *reduce, size_t segment_bytes) {
    const taciti_arrangement *p = &reduce->arrangement;
    const taciti_pipeline wire = taciti_pipeline_of(segment_bytes, p->one_host, (size_t)p->lanes, (size_t)p->size);
    reduce->segment_n = wire.segment_n;
    reduce->wire_depth = p->hosts == 1 ? 0 : wire.depth;
    reduce->local_depth = p->hosts == p->size ? 0 : DEPTH_LOCAL;
}

tacit_status taciti_allreduce_describe(const taciti_hosts *hosts, taciti_members members, int rank,
                                       const taciti_codec *codec, taciti_placement requested, size_t segment_bytes,
                                       taciti_allreduce *out) {
    if (!taciti_codec_is_dense(codec))
        return taciti_fail(TACIT_E_CONFIG, "codec %s cannot carry a dense all-reduce", codec->name);
    *out = (taciti_allreduce){.codec = codec};
    TACITI_TRY(taciti_arrangement_of(hosts, members, rank, requested, &out->arrangement));
    choose_pipeline(out, segment_bytes);
    const taciti_arrangement *p = &out->arrangement;
    const int local_size = taciti_arrangement_local_size(p, p->host);
    out->wire_shape = (taciti_halves_shape){.codec = codec,
                                            .arrangement = p,
                                            .range = chunk_of,
                                            .count = taciti_arrangement_is_lane(p) ? p->hosts : 1,
                                            .me = taciti_arrangement_is_lane(p) ? p->host : 0,
                                            .range_n = out->segment_n,
                                            .slots = out->wire_depth + 1,
                                            .window = max(SENDS_PER_MEMBER, p->one_host ? 2 * out->wire_depth + 2 : 0) *
                                                      (size_t)p->hosts};
    out->local_shape = (taciti_halves_shape){.codec = taciti_codec_find("f32"),
                                             .arrangement = p,
                                             .range = share_of,
                                             .count = local_size,
                                             .me = p->number,
                                             .range_n = out->segment_n * (size_t)p->hosts,
                                             .slots = out->local_depth + 1,
                                             .lag = 2 * out->wire_depth + out->local_depth,
                                             .window = 2 * SENDS_PER_MEMBER * (size_t)local_size};
    return TACIT_OK;
}

size_t taciti_allreduce_workspace_bytes(const taciti_allreduce *reduce) {
    return taciti_halves_memory_bytes(&reduce->local_shape) + taciti_halves_memory_bytes(&reduce->wire_shape) +
           taciti_small_memory_bytes(reduce->codec, &reduce->arrangement);
}

static tacit_status open_halves(taciti_allreduce *reduce, char *memory) {
    const taciti_arrangement *p = &reduce->arrangement;
    TACITI_TRY(
        taciti_halves_create(reduce->comm, &reduce->local_shape, p->order + p->first[p->host], memory, &reduce->local));
    int *across = taciti_calloc((size_t)p->hosts, sizeof *across);
    if (across == NULL) return TACIT_E_MEMORY;
    for (int h = 0; h < p->hosts && taciti_arrangement_is_lane(p); h++)
        across[h] = taciti_arrangement_rank(p, h, p->number);
    memory += taciti_halves_memory_bytes(&reduce->local_shape);
    const tacit_status status = taciti_halves_create(reduce->comm, &reduce->wire_shape, across, memory, &reduce->wire);
    taciti_free(across);
    return status;
}

tacit_status taciti_allreduce_open(taciti_allreduce *reduce, taciti_comm *comm, void *memory) {
    const size_t halves_bytes =
        taciti_halves_memory_bytes(&reduce->local_shape) + taciti_halves_memory_bytes(&reduce->wire_shape);
    reduce->comm = comm;
    if (memory == NULL) memory = reduce->memory = taciti_calloc(taciti_allreduce_workspace_bytes(reduce) + 1, 1);
    if (memory == NULL) return TACIT_E_MEMORY;
    reduce->small = taciti_small_of(comm, reduce->codec, &reduce->arrangement, (char *)memory + halves_bytes);
    return open_halves(reduce, memory);
}

/* As taciti_allreduce_describe(), for this rank of a communicator. */
static tacit_status describe_here(const taciti_comm *comm, const taciti_codec *codec, taciti_members members,
                                  taciti_placement requested, size_t segment_bytes, taciti_allreduce *out) {
    return taciti_allreduce_describe(taciti_comm_hosts(comm), members, taciti_comm_rank(comm), codec, requested,
                                     segment_bytes, out);
}

tacit_status taciti_allreduce_create(taciti_comm *comm, const taciti_codec *codec, taciti_members members,
                                     taciti_placement requested, size_t segment_bytes, taciti_allreduce *out) {
    TACITI_TRY(describe_here(comm, codec, members, requested, segment_bytes, out));
    const tacit_status status = taciti_allreduce_open(out, comm, NULL);
    if (status != TACIT_OK) taciti_allreduce_destroy(out);
    return status;
}

size_t taciti_allreduce_memory_bytes(const taciti_comm *comm, const taciti_codec *codec, taciti_placement requested,
                                     size_t segment_bytes) {
    taciti_allreduce reduce;
    if (describe_here(comm, codec, (taciti_members){0}, requested, segment_bytes, &reduce) != TACIT_OK) return 0;
    const size_t bytes = taciti_allreduce_workspace_bytes(&reduce);
    taciti_allreduce_destroy(&reduce);
    return bytes;
}

void taciti_allreduce_destroy(taciti_allreduce *reduce) {
    taciti_halves_destroy(&reduce->local);
    taciti_halves_destroy(&reduce->wire);
    taciti_arrangement_destroy(&reduce->arrangement);
    taciti_free(reduce->memory);
    *reduce = (taciti_allreduce){0};
}

static size_t divide_up(size_t a, size_t b) { return a / b + (a % b != 0); }

/* Pieces of equal length, so that none is left over at the end. */
static taciti_cut cut_of(const taciti_allreduce *reduce, size_t n) {
    const size_t ranges = (size_t)reduce->arrangement.hosts * (size_t)reduce->arrangement.lanes;
    const size_t unit = ranges * GRAIN;
    const size_t pieces = divide_up(n, reduce->segment_n * ranges);
    taciti_cut cut = {.n = n, .piece_n = divide_up(divide_up(n, pieces), unit) * unit};
    cut.pieces = divide_up(n, cut.piece_n);
    return cut;
}

/* Piece number `cycle - lag` of an array, when there is such a one. */
static bool piece_at(const taciti_cut *cut, size_t cycle, size_t lag, taciti_piece *t) {
    t->piece = cycle - lag;
    return cycle >= lag && t->piece < cut->pieces;
}

/* Where this rank encodes nothing, nothing is taken: in all of the piece but its share. */
static void clear_error(const taciti_allreduce *reduce, const taciti_piece *t) {
    const taciti_arrangement *p = &reduce->arrangement;
    const taciti_range all = taciti_cut_piece(t->cut, t->piece);
    taciti_range share = {.at = all.at};
    if (p->hosts > 1 && taciti_arrangement_is_lane(p)) share = taciti_cut_share(p, t->cut, t->piece, p->number);
    const size_t end = share.at + share.n;
    memset(t->error + all.at, 0, (share.at - all.at) * sizeof *t->error);
    memset(t->error + end, 0, (all.at + all.n - end) * sizeof *t->error);
}

/* The piece is final here; but my share of it may still be on its way to my host's ranks. */
static tacit_status give_back(taciti_allreduce *reduce, const taciti_piece *t, float back) {
    const taciti_arrangement *p = &reduce->arrangement;
    if (p->hosts == 1 || !taciti_arrangement_is_lane(p)) return TACIT_OK;
    TACITI_TRY(taciti_gather_await_sent(&reduce->local, t));
    const taciti_range share = taciti_cut_share(p, t->cut, t->piece, p->number);
    taciti_kernels_get()->add_scaled(t->x + share.at, t->error + share.at, back, share.n);
    return TACIT_OK;
}

static tacit_status run_cycle(taciti_allreduce *reduce, size_t cycle, float *x, const taciti_cut *cut,
                              const taciti_residual *residual) {
    const size_t a = reduce->local_depth, b = reduce->wire_depth;
    taciti_piece t = {.x = x, .error = residual != NULL ? residual->error : NULL, .cut = cut};
    if (piece_at(cut, cycle, 0, &t)) TACITI_TRY(taciti_scatter_begin(&reduce->local, &t));
    if (piece_at(cut, cycle, a, &t)) {
        TACITI_TRY(taciti_scatter_end(&reduce->local, &t));
        if (t.error != NULL && !(residual->back != 0)) clear_error(reduce, &t);
        TACITI_TRY(taciti_scatter_begin(&reduce->wire, &t));
    }
    if (piece_at(cut, cycle, a + b, &t)) {
        TACITI_TRY(taciti_scatter_end(&reduce->wire, &t));
        TACITI_TRY(taciti_gather_begin(&reduce->wire, &t));
    }
    if (piece_at(cut, cycle, a + 2 * b, &t)) {
        TACITI_TRY(taciti_gather_end(&reduce->wire, &t));
        TACITI_TRY(taciti_gather_begin(&reduce->local, &t));
    }
    if (!piece_at(cut, cycle, 2 * a + 2 * b, &t)) return TACIT_OK;
    TACITI_TRY(taciti_gather_end(&reduce->local, &t));
    return residual != NULL && residual->back != 0 ? give_back(reduce, &t, residual->back) : TACIT_OK;
}

static tacit_status run_halves(taciti_allreduce *reduce, float *x, size_t n, const taciti_residual *residual) {
    const taciti_cut cut = cut_of(reduce, n);
    const size_t cycles = cut.pieces + 2 * (reduce->local_depth + reduce->wire_depth);
    for (size_t cycle = 0; cycle < cycles; cycle++) TACITI_TRY(run_cycle(reduce, cycle, x, &cut, residual));
    TACITI_TRY(taciti_halves_finish(&reduce->local));
    return taciti_halves_finish(&reduce->wire);
}

static bool takes_small(const taciti_allreduce *reduce, size_t n) {
    return !reduce->halves_only && taciti_small_pays(&reduce->arrangement, n);
}

tacit_status taciti_allreduce_run(taciti_allreduce *reduce, float *x, size_t n, const taciti_residual *residual) {
    if (n == 0) return TACIT_OK;
    if (residual != NULL && (reduce->codec->identity || reduce->arrangement.size == 1)) {
        memset(residual->error, 0, n * sizeof *residual->error);
        residual = NULL;
    }
    if (reduce->arrangement.size == 1) return TACIT_OK;
    if (!takes_small(reduce, n)) return run_halves(reduce, x, n, residual);
    if (residual == NULL) return taciti_small_run(&reduce->small, x, n, NULL);
    TACITI_TRY(taciti_small_run(&reduce->small, x, n, residual->error));
    if (residual->back != 0) taciti_kernels_get()->add_scaled(x, residual->error, residual->back, n);
    return TACIT_OK;
}

uint64_t taciti_allreduce_bytes(const taciti_allreduce *reduce, size_t n) {
    if (reduce->arrangement.size == 1 || n == 0) return 0;
    if (takes_small(reduce, n)) return taciti_small_bytes(&reduce->arrangement, n);
    const taciti_cut cut = cut_of(reduce, n);
    uint64_t bytes = 0;
    for (size_t i = 0; i < cut.pieces; i++)
        bytes += taciti_halves_bytes(&reduce->local_shape, &cut, i, reduce->local_shape.me) +
                 taciti_halves_bytes(&reduce->wire_shape, &cut, i, reduce->wire_shape.me);
    return bytes;
}

/* Of every pair of a rank here and a rank there that talk to each other: same lane, or any two in the flat arrangement.
 */
static uint64_t piece_nic_bytes(const taciti_allreduce *reduce, const taciti_cut *cut, size_t piece, int machine) {
    const taciti_arrangement *p = &reduce->arrangement;
    uint64_t bytes = 0;
    for (int lane = 0; lane < p->lanes; lane++)
        for (int here = 0; here < p->hosts; here++) {
            if (p->machine[p->first[here] + lane] != machine) continue;
            for (int there = 0; there < p->hosts; there++) {
                if (p->machine[p->first[there] + lane] == machine) continue;
                bytes += reduce->codec->bound(NULL, taciti_cut_chunk(p, cut, piece, lane, there).n) +
                         reduce->codec->bound(NULL, taciti_cut_chunk(p, cut, piece, lane, here).n);
            }
        }
    return bytes;
}

uint64_t taciti_allreduce_nic_bytes(const taciti_allreduce *reduce, size_t n, int machine) {
    if (reduce->arrangement.size == 1 || n == 0) return 0;
    if (takes_small(reduce, n)) return taciti_small_nic_bytes(&reduce->arrangement, n, machine);
    const taciti_cut cut = cut_of(reduce, n);
    uint64_t bytes = 0;
    for (size_t i = 0; i < cut.pieces; i++) bytes += piece_nic_bytes(reduce, &cut, i, machine);
    return bytes;
}
