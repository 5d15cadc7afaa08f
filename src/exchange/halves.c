/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter by pairwise exchange followed by an all-gather (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
 * collective communication operations in MPICH", IJHPCA 19(1), 2005, sections 4.3 and 4.5).
 *
 * Deviation: contributions are added in the order of the members instead of arrival order, so the result is a function
 * of the inputs alone; the owner decodes its own payload of the sum, so all members hold the same bits.
 */
#include "exchange/halves.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "exchange/payload.h"
#include "kernel/kernel.h"

/* ---- buffers ----------------------------------------------------------------------------------------------------- */
static size_t stride_bytes(const taciti_halves_shape *shape) {
    return taciti_round_up(taciti_payload_bound(shape->encoding, shape->range_n), TACITI_ALIGN_BYTES);
}

static size_t prefix_bytes(const taciti_halves_shape *shape) {
    return taciti_round_up(shape->range_n * sizeof(float), TACITI_ALIGN_BYTES);
}

size_t taciti_halves_memory_bytes(const taciti_halves_shape *shape) {
    if (shape->count == 1) return 0;
    const size_t one = shape->slots * stride_bytes(shape), block = one * (size_t)shape->count;
    return shape->encoding->codec->identity ? block : 3 * block + one + prefix_bytes(shape);
}

static void share_out(taciti_halves *halves) {
    const taciti_halves_shape *s = &halves->shape;
    const size_t one = s->slots * halves->stride_bytes, block = one * (size_t)s->count;
    halves->arriving = halves->memory;
    if (s->encoding->codec->identity) return;
    halves->leaving = halves->arriving + block;
    halves->sums = halves->leaving + block;
    halves->sum = halves->sums + block;
    halves->prefix = (float *)(void *)(halves->sum + one);
}

tacit_status taciti_halves_create(taciti_comm *comm, const taciti_halves_shape *shape, const int *ranks, void *memory,
                                  taciti_halves *out) {
    taciti_halves halves = {.comm = comm, .shape = *shape, .memory = memory};
    const size_t count = (size_t)shape->count, cells = shape->slots * count;
    if (count > 1) {
        halves.stride_bytes = stride_bytes(shape);
        halves.ranks = taciti_calloc(count, sizeof *halves.ranks);
        halves.scatter_in = taciti_calloc(2 * cells + shape->window, sizeof *halves.scatter_in);
        halves.scattered = taciti_calloc(2 * shape->slots + shape->lag, sizeof *halves.scattered);
        if (halves.ranks == NULL || halves.scatter_in == NULL || halves.scattered == NULL) {
            taciti_halves_destroy(&halves);
            return TACIT_E_MEMORY;
        }
        memcpy(halves.ranks, ranks, count * sizeof *ranks);
        halves.gather_in = halves.scatter_in + cells;
        halves.sends = (taciti_outbox){.comm = comm, .requests = halves.gather_in + cells, .window = shape->window};
        halves.gathered = halves.scattered + shape->slots + shape->lag;
        share_out(&halves);
    }
    *out = halves;
    return TACIT_OK;
}

void taciti_halves_destroy(taciti_halves *halves) {
    taciti_free(halves->ranks);
    taciti_free(halves->scatter_in);
    taciti_free(halves->scattered);
    *halves = (taciti_halves){0};
}

static taciti_range range_of(const taciti_halves *halves, const taciti_piece *t, int member) {
    return halves->shape.range(halves->shape.arrangement, t->cut, t->piece, member);
}

static size_t slot_of(const taciti_halves *halves, const taciti_piece *t) { return t->piece % halves->shape.slots; }

static size_t cell_of(const taciti_halves *halves, const taciti_piece *t, int member) {
    return slot_of(halves, t) * (size_t)halves->shape.count + (size_t)member;
}

static char *buffer(const taciti_halves *halves, char *block, const taciti_piece *t, int member) {
    return block + cell_of(halves, t, member) * halves->stride_bytes;
}

static size_t *scattered_at(const taciti_halves *halves, size_t piece) {
    return &halves->scattered[piece % (halves->shape.slots + halves->shape.lag)];
}

static int behind(const taciti_halves *halves, int k) { return (halves->shape.me + k) % halves->shape.count; }
static int before(const taciti_halves *halves, int k) {
    return (halves->shape.me - k + halves->shape.count) % halves->shape.count;
}

static bool is_identity(const taciti_halves *halves) { return halves->shape.encoding->codec->identity; }

/* ---- messages ---------------------------------------------------------------------------------------------------- */
static tacit_status send(taciti_halves *halves, int member, taciti_payload payload) {
    return taciti_outbox_send(&halves->sends, halves->ranks[member], payload.data, payload.bytes);
}

static tacit_status receive(taciti_halves *halves, int member, void *into, size_t n, taciti_engine_request *out) {
    return taciti_payload_receive(halves->comm, halves->shape.encoding, halves->ranks[member], into, n, out);
}

tacit_status taciti_gather_await_sent(taciti_halves *halves, const taciti_piece *t) {
    if (halves->shape.count == 1) return TACIT_OK;
    return taciti_outbox_await(&halves->sends, halves->gathered[slot_of(halves, t)]);
}

tacit_status taciti_halves_finish(taciti_halves *halves) {
    return taciti_outbox_await(&halves->sends, halves->sends.posted);
}

/* ---- codec ------------------------------------------------------------------------------------------------------- */
static taciti_codec_call call_of(const taciti_halves *halves, const taciti_piece *t, int member,
                                 taciti_payload_kind kind, taciti_range r) {
    return taciti_payload_call(halves->shape.encoding, t->task, halves->ranks[member], kind, r.at);
}

/* Encodes what this rank has of a member's range: its contribution, or the result if the range is its own. */
static tacit_status encode(const taciti_halves *halves, const taciti_piece *t, int member, taciti_payload_kind kind,
                           taciti_payload *out) {
    const taciti_range r = range_of(halves, t, member);
    const size_t cell = kind == TACITI_PAYLOAD_RESULT ? 0 : (size_t)member;
    taciti_codec_call call = call_of(halves, t, halves->shape.me, kind, r);
    float *x = t->x + r.at, *error = NULL;
    if (t->residual != NULL) error = taciti_residual_enter(t->residual, kind, t->piece, cell, x, r.n, &call);
    return taciti_payload_encode(halves->comm, halves->shape.encoding->codec, &call, x, r.n, error, out);
}

/* Decodes a member's payload for the range r, or adds it: x holds as many floats. */
static tacit_status decode(const taciti_halves *halves, const taciti_piece *t, int member, taciti_payload_kind kind,
                           taciti_range r, taciti_payload payload, float *x) {
    const taciti_codec_call call = call_of(halves, t, member, kind, r);
    return taciti_payload_refused(halves->shape.encoding->codec->decode(&call, payload.data, payload.bytes, x, r.n),
                                  halves->shape.encoding, t->task, halves->ranks[member], payload.bytes);
}

static tacit_status decode_add(const taciti_halves *halves, const taciti_piece *t, int member, taciti_range r,
                               taciti_payload payload, float *x) {
    const taciti_codec_call call = call_of(halves, t, member, TACITI_PAYLOAD_CONTRIBUTION, r);
    return taciti_payload_refused(halves->shape.encoding->codec->decode_add(&call, payload.data, payload.bytes, x, r.n),
                                  halves->shape.encoding, t->task, halves->ranks[member], payload.bytes);
}

/* This member's own contribution goes through the codec like everybody's. */
static tacit_status round_own(taciti_halves *halves, const taciti_piece *t, taciti_range mine) {
    if (is_identity(halves)) return TACIT_OK;
    taciti_payload payload = {.data = buffer(halves, halves->leaving, t, halves->shape.me)};
    TACITI_TRY(encode(halves, t, halves->shape.me, TACITI_PAYLOAD_CONTRIBUTION, &payload));
    return decode(halves, t, halves->shape.me, TACITI_PAYLOAD_CONTRIBUTION, mine, payload, t->x + mine.at);
}

/* My range = sum over members in their order. Adding two numbers commutes, so own += (sum of the members before me) is
 * that order; the payload of member 0 holds that sum when it is plain floats. */
static tacit_status add_in_order(taciti_halves *halves, const taciti_piece *t, taciti_range mine) {
    const int me = halves->shape.me;
    float *own = t->x + mine.at;
    float *prefix = is_identity(halves) ? (float *)(void *)buffer(halves, halves->arriving, t, 0) : halves->prefix;
    int64_t begin_ns = taciti_now_ns(), spent_ns = 0;
    for (int m = 0; m < halves->shape.count; m++) {
        if (m == me) {
            TACITI_TRY(round_own(halves, t, mine));
            if (m > 0) taciti_kernels_get()->add(own, prefix, mine.n);
            continue;
        }
        taciti_engine_request *request = &halves->scatter_in[cell_of(halves, t, m)];
        spent_ns += taciti_now_ns() - begin_ns;
        TACITI_TRY(taciti_comm_await(halves->comm, request));
        begin_ns = taciti_now_ns();
        const taciti_payload payload = {buffer(halves, halves->arriving, t, m), request->bytes};
        if (m > 0)
            TACITI_TRY(decode_add(halves, t, m, mine, payload, m > me ? own : prefix));
        else if (!is_identity(halves))
            TACITI_TRY(decode(halves, t, m, TACITI_PAYLOAD_CONTRIBUTION, mine, payload, prefix));
    }
    taciti_payload_time(halves->comm, TACITI_SPAN_DECODE, spent_ns + taciti_now_ns() - begin_ns);
    return TACIT_OK;
}

/* ---- reduce-scatter ---------------------------------------------------------------------------------------------- */
tacit_status taciti_scatter_begin(taciti_halves *halves, const taciti_piece *t) {
    const taciti_halves_shape *s = &halves->shape;
    if (s->count == 1) return TACIT_OK;
    const taciti_range mine = range_of(halves, t, s->me);
    for (int k = 1; k < s->count && mine.n > 0; k++) {
        const int from = before(halves, k);
        TACITI_TRY(receive(halves, from, buffer(halves, halves->arriving, t, from), mine.n,
                           &halves->scatter_in[cell_of(halves, t, from)]));
    }
    if (!is_identity(halves) && t->piece >= s->slots) /* payloads of the piece that had this slot before */
        TACITI_TRY(taciti_outbox_await(&halves->sends, *scattered_at(halves, t->piece - s->slots)));
    for (int k = 1; k < s->count; k++) {
        const int to = behind(halves, k);
        const taciti_range r = range_of(halves, t, to);
        if (r.n == 0) continue;
        taciti_payload payload = {t->x + r.at, r.n * sizeof(float)};
        if (!is_identity(halves)) {
            payload.data = buffer(halves, halves->leaving, t, to);
            TACITI_TRY(encode(halves, t, to, TACITI_PAYLOAD_CONTRIBUTION, &payload));
        }
        TACITI_TRY(send(halves, to, payload));
    }
    *scattered_at(halves, t->piece) = halves->sends.posted;
    return TACIT_OK;
}

tacit_status taciti_scatter_end(taciti_halves *halves, const taciti_piece *t) {
    if (halves->shape.count == 1) return TACIT_OK;
    const taciti_range mine = range_of(halves, t, halves->shape.me);
    return mine.n > 0 ? add_in_order(halves, t, mine) : TACIT_OK;
}

/* ---- all-gather -------------------------------------------------------------------------------------------------- */
/* My range goes to all; what they decode is what I keep. */
static tacit_status send_result(taciti_halves *halves, const taciti_piece *t, taciti_range mine) {
    taciti_payload payload = {t->x + mine.at, mine.n * sizeof(float)};
    if (!is_identity(halves)) {
        payload.data = halves->sum + slot_of(halves, t) * halves->stride_bytes;
        TACITI_TRY(taciti_outbox_await(&halves->sends, halves->gathered[slot_of(halves, t)]));
        TACITI_TRY(encode(halves, t, halves->shape.me, TACITI_PAYLOAD_RESULT, &payload));
        TACITI_TRY(decode(halves, t, halves->shape.me, TACITI_PAYLOAD_RESULT, mine, payload, t->x + mine.at));
    }
    for (int k = 1; k < halves->shape.count; k++) TACITI_TRY(send(halves, behind(halves, k), payload));
    return TACIT_OK;
}

tacit_status taciti_gather_begin(taciti_halves *halves, const taciti_piece *t) {
    const taciti_halves_shape *s = &halves->shape;
    if (s->count == 1) return TACIT_OK;
    /* Their results overwrite what was sent to them, so it must have left. */
    TACITI_TRY(taciti_outbox_await(&halves->sends, *scattered_at(halves, t->piece)));
    for (int k = 1; k < s->count; k++) {
        const int from = before(halves, k);
        const taciti_range r = range_of(halves, t, from);
        void *into = is_identity(halves) ? (void *)(t->x + r.at) : buffer(halves, halves->sums, t, from);
        if (r.n > 0) TACITI_TRY(receive(halves, from, into, r.n, &halves->gather_in[cell_of(halves, t, from)]));
    }
    const taciti_range mine = range_of(halves, t, s->me);
    if (mine.n > 0) TACITI_TRY(send_result(halves, t, mine));
    halves->gathered[slot_of(halves, t)] = halves->sends.posted;
    return TACIT_OK;
}

tacit_status taciti_gather_end(taciti_halves *halves, const taciti_piece *t) {
    for (int k = 1; k < halves->shape.count; k++) {
        const int from = before(halves, k);
        const taciti_range r = range_of(halves, t, from);
        taciti_engine_request *request = &halves->gather_in[cell_of(halves, t, from)];
        if (r.n == 0) continue;
        TACITI_TRY(taciti_comm_await(halves->comm, request));
        if (is_identity(halves)) continue;
        const taciti_payload payload = {buffer(halves, halves->sums, t, from), request->bytes};
        TACITI_TRY(decode(halves, t, from, TACITI_PAYLOAD_RESULT, r, payload, t->x + r.at));
    }
    return TACIT_OK;
}

uint64_t taciti_halves_bytes(const taciti_halves_shape *shape, const taciti_cut *cut, size_t piece, int member) {
    uint64_t bytes = 0;
    for (int m = 0; m < shape->count; m++) {
        const size_t n = shape->range(shape->arrangement, cut, piece, m).n;
        bytes += (uint64_t)taciti_payload_bound(shape->encoding, n) * (uint64_t)(m == member ? shape->count - 1 : 1);
    }
    return bytes;
}
