/* SPDX-License-Identifier: Apache-2.0
 *
 * What asynchronous gossip sends on a graph, before there is any: neighbours and bytes of a rank, of a thousand ranks
 * in a second.
 */
#include <string.h>

#include "base/memory.h"
#include "exchange/async.h"

/* Calls take() for every rank that `rank` exchanges offers with in a round, once. */
static void visit_partners(const taciti_topology *t, size_t round, int rank, void (*take)(void *context, int peer),
                           void *context) {
    const taciti_round *r = &t->rounds[round];
    const int *members = NULL;
    const size_t count = taciti_topology_group(t, round, rank, &members);
    for (size_t i = 0; members != NULL && i < count; i++)
        if (members[i] != rank) take(context, members[i]);
    for (size_t e = 0; e < r->edge_count; e++) {
        const int to = r->edges[e].to, from = r->edges[e].from;
        if (to == rank) take(context, from);
        if (from == rank && !(taciti_topology_weight(t, round, rank, to) > 0)) take(context, to);
    }
}

static void mark_partner(void *context, int peer) { ((bool *)context)[peer] = true; }

size_t taciti_async_neighbours(const taciti_topology *topology) {
    const size_t ranks = (size_t)topology->ranks;
    bool *met = taciti_calloc(ranks, sizeof *met);
    size_t max = 0;
    if (met == NULL) return ranks - 1; /* there are no more */
    for (size_t rank = 0; rank < ranks; rank++) {
        size_t count = 0;
        for (size_t r = 0; r < topology->period; r++) visit_partners(topology, r, (int)rank, mark_partner, met);
        for (size_t peer = 0; peer < ranks; peer++) count += met[peer];
        memset(met, 0, ranks * sizeof *met);
        max = count > max ? count : max;
    }
    taciti_free(met);
    return max;
}

typedef struct offers {
    int rank;
    const taciti_hosts *hosts; /* NULL: all count */
    uint64_t count;
} offers;

static void count_offer(void *context, int peer) {
    offers *o = context;
    o->count += o->hosts == NULL || o->hosts->host_of[peer] != o->hosts->host_of[o->rank];
}

uint64_t taciti_async_bytes(const taciti_topology *topology, int rank, size_t n, const taciti_hosts *hosts) {
    offers o = {.rank = rank, .hosts = hosts};
    for (size_t r = 0; r < topology->period; r++) visit_partners(topology, r, rank, count_offer, &o);
    return o.count * n * sizeof(float) / topology->period;
}

uint64_t taciti_async_nic_bytes(const taciti_topology *topology, int host, size_t n, const taciti_hosts *hosts) {
    uint64_t sum = 0;
    for (int r = 0; r < hosts->ranks; r++)
        if (hosts->host_of[r] == host) sum += taciti_async_bytes(topology, r, n, hosts);
    return sum;
}
