/* SPDX-License-Identifier: Apache-2.0
 *
 * What strategy shard takes: memory, and bytes on the wire.
 */
#include <stdio.h>

#include "exchange/payload.h"
#include "strategy/shard.h"

taciti_range taciti_shard_owned(const taciti_bucket *bucket, int rank, int size) {
    return taciti_cut_part((taciti_range){bucket->offset, bucket->n}, rank, size);
}

/* One range per rank and bucket, in the order of the ranks. */
taciti_exchange_options taciti_shard_reduce_options(const taciti_exchange_options *options) {
    taciti_exchange_options out = *options;
    out.scheme = TACITI_SCHEME_FLAT;
    out.contiguous = true;
    return out;
}

taciti_exchange_options taciti_shard_gather_options(const taciti_exchange_options *options, int gather) {
    taciti_exchange_options out = taciti_shard_reduce_options(options);
    out.wire = (taciti_text){"f32"};
    if (gather == TACITI_SHARD_BF16) out.wire = (taciti_text){"bf16"};
    return out;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Whose memory it is. */
typedef struct owner {
    const taciti_layout *layout;
    int rank, size;
} owner;

static owner owner_of(const taciti_strategy_context *c) {
    return (owner){c->layout, taciti_comm_rank(c->comm), taciti_comm_size(c->comm)};
}

static size_t own_floats(const owner *o) {
    size_t n = 0;
    for (size_t b = 0; b < o->layout->bucket_count; b++)
        n += taciti_shard_owned(&o->layout->buckets[b], o->rank, o->size).n;
    return n;
}

/* Of what a rank holds besides its own part, it owns that share. */
static size_t with_own(const owner *o, size_t floats) {
    const size_t n = own_floats(o) + floats - floats / (size_t)o->size;
    return n < o->layout->n ? n : o->layout->n;
}

static bool is_early(const taciti_layout *layout, size_t unit) {
    for (size_t t = 0; t < layout->tensor_count; t++)
        if (layout->tensors[t].unit == unit && layout->tensors[t].early) return true;
    return false;
}

size_t taciti_shard_gathers(const taciti_layout *layout, size_t unit, int64_t stage) {
    const bool last = unit + 1 == layout->unit_count;
    return stage < 3 || unit == 0 || (last && !is_early(layout, unit)) ? 1 : 2;
}

/* Floats of whole units that are in memory at some moment of a step. */
typedef struct moment {
    size_t parameters, gradients;
} moment;

/* While unit u of the backward pass is computed: parameters of it and of the next, which is on its way (of the last
 * unit only gradients are written); gradients of it, of the two before, whose sums are on their way, and of early units
 * all the time. */
static moment backward_moment(const taciti_layout *layout, size_t u) {
    moment m = {0, 0};
    for (size_t k = 0; k < layout->unit_count; k++) {
        const size_t n = taciti_layout_unit(layout, k).n;
        if (k >= u && k < u + 2 && k + 1 < layout->unit_count) m.parameters += n;
        if ((k + 2 >= u && k <= u) || is_early(layout, k)) m.gradients += n;
    }
    return m;
}

/* While the head is computed: early units, the first block of the backward pass on its way, and the unit of the last
 * norm. */
static moment head_moment(const taciti_layout *layout) {
    moment m = {0, 0};
    for (size_t k = 0; k < layout->unit_count; k++) {
        const size_t n = taciti_layout_unit(layout, k).n;
        if (k < 2 || is_early(layout, k)) m.parameters += n;
        if (is_early(layout, k)) m.gradients += n;
    }
    return m;
}

/* What each of a step's moments takes; the largest counts. */
typedef struct holdings {
    const owner *of;
    bool parameters, gradients; /* in parts */
    moment units;
    size_t parameter_floats, gradient_floats;
} holdings;

static void consider(holdings *h, moment m) {
    const size_t all = h->of->layout->n;
    const size_t p = h->parameters ? with_own(h->of, m.parameters) : all;
    const size_t g = h->gradients ? with_own(h->of, m.gradients) : all;
    if (p + g < h->parameter_floats + h->gradient_floats) return;
    h->units = m;
    h->parameter_floats = p;
    h->gradient_floats = g;
}

static void find_memory(const owner *of, int64_t stage, size_t passes, const taciti_optim_options *optim,
                        taciti_strategy_memory *out) {
    const taciti_layout *layout = of->layout;
    holdings h = {.of = of, .parameters = stage >= 3, .gradients = stage >= 2 && passes == 1};
    consider(&h, (moment){taciti_shard_room(layout), 0}); /* the forward pass */
    consider(&h, head_moment(layout));
    for (size_t u = 0; u < layout->unit_count; u++) consider(&h, backward_moment(layout, u));
    const size_t copy = h.parameters && h.units.parameters < layout->n ? h.units.parameters : layout->n;
    *out = (taciti_strategy_memory){
        .parameters = sizeof(float) * h.parameter_floats,
        .gradients = sizeof(float) * h.gradient_floats,
        .copy16 = sizeof(taciti_bf16) * copy,
        .moments = own_floats(of) * taciti_optim_bytes_per_float(optim),
    };
}

void taciti_shard_memory(const taciti_strategy_context *context, size_t passes, taciti_strategy_memory *out) {
    const taciti_shard_options *o = context->options;
    const owner me = owner_of(context);
    find_memory(&me, o->stage, passes, context->optim_options, out);
}

/* ---- what the planner prices ------------------------------------------------------------------------------------- */

static void memory_of_parts(const taciti_parts *parts, const taciti_layout *layout, const taciti_optim_options *optim,
                            int ranks, taciti_strategy_memory *out) {
    const owner first = {layout, 0, ranks}; /* no part is larger than rank 0's */
    find_memory(&first, parts->passes == 2 ? 3 : parts->gradients ? 2 : 1, 1, optim, out);
    if (!parts->gather->lossless) out->parameters += own_floats(&first) * sizeof(float);
}

tacit_status taciti_shard_patterns(const void *options, taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count) {
    static const char *const GATHERS[] = {[TACITI_SHARD_F32] = "f32", [TACITI_SHARD_BF16] = "bf16"};
    const taciti_shard_options *o = options;
    *count = 0;
    for (int stage = 3; stage > 0; stage--)
        for (int gather = TACITI_SHARD_F32; gather <= TACITI_SHARD_BF16; gather++) {
            taciti_pattern *p = &out[(*count)++];
            *p = (taciti_pattern){.order = TACITI_ORDER_PARTS,
                                  .every = 1,
                                  .parts = {.passes = stage == 3 ? 2 : 1,
                                            .gradients = stage >= 2,
                                            .gather = taciti_codec_find(GATHERS[gather]),
                                            .memory = memory_of_parts},
                                  .configured = stage == o->stage && gather == o->gather};
            (void)snprintf(p->label, sizeof p->label, "shard %d gather %s", stage, GATHERS[gather]);
        }
    return TACIT_OK;
}

tacit_status taciti_shard_predict_bytes(const taciti_strategy_context *context, size_t *out) {
    const taciti_shard_options *o = context->options;
    const taciti_exchange_options reduce = taciti_shard_reduce_options(context->exchange_options);
    const taciti_exchange_options gather = taciti_shard_gather_options(context->exchange_options, o->gather);
    const owner me = owner_of(context);
    taciti_strategy_context half = *context;
    taciti_compress_options coded;
    TACITI_TRY(taciti_shard_check(o, &context->compression));
    half.exchange_options = &reduce;
    half.compression.half = TACITI_HALF_REDUCE_SCATTER;
    *out = taciti_compression_predict_bytes(&half);
    if (taciti_shard_has_masters(context)) *out += own_floats(&me) * sizeof(float);
    if (taciti_shard_sends_changes(context)) *out += context->layout->n * sizeof(float);
    half.exchange_options = &gather;
    half.compression = taciti_compression_gather_setup(&context->compression, &coded);
    if (context->compression.gather != NULL) *out += taciti_compression_predict_bytes(&half);
    if (o->gather != TACITI_SHARD_F32) /* f32 is received where it is read: no buffer is touched */
        *out += taciti_exchange_predict_bytes(context->comm, context->layout, &gather);
    return TACIT_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static uint64_t payload_bytes(taciti_encoding encoding, size_t n) {
    return n == 0 ? 0 : taciti_payload_bound(&encoding, n);
}

static taciti_encoding reduce_encoding(const taciti_shard *s) {
    const taciti_compression_setup *setup = &s->context.compression;
    if (setup->codec == NULL) return (taciti_encoding){.codec = taciti_exchange_wire(&s->reduce_options)};
    return (taciti_encoding){.codec = setup->codec, .options = setup->codec_options};
}

static taciti_encoding gather_encoding(const taciti_shard *s) {
    const taciti_compression_setup *setup = &s->context.compression;
    if (setup->gather == NULL) return (taciti_encoding){.codec = taciti_exchange_wire(&s->gather_options)};
    return (taciti_encoding){.codec = setup->gather, .options = setup->gather_options};
}

/* What a rank sends of all buckets in a step: the parts of the others in a reduction, its own part in every gather.
 * away: to other hosts only. */
static uint64_t reduce_bytes_of(const taciti_shard *s, int from, bool away) {
    const taciti_layout *layout = s->context.layout;
    const taciti_comm *comm = s->context.comm;
    const int size = taciti_comm_size(comm);
    uint64_t bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++)
        for (int to = 0; to < size; to++)
            if (to != from && (!away || !taciti_comm_same_host(comm, from, to)))
                bytes += payload_bytes(reduce_encoding(s), taciti_shard_owned(&layout->buckets[b], to, size).n);
    return bytes;
}

static uint64_t gather_bytes_of(const taciti_shard *s, int from, bool away) {
    const taciti_comm *comm = s->context.comm;
    const int size = taciti_comm_size(comm);
    uint64_t bytes = 0, receivers = 0;
    for (int to = 0; to < size; to++) receivers += to != from && (!away || !taciti_comm_same_host(comm, from, to));
    for (size_t u = 0; u < s->context.layout->unit_count; u++)
        for (size_t b = s->units[u].first; b < s->units[u].first + s->units[u].count; b++) {
            const size_t n = taciti_shard_owned(&s->context.layout->buckets[b], from, size).n;
            bytes += receivers * s->units[u].per_step * payload_bytes(gather_encoding(s), n);
        }
    return bytes;
}

uint64_t taciti_shard_reduce_bytes(const taciti_shard *s) {
    return reduce_bytes_of(s, taciti_comm_rank(s->context.comm), false);
}

uint64_t taciti_shard_gather_bytes(const taciti_shard *s) {
    return gather_bytes_of(s, taciti_comm_rank(s->context.comm), false);
}

uint64_t taciti_shard_bytes_per_step(const void *self) {
    return taciti_shard_reduce_bytes(self) + taciti_shard_gather_bytes(self);
}

uint64_t taciti_shard_nic_bytes_per_step(const void *self) {
    const taciti_shard *s = self;
    uint64_t bytes = 0;
    for (int r = 0; r < taciti_comm_size(s->context.comm); r++)
        if (taciti_comm_same_host(s->context.comm, r, taciti_comm_rank(s->context.comm)))
            bytes += reduce_bytes_of(s, r, true) + gather_bytes_of(s, r, true);
    return bytes;
}
