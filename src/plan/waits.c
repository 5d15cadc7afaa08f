/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/waits.h"

#include "strategy/compression.h"

/* Ranks tell rank 0 what their encodes have seen, which sends all of it to everybody along a tree, between the exchange
 * and the update (comm/collective.c). */
static double agreement_s(const taciti_scene *s, const taciti_method *method, const taciti_links *links) {
    const int ranks = s->hosts->ranks;
    int levels = 0; /* of the tree */
    while (1 << levels < ranks) levels++;
    const int every = method->every > 0 ? method->every : 1;
    if (ranks < 2) return 0;
    const bool parts = method->order == TACITI_ORDER_PARTS;
    const bool sums = method->compression.encoding.codec != NULL || method->compression.adapts;
    const int codecs = sums + (parts && method->gather.encoding.codec != NULL);
    const double bytes = (double)taciti_compression_statistics_bytes(s->layout->bucket_count) * codecs;
    const int messages = (codecs + parts) * (1 + levels); /* of parts, the norm as well */
    return taciti_links_messages_s(links, s->hosts, messages, (1 + (double)levels) * ranks * bytes) / every;
}

/* A step that waits for an exchange of all ranks: from the end of backward to the messages, and back to the update.
 * Gossip waits for buckets that were handed over long before. */
static double hand_over_s(const taciti_scene *s, const taciti_method *method) {
    const bool equal = method->order == TACITI_ORDER_DENSE || method->order == TACITI_ORDER_PARTS;
    const bool waits = equal && method->library == TACITI_LIBRARY_OURS;
    return waits && s->hosts->ranks > 1 && s->cluster->hand_over_s > 0 ? s->cluster->hand_over_s : 0;
}

double taciti_plan_waits_s(const taciti_scene *scene, const taciti_method *method, const taciti_links *links) {
    return agreement_s(scene, method, links) + hand_over_s(scene, method);
}
