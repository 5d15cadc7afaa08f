/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter by pairwise exchange followed by an all-gather (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
 * collective communication operations in MPICH", IJHPCA 19(1), 2005, sections 4.3 and 4.5).
 *
 * Deviation: contributions are added in the order of the members instead of arrival order, so the result is a function
 * of the inputs alone; the owner decodes its own payload of the sum, so all members hold the same bits.
 */
#include "exchange/fan.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "exchange/payload.h"
#include "kernel/kernel.h"

/* ---- buffers ----------------------------------------------------------------------------------------------------- */
static size_t stride_bytes(const taciti_fan_shape *shape) {
    return taciti_round_up(shape->codec->bound(shape->range_n), TACITI_ALIGN_BYTES);
}

static size_t prefix_bytes(const taciti_fan_shape *shape) {
    return taciti_round_up(shape->range_n * sizeof(float), TACITI_ALIGN_BYTES);
}

size_t taciti_fan_memory_bytes(const taciti_fan_shape *shape) {
    if (shape->count == 1) return 0;
    const size_t one = shape->slots * stride_bytes(shape), block = one * (size_t)shape->count;
    return shape->codec->identity ? block : 3 * block + one + prefix_bytes(shape);
}

static void share_out(taciti_fan *fan) {
    const taciti_fan_shape *s = &fan->shape;
    const size_t one = s->slots * fan->stride_bytes, block = one * (size_t)s->count;
    fan->arriving = fan->memory;
    if (s->codec->identity) return;
    fan->leaving = fan->arriving + block;
    fan->sums = fan->leaving + block;
    fan->sum = fan->sums + block;
    fan->prefix = (float *)(void *)(fan->sum + one);
}

tacit_status taciti_fan_create(taciti_comm *comm, const taciti_fan_shape *shape, const int *ranks, void *memory,
                               taciti_fan *out) {
    taciti_fan fan = {.comm = comm, .shape = *shape, .memory = memory};
    const size_t count = (size_t)shape->count, cells = shape->slots * count;
    if (count > 1) {
        fan.stride_bytes = stride_bytes(shape);
        fan.ranks = taciti_calloc(count, sizeof *fan.ranks);
        fan.scatter_in = taciti_calloc(2 * cells + shape->window, sizeof *fan.scatter_in);
        fan.scattered = taciti_calloc(2 * shape->slots + shape->lag, sizeof *fan.scattered);
        if (fan.ranks == NULL || fan.scatter_in == NULL || fan.scattered == NULL) {
            taciti_fan_destroy(&fan);
            return TACIT_E_MEMORY;
        }
        memcpy(fan.ranks, ranks, count * sizeof *ranks);
        fan.gather_in = fan.scatter_in + cells;
        fan.sends = (taciti_outbox){.comm = comm, .requests = fan.gather_in + cells, .window = shape->window};
        fan.spread = fan.scattered + shape->slots + shape->lag;
        share_out(&fan);
    }
    *out = fan;
    return TACIT_OK;
}

void taciti_fan_destroy(taciti_fan *fan) {
    taciti_free(fan->ranks);
    taciti_free(fan->scatter_in);
    taciti_free(fan->scattered);
    *fan = (taciti_fan){0};
}

static taciti_range range_of(const taciti_fan *fan, const taciti_turn *t, int member) {
    return fan->shape.range(fan->shape.place, t->cut, t->piece, member);
}

static size_t slot_of(const taciti_fan *fan, const taciti_turn *t) { return t->piece % fan->shape.slots; }

static size_t cell_of(const taciti_fan *fan, const taciti_turn *t, int member) {
    return slot_of(fan, t) * (size_t)fan->shape.count + (size_t)member;
}

static char *buffer(const taciti_fan *fan, char *block, const taciti_turn *t, int member) {
    return block + cell_of(fan, t, member) * fan->stride_bytes;
}

static size_t *scattered_at(const taciti_fan *fan, size_t piece) {
    return &fan->scattered[piece % (fan->shape.slots + fan->shape.lag)];
}

static int behind(const taciti_fan *fan, int k) { return (fan->shape.me + k) % fan->shape.count; }
static int before(const taciti_fan *fan, int k) { return (fan->shape.me - k + fan->shape.count) % fan->shape.count; }

/* ---- sends ------------------------------------------------------------------------------------------------------- */
static tacit_status send(taciti_fan *fan, int member, const void *payload, size_t n) {
    return taciti_outbox_send(&fan->sends, fan->ranks[member], payload, fan->shape.codec->bound(n));
}

tacit_status taciti_fan_await_spread(taciti_fan *fan, const taciti_turn *t) {
    if (fan->shape.count == 1) return TACIT_OK;
    return taciti_outbox_await(&fan->sends, fan->spread[slot_of(fan, t)]);
}

tacit_status taciti_fan_finish(taciti_fan *fan) { return taciti_outbox_await(&fan->sends, fan->sends.posted); }

/* ---- codec ------------------------------------------------------------------------------------------------------- */
/* The payload of x[n], a part of the array; what it lacks is kept. */
static tacit_status encode(const taciti_fan *fan, const taciti_turn *t, const float *x, size_t n, void *out) {
    float *rest = t->kept != NULL ? t->kept + (x - t->x) : NULL;
    return taciti_payload_encode(fan->comm, fan->shape.codec, x, n, out, rest);
}

/* The same of the sum; what it lacks is kept beside what its own contribution lacked. */
static tacit_status encode_sum(const taciti_fan *fan, const taciti_turn *t, const float *x, size_t n, void *out) {
    float *rest = t->kept != NULL ? fan->prefix : NULL;
    TACITI_TRY(taciti_payload_encode(fan->comm, fan->shape.codec, x, n, out, rest));
    if (rest != NULL) taciti_kernels_get()->add(t->kept + (x - t->x), rest, n);
    return TACIT_OK;
}

/* This member's own contribution is rounded like everybody's. */
static tacit_status round_own(taciti_fan *fan, const taciti_turn *t, float *own, size_t n) {
    if (fan->shape.codec->identity) return TACIT_OK;
    char *payload = buffer(fan, fan->leaving, t, fan->shape.me);
    TACITI_TRY(encode(fan, t, own, n, payload));
    return fan->shape.codec->decode(payload, fan->shape.codec->bound(n), own, n);
}

/* own[n] = sum over members in their order. Adding two numbers commutes, so own += (sum of the members before me) is
 * that order; the payload of member 0 is the place of that sum when it is plain floats. */
static tacit_status add_in_order(taciti_fan *fan, const taciti_turn *t, float *own, size_t n) {
    const taciti_codec *codec = fan->shape.codec;
    const int me = fan->shape.me;
    float *prefix = codec->identity ? (float *)(void *)buffer(fan, fan->arriving, t, 0) : fan->prefix;
    const size_t bytes = codec->bound(n);
    int64_t begin_ns = taciti_now_ns(), spent_ns = 0;
    for (int m = 0; m < fan->shape.count; m++) {
        if (m == me) {
            TACITI_TRY(round_own(fan, t, own, n));
            if (m > 0) taciti_kernels_get()->add(own, prefix, n);
            continue;
        }
        const char *payload = buffer(fan, fan->arriving, t, m);
        spent_ns += taciti_now_ns() - begin_ns;
        TACITI_TRY(taciti_comm_await(fan->comm, &fan->scatter_in[cell_of(fan, t, m)]));
        begin_ns = taciti_now_ns();
        if (m > me)
            TACITI_TRY(codec->decode_add(payload, bytes, own, n));
        else if (m > 0)
            TACITI_TRY(codec->decode_add(payload, bytes, prefix, n));
        else if (!codec->identity)
            TACITI_TRY(codec->decode(payload, bytes, prefix, n));
    }
    taciti_payload_time(fan->comm, TACITI_SPAN_DECODE, spent_ns + taciti_now_ns() - begin_ns);
    return TACIT_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
tacit_status taciti_fan_scatter(taciti_fan *fan, const taciti_turn *t) {
    const taciti_fan_shape *s = &fan->shape;
    if (s->count == 1) return TACIT_OK;
    const taciti_range mine = range_of(fan, t, s->me);
    for (int k = 1; k < s->count && mine.n > 0; k++) {
        const int from = before(fan, k);
        TACITI_TRY(taciti_comm_irecv(fan->comm, fan->ranks[from], buffer(fan, fan->arriving, t, from),
                                     s->codec->bound(mine.n), &fan->scatter_in[cell_of(fan, t, from)]));
    }
    if (!s->codec->identity && t->piece >= s->slots) /* payloads of the piece that had this slot before */
        TACITI_TRY(taciti_outbox_await(&fan->sends, *scattered_at(fan, t->piece - s->slots)));
    for (int k = 1; k < s->count; k++) {
        const int to = behind(fan, k);
        const taciti_range r = range_of(fan, t, to);
        if (r.n == 0) continue;
        const void *payload = t->x + r.at;
        if (!s->codec->identity) {
            payload = buffer(fan, fan->leaving, t, to);
            TACITI_TRY(encode(fan, t, t->x + r.at, r.n, buffer(fan, fan->leaving, t, to)));
        }
        TACITI_TRY(send(fan, to, payload, r.n));
    }
    *scattered_at(fan, t->piece) = fan->sends.posted;
    return TACIT_OK;
}

tacit_status taciti_fan_combine(taciti_fan *fan, const taciti_turn *t) {
    if (fan->shape.count == 1) return TACIT_OK;
    const taciti_range mine = range_of(fan, t, fan->shape.me);
    return mine.n > 0 ? add_in_order(fan, t, t->x + mine.at, mine.n) : TACIT_OK;
}

/* The sum of my range goes to all. */
static tacit_status send_sum(taciti_fan *fan, const taciti_turn *t, float *own, size_t n) {
    const taciti_codec *codec = fan->shape.codec;
    const void *payload = own;
    if (!codec->identity) {
        char *out = fan->sum + slot_of(fan, t) * fan->stride_bytes;
        TACITI_TRY(taciti_outbox_await(&fan->sends, fan->spread[slot_of(fan, t)]));
        TACITI_TRY(encode_sum(fan, t, own, n, out));
        TACITI_TRY(codec->decode(out, codec->bound(n), own, n));
        payload = out;
    }
    for (int k = 1; k < fan->shape.count; k++) TACITI_TRY(send(fan, behind(fan, k), payload, n));
    return TACIT_OK;
}

tacit_status taciti_fan_spread(taciti_fan *fan, const taciti_turn *t) {
    const taciti_fan_shape *s = &fan->shape;
    if (s->count == 1) return TACIT_OK;
    /* Their sums overwrite what was sent to them, so it must have left. */
    TACITI_TRY(taciti_outbox_await(&fan->sends, *scattered_at(fan, t->piece)));
    for (int k = 1; k < s->count; k++) {
        const int from = before(fan, k);
        const taciti_range r = range_of(fan, t, from);
        void *into = s->codec->identity ? (void *)(t->x + r.at) : buffer(fan, fan->sums, t, from);
        if (r.n > 0)
            TACITI_TRY(taciti_comm_irecv(fan->comm, fan->ranks[from], into, s->codec->bound(r.n),
                                         &fan->gather_in[cell_of(fan, t, from)]));
    }
    const taciti_range mine = range_of(fan, t, s->me);
    if (mine.n > 0) TACITI_TRY(send_sum(fan, t, t->x + mine.at, mine.n));
    fan->spread[slot_of(fan, t)] = fan->sends.posted;
    return TACIT_OK;
}

tacit_status taciti_fan_collect(taciti_fan *fan, const taciti_turn *t) {
    const taciti_fan_shape *s = &fan->shape;
    for (int k = 1; k < s->count; k++) {
        const int from = before(fan, k);
        const taciti_range r = range_of(fan, t, from);
        if (r.n == 0) continue;
        TACITI_TRY(taciti_comm_await(fan->comm, &fan->gather_in[cell_of(fan, t, from)]));
        if (!s->codec->identity)
            TACITI_TRY(s->codec->decode(buffer(fan, fan->sums, t, from), s->codec->bound(r.n), t->x + r.at, r.n));
    }
    return TACIT_OK;
}

uint64_t taciti_fan_bytes(const taciti_fan_shape *shape, const taciti_cut *cut, size_t piece, int member) {
    uint64_t bytes = 0;
    for (int m = 0; m < shape->count; m++) {
        const size_t n = shape->range(shape->place, cut, piece, m).n;
        bytes += (uint64_t)shape->codec->bound(n) * (uint64_t)(m == member ? shape->count - 1 : 1);
    }
    return bytes;
}
