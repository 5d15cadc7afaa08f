/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/sketch_reduce.h"

#include <float.h>
#include <string.h>

#include "exchange/sketch_bucket.h"

enum { SLOTS = TACITI_SKETCH_SLOTS };

/* ---- life -------------------------------------------------------------------------------------------------------- */

typedef struct extent {
    size_t range_n, all_n; /* of the longest range of a block; of all ranges of a block, each rounded up */
    size_t slots;          /* blocks of a bucket that may be under way */
} extent;

static extent extent_of_block(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block, extent max) {
    size_t all = 0;
    for (int m = 0; m < reduce->wire_shape.count; m++) {
        const size_t n = taciti_sketch_padded_n(taciti_sketch_owned_n(reduce, cut, block, m));
        all += n;
        max.range_n = n > max.range_n ? n : max.range_n;
    }
    max.all_n = all > max.all_n ? all : max.all_n;
    return max;
}

static extent extent_of(const taciti_allreduce *reduce, const taciti_layout *layout) {
    extent max = {0};
    for (size_t b = 0; b < layout->bucket_count; b++) {
        if (layout->buckets[b].n == 0) continue;
        const taciti_cut cut = taciti_allreduce_cut(reduce, layout->buckets[b].n);
        const size_t blocks = taciti_sketch_block_count(reduce, &cut);
        max.slots = blocks > max.slots ? blocks : max.slots;
        for (size_t k = 0; k < blocks; k++) max = extent_of_block(reduce, &cut, k, max);
    }
    max.slots = max.slots < SLOTS ? max.slots : SLOTS;
    return max;
}

static size_t padded(size_t bytes) { return taciti_round_up(bytes, TACITI_ALIGN_BYTES); }

/* Takes the next bytes of the memory; without memory only counts. */
static void *take(char *memory, size_t *at, size_t bytes) {
    void *part = memory == NULL ? NULL : memory + *at;
    *at += padded(bytes);
    return part;
}

/* Sets the parts of the memory and returns its bytes; without memory only counts. */
static size_t share_out(taciti_sketch_reduce *s, const taciti_encoding *encoding, extent e, char *memory) {
    const size_t members = (size_t)s->count, n = e.range_n;
    size_t at = 0;
    s->range_n = n;
    s->message_bytes = padded(taciti_sketch_message_bound(n));
    s->index_bytes = padded(taciti_sketch_index_words(n) * sizeof(uint64_t));
    s->parts = s->message_bytes / TACITI_SKETCH_PART_BYTES + 1;
    s->decoder_bytes =
        padded(n * sizeof(float)) + s->message_bytes + padded(taciti_sketch_workspace_bound(n, s->count));
    s->x = take(memory, &at, n * sizeof(float));
    s->error = take(memory, &at, n * sizeof(float));
    s->scratch = take(memory, &at, taciti_payload_scratch_bytes(encoding, n));
    s->payload = take(memory, &at, taciti_payload_bound(encoding, n));
    s->decoders = take(memory, &at, e.slots * s->decoder_bytes);
    for (size_t i = 0; i < e.slots; i++) {
        taciti_sketch_slot slot = {.selected = take(memory, &at, e.all_n * sizeof(float)),
                                   .leaving = take(memory, &at, members * s->message_bytes),
                                   .arriving = take(memory, &at, members * s->message_bytes),
                                   .pending = take(memory, &at, members * s->index_bytes)};
        if (memory != NULL) s->slots[i] = slot;
    }
    return at;
}

static taciti_sketch_reduce describe(const taciti_allreduce *reduce, const taciti_layout *layout) {
    return (taciti_sketch_reduce){.comm = reduce->comm,
                                  .layout = layout,
                                  .count = reduce->arrangement.hosts > 1 ? reduce->wire_shape.count : 1,
                                  .me = reduce->wire_shape.me};
}

/* Shares and requests of the slots. */
static tacit_status allocate_requests(taciti_sketch_reduce *s) {
    const size_t members = (size_t)s->count;
    const size_t messages = s->parts + 3; /* of a member in a cycle */
    s->shares = taciti_calloc(SLOTS * members, sizeof *s->shares);
    s->contributions = taciti_calloc(SLOTS * members * s->parts, sizeof *s->contributions);
    s->sends = (taciti_outbox){.comm = s->comm, .window = SLOTS * messages * members};
    s->sends.requests = taciti_calloc(s->sends.window, sizeof *s->sends.requests);
    if (s->shares == NULL || s->contributions == NULL || s->sends.requests == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < SLOTS; i++) s->slots[i].shares = s->shares + i * members;
    for (size_t i = 0; i < SLOTS * members; i++) s->shares[i].contribution = s->contributions + i * s->parts;
    return TACIT_OK;
}

static tacit_status allocate(taciti_sketch_reduce *s, const taciti_allreduce *reduce) {
    const extent e = extent_of(reduce, s->layout);
    s->ranks = taciti_calloc((size_t)s->count, sizeof *s->ranks);
    if (s->ranks == NULL) return TACIT_E_MEMORY;
    for (int m = 0; m < s->count; m++)
        s->ranks[m] = taciti_arrangement_rank(&reduce->arrangement, m, reduce->arrangement.number);
    const size_t bytes = share_out(s, &reduce->encoding, e, NULL);
    TACITI_TRY(taciti_pages_create(bytes + 1, "the sketches of the exchange", &s->pages));
    (void)share_out(s, &reduce->encoding, e, s->pages.base);
    return allocate_requests(s);
}

static void warn_of_compat(const taciti_sketch_reduce *s, const taciti_codec *codec) {
    if (!s->options.compat || taciti_comm_rank(s->comm) != 0) return;
    taciti_log(TACITI_LOG_WARN,
               "%s.compat: sums are wrong by design, as those of TAGC's released code; leave it out to train a model",
               codec->name);
}

tacit_status taciti_sketch_reduce_create(taciti_allreduce *reduce, const taciti_layout *layout,
                                         taciti_sketch_reduce *out) {
    *out = describe(reduce, layout);
    out->reduce = reduce;
    if (reduce->encoding.options != NULL) out->options = *(const taciti_sketch_options *)reduce->encoding.options;
    for (int i = 0; i < 2; i++) out->learnt[i] = taciti_calloc(layout->bucket_count, sizeof *out->learnt[i]);
    if (out->learnt[0] == NULL || out->learnt[1] == NULL) return TACIT_E_MEMORY;
    warn_of_compat(out, reduce->encoding.codec);
    return out->count > 1 ? allocate(out, reduce) : TACIT_OK;
}

void taciti_sketch_reduce_destroy(taciti_sketch_reduce *s) {
    taciti_free(s->ranks);
    taciti_free(s->shares);
    taciti_free(s->contributions);
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

/* ---- running ----------------------------------------------------------------------------------------------------- */

static tacit_status sum_hosts(taciti_sketch_bucket *b) {
    taciti_allreduce *reduce = b->s->reduce;
    taciti_piece t = {.x = b->x, .task = b->task, .residual = b->residual, .cut = b->cut};
    for (; t.piece < b->cut->pieces; t.piece++) {
        TACITI_TRY(taciti_allreduce_local(reduce, taciti_scatter_begin, &t));
        TACITI_TRY(taciti_allreduce_local(reduce, taciti_scatter_end, &t));
    }
    return taciti_halves_finish(&reduce->local);
}

tacit_status taciti_sketch_reduce_run(taciti_sketch_reduce *s, float *x, size_t n, const taciti_bucket_task *task,
                                      taciti_residual *residual) {
    taciti_bucket_task back = *task;
    if (n == 0 || s->reduce->arrangement.size == 1) return TACIT_OK;
    if (s->reduce->arrangement.hosts == 1) return taciti_allreduce_run(s->reduce, x, n, task, residual);
    const taciti_cut cut = taciti_allreduce_cut(s->reduce, n);
    taciti_sketch_bucket b = {.s = s, .x = x, .task = task, .residual = residual, .cut = &cut};
    if (residual != NULL && residual->pieces == 0) b.residual = NULL;
    if (task->tallies != NULL) b.tally = &task->tallies[TACITI_PAYLOAD_CONTRIBUTION];
    if (taciti_phase_sums(task->phase)) {
        TACITI_TRY(sum_hosts(&b));
        if (s->count > 1) TACITI_TRY(taciti_sketch_bucket_reduce_scatter(&b));
    }
    if (task->phase == TACITI_PHASE_REDUCE_SCATTER) return TACIT_OK;
    if (task->phase == TACITI_PHASE_ALL_REDUCE) back.phase = TACITI_PHASE_ALL_GATHER;
    if (task->phase == TACITI_PHASE_REDUCE_TO_LANES) back.phase = TACITI_PHASE_GATHER_TO_LANES;
    back.setting[TACITI_PAYLOAD_RESULT] = (taciti_codec_setting){.factor = 1, .threshold = (double)FLT_TRUE_MIN};
    return taciti_allreduce_run(s->reduce, x, n, &back, residual);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Of one block, at most: a member sends its contribution and all values where the formulas of the all-reduce count a
 * payload for every piece. */
static uint64_t more_than_payload(const taciti_allreduce *reduce, size_t n) {
    const uint64_t messages = taciti_sketch_message_bound(n) + n * sizeof(float),
                   payload = taciti_payload_bound(&reduce->encoding, n);
    return n > 0 && messages > payload ? messages - payload : 0;
}

/* An owner sends its reply and an index to every member. */
static uint64_t reply_bytes(size_t n) {
    return n == 0 ? 0 : sizeof(taciti_sketch_reply) + taciti_sketch_index_words(n) * sizeof(uint64_t);
}

uint64_t taciti_sketch_reduce_bytes(const taciti_allreduce *reduce, size_t n) {
    uint64_t bytes = taciti_allreduce_bytes(reduce, n);
    if (reduce->arrangement.hosts == 1 || reduce->wire_shape.count == 1 || n == 0) return bytes;
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    const size_t blocks = taciti_sketch_block_count(reduce, &cut);
    for (size_t k = 0; k < blocks; k++)
        for (int m = 0; m < reduce->wire_shape.count; m++) {
            const size_t owned = taciti_sketch_owned_n(reduce, &cut, k, m);
            bytes += m == reduce->wire_shape.me ? (uint64_t)(reduce->wire_shape.count - 1) * reply_bytes(owned)
                                                : more_than_payload(reduce, owned);
        }
    return bytes;
}

/* What a lane of one host sends to that of another for a block, beyond the formula of the all-reduce. */
static uint64_t more_of_block(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block, int lane, int here,
                              int other) {
    const taciti_sketch_pieces pieces = taciti_sketch_pieces_of(reduce, cut, block);
    size_t theirs = 0, own = 0;
    for (size_t i = pieces.first; i < pieces.end; i++) {
        theirs += taciti_cut_chunk(&reduce->arrangement, cut, i, lane, other).n;
        own += taciti_cut_chunk(&reduce->arrangement, cut, i, lane, here).n;
    }
    return more_than_payload(reduce, theirs) + reply_bytes(own);
}

uint64_t taciti_sketch_reduce_nic_bytes(const taciti_allreduce *reduce, size_t n, int host) {
    const taciti_arrangement *p = &reduce->arrangement;
    uint64_t bytes = taciti_allreduce_nic_bytes(reduce, n, host);
    if (p->hosts == 1 || n == 0) return bytes;
    const taciti_cut cut = taciti_allreduce_cut(reduce, n);
    const size_t blocks = taciti_sketch_block_count(reduce, &cut);
    for (int lane = 0; lane < p->lanes; lane++)
        for (int here = 0; here < p->hosts; here++)
            for (int other = 0; other < p->hosts; other++) {
                if (p->host_of[p->first[here] + lane] != host || p->host_of[p->first[other] + lane] == host) continue;
                for (size_t k = 0; k < blocks; k++) bytes += more_of_block(reduce, &cut, k, lane, here, other);
            }
    return bytes;
}
