/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/allreduce.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "exchange/pipeline.h"
#include "kernel/kernel.h"

/* DEPTH_LOCAL: pieces under way inside a host; see pipeline.h for those between hosts. */
enum { DEPTH_LOCAL = 1, GRAIN = 16, LOCAL_SENDS = 4, UNEVEN_PIECES = 4, MIN_UNEVEN_CHUNK = 2048 };

static taciti_range share_of(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int member) {
    if (member >= arrangement->lanes) return (taciti_range){0};
    return taciti_cut_share(arrangement, cut, piece, member);
}

/* Contiguous: piece q of `local` belongs to piece q / hosts, and to host q % hosts. */
static taciti_range run_of(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int member) {
    const size_t hosts = (size_t)arrangement->hosts;
    if (member >= arrangement->lanes) return (taciti_range){0};
    return taciti_cut_chunk(arrangement, cut, piece / hosts, member, (int)(piece % hosts));
}

static taciti_range chunk_of(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int member) {
    return taciti_cut_chunk(arrangement, cut, piece, arrangement->number, member);
}

/* With `gather`: this lane's share, for every member. */
static taciti_range own_share(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int member) {
    (void)member;
    return taciti_cut_share(arrangement, cut, piece, arrangement->number);
}

/* Whether pieces of a short array may travel together: with hosts of several ranks they would have to do so inside of
 * the hosts, too. */
static bool packs_pieces(const taciti_allreduce *reduce) {
    return !reduce->gather && taciti_encoding_is_uneven(&reduce->encoding) &&
           reduce->arrangement.hosts == reduce->arrangement.size;
}

/* Segment and depths from what all ranks know alike: the options and who shares a host with whom. */
static void choose_pipeline(taciti_allreduce *reduce, size_t segment_bytes) {
    const taciti_arrangement *p = &reduce->arrangement;
    const taciti_pipeline wire =
        taciti_pipeline_of(&reduce->encoding, segment_bytes, p->one_host, (size_t)p->lanes, (size_t)p->size);
    reduce->segment_n = wire.segment_n;
    if (reduce->gather) { /* so that pieces, which are whole chunks, do not become longer */
        const size_t unit = (size_t)p->hosts * GRAIN;
        reduce->segment_n = taciti_max(reduce->segment_n / unit, 1) * unit;
    }
    reduce->wire_depth = p->hosts == 1 ? 0 : wire.depth;
    reduce->wire_sends = wire.sends;
    reduce->local_depth = p->hosts == p->size ? 0 : DEPTH_LOCAL;
}

tacit_status taciti_allreduce_describe(const taciti_hosts *hosts, taciti_members members, int rank,
                                       const taciti_encoding *encoding, taciti_placement requested,
                                       size_t segment_bytes, taciti_allreduce *out) {
    TACITI_TRY(taciti_encoding_check(encoding));
    *out = (taciti_allreduce){
        .encoding = *encoding, .plain = {.codec = taciti_codec_find("f32")}, .gather = requested.gather};
    TACITI_TRY(taciti_arrangement_of(hosts, members, rank, requested, &out->arrangement));
    const taciti_arrangement *p = &out->arrangement;
    out->contiguous = requested.contiguous && !requested.gather;
    out->runs = out->contiguous && p->hosts < p->size ? (size_t)p->hosts : 1;
    choose_pipeline(out, segment_bytes);
    const int local_size = taciti_arrangement_local_size(p, p->host);
    out->wire_shape = (taciti_halves_shape){
        .encoding = &out->encoding,
        .arrangement = p,
        .range = out->gather ? own_share : chunk_of,
        .whole = out->gather,
        .together = packs_pieces(out) ? UNEVEN_PIECES : 1,
        .between = true,
        .count = taciti_arrangement_is_lane(p) ? p->hosts : 1,
        .me = taciti_arrangement_is_lane(p) ? p->host : 0,
        .range_n = out->segment_n,
        .slots = out->wire_depth + 1,
        .window = taciti_max(out->wire_sends, p->one_host ? 2 * out->wire_depth + 2 : 0) * (size_t)p->hosts};
    out->local_shape =
        (taciti_halves_shape){.encoding = &out->plain,
                              .arrangement = p,
                              .range = out->contiguous ? run_of : share_of,
                              .count = local_size,
                              .me = p->number,
                              .together = 1,
                              .range_n = out->segment_n * (out->gather ? 1 : (size_t)p->hosts / out->runs),
                              .slots = (out->local_depth + 1) * out->runs,
                              .lag = (2 * out->wire_depth + out->local_depth) * out->runs,
                              .window = LOCAL_SENDS * (size_t)local_size * out->runs};
    return TACIT_OK;
}

size_t taciti_allreduce_workspace_bytes(const taciti_allreduce *reduce) {
    return taciti_halves_memory_bytes(&reduce->local_shape) + taciti_halves_memory_bytes(&reduce->wire_shape) +
           taciti_small_memory_bytes(&reduce->encoding, &reduce->arrangement);
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
    reduce->small = taciti_small_of(comm, &reduce->encoding, &reduce->arrangement, (char *)memory + halves_bytes);
    return open_halves(reduce, memory);
}

tacit_status taciti_allreduce_create(taciti_comm *comm, const taciti_encoding *encoding, taciti_members members,
                                     taciti_placement requested, size_t segment_bytes, taciti_allreduce *out) {
    TACITI_TRY(taciti_allreduce_describe(taciti_comm_hosts(comm), members, taciti_comm_rank(comm), encoding, requested,
                                         segment_bytes, out));
    const tacit_status status = taciti_allreduce_open(out, comm, NULL);
    if (status != TACIT_OK) taciti_allreduce_destroy(out);
    return status;
}

void taciti_allreduce_destroy(taciti_allreduce *reduce) {
    taciti_halves_destroy(&reduce->local);
    taciti_halves_destroy(&reduce->wire);
    taciti_arrangement_destroy(&reduce->arrangement);
    taciti_free(reduce->memory);
    *reduce = (taciti_allreduce){0};
}

static size_t divide_up(size_t a, size_t b) { return a / b + (a % b != 0); }

/* Where a threshold of the model selects, a layer's share of the payloads depends on its gradients. An array that
 * would be one piece is cut into some, so that every owner has a part of each of its stretches. */
static size_t min_pieces(const taciti_allreduce *reduce, size_t n, size_t ranges) {
    if (reduce->gather || !taciti_encoding_is_uneven(&reduce->encoding)) return 1;
    return taciti_max(taciti_min(n / (ranges * MIN_UNEVEN_CHUNK), UNEVEN_PIECES), 1);
}

/* Pieces of equal length, so that none is left over at the end. */
taciti_cut taciti_allreduce_cut(const taciti_allreduce *reduce, size_t n) {
    const size_t lanes = (size_t)reduce->arrangement.lanes, ranges = (size_t)reduce->arrangement.hosts * lanes;
    const size_t unit = ranges * GRAIN;
    const size_t messages = divide_up(n, reduce->segment_n * (reduce->gather ? lanes : ranges));
    const size_t pieces = taciti_max(messages, min_pieces(reduce, n, ranges));
    taciti_cut cut = {.n = n,
                      .piece_n = divide_up(divide_up(n, pieces), unit) * unit,
                      .together = reduce->halves_only && packs_pieces(reduce) ? pieces / messages : 1,
                      .contiguous = reduce->contiguous};
    cut.pieces = divide_up(n, cut.piece_n); /* contiguous: enough for the longest range, as both are rounded up */
    return cut;
}

/* Message number `cycle - lag` of an array, when there is such a one: its first piece. */
static bool piece_at(size_t cycle, size_t lag, taciti_piece *t) {
    t->piece = (cycle - lag) * t->cut->together;
    return cycle >= lag && t->piece < t->cut->pieces;
}

/* ---- what encodings leave ---------------------------------------------------------------------------------------- */
taciti_residual taciti_allreduce_residual(const taciti_allreduce *reduce, size_t n, taciti_feedback feedback) {
    const bool encodes = reduce->arrangement.hosts > 1;
    if (!taciti_encoding_encodes(&reduce->encoding) || n == 0 || (!encodes && feedback.estimates))
        return (taciti_residual){0};
    return (taciti_residual){
        .encodes = encodes,
        .feedback = feedback,
        .results = (!reduce->gather || feedback.errors) && !feedback.half, /* a resumed run may bring gather some */
    };
}

taciti_residual taciti_allreduce_errors(const taciti_allreduce *reduce, float back) {
    if (reduce->wire_shape.count == 1 || !taciti_encoding_encodes(&reduce->encoding)) return (taciti_residual){0};
    return (taciti_residual){.encodes = true, .back = back};
}

/* x += back * the errors in this rank's share. The piece is final here; but my share of it may still be on its way
 * to my host's ranks. */
static tacit_status give_back(taciti_allreduce *reduce, const taciti_piece *t) {
    const taciti_residual *r = t->residual;
    TACITI_TRY(taciti_allreduce_local(reduce, taciti_gather_await_sent, t));
    for (int member = 0; member < reduce->wire_shape.count; member++) {
        const taciti_range range = chunk_of(&reduce->arrangement, t->cut, t->piece, member);
        taciti_kernels_get()->add_scaled(t->x + range.at, r->errors + range.at, r->back, range.n);
    }
    return TACIT_OK;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */
tacit_status taciti_allreduce_local(taciti_allreduce *reduce, taciti_half_step *step, const taciti_piece *t) {
    taciti_piece run = *t;
    for (size_t r = 0; r < reduce->runs; r++) {
        run.piece = t->piece * reduce->runs + r;
        TACITI_TRY(step(&reduce->local, &run));
    }
    return TACIT_OK;
}

/* Parts of a piece: those of all lanes or of this rank's, of all hosts or of this rank's. */
typedef struct parts {
    bool lanes, hosts;
} parts;

/* The steps of a phase, the cycles of the pipeline before a piece reaches them, and what of a piece this rank brings
 * and gets. */
typedef struct schedule {
    bool scatter, between, to_all; /* the first two steps; the third; the last */
    size_t between_lag, to_all_lag, last_lag;
    parts leaving, arriving;
} schedule;

static schedule schedule_of(const taciti_allreduce *reduce, taciti_phase phase) {
    const size_t a = reduce->local_depth, b = reduce->wire_depth;
    schedule s = {.scatter = taciti_phase_sums(phase),
                  .between = phase != TACITI_PHASE_REDUCE_SCATTER && phase != TACITI_PHASE_GATHER_IN_HOST,
                  .to_all = phase == TACITI_PHASE_ALL_REDUCE || phase == TACITI_PHASE_ALL_GATHER ||
                            phase == TACITI_PHASE_GATHER_IN_HOST};
    s.between_lag = s.scatter ? a + b : 0;
    s.to_all_lag = s.between_lag + (s.between ? b : 0);
    s.last_lag = s.to_all_lag + (s.to_all ? a : 0);
    s.leaving = (parts){.lanes = s.scatter, .hosts = s.scatter || !s.between};
    s.arriving = (parts){.lanes = s.to_all, .hosts = s.to_all || s.between};
    return s;
}

typedef void bucket_hook(const taciti_bucket_task *task, taciti_range range);

static void call_for_chunks(const taciti_allreduce *reduce, const taciti_piece *t, parts which, bucket_hook *hook) {
    const taciti_arrangement *p = &reduce->arrangement;
    for (int lane = 0; lane < p->lanes; lane++)
        for (int host = 0; host < p->hosts; host++) {
            const bool in = (which.lanes || lane == p->number) && (which.hosts || host == p->host);
            const taciti_range chunk = taciti_cut_chunk(p, t->cut, t->piece, lane, host);
            if (in && chunk.n > 0) hook(t->task, chunk);
        }
}

/* Calls a hook of the bucket for these parts of a message, of which `t` is the first piece. */
static void call_hook(const taciti_allreduce *reduce, const taciti_piece *t, parts which, bucket_hook *hook) {
    const taciti_cut *cut = t->cut;
    const size_t end = taciti_min(t->piece + cut->together, cut->pieces), at = t->piece * cut->piece_n;
    taciti_piece p = *t;
    if (t->task->hooks == NULL) return;
    if (which.lanes && which.hosts && !cut->contiguous)
        hook(t->task, (taciti_range){at, taciti_min(end * cut->piece_n, cut->n) - at});
    else
        for (; p.piece < end; p.piece++) call_for_chunks(reduce, &p, which, hook);
}

static tacit_status scatter_cycle(taciti_allreduce *reduce, size_t cycle, taciti_piece *t) {
    const size_t a = reduce->local_depth, b = reduce->wire_depth;
    if (piece_at(cycle, 0, t)) TACITI_TRY(taciti_allreduce_local(reduce, taciti_scatter_begin, t));
    if (piece_at(cycle, a, t)) {
        TACITI_TRY(taciti_allreduce_local(reduce, taciti_scatter_end, t));
        TACITI_TRY(taciti_scatter_begin(&reduce->wire, t));
    }
    return piece_at(cycle, a + b, t) ? taciti_scatter_end(&reduce->wire, t) : TACIT_OK;
}

static tacit_status gather_cycle(taciti_allreduce *reduce, size_t cycle, const schedule *s, taciti_piece *t) {
    const size_t a = reduce->local_depth, b = reduce->wire_depth;
    if (s->between && piece_at(cycle, s->between_lag, t)) TACITI_TRY(taciti_gather_begin(&reduce->wire, t));
    if (s->between && piece_at(cycle, s->between_lag + b, t)) TACITI_TRY(taciti_gather_end(&reduce->wire, t));
    if (!s->to_all) return TACIT_OK;
    if (piece_at(cycle, s->to_all_lag, t)) TACITI_TRY(taciti_allreduce_local(reduce, taciti_gather_begin, t));
    if (!piece_at(cycle, s->to_all_lag + a, t)) return TACIT_OK;
    TACITI_TRY(taciti_allreduce_local(reduce, taciti_gather_end, t));
    return t->residual != NULL && t->residual->back != 0 ? give_back(reduce, t) : TACIT_OK;
}

static tacit_status run_halves(taciti_allreduce *reduce, float *x, size_t n, const taciti_bucket_task *task,
                               taciti_residual *residual) {
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    const schedule s = schedule_of(reduce, task->phase);
    taciti_piece t = {.x = x, .task = task, .residual = residual, .cut = &cut};
    for (size_t cycle = 0; cycle < taciti_cut_messages(&cut) + s.last_lag; cycle++) {
        if (piece_at(cycle, 0, &t)) call_hook(reduce, &t, s.leaving, taciti_bucket_leaves);
        if (s.scatter) TACITI_TRY(scatter_cycle(reduce, cycle, &t));
        TACITI_TRY(gather_cycle(reduce, cycle, &s, &t));
        if (piece_at(cycle, s.last_lag, &t)) call_hook(reduce, &t, s.arriving, taciti_bucket_arrives);
    }
    TACITI_TRY(taciti_halves_finish(&reduce->local));
    return taciti_halves_finish(&reduce->wire);
}

static bool takes_small(const taciti_allreduce *reduce, size_t n) {
    return !reduce->halves_only && !reduce->gather && taciti_small_takes(&reduce->encoding) &&
           taciti_small_pays(&reduce->arrangement, n);
}

static tacit_status run_small(taciti_allreduce *reduce, float *x, size_t n, const taciti_bucket_task *task,
                              taciti_residual *residual) {
    if (task->tallies != NULL)
        task->tallies[TACITI_PAYLOAD_CONTRIBUTION].bytes += taciti_small_bytes(&reduce->arrangement, n);
    const bool keeps = residual != NULL && residual->errors != NULL;
    TACITI_TRY(taciti_small_run(&reduce->small, x, n, task, keeps));
    if (!keeps) return TACIT_OK;
    const bool back = residual->back != 0;
    taciti_kernels_get()->add_scaled(back ? x : residual->errors, reduce->small.error, back ? residual->back : 1, n);
    return TACIT_OK;
}

tacit_status taciti_allreduce_run(taciti_allreduce *reduce, float *x, size_t n, const taciti_bucket_task *task,
                                  taciti_residual *residual) {
    static const taciti_bucket_task FIRST = {0};
    if (task == NULL) task = &FIRST;
    if (n == 0) return TACIT_OK;
    const bool alone = reduce->arrangement.size == 1;
    if (residual != NULL && !residual->encodes) residual = NULL; /* nothing is encoded */
    if (!alone && reduce->gather && task->phase != TACITI_PHASE_ALL_REDUCE)
        return taciti_fail(TACIT_E_INTERNAL, "bucket %zu: an all-reduce that gathers payloads has no halves",
                           task->bucket);
    const bool small = takes_small(reduce, n) && task->phase == TACITI_PHASE_ALL_REDUCE;
    if (!alone && !small) return run_halves(reduce, x, n, task, residual);
    taciti_bucket_leaves(task, (taciti_range){.n = n});
    if (!alone) TACITI_TRY(run_small(reduce, x, n, task, residual));
    taciti_bucket_arrives(task, (taciti_range){.n = n});
    return TACIT_OK;
}

tacit_status taciti_allreduce_observe(taciti_allreduce *reduce, float *x, size_t n, const taciti_bucket_task *task) {
    if (n == 0 || reduce->wire_shape.count == 1) return TACIT_OK;
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    taciti_piece t = {.x = x, .task = task, .cut = &cut};
    for (; t.piece < cut.pieces; t.piece++) TACITI_TRY(taciti_halves_observe(&reduce->wire, &t));
    return TACIT_OK;
}

bool taciti_allreduce_owned(const taciti_allreduce *reduce, size_t n, size_t index, taciti_range *out) {
    if (n == 0) return false;
    const taciti_arrangement *p = &reduce->arrangement;
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    if (index >= (cut.contiguous ? 1 : cut.pieces)) return false;
    if (cut.contiguous) {
        *out = taciti_arrangement_is_lane(p) ? taciti_arrangement_range(p, n, p->number, p->host) : (taciti_range){0};
        return true;
    }
    *out = (taciti_range){.at = taciti_cut_piece(&cut, index).at};
    if (taciti_arrangement_is_lane(p)) *out = taciti_cut_chunk(p, &cut, index, p->number, p->host);
    return true;
}

bool taciti_allreduce_encoded(const taciti_allreduce *reduce, size_t n, size_t index, taciti_range *out) {
    const taciti_arrangement *p = &reduce->arrangement;
    if (n == 0 || !taciti_arrangement_is_lane(p)) return false;
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    if (index >= (cut.contiguous ? 1 : cut.pieces)) return false;
    *out = cut.contiguous ? taciti_arrangement_share(p, n, p->number) : taciti_cut_share(p, &cut, index, p->number);
    return true;
}

/* settings NULL: exact or the maximum. */
double taciti_allreduce_expected_bytes(const taciti_allreduce *reduce, size_t n, const taciti_codec_setting *settings) {
    if (reduce->arrangement.size == 1 || n == 0) return 0;
    if (takes_small(reduce, n)) return (double)taciti_small_bytes(&reduce->arrangement, n);
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    double bytes = 0;
    for (size_t i = 0; i < cut.pieces; i++)
        bytes += taciti_halves_bytes(&reduce->wire_shape, &cut, i, reduce->wire_shape.me, settings);
    for (size_t i = 0; i < cut.pieces * reduce->runs; i++)
        bytes += taciti_halves_bytes(&reduce->local_shape, &cut, i, reduce->local_shape.me, settings);
    return bytes;
}

uint64_t taciti_allreduce_bytes(const taciti_allreduce *reduce, size_t n) {
    return (uint64_t)taciti_allreduce_expected_bytes(reduce, n, NULL);
}
