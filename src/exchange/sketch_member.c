/* SPDX-License-Identifier: Apache-2.0
 *
 * The work of a member for the owners of ranges: its contribution, and values of elements that did not decode.
 */

#include "exchange/sketch_bucket.h"
#include "kernel/kernel.h"

typedef taciti_sketch_bucket bucket;
typedef taciti_sketch_slot slot;

/* ---- contributions ----------------------------------------------------------------------------------------------- */

static taciti_residual_place place_of(const bucket *b, size_t piece, int owner) {
    const taciti_range r = taciti_sketch_range(b->s->reduce, b->cut, piece, owner);
    return (taciti_residual_place){TACITI_PAYLOAD_CONTRIBUTION, piece, (size_t)owner, r.at, r.n};
}

/* x becomes what is to be encoded. */
static void enter_ranges(bucket *b, size_t block, int owner) {
    const taciti_sketch_pieces pieces = taciti_sketch_pieces_of(b->s->reduce, b->cut, block);
    for (size_t p = pieces.first; p < pieces.end; p++) {
        const taciti_residual_place place = place_of(b, p, owner);
        if (place.n == 0 || b->residual == NULL) continue;
        float *error = taciti_residual_enter(b->residual, &place, b->x + place.at);
        b->errors = error == NULL ? NULL : error - place.at;
    }
}

static tacit_status leave_ranges(bucket *b, size_t block, int owner, const taciti_codec_call *call) {
    const taciti_sketch_pieces pieces = taciti_sketch_pieces_of(b->s->reduce, b->cut, block);
    for (size_t p = pieces.first; p < pieces.end && b->residual != NULL; p++) {
        const taciti_residual_place place = place_of(b, p, owner);
        if (place.n > 0) /* without estimates, which sketches refuse, no payload is looked at */
            TACITI_TRY(taciti_residual_leave(b->residual, &place, b->x + place.at, b->s->reduce->encoding.codec, call,
                                             (taciti_payload){0}));
    }
    return TACIT_OK;
}

/* selected = what the codec selects of the owner's ranges; the rest becomes the residual. */
static tacit_status select_for(bucket *b, slot *t, int owner) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_share *share = &t->shares[owner];
    taciti_codec_call call =
        taciti_payload_call(&s->reduce->encoding, b->task, s->ranks[s->me], TACITI_PAYLOAD_CONTRIBUTION, share->at);
    size_t at;
    call.scratch = s->scratch;
    enter_ranges(b, t->block, owner);
    const bool one = taciti_sketch_is_one_range(b, t->block, owner, &at);
    if (!one) taciti_sketch_gather(b, t->block, owner, b->x, s->x);
    const float *x = one ? b->x + at : s->x;
    float *error = b->errors == NULL ? NULL : one ? b->errors + at : s->error;
    if (b->tally != NULL)
        TACITI_TRY(taciti_payload_observe(s->comm, s->reduce->encoding.codec, b->task, call, x, share->n, s->payload));
    call.tally = b->tally != NULL ? &b->tally->sent : NULL;
    const int64_t begin_ns = taciti_now_ns();
    taciti_composed_select(s->reduce->encoding.codec, &call, x, share->n, t->selected + share->at, error);
    taciti_payload_time(s->comm, TACITI_SPAN_ENCODE, taciti_now_ns() - begin_ns);
    if (error != NULL && !one) taciti_sketch_scatter(b, t->block, owner, error, b->errors);
    return leave_ranges(b, t->block, owner, &call);
}

static tacit_status send_contribution(bucket *b, const slot *t, int owner) {
    const char *out = taciti_sketch_message(b->s, t->leaving, owner);
    size_t left = taciti_sketch_contribution_bytes(&t->shares[owner].form);
    while (left > 0) {
        const size_t bytes = left < TACITI_SKETCH_PART_BYTES ? left : TACITI_SKETCH_PART_BYTES;
        TACITI_TRY(taciti_sketch_send(b, owner, out, bytes));
        out += bytes;
        left -= bytes;
    }
    return TACIT_OK;
}

tacit_status taciti_sketch_contribute_block(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    for (int k = 1; k <= s->count; k++) {
        const int owner = taciti_sketch_behind(s, k);
        const taciti_sketch_share *share = &t->shares[owner];
        const int64_t begin_ns = taciti_now_ns();
        if (share->n == 0) continue;
        TACITI_TRY(select_for(b, t, owner));
        TACITI_TRY(taciti_sketch_contribute(&share->form, t->selected + share->at,
                                            taciti_sketch_message(s, t->leaving, owner)));
        if (b->tally != NULL) b->tally->encode_ns += taciti_now_ns() - begin_ns;
        if (owner != s->me) TACITI_TRY(send_contribution(b, t, owner));
    }
    t->contributed = s->sends.posted;
    return TACIT_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static tacit_status send_values_to(bucket *b, slot *t, int owner) {
    taciti_sketch_reduce *s = b->s;
    taciti_sketch_share *share = &t->shares[owner];
    const uint64_t *pending = taciti_sketch_pending_of(s, t, owner);
    float *out = (float *)(void *)taciti_sketch_message(s, t->leaving, owner);
    if (share->reply.pending == 0) return TACIT_OK;
    if (owner != s->me) {
        TACITI_TRY(taciti_comm_await(s->comm, &share->index));
        TACITI_TRY(taciti_sketch_refused(b, taciti_sketch_check_pending(&share->form, &share->reply, pending), owner));
    }
    TACITI_TRY(taciti_sketch_pack(&share->form.sketch, pending, t->selected + share->at, out));
    return owner == s->me ? TACIT_OK : taciti_sketch_send(b, owner, out, taciti_sketch_values_bytes(share));
}

tacit_status taciti_sketch_send_values(bucket *b, slot *t) {
    TACITI_TRY(taciti_outbox_await(&b->s->sends, t->contributed)); /* values overwrite contributions */
    for (int k = 1; k <= b->s->count; k++) {
        const int owner = taciti_sketch_behind(b->s, k);
        if (t->shares[owner].n > 0) TACITI_TRY(send_values_to(b, t, owner));
    }
    return TACIT_OK;
}
