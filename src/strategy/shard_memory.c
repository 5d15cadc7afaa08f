/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that strategy shard takes.
 */
#include "base/log.h"
#include "strategy/shard.h"

/* ---- in a step --------------------------------------------------------------------------------------------------- */

/* The rank whose memory it is. */
typedef struct owner {
    const taciti_layout *layout;
    taciti_shard_part own, kept; /* kept: of parameters, from gather to gather; as `own`, or a share */
} owner;

static tacit_status owner_of(const taciti_strategy_context *c, owner *out) {
    const taciti_shard_options *o = c->options;
    taciti_arrangement arrangement;
    TACITI_TRY(taciti_shard_arrange(c, &arrangement));
    const taciti_shard_place place = taciti_shard_place_of(&arrangement, o);
    taciti_arrangement_destroy(&arrangement);
    *out = (owner){c->layout, place.own, o->secondary ? place.share : place.own};
    return TACIT_OK;
}

static size_t floats_of(const owner *o, taciti_shard_part part) {
    size_t n = 0;
    for (size_t b = 0; b < o->layout->bucket_count; b++) n += taciti_shard_range(&o->layout->buckets[b], part).n;
    return n;
}

/* Returns the floats that a rank holds: its part, and those of the other `floats` that are not in it. */
static size_t with_part(const owner *o, taciti_shard_part part, size_t floats) {
    const size_t n = floats_of(o, part) + floats - (part.index < 0 ? 0 : floats / (size_t)part.count);
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

/* The floats of each of a step's moments; the largest counts. */
typedef struct holdings {
    const owner *of;
    bool parameters, gradients; /* in parts */
    moment units;
    size_t parameter_floats, gradient_floats;
} holdings;

static void consider_moment(holdings *h, moment m) {
    const size_t all = h->of->layout->n;
    const size_t p = h->parameters ? with_part(h->of, h->of->kept, m.parameters) : all;
    const size_t g = h->gradients ? with_part(h->of, h->of->own, m.gradients) : all;
    if (p + g < h->parameter_floats + h->gradient_floats) return;
    h->units = m;
    h->parameter_floats = p;
    h->gradient_floats = g;
}

static void find_memory(const owner *of, int64_t stage, size_t passes, const taciti_optim_options *optim,
                        taciti_strategy_memory *out) {
    const taciti_layout *layout = of->layout;
    holdings h = {.of = of, .parameters = stage >= 3, .gradients = stage >= 2 && passes == 1};
    consider_moment(&h, (moment){taciti_shard_room(layout), 0}); /* the forward pass */
    consider_moment(&h, head_moment(layout));
    for (size_t u = 0; u < layout->unit_count; u++) consider_moment(&h, backward_moment(layout, u));
    const size_t copy = h.parameters && h.units.parameters < layout->n ? h.units.parameters : layout->n;
    *out = (taciti_strategy_memory){
        .parameters = sizeof(float) * h.parameter_floats,
        .gradients = sizeof(float) * h.gradient_floats,
        .copy16 = sizeof(taciti_bf16) * copy,
        .moments = floats_of(of, of->own) * taciti_optim_bytes_per_float(optim),
    };
}

void taciti_shard_memory(const taciti_strategy_context *context, size_t passes, taciti_strategy_memory *out) {
    const taciti_shard_options *o = context->options;
    owner me = {.layout = context->layout, .own = {0, 1}, .kept = {0, 1}};
    if (owner_of(context, &me) != TACIT_OK) taciti_log(TACITI_LOG_WARN, "no memory to predict what shard.* takes");
    find_memory(&me, o->stage, passes, context->optim_options, out);
}

/* ---- what the planner prices ------------------------------------------------------------------------------------- */

void taciti_shard_memory_of_parts(const taciti_parts *parts, const taciti_layout *layout,
                                  const taciti_optim_options *optim, const taciti_arrangement *arrangement,
                                  taciti_strategy_memory *out) {
    const taciti_shard_part share = taciti_shard_share_of(arrangement, 0),
                            part = taciti_shard_part_of(arrangement, 0, 0);
    const owner first = {layout, parts->replicas ? share : part, parts->replicas || parts->secondary ? share : part};
    find_memory(&first, taciti_parts_stage(parts), 1, optim, out);
    if (parts->coded || taciti_codec_narrow_name(parts->gather) != NULL)
        out->parameters += floats_of(&first, first.own) * sizeof(float);
    if (parts->coded && parts->passes == 1) out->parameters += layout->n * sizeof(float); /* changes */
}

/* ---- what create() allocates ------------------------------------------------------------------------------------- */

tacit_status taciti_shard_predict_bytes(const taciti_strategy_context *context, size_t *out) {
    const taciti_shard_options *o = context->options;
    const taciti_exchange_options reduce = taciti_shard_reduce_options(context);
    const taciti_exchange_options gather = taciti_shard_gather_options(context);
    taciti_strategy_context half = *context;
    owner me;
    TACITI_TRY(owner_of(context, &me));
    half.exchange_options = &reduce;
    half.compression.phase = taciti_shard_reduce_phase(o);
    *out = taciti_compression_predict_bytes(&half);
    if (taciti_shard_has_masters(context)) *out += floats_of(&me, me.own) * sizeof(float);
    if (taciti_shard_sends_changes(context)) *out += context->layout->n * sizeof(float);
    if (context->compression.gathers.codec != NULL) {
        half.exchange_options = &gather;
        half.compression = taciti_compression_gather_setup(&context->compression);
        *out += taciti_compression_predict_bytes(&half);
    }
    if (o->gather != TACITI_SHARD_F32) /* f32 is received where it is read: no buffer is touched */
        *out += taciti_exchange_predict_bytes(context->comm, context->layout, &gather, NULL);
    return TACIT_OK;
}
