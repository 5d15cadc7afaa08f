/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/sketch_reduce.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

enum { LINE = TACITI_SKETCH_LINE, SENDS_PER_MEMBER = 4, SHIFT = 20, STRIDE = 4 };

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

static taciti_range range_of(const taciti_allreduce *reduce, const taciti_cut *cut, size_t piece, int owner) {
    return reduce->wire_shape.range(&reduce->arrangement, cut, piece, owner);
}

/* Floats of an owner's ranges of a bucket. */
static size_t owned_n(const taciti_allreduce *reduce, const taciti_cut *cut, int owner) {
    size_t n = 0;
    for (size_t p = 0; p < cut->pieces; p++) n += range_of(reduce, cut, p, owner).n;
    return n;
}

static size_t padded_n(size_t n) { return taciti_round_up(n, LINE); }

typedef struct extent {
    size_t range_n, all_n; /* of the longest range; of all ranges of a bucket, each rounded up */
} extent;

static extent extent_of(const taciti_allreduce *reduce, const taciti_layout *layout) {
    extent max = {0, 0};
    for (size_t b = 0; b < layout->bucket_count; b++) {
        if (layout->buckets[b].n == 0) continue;
        const taciti_cut cut = taciti_allreduce_cut(reduce, layout->buckets[b].n);
        size_t all = 0;
        for (int m = 0; m < reduce->wire_shape.count; m++) {
            const size_t n = padded_n(owned_n(reduce, &cut, m));
            all += n;
            max.range_n = n > max.range_n ? n : max.range_n;
        }
        max.all_n = all > max.all_n ? all : max.all_n;
    }
    return max;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static size_t padded(size_t bytes) { return taciti_round_up(bytes, TACITI_ALIGN_BYTES); }

/* Sets the parts of the block and returns its bytes; without a block only counts. */
static size_t share_out(taciti_sketch_reduce *s, const taciti_encoding *encoding, extent e, char *block) {
    const size_t members = (size_t)s->count, n = e.range_n;
    size_t at = 0;
    s->range_n = n;
    s->message_bytes = padded(taciti_sketch_message_bound(n));
    s->index_bytes = padded(taciti_sketch_index_words(n) * sizeof(uint64_t));
    const size_t sizes[] = {padded(e.all_n * sizeof(float)),
                            padded(n * sizeof(float)),
                            padded(n * sizeof(float)),
                            members * s->message_bytes,
                            members * s->message_bytes,
                            members * s->index_bytes,
                            s->index_bytes,
                            s->message_bytes,
                            padded(taciti_sketch_workspace_bound(n, s->count)),
                            padded(taciti_payload_scratch_bytes(encoding, n)),
                            padded(taciti_payload_bound(encoding, n))};
    void *parts[sizeof sizes / sizeof *sizes];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; at += sizes[i++]) parts[i] = block == NULL ? NULL : block + at;
    s->selected = parts[0];
    s->x = parts[1];
    s->error = parts[2];
    s->leaving = parts[3];
    s->arriving = parts[4];
    s->pending = parts[5];
    s->union_ = parts[6];
    s->counters = parts[7];
    s->workspace = parts[8];
    s->scratch = parts[9];
    s->payload = parts[10];
    return at;
}

static taciti_sketch_reduce describe(const taciti_allreduce *reduce, const taciti_layout *layout) {
    return (taciti_sketch_reduce){.comm = reduce->comm,
                                  .layout = layout,
                                  .count = reduce->arrangement.hosts > 1 ? reduce->wire_shape.count : 1,
                                  .me = reduce->wire_shape.me};
}

static tacit_status allocate(taciti_sketch_reduce *s, const taciti_allreduce *reduce) {
    const size_t members = (size_t)s->count;
    const extent e = extent_of(reduce, s->layout);
    s->ranks = taciti_calloc(members, sizeof *s->ranks);
    s->blocks = taciti_calloc(members, sizeof *s->blocks);
    s->sends = (taciti_outbox){.comm = s->comm, .window = SENDS_PER_MEMBER * members};
    s->sends.requests = taciti_calloc(s->sends.window, sizeof *s->sends.requests);
    if (s->ranks == NULL || s->blocks == NULL || s->sends.requests == NULL) return TACIT_E_MEMORY;
    for (int m = 0; m < s->count; m++)
        s->ranks[m] = taciti_arrangement_rank(&reduce->arrangement, m, reduce->arrangement.number);
    const size_t bytes = share_out(s, &reduce->encoding, e, NULL);
    TACITI_TRY(taciti_pages_create_small(bytes + 1, "the sketches of the exchange", &s->pages));
    (void)share_out(s, &reduce->encoding, e, s->pages.base);
    return TACIT_OK;
}

tacit_status taciti_sketch_reduce_create(taciti_allreduce *reduce, const taciti_layout *layout,
                                         taciti_sketch_reduce *out) {
    *out = describe(reduce, layout);
    out->reduce = reduce;
    if (reduce->encoding.options != NULL) out->options = *(const taciti_sketch_options *)reduce->encoding.options;
    for (int i = 0; i < 2; i++) out->learnt[i] = taciti_calloc(layout->bucket_count, sizeof *out->learnt[i]);
    if (out->learnt[0] == NULL || out->learnt[1] == NULL) return TACIT_E_MEMORY;
    return out->count > 1 ? allocate(out, reduce) : TACIT_OK;
}

void taciti_sketch_reduce_destroy(taciti_sketch_reduce *s) {
    taciti_free(s->ranks);
    taciti_free(s->blocks);
    taciti_free(s->sends.requests);
    taciti_free(s->learnt[0]);
    taciti_free(s->learnt[1]);
    taciti_pages_destroy(&s->pages);
    *s = (taciti_sketch_reduce){0};
}

size_t taciti_sketch_reduce_predict_bytes(const taciti_allreduce *reduce, const taciti_layout *layout) {
    taciti_sketch_reduce s = describe(reduce, layout);
    if (s.count == 1) return 0;
    return share_out(&s, &reduce->encoding, extent_of(reduce, layout), NULL) +
           2 * layout->bucket_count * sizeof(taciti_sketch_learnt);
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

void taciti_sketch_reduce_settle(taciti_sketch_reduce *s, bool taken) {
    memcpy(s->learnt[!taken], s->learnt[taken], s->layout->bucket_count * sizeof *s->learnt[0]);
}

void *taciti_sketch_reduce_state(const taciti_sketch_reduce *s, size_t *bytes) {
    *bytes = s->layout->bucket_count * sizeof *s->learnt[0];
    return s->learnt[0];
}

void taciti_sketch_reduce_restored(taciti_sketch_reduce *s) { taciti_sketch_reduce_settle(s, false); }

/* ---- a bucket ---------------------------------------------------------------------------------------------------- */

typedef struct bucket {
    taciti_sketch_reduce *s;
    float *x;
    const taciti_bucket_task *task;
    taciti_residual *residual;
    const taciti_cut *cut;
    float *errors;               /* of the bucket; NULL: not wanted */
    taciti_payload_tally *tally; /* NULL: not wanted */
    taciti_sketch_total sum;
} bucket;

static int behind(const taciti_sketch_reduce *s, int k) { return (s->me + k) % s->count; }
static int before(const taciti_sketch_reduce *s, int k) { return (s->me - k + s->count) % s->count; }
static char *message(const taciti_sketch_reduce *s, char *block, int member) {
    return block + (size_t)member * s->message_bytes;
}
static uint64_t *pending_of(const taciti_sketch_reduce *s, int owner) {
    return owner == s->me ? s->union_ : (uint64_t *)(void *)(s->pending + (size_t)owner * s->index_bytes);
}
static double factor_of(const bucket *b) {
    const double factor = b->task->setting[TACITI_PAYLOAD_CONTRIBUTION].factor;
    return factor > 0 ? factor : TACITI_FACTOR;
}

/* A union grows at most as much as the contributions that it is of. Besides, there is room for trends, and for chance:
 * each of the 16 lanes has a sixteenth of the elements, whose number scatters by its root. */
static size_t expected_union(const bucket *b, const taciti_sketch_learnt *learnt, size_t n) {
    static const double ROOM = 1 + 1. / 16;
    const double factor = factor_of(b), growth = learnt->factor > factor ? learnt->factor / factor : 1;
    const double known = learnt->density * growth * (double)n;
    const double room = known * ROOM + LINE * sqrt(known / LINE);
    if (!(learnt->factor > 0)) return (size_t)b->s->count * ((size_t)((double)n / factor) + 1);
    return room < (double)n ? (size_t)room : n;
}

static void lay_out(bucket *b) {
    taciti_sketch_reduce *s = b->s;
    const taciti_encoding *encoding = &s->reduce->encoding;
    const uint64_t key = taciti_codec_key(encoding->seed, b->task->step, TACITI_CODEC_ALL_RANKS, b->task->bucket);
    const taciti_sketch_learnt *learnt = &s->learnt[0][b->task->bucket];
    size_t at = 0;
    s->learnt[1][b->task->bucket] = (taciti_sketch_learnt){.factor = factor_of(b)};
    for (int m = 0; m < s->count; m++) {
        taciti_sketch_block *block = &s->blocks[m];
        *block = (taciti_sketch_block){.at = at, .n = owned_n(s->reduce, b->cut, m)};
        block->form = taciti_sketch_form_of(block->n, s->count, expected_union(b, learnt, block->n), s->options.ratio,
                                            (taciti_ring)s->options.ring, (float)learnt->max,
                                            taciti_rng_key(key, (uint64_t)s->ranks[m]));
        at += padded_n(block->n);
    }
    b->sum = (taciti_sketch_total){.form = s->blocks[s->me].form,
                                   .x = s->x,
                                   .workspace = s->workspace,
                                   .union_ = s->union_,
                                   .counters = s->counters};
}

/* Moves an owner's ranges between the bucket and one array. */
static void gather_ranges(const bucket *b, int owner, const float *x, float *out) {
    for (size_t p = 0; p < b->cut->pieces; p++) {
        const taciti_range r = range_of(b->s->reduce, b->cut, p, owner);
        memcpy(out, x + r.at, r.n * sizeof *x);
        out += r.n;
    }
}

static void scatter_ranges(const bucket *b, int owner, const float *from, float *x) {
    for (size_t p = 0; p < b->cut->pieces; p++) {
        const taciti_range r = range_of(b->s->reduce, b->cut, p, owner);
        memcpy(x + r.at, from, r.n * sizeof *x);
        from += r.n;
    }
}

static taciti_residual_place place_of(const bucket *b, size_t piece, int owner) {
    const taciti_range r = range_of(b->s->reduce, b->cut, piece, owner);
    return (taciti_residual_place){TACITI_PAYLOAD_CONTRIBUTION, piece, (size_t)owner, r.at, r.n};
}

/* ---- 1: contributions -------------------------------------------------------------------------------------------- */

/* x becomes what is to be encoded. */
static void enter(bucket *b, int owner, taciti_codec_call *call) {
    const taciti_kernels *k = taciti_kernels_get();
    const bool observed = b->tally != NULL && b->task->histogram != NULL;
    for (size_t p = 0; p < b->cut->pieces; p++) {
        const taciti_residual_place place = place_of(b, p, owner);
        if (place.n == 0) continue;
        if (observed) b->tally->squares_gradient += k->sum_squares(b->x + place.at, place.n);
        if (b->residual == NULL) continue;
        if (observed) b->tally->squares_residual += taciti_residual_squares(b->residual, &place);
        float *error = taciti_residual_enter(b->residual, &place, b->x + place.at, call);
        b->errors = error == NULL ? NULL : error - place.at;
    }
}

/* What the task wants to know of v[n] besides its encoding, as of other codecs (halves.c). */
static tacit_status observe(bucket *b, taciti_codec_call call, const float *v, size_t n) {
    taciti_payload payload = {.data = b->s->payload};
    if (b->tally == NULL) return TACIT_OK;
    if (b->task->histogram != NULL) taciti_kernels_get()->histogram(b->task->histogram, v, n, SHIFT, STRIDE);
    if (b->task->trial <= 0) return TACIT_OK;
    call.setting = (taciti_codec_setting){.factor = b->task->trial};
    call.tally = &b->tally->trial;
    return taciti_payload_encode(b->s->comm, b->s->reduce->encoding.codec, &call, v, n, NULL, &payload);
}

/* selected = what the codec selects of the owner's ranges; the rest becomes the residual. */
static tacit_status select_for(bucket *b, int owner) {
    taciti_sketch_reduce *s = b->s;
    const taciti_encoding *encoding = &s->reduce->encoding;
    const taciti_sketch_block *block = &s->blocks[owner];
    taciti_codec_call call =
        taciti_payload_call(encoding, b->task, s->ranks[s->me], TACITI_PAYLOAD_CONTRIBUTION, block->at);
    taciti_payload payload = {.data = s->payload};
    call.scratch = s->scratch;
    enter(b, owner, &call);
    gather_ranges(b, owner, b->x, s->x);
    TACITI_TRY(observe(b, call, s->x, block->n));
    call.tally = b->tally != NULL ? &b->tally->codec : NULL;
    TACITI_TRY(taciti_payload_encode(s->comm, encoding->codec, &call, s->x, block->n,
                                     b->errors != NULL ? s->error : NULL, &payload));
    TACITI_TRY(encoding->codec->decode(&call, payload.data, payload.bytes, s->selected + block->at, block->n));
    if (b->errors != NULL) scatter_ranges(b, owner, s->error, b->errors);
    for (size_t p = 0; p < b->cut->pieces && b->residual != NULL; p++) {
        const taciti_residual_place place = place_of(b, p, owner);
        if (place.n > 0)
            TACITI_TRY(taciti_residual_leave(b->residual, &place, b->x + place.at, encoding->codec, &call, payload));
    }
    return TACIT_OK;
}

static tacit_status send(bucket *b, int member, const void *bytes, size_t count) {
    if (b->tally != NULL) b->tally->bytes += count;
    return taciti_outbox_send(&b->s->sends, b->s->ranks[member], bytes, count);
}

static tacit_status contribute(bucket *b, int owner) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_block *block = &s->blocks[owner];
    char *out = message(s, s->leaving, owner);
    const int64_t begin_ns = taciti_now_ns();
    if (block->n == 0) return TACIT_OK;
    TACITI_TRY(select_for(b, owner));
    TACITI_TRY(taciti_sketch_contribute(&block->form, s->selected + block->at, out));
    if (b->tally != NULL) b->tally->encode_ns += taciti_now_ns() - begin_ns;
    if (owner == s->me) return TACIT_OK;
    return send(b, owner, out, taciti_sketch_contribution_bytes(&block->form));
}

/* In the order in which every member sends: its contribution, and its reply as an owner. */
static tacit_status expect(bucket *b) {
    taciti_sketch_reduce *s = b->s;
    for (int k = 1; k < s->count; k++) {
        const int m = before(s, k);
        taciti_sketch_block *block = &s->blocks[m];
        if (s->blocks[s->me].n > 0)
            TACITI_TRY(taciti_comm_irecv(s->comm, s->ranks[m], message(s, s->arriving, m),
                                         taciti_sketch_contribution_bytes(&s->blocks[s->me].form),
                                         &block->contribution));
        if (block->n > 0)
            TACITI_TRY(taciti_comm_irecv(s->comm, s->ranks[m], &block->reply, sizeof block->reply, &block->told));
    }
    return TACIT_OK;
}

/* ---- 2: replies -------------------------------------------------------------------------------------------------- */

static tacit_status refused(const bucket *b, tacit_status status, int member) {
    if (status == TACIT_OK) return status;
    return taciti_fail(status, "bucket %zu of step %" PRId64 ": what rank %d sent of a sum of sketches is malformed",
                       b->task->bucket, b->task->step, b->s->ranks[member]);
}

static tacit_status add_up(bucket *b) {
    taciti_sketch_reduce *s = b->s;
    taciti_sketch_block *mine = &s->blocks[s->me];
    int64_t spent_ns = 0;
    if (mine->n == 0) return TACIT_OK;
    for (int m = 0; m < s->count; m++) {
        if (m != s->me) TACITI_TRY(taciti_comm_await(s->comm, &s->blocks[m].contribution));
        const int64_t begin_ns = taciti_now_ns();
        const char *one = message(s, m == s->me ? s->leaving : s->arriving, m);
        TACITI_TRY(refused(b, taciti_sketch_take(&b->sum, one, m == 0), m));
        spent_ns += taciti_now_ns() - begin_ns;
    }
    const int64_t begin_ns = taciti_now_ns();
    TACITI_TRY(refused(b, taciti_sketch_resolve(&b->sum, &mine->reply), s->me));
    spent_ns += taciti_now_ns() - begin_ns;
    taciti_payload_time(s->comm, TACITI_SPAN_DECODE, spent_ns);
    if (b->tally != NULL) {
        b->tally->decode_ns += spent_ns;
        b->tally->pending += mine->reply.pending;
    }
    for (int k = 1; k < s->count; k++) {
        TACITI_TRY(send(b, behind(s, k), &mine->reply, sizeof mine->reply));
        if (mine->reply.pending > 0)
            TACITI_TRY(send(b, behind(s, k), s->union_, taciti_sketch_index_words(mine->n) * sizeof(uint64_t)));
    }
    return TACIT_OK;
}

/* ---- 3: values --------------------------------------------------------------------------------------------------- */

static size_t values_bytes(const taciti_sketch_block *block) {
    const taciti_sketch shape = taciti_sketch_of_values(&block->form, &block->reply);
    return block->reply.pending * taciti_sketch_number_bytes(shape.numbers.ring);
}

static tacit_status expect_values(bucket *b) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_block *mine = &s->blocks[s->me];
    for (int k = 1; k < s->count; k++) {
        const int m = before(s, k);
        taciti_sketch_block *block = &s->blocks[m];
        if (block->n > 0) {
            TACITI_TRY(taciti_comm_await(s->comm, &block->told));
            TACITI_TRY(refused(b, taciti_sketch_check_reply(&block->form, &block->reply), m));
        }
        if (block->reply.pending > 0)
            TACITI_TRY(taciti_comm_irecv(s->comm, s->ranks[m], pending_of(s, m),
                                         taciti_sketch_index_words(block->n) * sizeof(uint64_t), &block->index));
        if (mine->reply.pending > 0)
            TACITI_TRY(taciti_comm_irecv(s->comm, s->ranks[m], message(s, s->arriving, m), values_bytes(mine),
                                         &block->values));
    }
    return TACIT_OK;
}

/* What the ring rounded off joins the residual. `selected` becomes it. */
static tacit_status keep_rounding(bucket *b, int owner) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_block *block = &s->blocks[owner];
    const taciti_sketch *sketch = &block->form.sketch;
    float *selected = s->selected + block->at, *rounded = s->error;
    uint64_t *index = s->payload; /* free since the encoding, as s->scratch; both hold packed values of the range */
    if (b->errors == NULL || block->form.dense || sketch->numbers.ring == TACITI_RING_F32 || block->reply.whole)
        return TACIT_OK;
    taciti_sketch_index(selected, block->n, index);
    TACITI_TRY(taciti_sketch_pack(sketch, index, selected, s->scratch));
    TACITI_TRY(taciti_sketch_unpack(sketch, index, s->scratch, rounded));
    taciti_kernels_get()->add_scaled(selected, rounded, -1, block->n);
    for (size_t p = 0; p < b->cut->pieces; p++) {
        const taciti_range r = range_of(s->reduce, b->cut, p, owner);
        taciti_kernels_get()->add(b->errors + r.at, selected, r.n);
        selected += r.n;
    }
    return TACIT_OK;
}

static tacit_status send_values(bucket *b, int owner) {
    taciti_sketch_reduce *s = b->s;
    taciti_sketch_block *block = &s->blocks[owner];
    if (block->n == 0) return TACIT_OK;
    taciti_sketch_learnt *learnt = &s->learnt[1][b->task->bucket];
    learnt->density = fmax(learnt->density, (double)block->reply.measured / (double)block->n);
    learnt->max = fmax(learnt->max, (double)block->reply.max);
    if (block->reply.pending > 0) {
        const taciti_sketch shape = taciti_sketch_of_values(&block->form, &block->reply);
        char *out = message(s, s->leaving, owner);
        if (owner != s->me) {
            TACITI_TRY(taciti_comm_await(s->comm, &block->index));
            TACITI_TRY(
                refused(b, taciti_sketch_check_pending(&block->form, &block->reply, pending_of(s, owner)), owner));
        }
        TACITI_TRY(taciti_sketch_pack(&shape, pending_of(s, owner), s->selected + block->at, out));
        if (owner != s->me) TACITI_TRY(send(b, owner, out, values_bytes(block)));
    }
    return keep_rounding(b, owner);
}

static tacit_status add_values(bucket *b) {
    taciti_sketch_reduce *s = b->s;
    const taciti_sketch_block *mine = &s->blocks[s->me];
    void *first = message(s, s->me == 0 ? s->leaving : s->arriving, 0);
    const taciti_sketch shape = taciti_sketch_of_values(&mine->form, &mine->reply);
    if (mine->reply.pending == 0) return TACIT_OK;
    for (int m = 0; m < s->count; m++) {
        if (m != s->me) TACITI_TRY(taciti_comm_await(s->comm, &s->blocks[m].values));
        if (m > 0)
            taciti_kernels_get()->sketch_sum(shape.numbers.ring, first,
                                             message(s, m == s->me ? s->leaving : s->arriving, m), mine->reply.pending);
    }
    return refused(b, taciti_sketch_complete(&b->sum, &mine->reply, first), s->me);
}

static tacit_status reduce_scatter(bucket *b) {
    taciti_sketch_reduce *s = b->s;
    lay_out(b);
    TACITI_TRY(expect(b));
    for (int k = 1; k <= s->count; k++) TACITI_TRY(contribute(b, behind(s, k)));
    const size_t contributed = s->sends.posted;
    TACITI_TRY(add_up(b));
    TACITI_TRY(expect_values(b));
    TACITI_TRY(taciti_outbox_await(&s->sends, contributed)); /* values overwrite them */
    for (int k = 1; k <= s->count; k++) TACITI_TRY(send_values(b, behind(s, k)));
    TACITI_TRY(add_values(b));
    scatter_ranges(b, s->me, s->x, b->x);
    return taciti_outbox_await(&s->sends, s->sends.posted);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static tacit_status sum_hosts(bucket *b) {
    taciti_halves *local = &b->s->reduce->local;
    taciti_piece t = {.x = b->x, .task = b->task, .residual = b->residual, .cut = b->cut};
    for (; t.piece < b->cut->pieces; t.piece++) {
        TACITI_TRY(taciti_scatter_begin(local, &t));
        TACITI_TRY(taciti_scatter_end(local, &t));
    }
    return taciti_halves_finish(local);
}

tacit_status taciti_sketch_reduce_run(taciti_sketch_reduce *s, float *x, size_t n, const taciti_bucket_task *task,
                                      taciti_residual *residual) {
    taciti_bucket_task back = *task;
    if (n == 0 || s->reduce->arrangement.size == 1) return TACIT_OK;
    if (s->reduce->arrangement.hosts == 1) return taciti_allreduce_run(s->reduce, x, n, task, residual);
    const taciti_cut cut = taciti_allreduce_cut(s->reduce, n);
    bucket b = {.s = s, .x = x, .task = task, .residual = residual, .cut = &cut};
    if (residual != NULL && residual->pieces == 0) b.residual = NULL;
    if (task->tallies != NULL) b.tally = &task->tallies[TACITI_PAYLOAD_CONTRIBUTION];
    if (task->part != TACITI_HALF_ALL_GATHER) {
        TACITI_TRY(sum_hosts(&b));
        if (s->count > 1) TACITI_TRY(reduce_scatter(&b));
    }
    if (task->part == TACITI_HALF_REDUCE_SCATTER) return TACIT_OK;
    back.part = TACITI_HALF_ALL_GATHER;
    back.setting[TACITI_PAYLOAD_RESULT] = (taciti_codec_setting){.factor = 1, .threshold = (double)FLT_TRUE_MIN};
    return taciti_allreduce_run(s->reduce, x, n, &back, residual);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* An owner sends its reply and an index to every member. */
static uint64_t reply_bytes(size_t n) {
    return n == 0 ? 0 : sizeof(taciti_sketch_reply) + taciti_sketch_index_words(n) * sizeof(uint64_t);
}

/* A member sends its contribution and at worst all values where the formulas of the all-reduce count one payload. */
static uint64_t more_than_payload(const taciti_allreduce *reduce, size_t n) {
    const uint64_t messages = 2 * n * sizeof(float), payload = taciti_payload_bound(&reduce->encoding, n);
    return n > 0 && messages > payload ? messages - payload : 0;
}

uint64_t taciti_sketch_reduce_bytes(const taciti_allreduce *reduce, size_t n) {
    uint64_t bytes = taciti_allreduce_bytes(reduce, n);
    if (reduce->arrangement.hosts == 1 || reduce->wire_shape.count == 1 || n == 0) return bytes;
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    for (int m = 0; m < reduce->wire_shape.count; m++) {
        const size_t owned = owned_n(reduce, &cut, m);
        bytes += m == reduce->wire_shape.me ? (uint64_t)(reduce->wire_shape.count - 1) * reply_bytes(owned)
                                            : more_than_payload(reduce, owned);
    }
    return bytes;
}

uint64_t taciti_sketch_reduce_nic_bytes(const taciti_allreduce *reduce, size_t n, int host) {
    const taciti_arrangement *p = &reduce->arrangement;
    uint64_t bytes = taciti_allreduce_nic_bytes(reduce, n, host);
    if (p->hosts == 1 || n == 0) return bytes;
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    for (int lane = 0; lane < p->lanes; lane++)
        for (int here = 0; here < p->hosts; here++)
            for (int other = 0; other < p->hosts; other++) {
                size_t theirs = 0, own = 0;
                for (size_t i = 0; i < cut.pieces; i++) {
                    theirs += taciti_cut_chunk(p, &cut, i, lane, other).n;
                    own += taciti_cut_chunk(p, &cut, i, lane, here).n;
                }
                if (p->host_of[p->first[here] + lane] == host && p->host_of[p->first[other] + lane] != host)
                    bytes += more_than_payload(reduce, theirs) + reply_bytes(own);
            }
    return bytes;
}
