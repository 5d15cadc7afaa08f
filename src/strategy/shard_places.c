/* SPDX-License-Identifier: Apache-2.0
 *
 * Who owns what, and who talks to whom, in strategy shard.
 */
#include "strategy/shard.h"

taciti_range taciti_shard_range(const taciti_bucket *bucket, taciti_shard_part part) {
    if (part.index < 0) return (taciti_range){bucket->offset, 0};
    return taciti_cut_part((taciti_range){bucket->offset, bucket->n}, part.index, part.count);
}

/* By hosts where several hosts have several ranks each, and as many: on other clusters ranks that are not lanes would
 * own nothing. */
static taciti_scheme scheme_of(const taciti_hosts *hosts, taciti_scheme requested) {
    if (requested != TACITI_SCHEME_AUTO) return requested;
    if (hosts->count == 1 || hosts->count == hosts->ranks) return TACITI_SCHEME_FLAT;
    return taciti_hosts_sizes(hosts).min * hosts->count == hosts->ranks ? TACITI_SCHEME_HOSTS : TACITI_SCHEME_FLAT;
}

taciti_placement taciti_shard_placement(const taciti_hosts *hosts, taciti_placement requested) {
    return (taciti_placement){.scheme = scheme_of(hosts, requested.scheme),
                              .lanes = requested.lanes > 0 ? requested.lanes : hosts->ranks,
                              .contiguous = true};
}

taciti_placement taciti_shard_placement_by_hosts(const taciti_hosts *hosts, taciti_placement requested) {
    requested.scheme = TACITI_SCHEME_HOSTS;
    return taciti_shard_placement(hosts, requested);
}

taciti_exchange_options taciti_shard_reduce_options(const taciti_strategy_context *context) {
    const taciti_shard_options *o = context->options;
    taciti_exchange_options out = *context->exchange_options;
    const bool by_hosts = o->over == TACITI_SHARD_OVER_HOST || o->secondary;
    const taciti_placement placement = (by_hosts ? taciti_shard_placement_by_hosts : taciti_shard_placement)(
        taciti_comm_hosts(context->comm), taciti_exchange_placement(&out));
    out.scheme = (int)placement.scheme;
    out.lanes = placement.lanes;
    out.contiguous = placement.contiguous;
    return out;
}

taciti_exchange_options taciti_shard_gather_options(const taciti_strategy_context *context) {
    taciti_exchange_options out = taciti_shard_reduce_options(context);
    const bool f32 = ((const taciti_shard_options *)context->options)->gather == TACITI_SHARD_F32;
    out.wire = f32 ? (taciti_text){"f32"} : (taciti_text){"bf16"};
    return out;
}

taciti_phase taciti_shard_reduce_phase(const taciti_shard_options *options) {
    return options->over == TACITI_SHARD_OVER_HOST ? TACITI_PHASE_REDUCE_TO_LANES : TACITI_PHASE_REDUCE_SCATTER;
}

tacit_status taciti_shard_arrange(const taciti_strategy_context *context, taciti_arrangement *out) {
    const taciti_exchange_options options = taciti_shard_reduce_options(context);
    return taciti_arrangement_of(taciti_comm_hosts(context->comm), (taciti_members){0}, taciti_comm_rank(context->comm),
                                 taciti_exchange_placement(&options), out);
}

/* As taciti_arrangement_range() and taciti_arrangement_share(). */
taciti_shard_part taciti_shard_part_of(const taciti_arrangement *p, int host, int number) {
    return (taciti_shard_part){number < p->lanes ? number * p->hosts + host : -1, p->lanes * p->hosts};
}

taciti_shard_part taciti_shard_share_of(const taciti_arrangement *p, int number) {
    return (taciti_shard_part){number < p->lanes ? number : -1, p->lanes};
}

taciti_shard_place taciti_shard_place_of(const taciti_arrangement *p, const taciti_shard_options *options) {
    taciti_shard_place place = {.single = taciti_shard_part_of(p, p->host, p->number),
                                .share = taciti_shard_share_of(p, p->number)};
    place.own = options->over == TACITI_SHARD_OVER_HOST ? place.share : place.single;
    return place;
}
