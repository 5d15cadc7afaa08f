/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient tracker: every rank keeps an estimate y of the mean gradient, and updates with that instead of its own
 * gradient g, so that ranks with unequal data pull in the same direction:
 *
 *   y(t) = W y(t-1) + g(t) - g(t-1),   y(-1) = g(-1) = 0      so that always  mean of y = mean of g
 *
 * Source: Lu & De Sa, arXiv 2006.08085 (DeTAG). Where we deviate: y takes in the gradient of this step
 * before the update and not after it (the classic order of gradient tracking: one step less delay), and one step has
 * one gradient, of any number of micro-batches, where DeTAG draws R.
 *
 * y leaves as soon as it has been used and is mixed while the next step computes. A rank whose gradient is not finite
 * lets y be what mixing makes of it: the sum over ranks is then that of the others' gradients and its own last one.
 */
#include "base/log.h"
#include "strategy/gossip_state.h"

/* y <- y + share x */
static void add(taciti_gossip *g, const float *x, float share) {
    taciti_blend blend = {.arrived = x, .keep = 1, .share = share};
    taciti_optim_blend_range(g->context.optim, g->tracker, NULL, 0, g->context.layout->n, &blend);
}

tacit_status taciti_gossip_track(taciti_gossip *g, bool finite) {
    double moved = 0;
    TACITI_TRY(taciti_gossip_mix(g, taciti_gossip_tracker_channel(g), g->tracker, NULL, &moved));
    if (!finite) return TACIT_OK;
    add(g, g->context.gradients, 1);
    add(g, g->gradient, -1);
    for (size_t b = 0; b < g->context.layout->bucket_count; b++)
        taciti_gossip_copy(g, g->gradient, g->context.gradients, 1, b);
    return TACIT_OK;
}

tacit_status taciti_gossip_track_on(taciti_gossip *g, size_t bucket) {
    taciti_gossip_channel *channel = taciti_gossip_tracker_channel(g);
    if (!g->context.exchange_options->overlap) return TACIT_OK;
    taciti_gossip_copy(g, channel->buffer, g->tracker, 1, bucket);
    return taciti_gossip_begin(channel, bucket, g->number + 1);
}
