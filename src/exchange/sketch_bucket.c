/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/sketch_bucket.h"

#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

enum { LAG = TACITI_SKETCH_LAG, SECTIONS = TACITI_SKETCH_SECTIONS, PART_BYTES = TACITI_SKETCH_PART_BYTES };

typedef taciti_sketch_bucket bucket;
typedef taciti_sketch_slot slot;

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

size_t taciti_sketch_block_count(const taciti_allreduce *reduce, const taciti_cut *cut) {
    const size_t ranges = (size_t)reduce->arrangement.hosts * (size_t)reduce->arrangement.lanes;
    const size_t chunk_n = cut->piece_n / ranges, fit = chunk_n > 0 ? TACITI_SKETCH_BLOCK_N / chunk_n : 1;
    const size_t few = fit < TACITI_SKETCH_BLOCK_PIECES ? fit : TACITI_SKETCH_BLOCK_PIECES, max = few > 1 ? few : 1;
    return (cut->pieces + max - 1) / max;
}

/* No block is short: small sketches fail more often. */
taciti_sketch_pieces taciti_sketch_pieces_of(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block) {
    const size_t blocks = taciti_sketch_block_count(reduce, cut);
    return (taciti_sketch_pieces){.first = cut->pieces * block / blocks, .end = cut->pieces * (block + 1) / blocks};
}

static taciti_range range_of(const taciti_allreduce *reduce, const taciti_cut *cut, size_t piece, int owner) {
    return reduce->wire_shape.range(&reduce->arrangement, cut, piece, owner);
}

size_t taciti_sketch_owned_n(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block, int owner) {
    const taciti_sketch_pieces p = taciti_sketch_pieces_of(reduce, cut, block);
    size_t n = 0;
    for (size_t i = p.first; i < p.end; i++) n += range_of(reduce, cut, i, owner).n;
    return n;
}

/* Whether an owner's ranges of a block follow each other; *first is then where the first begins. */
static bool are_one_range(const bucket *b, size_t block, int owner, size_t *first) {
    const taciti_sketch_pieces p = taciti_sketch_pieces_of(b->s->reduce, b->cut, block);
    size_t end = *first = range_of(b->s->reduce, b->cut, p.first, owner).at;
    for (size_t i = p.first; i < p.end; i++) {
        const taciti_range r = range_of(b->s->reduce, b->cut, i, owner);
        if (r.n > 0 && r.at != end) return false;
        end += r.n;
    }
    return true;
}

/* Moves an owner's ranges of a block between the bucket and one array. */
static void gather_ranges(const bucket *b, size_t block, int owner, const float *x, float *out) {
    const taciti_sketch_pieces p = taciti_sketch_pieces_of(b->s->reduce, b->cut, block);
    for (size_t i = p.first; i < p.end; i++) {
        const taciti_range r = range_of(b->s->reduce, b->cut, i, owner);
        memcpy(out, x + r.at, r.n * sizeof *x);
        out += r.n;
    }
}

static void scatter_ranges(const bucket *b, size_t block, int owner, const float *from, float *x) {
    const taciti_sketch_pieces p = taciti_sketch_pieces_of(b->s->reduce, b->cut, block);
    for (size_t i = p.first; i < p.end; i++) {
        const taciti_range r = range_of(b->s->reduce, b->cut, i, owner);
        memcpy(x + r.at, from, r.n * sizeof *x);
        from += r.n;
    }
}

/* ---- messages between members ------------------------------------------------------------------------------------ */

static int member_behind(const taciti_sketch_reduce *s, int k) { return (s->me + k) % s->count; }
static int member_before(const taciti_sketch_reduce *s, int k) { return (s->me - k + s->count) % s->count; }

static char *message_of(const taciti_sketch_reduce *s, char *messages, int member) {
    return messages + (size_t)member * s->message_bytes;
}

static uint64_t *pending_of(const taciti_sketch_reduce *s, const slot *t, int owner) {
    return (uint64_t *)(void *)(t->pending + (size_t)owner * s->index_bytes);
}

/* Bytes of the packed values of what is pending. */
static size_t values_bytes(const taciti_sketch_share *share) {
    return share->reply.pending * TACITI_SKETCH_NUMBER_BYTES;
}

static tacit_status send_to(bucket *b, int member, const void *bytes, size_t count) {
    if (b->tally != NULL) b->tally->bytes += count;
    return taciti_outbox_send(&b->s->sends, b->s->ranks[member], bytes, count);
}

/* Forwards `status`; an error is logged with the name of the member. */
static tacit_status name_sender(const bucket *b, tacit_status status, int member) {
    if (status == TACIT_OK) return status;
    return taciti_fail(status, "bucket %zu of step %" PRId64 ": what rank %d sent of a sum of sketches is malformed",
                       b->task->bucket, b->task->step, b->s->ranks[member]);
}

/* ---- members: contributions -------------------------------------------------------------------------------------- */

static taciti_residual_place place_of(const bucket *b, size_t piece, int owner) {
    const taciti_range r = range_of(b->s->reduce, b->cut, piece, owner);
    return (taciti_residual_place){TACITI_PAYLOAD_CONTRIBUTION, r.at, r.n};
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
    const bool one = are_one_range(b, t->block, owner, &at);
    if (!one) gather_ranges(b, t->block, owner, b->x, s->x);
    const float *x = one ? b->x + at : s->x;
    float *error = b->errors == NULL ? NULL : one ? b->errors + at : s->error;
    if (b->tally != NULL)
        TACITI_TRY(taciti_payload_observe(s->comm, s->reduce->encoding.codec, b->task, call, x, share->n, s->payload));
    call.tally = b->tally != NULL ? &b->tally->sent : NULL;
    const int64_t begin_ns = taciti_now_ns();
    taciti_composed_select(s->reduce->encoding.codec, &call, x, share->n, t->selected + share->at, error);
    taciti_payload_time(s->comm, TACITI_SPAN_ENCODE, taciti_now_ns() - begin_ns);
    if (error != NULL && !one) scatter_ranges(b, t->block, owner, error, b->errors);
    return leave_ranges(b, t->block, owner, &call);
}

static tacit_status send_contribution(bucket *b, const slot *t, int owner) {
    const char *out = message_of(b->s, t->leaving, owner);
    size_t left = taciti_sketch_contribution_bytes(&t->shares[owner].form);
    while (left > 0) {
        const size_t bytes = left < PART_BYTES ? left : PART_BYTES;
        TACITI_TRY(send_to(b, owner, out, bytes));
        out += bytes;
        left -= bytes;
    }
    return TACIT_OK;
}

/* Selects what this member has for every owner, and sends it. The rest becomes the residual. */
static tacit_status contribute_block(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    for (int k = 1; k <= s->count; k++) {
        const int owner = member_behind(s, k);
        const taciti_sketch_share *share = &t->shares[owner];
        const int64_t begin_ns = taciti_now_ns();
        if (share->n == 0) continue;
        TACITI_TRY(select_for(b, t, owner));
        TACITI_TRY(taciti_sketch_contribute(&share->form, t->selected + share->at, message_of(s, t->leaving, owner)));
        if (b->tally != NULL) b->tally->encode_ns += taciti_now_ns() - begin_ns;
        if (owner != s->me) TACITI_TRY(send_contribution(b, t, owner));
    }
    t->contributed = s->sends.posted;
    return TACIT_OK;
}

/* ---- members: values of elements that did not decode ------------------------------------------------------------- */

static tacit_status send_values_to(bucket *b, slot *t, int owner) {
    taciti_sketch_reduce *s = b->s;
    taciti_sketch_share *share = &t->shares[owner];
    const uint64_t *pending = pending_of(s, t, owner);
    float *out = (float *)(void *)message_of(s, t->leaving, owner);
    if (share->reply.pending == 0) return TACIT_OK;
    if (owner != s->me) {
        TACITI_TRY(taciti_comm_await(s->comm, &share->index));
        TACITI_TRY(name_sender(b, taciti_sketch_check_pending(&share->form, &share->reply, pending), owner));
    }
    TACITI_TRY(taciti_sketch_pack(&share->form.sketch, pending, t->selected + share->at, out));
    return owner == s->me ? TACIT_OK : send_to(b, owner, out, values_bytes(share));
}

/* Sends values of what is pending to every owner. */
static tacit_status send_values(bucket *b, slot *t) {
    TACITI_TRY(taciti_outbox_await(&b->s->sends, t->contributed)); /* values overwrite contributions */
    for (int k = 1; k <= b->s->count; k++) {
        const int owner = member_behind(b->s, k);
        if (t->shares[owner].n > 0) TACITI_TRY(send_values_to(b, t, owner));
    }
    return TACIT_OK;
}

/* ---- owners: decoders -------------------------------------------------------------------------------------------- */

static void take_decoder(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    size_t at;
    t->decoder = s->idle[--s->idle_count];
    char *memory = s->decoders + (size_t)t->decoder * s->decoder_bytes;
    float *x = (float *)(void *)memory;
    char *counters = memory + taciti_round_up(s->range_n * sizeof(float), TACITI_ALIGN_BYTES);
    const bool one = are_one_range(b, t->block, s->me, &at);
    t->sum = (taciti_sketch_total){.form = t->shares[s->me].form,
                                   .x = one ? b->x + at : x,
                                   .counters = (float *)(void *)counters,
                                   .workspace = counters + s->message_bytes,
                                   .union_ = pending_of(s, t, s->me)};
}

/* The sums are complete. */
static void put_decoder(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    size_t at;
    if (!are_one_range(b, t->block, s->me, &at)) scatter_ranges(b, t->block, s->me, t->sum.x, b->x);
    s->idle[s->idle_count++] = t->decoder;
    t->decoder = -1;
}

/* ---- owners: sums in the order of the members -------------------------------------------------------------------- */

static tacit_status resolve_sum(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    const size_t bytes = taciti_sketch_contribution_bytes(&t->shares[s->me].form);
    int64_t spent_ns = 0;
    for (int m = 0; m < s->count; m++) {
        for (size_t i = 0; m != s->me && i * PART_BYTES < bytes; i++)
            TACITI_TRY(taciti_comm_await(s->comm, &t->shares[m].contribution[i]));
        const int64_t begin_ns = taciti_now_ns();
        const char *one = message_of(s, m == s->me ? t->leaving : t->arriving, m);
        TACITI_TRY(name_sender(b, taciti_sketch_take(&t->sum, one, m == 0), m));
        spent_ns += taciti_now_ns() - begin_ns;
    }
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(name_sender(b, taciti_sketch_resolve(&t->sum, &t->shares[s->me].reply), s->me));
    spent_ns += taciti_now_ns() - begin_ns;
    taciti_payload_time(s->comm, TACITI_SPAN_DECODE, spent_ns);
    if (b->tally != NULL) b->tally->decode_ns += spent_ns;
    return TACIT_OK;
}

/* Adds up and decodes the own ranges, and replies. */
static tacit_status add_up(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    taciti_sketch_share *mine = &t->shares[s->me];
    if (mine->n == 0) return TACIT_OK;
    take_decoder(b, t);
    TACITI_TRY(resolve_sum(b, t));
    if (b->tally != NULL && !mine->form.packed) b->tally->pending += mine->reply.pending;
    for (int k = 1; k < s->count; k++) TACITI_TRY(send_to(b, member_behind(s, k), &mine->reply, sizeof mine->reply));
    if (mine->reply.pending == 0) put_decoder(b, t);
    return TACIT_OK;
}

/* Sends the index of what is pending, if anything is. */
static tacit_status send_pending(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_share *mine = &t->shares[s->me];
    for (int k = 1; k < s->count && mine->reply.pending > 0; k++)
        TACITI_TRY(
            send_to(b, member_behind(s, k), t->sum.union_, taciti_sketch_index_words(mine->n) * sizeof(uint64_t)));
    return TACIT_OK;
}

/* Adds the values of what is pending. */
static tacit_status add_values(bucket *b, slot *t) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_share *mine = &t->shares[s->me];
    float *first = (float *)(void *)message_of(s, s->me == 0 ? t->leaving : t->arriving, 0);
    if (mine->reply.pending == 0) return TACIT_OK;
    for (int m = 0; m < s->count; m++) {
        if (m != s->me) TACITI_TRY(taciti_comm_await(s->comm, &t->shares[m].values));
        if (m == 0) continue;
        const char *more = message_of(s, m == s->me ? t->leaving : t->arriving, m);
        taciti_kernels_get()->add(first, (const float *)(const void *)more, mine->reply.pending);
    }
    TACITI_TRY(name_sender(b, taciti_sketch_complete(&t->sum, &mine->reply, first), s->me));
    put_decoder(b, t);
    return TACIT_OK;
}

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
    char *in = message_of(s, t->arriving, m);
    size_t left = mine->n > 0 ? taciti_sketch_contribution_bytes(&mine->form) : 0;
    for (size_t i = 0; left > 0; i++) {
        const size_t bytes = left < PART_BYTES ? left : PART_BYTES;
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
        TACITI_TRY(taciti_comm_irecv(s->comm, rank, pending_of(s, index, m),
                                     taciti_sketch_index_words(index->shares[m].n) * sizeof(uint64_t),
                                     &index->shares[m].index));
    if (values != NULL && values->shares[s->me].reply.pending > 0)
        TACITI_TRY(taciti_comm_irecv(s->comm, rank, message_of(s, values->arriving, m),
                                     values_bytes(&values->shares[s->me]), &values->shares[m].values));
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
            TACITI_TRY(name_sender(b, taciti_sketch_check_reply(&share->form, &share->reply), m));
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
    for (int k = 1; k < s->count; k++) TACITI_TRY(expect_from(b, cycle, member_before(s, k)));
    if (first != NULL) TACITI_TRY(contribute_block(b, first));
    if (told != NULL) TACITI_TRY(add_up(b, told));
    if (index != NULL) TACITI_TRY(send_pending(b, index));
    if (values != NULL) {
        TACITI_TRY(send_values(b, values));
        TACITI_TRY(add_values(b, values));
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
