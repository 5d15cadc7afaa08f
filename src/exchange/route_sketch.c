/* SPDX-License-Identifier: Apache-2.0
 *
 * The route of codecs with taciti_codec.sketches: contributions as sketches (sketch_reduce.h), results as payloads of
 * the codec. Its price, in the steps after the first, without a pipeline within a bucket:
 *
 *   p = 1 / factor   share of elements that a member selects, of N members at independent places
 *   u = 1 - (1-p)^N  share of the union
 *   counters         n / ratio; ratio 0: as the union needs (taciti_sketch_room), about u n 17/16 / 0.78
 *   contribution     n bits of index and the counters, or n floats if that is no longer
 *   pending          elements that do not decode: none below a load (u n / counters) of 0.8185; above it those of the
 *                    2-core of a random 3-uniform hypergraph of that load c, u n q^3 with the largest solution of
 *                    q = 1 - exp(-3 c q^2) (Molloy, "Cores in random hypergraphs and Boolean formulas", 2005). They
 *                    cost an index of n bits on its way to the members, and a number from each of these
 */
#include "exchange/route_sketch.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "exchange/route_payload.h"
#include "exchange/sketch_bucket.h"

enum { SLOTS = TACITI_SKETCH_SLOTS };

static tacit_status check_encoding(const taciti_encoding *e) {
    if (e->way == TACITI_WAY_GATHER)
        return taciti_fail(TACIT_E_CONFIG,
                           "compress.collective gather: sketches of codec %s are for the owners of sums; leave it out, "
                           "or take another codec: --compress.codec topk",
                           e->codec->name);
    if (!e->feedback.estimates) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "compress.what change: only the owner of a sum decodes what codec %s sends; leave it out, or "
                       "take another codec: --compress.codec topk",
                       e->codec->name);
}

static tacit_status describe_route(taciti_route *route) {
    TACITI_TRY(taciti_route_describe_way(&route->setup, &route->setup.encoding, false, &route->reduce));
    route->reduce.halves_only = route->reduce.ranges_at_once = true;
    return TACIT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

typedef struct extent {
    size_t range_n, all_n; /* of the longest range of a block; of all ranges of a block, each rounded up */
    size_t slots;          /* blocks of a bucket that may be under way */
} extent;

static extent extent_of(const taciti_allreduce *reduce, const taciti_layout *layout) {
    extent max = {0};
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const taciti_cut cut = taciti_allreduce_cut(reduce, layout->buckets[b].n);
        const size_t blocks = taciti_sketch_block_count(reduce, &cut);
        max.slots = taciti_min(taciti_max(max.slots, blocks), SLOTS);
        for (size_t k = 0; k < blocks; k++) {
            size_t all = 0;
            for (int m = 0; m < reduce->wire_shape.count; m++) {
                const size_t n = taciti_sketch_padded_n(taciti_sketch_owned_n(reduce, &cut, k, m));
                max.range_n = taciti_max(max.range_n, n);
                all += n;
            }
            max.all_n = taciti_max(max.all_n, all);
        }
    }
    return max;
}

static size_t padded_bytes(size_t bytes) { return taciti_round_up(bytes, TACITI_ALIGN_BYTES); }

/* Takes the next bytes of the memory; without memory only counts. */
static void *take_part(char *memory, size_t *at, size_t bytes) {
    void *part = memory == NULL ? NULL : memory + *at;
    *at += padded_bytes(bytes);
    return part;
}

/* Sets the parts of the memory and returns its bytes; without memory only counts. */
static size_t share_out(taciti_sketch_reduce *s, const taciti_encoding *encoding, extent e, char *memory) {
    const size_t members = (size_t)s->count, n = e.range_n;
    size_t at = 0;
    s->range_n = n;
    s->message_bytes = padded_bytes(taciti_sketch_message_bound(n));
    s->index_bytes = padded_bytes(taciti_sketch_index_words(n) * sizeof(uint64_t));
    s->parts = s->message_bytes / TACITI_SKETCH_PART_BYTES + 1;
    s->decoder_bytes =
        padded_bytes(n * sizeof(float)) + s->message_bytes + padded_bytes(taciti_sketch_workspace_bound(n));
    s->x = take_part(memory, &at, n * sizeof(float));
    s->error = take_part(memory, &at, n * sizeof(float));
    s->scratch = take_part(memory, &at, taciti_encoding_scratch_bytes(encoding, n));
    s->payload = take_part(memory, &at, taciti_encoding_bound(encoding, n));
    s->decoders = take_part(memory, &at, e.slots * s->decoder_bytes);
    for (size_t i = 0; i < e.slots; i++) {
        taciti_sketch_slot slot = {.selected = take_part(memory, &at, e.all_n * sizeof(float)),
                                   .leaving = take_part(memory, &at, members * s->message_bytes),
                                   .arriving = take_part(memory, &at, members * s->message_bytes),
                                   .pending = take_part(memory, &at, members * s->index_bytes)};
        if (memory != NULL) s->slots[i] = slot;
    }
    return at;
}

static taciti_sketch_reduce members_of(const taciti_route *route) {
    const taciti_allreduce *reduce = &route->reduce;
    return (taciti_sketch_reduce){.comm = reduce->comm,
                                  .layout = route->setup.layout,
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

static tacit_status allocate_memory(taciti_sketch_reduce *s, const taciti_allreduce *reduce) {
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

static tacit_status open_route(taciti_route *route, taciti_comm *comm, void *workspace) {
    const taciti_encoding *encoding = &route->setup.encoding;
    TACITI_TRY(taciti_allreduce_open(&route->reduce, comm, workspace));
    taciti_sketch_reduce *s = route->own = taciti_calloc(1, sizeof *s);
    if (s == NULL) return TACIT_E_MEMORY;
    *s = members_of(route);
    s->reduce = &route->reduce;
    if (encoding->options != NULL) s->options = *(const taciti_sketch_options *)encoding->options;
    for (int i = 0; i < 2; i++) s->learnt[i] = taciti_calloc(s->layout->bucket_count, sizeof *s->learnt[i]);
    if (s->learnt[0] == NULL || s->learnt[1] == NULL) return TACIT_E_MEMORY;
    return s->count > 1 ? allocate_memory(s, s->reduce) : TACIT_OK;
}

static void close_route(taciti_route *route) {
    taciti_sketch_reduce *s = route->own;
    if (s == NULL) return;
    taciti_free(s->ranks);
    taciti_free(s->shares);
    taciti_free(s->contributions);
    taciti_free(s->sends.requests);
    taciti_free(s->learnt[0]);
    taciti_free(s->learnt[1]);
    taciti_pages_destroy(&s->pages);
    taciti_free(s);
}

static size_t memory_bytes(const taciti_route *route) {
    taciti_sketch_reduce s = members_of(route);
    if (s.count == 1) return 0;
    return share_out(&s, &route->setup.encoding, extent_of(&route->reduce, s.layout), NULL) +
           2 * s.layout->bucket_count * sizeof(taciti_sketch_learnt);
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

static void settle_step(taciti_route *route, bool taken) {
    const taciti_sketch_reduce *s = route->own;
    memcpy(s->learnt[!taken], s->learnt[taken], s->layout->bucket_count * sizeof *s->learnt[0]);
}

static void *state_of(const taciti_route *route, size_t *bytes) {
    const taciti_sketch_reduce *s = route->own;
    *bytes = s->layout->bucket_count * sizeof *s->learnt[0];
    return s->learnt[0];
}

static void restore_state(taciti_route *route) { settle_step(route, false); }

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

static tacit_status run_bucket(taciti_route *route, float *x, size_t n, const taciti_bucket_task *task,
                               taciti_residual *residual) {
    taciti_sketch_reduce *s = route->own;
    taciti_bucket_task back = *task;
    if (n == 0 || s->reduce->arrangement.size == 1) return TACIT_OK;
    if (s->reduce->arrangement.hosts == 1) return taciti_allreduce_run(s->reduce, x, n, task, residual);
    const taciti_cut cut = taciti_allreduce_cut(s->reduce, n);
    taciti_sketch_bucket b = {.s = s, .x = x, .task = task, .residual = residual, .cut = &cut};
    if (residual != NULL && !residual->encodes) b.residual = NULL;
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

/* Returns the maximum bytes for a block beyond those of the all-reduce: a member sends its contribution and all values
 * where the formulas of the all-reduce count a payload for every piece. */
static uint64_t more_than_payload(const taciti_allreduce *reduce, size_t n) {
    const uint64_t messages = taciti_sketch_message_bound(n) + n * sizeof(float),
                   payload = taciti_encoding_bound(&reduce->encoding, n);
    return n > 0 && messages > payload ? messages - payload : 0;
}

/* An owner sends its reply and an index to every member. */
static uint64_t reply_bytes(size_t n) {
    return n == 0 ? 0 : sizeof(taciti_sketch_reply) + taciti_sketch_index_words(n) * sizeof(uint64_t);
}

static uint64_t bytes_of(const taciti_route *route, size_t bucket, taciti_codec_setting setting) {
    const taciti_allreduce *reduce = &route->reduce;
    const size_t n = route->setup.layout->buckets[bucket].n;
    (void)setting;
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

/* A sketch may be followed by all values, and the owner answers with an index, block by block. */
static uint64_t range_bytes(const taciti_encoding *encoding, size_t n) {
    enum { MIN_BLOCK = 2048 };
    (void)encoding;
    return n == 0 ? 0 : 2 * n * sizeof(float) + n / 8 + (n / MIN_BLOCK + 1) * 2 * sizeof(taciti_sketch_reply);
}

/* ---- price ------------------------------------------------------------------------------------------------------- */

/* From above the iteration falls to the largest solution; below the threshold that is 0. */
double taciti_sketched_pending(double load) {
    enum { ROUNDS = 4096 };
    double q = 1;
    for (int i = 0; i < ROUNDS; i++) q = 1 - exp(-3 * load * q * q);
    return q < 1e-6 ? 0 : q * q * q;
}

taciti_sketched taciti_sketched_of(const taciti_sketch_options *options, size_t n, int members, double factor) {
    const double density = 1 - pow(1 - 1 / factor, members), count = density * (double)n;
    const taciti_sketch_form form = taciti_sketch_form_of(n, taciti_sketch_room(n, density), options->ratio, 0);
    const double number_bytes = TACITI_SKETCH_NUMBER_BYTES;
    const double counters = (double)taciti_sketch_bytes(&form.sketch) / number_bytes;
    const double pending = form.packed ? count : count * taciti_sketched_pending(count / counters);
    return (taciti_sketched){.contribution_bytes = (double)taciti_sketch_contribution_bytes(&form),
                             .pending_bytes = pending > 0 ? (double)n / 8 + pending * number_bytes : 0,
                             .reply_bytes = sizeof(taciti_sketch_reply)};
}

static taciti_contribution contribution_of(const taciti_encoding *e, const taciti_allreduce *reduce,
                                           const taciti_cut *cut, double floats) {
    static const taciti_sketch_options NONE = {.ratio = 0};
    const size_t blocks = taciti_sketch_block_count(reduce, cut), n = (size_t)(floats / (double)blocks + 0.5);
    const taciti_sketched one = taciti_sketched_of(e->options != NULL ? e->options : &NONE, n > 0 ? n : 1,
                                                   reduce->arrangement.hosts, taciti_encoding_factor(e));
    const int messages = one.pending_bytes > 0 ? 4 : 2;
    return (taciti_contribution){(double)blocks * (one.contribution_bytes + one.pending_bytes + one.reply_bytes),
                                 (size_t)messages * blocks, messages};
}

static tacit_status price_sum(const taciti_route_setup *setup, taciti_phase phase, size_t n, taciti_rates_at *rates,
                              const void *context, taciti_price *out) {
    taciti_allreduce reduce;
    TACITI_TRY(taciti_route_describe_way(setup, &setup->encoding, false, &reduce));
    *out = taciti_route_price_by_owners(setup, &reduce, phase, n, rates, context, contribution_of);
    taciti_allreduce_destroy(&reduce);
    return TACIT_OK;
}

const taciti_route_verbs taciti_route_sketch = {
    .phases = true,
    .check = check_encoding,
    .describe = describe_route,
    .memory_bytes = memory_bytes,
    .open = open_route,
    .close = close_route,
    .run = run_bucket,
    .observe = taciti_route_reduce_observe,
    .settle = settle_step,
    .state = state_of,
    .restored = restore_state,
    .bytes = bytes_of,
    .range_bytes = range_bytes,
    .price = price_sum,
};
