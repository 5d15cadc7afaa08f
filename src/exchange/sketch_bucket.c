/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/sketch_bucket.h"

#include <math.h>

enum { LINE = TACITI_SKETCH_LINE, LAG = TACITI_SKETCH_LAG, SECTIONS = TACITI_SKETCH_SECTIONS };

typedef taciti_sketch_bucket bucket;
typedef taciti_sketch_slot slot;

/* ---- the layout of a block --------------------------------------------------------------------------------------- */

static double factor_of(const bucket *b) {
    const double factor = b->task->setting[TACITI_PAYLOAD_CONTRIBUTION].factor;
    return factor > 0 ? factor : TACITI_FACTOR;
}

/* The sections of the bucket that a block lies in: at least one. */
typedef struct sections {
    size_t first, end;
} sections;

static sections sections_of(const bucket *b, size_t block) {
    const size_t first = block * SECTIONS / b->blocks, end = ((block + 1) * SECTIONS + b->blocks - 1) / b->blocks;
    return (sections){.first = first, .end = end < SECTIONS ? end : SECTIONS};
}

/* A union grows at most as much as the contributions that it is of. */
static size_t expected_union(const bucket *b, size_t block, size_t n) {
    const taciti_sketch_learnt *learnt = &b->s->learnt[0][b->task->bucket];
    const sections in = sections_of(b, block);
    const double factor = factor_of(b), growth = learnt->factor > factor ? learnt->factor / factor : 1;
    double density = 0;
    for (size_t i = in.first; i < in.end; i++) density = fmax(density, learnt->density[i]);
    if (!(learnt->factor > 0)) return (size_t)b->s->count * ((size_t)((double)n / factor) + 1);
    return taciti_sketch_room(n, density * growth);
}

static taciti_sketch_form form_of(const bucket *b, size_t block, int owner, size_t n) {
    const taciti_sketch_reduce *s = b->s;
    const uint64_t seed = s->reduce->encoding.seed;
    const uint64_t key = taciti_codec_key(seed, b->task->step, TACITI_CODEC_ALL_RANKS, b->task->bucket);
    return taciti_sketch_form_of(n, expected_union(b, block, n), s->options.ratio,
                                 taciti_rng_key(taciti_rng_key(key, (uint64_t)s->ranks[owner]), block));
}

static void lay_out(bucket *b, slot *t, size_t block) {
    const taciti_sketch_reduce *s = b->s;
    size_t at = 0;
    t->block = block;
    t->decoder = -1;
    for (int m = 0; m < s->count; m++) {
        taciti_sketch_share *share = &t->shares[m];
        share->at = at;
        share->n = taciti_sketch_owned_n(s->reduce, b->cut, block, m);
        share->reply = (taciti_sketch_reply){0};
        share->form = form_of(b, block, m, share->n);
        at += taciti_sketch_padded_n(share->n);
    }
}

/* ---- what arrives ------------------------------------------------------------------------------------------------ */

static tacit_status expect_contribution(bucket *b, slot *t, int m) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_share *mine = &t->shares[s->me];
    char *in = taciti_sketch_message(s, t->arriving, m);
    size_t left = mine->n > 0 ? taciti_sketch_contribution_bytes(&mine->form) : 0;
    for (size_t i = 0; left > 0; i++) {
        const size_t bytes = left < TACITI_SKETCH_PART_BYTES ? left : TACITI_SKETCH_PART_BYTES;
        TACITI_TRY(taciti_comm_irecv(s->comm, s->ranks[m], in, bytes, &t->shares[m].contribution[i]));
        in += bytes;
        left -= bytes;
    }
    return TACIT_OK;
}

/* The block of this cycle with that lag, or NULL. */
static slot *at_lag(const bucket *b, size_t cycle, size_t lag) {
    return cycle >= lag && cycle - lag < b->blocks ? &b->s->slots[(cycle - lag) % TACITI_SKETCH_SLOTS] : NULL;
}

/* The messages that member m sends in this cycle, in its order. */
static tacit_status expect_from(bucket *b, size_t cycle, int m) {
    taciti_sketch_reduce *s = b->s;
    slot *first = at_lag(b, cycle, 0), *told = at_lag(b, cycle, LAG), *index = at_lag(b, cycle, 2 * LAG),
         *values = at_lag(b, cycle, 3 * LAG);
    const int rank = s->ranks[m];
    if (first != NULL) TACITI_TRY(expect_contribution(b, first, m));
    if (told != NULL && told->shares[m].n > 0)
        TACITI_TRY(taciti_comm_irecv(s->comm, rank, &told->shares[m].reply, sizeof(taciti_sketch_reply),
                                     &told->shares[m].told));
    if (index != NULL && index->shares[m].reply.pending > 0)
        TACITI_TRY(taciti_comm_irecv(s->comm, rank, taciti_sketch_pending_of(s, index, m),
                                     taciti_sketch_index_words(index->shares[m].n) * sizeof(uint64_t),
                                     &index->shares[m].index));
    if (values != NULL && values->shares[s->me].reply.pending > 0)
        TACITI_TRY(taciti_comm_irecv(s->comm, rank, taciti_sketch_message(s, values->arriving, m),
                                     taciti_sketch_values_bytes(&values->shares[s->me]), &values->shares[m].values));
    return TACIT_OK;
}

/* Awaits the replies to a block, which are the same on all members. */
static tacit_status take_replies(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    taciti_sketch_learnt *learnt = &s->learnt[1][b->task->bucket];
    const sections in = sections_of(b, t->block);
    for (int m = 0; m < s->count; m++) {
        taciti_sketch_share *share = &t->shares[m];
        if (share->n == 0) continue;
        if (m != s->me) {
            TACITI_TRY(taciti_comm_await(s->comm, &share->told));
            TACITI_TRY(taciti_sketch_refused(b, taciti_sketch_check_reply(&share->form, &share->reply), m));
        }
        for (size_t i = in.first; i < in.end; i++)
            learnt->density[i] = fmax(learnt->density[i], (double)share->reply.measured / (double)share->n);
    }
    return TACIT_OK;
}

/* ---- cycles ------------------------------------------------------------------------------------------------------ */

static tacit_status run_cycle(bucket *b, size_t cycle) {
    taciti_sketch_reduce *s = b->s;
    slot *first = at_lag(b, cycle, 0), *told = at_lag(b, cycle, LAG), *index = at_lag(b, cycle, 2 * LAG),
         *values = at_lag(b, cycle, 3 * LAG);
    if (first != NULL) {
        TACITI_TRY(taciti_outbox_await(&s->sends, first->posted)); /* of the block that had the slot before */
        lay_out(b, first, cycle);
    }
    if (index != NULL) TACITI_TRY(take_replies(b, index));
    for (int k = 1; k < s->count; k++) TACITI_TRY(expect_from(b, cycle, taciti_sketch_before(s, k)));
    if (first != NULL) TACITI_TRY(taciti_sketch_contribute_block(b, first));
    if (told != NULL) TACITI_TRY(taciti_sketch_add_up(b, told));
    if (index != NULL) TACITI_TRY(taciti_sketch_send_pending(b, index));
    if (values != NULL) {
        TACITI_TRY(taciti_sketch_send_values(b, values));
        TACITI_TRY(taciti_sketch_add_values(b, values));
        values->posted = s->sends.posted;
    }
    return TACIT_OK;
}

tacit_status taciti_sketch_bucket_reduce_scatter(bucket *b) {
    taciti_sketch_reduce *s = b->s;
    b->blocks = taciti_sketch_block_count(s->reduce, b->cut);
    s->learnt[1][b->task->bucket] = (taciti_sketch_learnt){.factor = factor_of(b)};
    s->idle_count = b->blocks < TACITI_SKETCH_SLOTS ? b->blocks : TACITI_SKETCH_SLOTS;
    for (size_t i = 0; i < s->idle_count; i++) s->idle[i] = (int)i;
    for (size_t cycle = 0; cycle < b->blocks + 3 * LAG; cycle++) TACITI_TRY(run_cycle(b, cycle));
    return taciti_outbox_await(&s->sends, s->sends.posted);
}
