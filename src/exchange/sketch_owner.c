/* SPDX-License-Identifier: Apache-2.0
 *
 * The owner of ranges adds contributions up in the order of the members, decodes the sum, replies, and
 * adds up the values of what did not decode.
 */
#include "exchange/sketch_bucket.h"
#include "kernel/kernel.h"

typedef taciti_sketch_bucket bucket;
typedef taciti_sketch_slot slot;

/* ---- decoders ---------------------------------------------------------------------------------------------------- */

static void take_decoder(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    size_t at;
    t->decoder = s->idle[--s->idle_count];
    char *memory = s->decoders + (size_t)t->decoder * s->decoder_bytes;
    float *x = (float *)(void *)memory;
    char *counters = memory + taciti_round_up(s->range_n * sizeof(float), TACITI_ALIGN_BYTES);
    const bool one = taciti_sketch_is_one_range(b, t->block, s->me, &at);
    t->sum = (taciti_sketch_total){.form = t->shares[s->me].form,
                                   .x = one ? b->x + at : x,
                                   .counters = (float *)(void *)counters,
                                   .workspace = counters + s->message_bytes,
                                   .union_ = taciti_sketch_pending_of(s, t, s->me)};
}

/* The sums are complete. */
static void put_decoder(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    size_t at;
    if (!taciti_sketch_is_one_range(b, t->block, s->me, &at)) taciti_sketch_scatter(b, t->block, s->me, t->sum.x, b->x);
    s->idle[s->idle_count++] = t->decoder;
    t->decoder = -1;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static tacit_status resolve_sum(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    const size_t bytes = taciti_sketch_contribution_bytes(&t->shares[s->me].form);
    int64_t spent_ns = 0;
    for (int m = 0; m < s->count; m++) {
        for (size_t i = 0; m != s->me && i * TACITI_SKETCH_PART_BYTES < bytes; i++)
            TACITI_TRY(taciti_comm_await(s->comm, &t->shares[m].contribution[i]));
        const int64_t begin_ns = taciti_now_ns();
        const char *one = taciti_sketch_message(s, m == s->me ? t->leaving : t->arriving, m);
        TACITI_TRY(taciti_sketch_refused(b, taciti_sketch_take(&t->sum, one, m == 0), m));
        spent_ns += taciti_now_ns() - begin_ns;
    }
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(taciti_sketch_refused(b, taciti_sketch_resolve(&t->sum, &t->shares[s->me].reply), s->me));
    spent_ns += taciti_now_ns() - begin_ns;
    taciti_payload_time(s->comm, TACITI_SPAN_DECODE, spent_ns);
    if (b->tally != NULL) b->tally->decode_ns += spent_ns;
    return TACIT_OK;
}

tacit_status taciti_sketch_add_up(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    taciti_sketch_share *mine = &t->shares[s->me];
    if (mine->n == 0) return TACIT_OK;
    take_decoder(b, t);
    TACITI_TRY(resolve_sum(b, t));
    if (b->tally != NULL && !mine->form.packed) b->tally->pending += mine->reply.pending;
    for (int k = 1; k < s->count; k++)
        TACITI_TRY(taciti_sketch_send(b, taciti_sketch_behind(s, k), &mine->reply, sizeof mine->reply));
    if (mine->reply.pending == 0) put_decoder(b, t);
    return TACIT_OK;
}

tacit_status taciti_sketch_send_pending(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_share *mine = &t->shares[s->me];
    for (int k = 1; k < s->count && mine->reply.pending > 0; k++)
        TACITI_TRY(taciti_sketch_send(b, taciti_sketch_behind(s, k), t->sum.union_,
                                      taciti_sketch_index_words(mine->n) * sizeof(uint64_t)));
    return TACIT_OK;
}

tacit_status taciti_sketch_add_values(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_share *mine = &t->shares[s->me];
    float *first = (float *)(void *)taciti_sketch_message(s, s->me == 0 ? t->leaving : t->arriving, 0);
    if (mine->reply.pending == 0) return TACIT_OK;
    for (int m = 0; m < s->count; m++) {
        if (m != s->me) TACITI_TRY(taciti_comm_await(s->comm, &t->shares[m].values));
        if (m == 0) continue;
        const char *more = taciti_sketch_message(s, m == s->me ? t->leaving : t->arriving, m);
        taciti_kernels_get()->add(first, (const float *)(const void *)more, mine->reply.pending);
    }
    TACITI_TRY(taciti_sketch_refused(b, taciti_sketch_complete(&t->sum, &mine->reply, first), s->me));
    put_decoder(b, t);
    return TACIT_OK;
}
