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

/* Ranges are multiples of it. */
enum { GRAIN = 16 };

/* ---- buffers ----------------------------------------------------------------------------------------------------- */
/* Bytes of a payload of n floats among others in one message: its length stands before all payloads, which begin at
 * multiples of 4. */
static size_t packed_bytes(const taciti_encoding *encoding, size_t n) {
    return sizeof(uint32_t) + taciti_round_up(taciti_encoding_bound(encoding, n), sizeof(uint32_t));
}

/* A message of several payloads has as many floats as one of a single payload, up to the rounding of ranges. */
static size_t stride_bytes(const taciti_halves_shape *shape) {
    const size_t n = shape->range_n / shape->together + 2 * GRAIN;
    const size_t one = taciti_encoding_bound(shape->encoding, shape->range_n),
                 many = shape->together == 1 ? 0 : shape->together * packed_bytes(shape->encoding, n);
    return taciti_round_up(many > one ? many : one, TACITI_ALIGN_BYTES);
}

size_t taciti_halves_memory_bytes(const taciti_halves_shape *shape) {
    if (shape->count == 1) return 0;
    const size_t one = shape->slots * stride_bytes(shape), block = one * (size_t)shape->count;
    if (!shape->whole && !taciti_encoding_encodes(shape->encoding)) return block;
    const size_t scratch = taciti_encoding_scratch_bytes(shape->encoding, shape->range_n);
    return scratch + (shape->whole ? block + one : 3 * block + one);
}

static void share_out(taciti_halves *halves) {
    const taciti_halves_shape *s = &halves->shape;
    const size_t one = s->slots * halves->stride_bytes, block = one * (size_t)s->count;
    halves->arriving = halves->memory;
    if (!s->whole && !taciti_encoding_encodes(s->encoding)) return;
    halves->leaving = halves->arriving + block;
    halves->scratch = halves->leaving + one;
    if (s->whole) return;
    halves->sums = halves->leaving + block;
    halves->sum = halves->sums + block;
    halves->scratch = halves->sum + one;
}

tacit_status taciti_halves_create(taciti_comm *comm, const taciti_halves_shape *shape, const int *ranks, void *memory,
                                  taciti_halves *out) {
    taciti_halves halves = {.comm = comm, .shape = *shape, .memory = memory};
    const size_t count = (size_t)shape->count, cells = shape->slots * count;
    if (count > 1) {
        halves.stride_bytes = stride_bytes(shape);
        halves.ranks = taciti_calloc(count, sizeof *halves.ranks);
        halves.scatter_in = taciti_calloc(2 * cells + shape->window, sizeof *halves.scatter_in);
        halves.scattered = taciti_calloc(3 * shape->slots + shape->lag, sizeof *halves.scattered);
        if (halves.ranks == NULL || halves.scatter_in == NULL || halves.scattered == NULL) {
            taciti_halves_destroy(&halves);
            return TACIT_E_MEMORY;
        }
        memcpy(halves.ranks, ranks, count * sizeof *ranks);
        halves.gather_in = halves.scatter_in + cells;
        halves.sends = (taciti_outbox){.comm = comm, .requests = halves.gather_in + cells, .window = shape->window};
        halves.gathered = halves.scattered + shape->slots + shape->lag;
        halves.own = halves.gathered + shape->slots;
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

/* Returns the range of a member in one piece. */
static taciti_range range_of(const taciti_halves *halves, const taciti_piece *t, int member) {
    return halves->shape.range(halves->shape.arrangement, t->cut, t->piece, member);
}

/* The index of the message of that piece. */
static size_t message_of(const taciti_piece *t) { return t->piece / t->cut->together; }

/* The pieces of a message, of which `t` is the first one. */
static size_t count_pieces(const taciti_piece *t) {
    const size_t left = t->cut->pieces - t->piece;
    return left < t->cut->together ? left : t->cut->together;
}

/* Steps through the pieces of a message, of which `t` is the first one; begins with *p = *t. */
static bool next_of_message(const taciti_piece *t, taciti_piece *p) {
    p->piece++;
    return p->piece < t->piece + count_pieces(t);
}

/* The floats of a member's ranges in a message. */
static size_t count_floats(const taciti_halves *halves, const taciti_piece *t, int member) {
    taciti_piece p = *t;
    size_t n = 0;
    do n += range_of(halves, &p, member).n;
    while (next_of_message(t, &p));
    return n;
}

static size_t slot_of(const taciti_halves *halves, const taciti_piece *t) {
    return message_of(t) % halves->shape.slots;
}

static size_t cell_of(const taciti_halves *halves, const taciti_piece *t, int member) {
    return slot_of(halves, t) * (size_t)halves->shape.count + (size_t)member;
}

static char *buffer_of(const taciti_halves *halves, char *block, const taciti_piece *t, int member) {
    return block + cell_of(halves, t, member) * halves->stride_bytes;
}

static size_t *scattered_at(const taciti_halves *halves, size_t message) {
    return &halves->scattered[message % (halves->shape.slots + halves->shape.lag)];
}

static int member_behind(const taciti_halves *halves, int k) { return (halves->shape.me + k) % halves->shape.count; }
static int member_before(const taciti_halves *halves, int k) {
    return (halves->shape.me - k + halves->shape.count) % halves->shape.count;
}

/* Payloads are made from the array and decoded; else they are parts of the array itself. */
static bool is_coded(const taciti_halves *halves) { return halves->leaving != NULL; }

static char *own_payload(const taciti_halves *halves, const taciti_piece *t) {
    if (halves->shape.whole) return halves->leaving + slot_of(halves, t) * halves->stride_bytes;
    return buffer_of(halves, halves->leaving, t, halves->shape.me);
}

/* Where the task counts payloads of that kind, or NULL. */
static taciti_tally *tally_of(const taciti_halves *halves, const taciti_piece *t, taciti_payload_kind kind) {
    return halves->shape.between && t->task->tallies != NULL ? &t->task->tallies[kind] : NULL;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */
/* Returns the bytes of the payloads alone, which tallies count. */
static size_t payload_bytes(const taciti_piece *t, taciti_payload message) {
    const uint32_t *lengths = message.data;
    size_t bytes = 0;
    for (size_t i = 0; i < count_pieces(t) && t->cut->together > 1; i++) bytes += lengths[i];
    return t->cut->together == 1 ? message.bytes : bytes;
}

static tacit_status send_message(taciti_halves *halves, const taciti_piece *t, int member, taciti_payload_kind kind,
                                 taciti_payload message) {
    taciti_tally *tally = tally_of(halves, t, kind);
    if (tally != NULL) tally->bytes += payload_bytes(t, message);
    return taciti_outbox_send(&halves->sends, halves->ranks[member], message.data, message.bytes);
}

/* Posts the receive for the payloads of these ranges, from another member. */
static tacit_status receive_message(taciti_halves *halves, const taciti_piece *t, int owner, int from, void *into,
                                    taciti_engine_request *out) {
    const taciti_encoding *encoding = halves->shape.encoding;
    taciti_piece p = *t;
    size_t max = 0;
    if (t->cut->together == 1)
        return taciti_payload_receive(halves->comm, encoding, halves->ranks[from], into, range_of(halves, t, owner).n,
                                      out);
    do max += packed_bytes(encoding, range_of(halves, &p, owner).n);
    while (next_of_message(t, &p));
    return taciti_comm_irecv_up_to(halves->comm, halves->ranks[from], into, max, out);
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
    taciti_codec_call call = taciti_payload_call(halves->shape.encoding, t->task, halves->ranks[member], kind, r.at);
    call.scratch = halves->scratch;
    return call;
}

/* Encodes what this rank has of a member's range: its contribution, or the result if the range is its own. */
static tacit_status encode_range(const taciti_halves *halves, const taciti_piece *t, int member,
                                 taciti_payload_kind kind, taciti_payload *out) {
    const taciti_codec *codec = halves->shape.encoding->codec;
    const taciti_range r = range_of(halves, t, member);
    const taciti_residual_place place = {kind, r.at, r.n};
    const int64_t begin_ns = taciti_now_ns();
    taciti_tally *tally = tally_of(halves, t, kind);
    taciti_codec_call call = call_of(halves, t, halves->shape.me, kind, r);
    float *x = t->x + r.at, *error = NULL;
    if (t->residual != NULL) error = taciti_residual_enter(t->residual, &place, x);
    if (tally != NULL && kind == TACITI_PAYLOAD_CONTRIBUTION)
        TACITI_TRY(taciti_payload_observe(halves->comm, codec, t->task, call, x, r.n, out->data));
    call.tally = tally != NULL ? &tally->sent : NULL;
    TACITI_TRY(taciti_payload_encode(halves->comm, codec, &call, x, r.n, error, out));
    if (t->residual != NULL) TACITI_TRY(taciti_residual_leave(t->residual, &place, x, codec, &call, *out));
    if (tally != NULL) tally->encode_ns += taciti_now_ns() - begin_ns;
    return TACIT_OK;
}

/* Encodes what this rank has of a member's ranges in a message. */
static tacit_status encode_message(const taciti_halves *halves, const taciti_piece *t, int member,
                                   taciti_payload_kind kind, taciti_payload *out) {
    taciti_piece p = *t;
    uint32_t *lengths = out->data;
    if (t->cut->together == 1) return encode_range(halves, t, member, kind, out);
    out->bytes = count_pieces(t) * sizeof *lengths;
    do {
        taciti_payload one = {.data = (char *)out->data + out->bytes};
        if (range_of(halves, &p, member).n > 0) TACITI_TRY(encode_range(halves, &p, member, kind, &one));
        const size_t padded = taciti_round_up(one.bytes, sizeof *lengths);
        memset((char *)one.data + one.bytes, 0, padded - one.bytes);
        lengths[p.piece - t->piece] = (uint32_t)one.bytes;
        out->bytes += padded;
    } while (next_of_message(t, &p));
    return TACIT_OK;
}

tacit_status taciti_halves_observe(taciti_halves *halves, const taciti_piece *t) {
    const taciti_halves_shape *s = &halves->shape;
    for (int m = 0; m < (s->whole ? 1 : s->count) && is_coded(halves); m++) {
        const taciti_range r = range_of(halves, t, m);
        const taciti_codec_call call = call_of(halves, t, s->me, TACITI_PAYLOAD_CONTRIBUTION, r);
        taciti_tally *tally = tally_of(halves, t, TACITI_PAYLOAD_CONTRIBUTION);
        const double squares = taciti_kernels_get()->sum_squares(t->x + r.at, r.n);
        if (r.n == 0 || tally == NULL) continue;
        tally->sent.n += r.n;
        tally->sent.selected += r.n;
        tally->sent.squares_in += squares;
        tally->sent.squares_out += squares;
        TACITI_TRY(taciti_payload_observe(halves->comm, s->encoding->codec, t->task, call, t->x + r.at, r.n,
                                          own_payload(halves, t)));
    }
    return TACIT_OK;
}

/* Decodes a member's payload for the range r into x, or adds it to x; gaps are 0 afterwards. */
static tacit_status decode_range(const taciti_halves *halves, const taciti_piece *t, int member,
                                 taciti_payload_kind kind, taciti_range r, taciti_payload payload, bool add) {
    const taciti_codec *codec = halves->shape.encoding->codec;
    const taciti_codec_call call = call_of(halves, t, member, kind, r);
    taciti_tally *tally = tally_of(halves, t, kind);
    const int64_t begin_ns = taciti_now_ns();
    const tacit_status status = codec->decode(codec, &call, payload.data, payload.bytes, t->x + r.at, r.n, add);
    if (t->task->layout != NULL) taciti_layout_clear_gaps(t->task->layout, t->task->bucket, r, t->x + r.at);
    const int64_t spent_ns = taciti_now_ns() - begin_ns;
    taciti_payload_time(halves->comm, TACITI_SPAN_DECODE, spent_ns);
    if (tally != NULL) tally->decode_ns += spent_ns;
    return taciti_payload_refused(status, halves->shape.encoding, t->task, halves->ranks[member], payload.bytes);
}

/* Estimates: the sum of all contributions to r, or the result, is complete. */
static void keep_estimate(const taciti_halves *halves, const taciti_piece *t, taciti_payload_kind kind,
                          taciti_range r) {
    const bool contributions = kind == TACITI_PAYLOAD_CONTRIBUTION && !halves->shape.whole;
    if (t->residual == NULL || !t->residual->feedback.estimates) return;
    taciti_residual_accumulate(t->residual, contributions ? TACITI_RESIDUAL_RESULT : TACITI_RESIDUAL_MEMORY, r.at,
                               t->x + r.at, r.n);
}

/* Sets *out to the payload of a piece of a message, which begins at byte *at, and moves *at behind it. Returns false if
 * the message is too short. */
static bool cut_payload(taciti_payload message, size_t index, size_t *at, taciti_payload *out) {
    uint32_t length = 0;
    if (message.bytes < (index + 1) * sizeof length || message.bytes < *at) return false;
    memcpy(&length, (const char *)message.data + index * sizeof length, sizeof length);
    *out = (taciti_payload){(char *)message.data + *at, length};
    *at += taciti_round_up(length, sizeof length);
    return *at <= message.bytes;
}

/* Decodes the payloads of a member for the ranges of `owner`. Contributions are added in the order of the members. */
static tacit_status decode_message(const taciti_halves *halves, const taciti_piece *t, int member,
                                   taciti_payload_kind kind, int owner, taciti_payload message) {
    const bool packed = t->cut->together > 1, sums = kind == TACITI_PAYLOAD_CONTRIBUTION;
    size_t at = packed ? count_pieces(t) * sizeof(uint32_t) : message.bytes;
    bool whole = true;
    taciti_piece p = *t;
    do {
        const taciti_range r = range_of(halves, &p, owner);
        taciti_payload one = message;
        whole = !packed || cut_payload(message, p.piece - t->piece, &at, &one);
        if (!whole || r.n == 0) continue;
        TACITI_TRY(decode_range(halves, &p, member, kind, r, one, sums && member > 0));
        if (!sums || member == halves->shape.count - 1) keep_estimate(halves, t, kind, r);
    } while (whole && next_of_message(t, &p));
    return taciti_payload_refused(whole && at == message.bytes ? TACIT_OK : TACIT_E_DATA, halves->shape.encoding,
                                  t->task, halves->ranks[member], message.bytes);
}

/* Makes the payloads of this rank for its own ranges, which are decoded like everybody's. */
static tacit_status encode_own(taciti_halves *halves, const taciti_piece *t, taciti_payload *out) {
    *out = (taciti_payload){.data = own_payload(halves, t)};
    TACITI_TRY(encode_message(halves, t, halves->shape.me, TACITI_PAYLOAD_CONTRIBUTION, out));
    halves->own[slot_of(halves, t)] = out->bytes;
    return TACIT_OK;
}

static tacit_status await_payload(taciti_halves *halves, const taciti_piece *t, int member, taciti_payload *out) {
    *out = (taciti_payload){own_payload(halves, t), halves->own[slot_of(halves, t)]};
    if (member == halves->shape.me) return TACIT_OK;
    taciti_engine_request *request = &halves->scatter_in[cell_of(halves, t, member)];
    TACITI_TRY(taciti_comm_await(halves->comm, request));
    *out = (taciti_payload){buffer_of(halves, halves->arriving, t, member), request->bytes};
    return TACIT_OK;
}

/* My ranges = sum of the decoded payloads in the order of the members. */
static tacit_status add_payloads(taciti_halves *halves, const taciti_piece *t) {
    const int me = halves->shape.me;
    taciti_payload payload;
    if (!halves->shape.whole) TACITI_TRY(encode_own(halves, t, &payload));
    for (int m = 0; m < halves->shape.count; m++) {
        TACITI_TRY(await_payload(halves, t, m, &payload));
        TACITI_TRY(decode_message(halves, t, m, TACITI_PAYLOAD_CONTRIBUTION, me, payload));
    }
    return TACIT_OK;
}

/* My range = sum over members in their order, of arrays that travel as they are. Adding two numbers commutes, so own +=
 * (sum of the members before me) is that order; what member 0 sent becomes that sum. */
static tacit_status add_in_order(taciti_halves *halves, const taciti_piece *t, taciti_range mine) {
    const int me = halves->shape.me;
    float *own = t->x + mine.at, *prefix = (float *)(void *)buffer_of(halves, halves->arriving, t, 0);
    int64_t begin_ns = taciti_now_ns(), spent_ns = 0;
    for (int m = 0; m < halves->shape.count; m++) {
        if (m == me) {
            if (m > 0) taciti_kernels_get()->add(own, prefix, mine.n);
            continue;
        }
        spent_ns += taciti_now_ns() - begin_ns;
        TACITI_TRY(taciti_comm_await(halves->comm, &halves->scatter_in[cell_of(halves, t, m)]));
        begin_ns = taciti_now_ns();
        const float *arrived = (const float *)(void *)buffer_of(halves, halves->arriving, t, m);
        if (m > 0) taciti_kernels_get()->add(m > me ? own : prefix, arrived, mine.n);
    }
    taciti_payload_time(halves->comm, TACITI_SPAN_DECODE, spent_ns + taciti_now_ns() - begin_ns);
    return TACIT_OK;
}

/* ---- reduce-scatter ---------------------------------------------------------------------------------------------- */
tacit_status taciti_scatter_begin(taciti_halves *halves, const taciti_piece *t) {
    const taciti_halves_shape *s = &halves->shape;
    if (s->count == 1) return TACIT_OK;
    const bool owns = count_floats(halves, t, s->me) > 0;
    for (int k = 1; k < s->count && owns; k++) {
        const int from = member_before(halves, k);
        TACITI_TRY(receive_message(halves, t, s->me, from, buffer_of(halves, halves->arriving, t, from),
                                   &halves->scatter_in[cell_of(halves, t, from)]));
    }
    if (is_coded(halves) && message_of(t) >= s->slots) /* payloads of the message that had this slot before */
        TACITI_TRY(taciti_outbox_await(&halves->sends, *scattered_at(halves, message_of(t) - s->slots)));
    taciti_payload payload;
    if (s->whole && owns) TACITI_TRY(encode_own(halves, t, &payload));
    for (int k = 1; k < s->count; k++) {
        const int to = member_behind(halves, k);
        const taciti_range r = range_of(halves, t, to);
        if (count_floats(halves, t, to) == 0) continue;
        if (!is_coded(halves)) payload = (taciti_payload){t->x + r.at, r.n * sizeof(float)};
        if (is_coded(halves) && !s->whole) {
            payload = (taciti_payload){.data = buffer_of(halves, halves->leaving, t, to)};
            TACITI_TRY(encode_message(halves, t, to, TACITI_PAYLOAD_CONTRIBUTION, &payload));
        }
        TACITI_TRY(send_message(halves, t, to, TACITI_PAYLOAD_CONTRIBUTION, payload));
    }
    *scattered_at(halves, message_of(t)) = halves->sends.posted;
    return TACIT_OK;
}

tacit_status taciti_scatter_end(taciti_halves *halves, const taciti_piece *t) {
    if (halves->shape.count == 1 || count_floats(halves, t, halves->shape.me) == 0) return TACIT_OK;
    return is_coded(halves) ? add_payloads(halves, t) : add_in_order(halves, t, range_of(halves, t, halves->shape.me));
}

/* ---- all-gather -------------------------------------------------------------------------------------------------- */
/* My ranges go to all; what they decode is what I keep. */
static tacit_status send_result(taciti_halves *halves, const taciti_piece *t) {
    const int me = halves->shape.me;
    const taciti_range mine = range_of(halves, t, me);
    taciti_payload payload = {t->x + mine.at, mine.n * sizeof(float)};
    if (is_coded(halves)) {
        payload.data = halves->sum + slot_of(halves, t) * halves->stride_bytes;
        TACITI_TRY(taciti_outbox_await(&halves->sends, halves->gathered[slot_of(halves, t)]));
        TACITI_TRY(encode_message(halves, t, me, TACITI_PAYLOAD_RESULT, &payload));
    }
    for (int k = 1; k < halves->shape.count; k++)
        TACITI_TRY(send_message(halves, t, member_behind(halves, k), TACITI_PAYLOAD_RESULT, payload));
    return is_coded(halves) ? decode_message(halves, t, me, TACITI_PAYLOAD_RESULT, me, payload) : TACIT_OK;
}

tacit_status taciti_gather_begin(taciti_halves *halves, const taciti_piece *t) {
    const taciti_halves_shape *s = &halves->shape;
    if (s->count == 1 || s->whole) return TACIT_OK;
    /* Their results overwrite what was sent to them, so it must have left. */
    TACITI_TRY(taciti_outbox_await(&halves->sends, *scattered_at(halves, message_of(t))));
    for (int k = 1; k < s->count; k++) {
        const int from = member_before(halves, k);
        void *into = is_coded(halves) ? (void *)buffer_of(halves, halves->sums, t, from)
                                      : (void *)(t->x + range_of(halves, t, from).at);
        if (count_floats(halves, t, from) > 0)
            TACITI_TRY(receive_message(halves, t, from, from, into, &halves->gather_in[cell_of(halves, t, from)]));
    }
    if (count_floats(halves, t, s->me) > 0) TACITI_TRY(send_result(halves, t));
    halves->gathered[slot_of(halves, t)] = halves->sends.posted;
    return TACIT_OK;
}

tacit_status taciti_gather_end(taciti_halves *halves, const taciti_piece *t) {
    for (int k = 1; k < halves->shape.count && !halves->shape.whole; k++) {
        const int from = member_before(halves, k);
        taciti_engine_request *request = &halves->gather_in[cell_of(halves, t, from)];
        if (count_floats(halves, t, from) == 0) continue;
        TACITI_TRY(taciti_comm_await(halves->comm, request));
        const taciti_payload payload = {buffer_of(halves, halves->sums, t, from), request->bytes};
        if (is_coded(halves)) TACITI_TRY(decode_message(halves, t, from, TACITI_PAYLOAD_RESULT, from, payload));
    }
    return TACIT_OK;
}

/* Bytes for n floats of one kind: the mean at that setting, or without one the maximum. */
static double expected_bytes(const taciti_halves_shape *shape, const taciti_codec_setting *setting, size_t n) {
    if (n == 0) return 0;
    if (setting == NULL) return (double)taciti_encoding_bound(shape->encoding, n);
    const taciti_codec_call call = {.options = shape->encoding->options, .setting = *setting};
    return taciti_codec_expected_bytes(shape->encoding->codec, &call, n);
}

double taciti_halves_bytes(const taciti_halves_shape *shape, const taciti_cut *cut, size_t piece, int member,
                           const taciti_codec_setting *settings) {
    double bytes = 0;
    for (int m = 0; m < shape->count; m++) {
        const size_t n = shape->range(shape->arrangement, cut, piece, m).n;
        const taciti_codec_setting *back = settings == NULL ? NULL : &settings[TACITI_PAYLOAD_RESULT];
        if (m != member) bytes += expected_bytes(shape, settings, n);
        if (m == member && !shape->whole) bytes += (shape->count - 1) * expected_bytes(shape, back, n);
    }
    return bytes;
}
