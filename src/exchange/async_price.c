/* SPDX-License-Identifier: Apache-2.0
 *
 * What asynchronous gossip sends on a graph, before there is any: neighbours and bytes of a rank, of a thousand ranks
 * in a second.
 */
#include <string.h>

#include "base/memory.h"
#include "exchange/async.h"

/* A rank, and a count of the ranks that it exchanges offers with. */
typedef struct partners {
    int rank;
    bool *met;                 /* [ranks] marks them; NULL: nobody asks */
    const taciti_hosts *hosts; /* counts only those on other hosts; NULL: all */
    uint64_t count;
} partners;

static void take_partner(partners *p, int peer) {
    if (p->met != NULL) p->met[peer] = true;
    p->count += p->hosts == NULL || p->hosts->host_of[peer] != p->hosts->host_of[p->rank];
}

/* Takes each of a round once. */
static void visit_partners(const taciti_topology *t, size_t round, partners *p) {
    const taciti_round *r = &t->rounds[round];
    const int *members = NULL;
    const size_t count = taciti_topology_group(t, round, p->rank, &members);
    for (size_t i = 0; members != NULL && i < count; i++)
        if (members[i] != p->rank) take_partner(p, members[i]);
    for (size_t e = 0; e < r->edge_count; e++) {
        const int to = r->edges[e].to, from = r->edges[e].from;
        if (to == p->rank) take_partner(p, from);
        if (from == p->rank && !(taciti_topology_weight(t, round, p->rank, to) > 0)) take_partner(p, to);
    }
}

size_t taciti_async_neighbours(const taciti_topology *topology) {
    const size_t ranks = (size_t)topology->ranks;
    bool *met = taciti_calloc(ranks, sizeof *met);
    size_t max = 0;
    if (met == NULL) return ranks - 1; /* there are no more */
    for (size_t rank = 0; rank < ranks; rank++) {
        size_t count = 0;
        partners all = {.rank = (int)rank, .met = met};
        for (size_t r = 0; r < topology->period; r++) visit_partners(topology, r, &all);
        for (size_t peer = 0; peer < ranks; peer++) count += met[peer];
        memset(met, 0, ranks * sizeof *met);
        max = count > max ? count : max;
    }
    taciti_free(met);
    return max;
}

uint64_t taciti_async_bytes(const taciti_topology *topology, int rank, size_t n, const taciti_hosts *hosts) {
    partners counted = {.rank = rank, .hosts = hosts};
    for (size_t r = 0; r < topology->period; r++) visit_partners(topology, r, &counted);
    return counted.count * n * sizeof(float) / topology->period;
}

uint64_t taciti_async_nic_bytes(const taciti_topology *topology, int host, size_t n, const taciti_hosts *hosts) {
    uint64_t sum = 0;
    for (int r = 0; r < hosts->ranks; r++)
        if (hosts->host_of[r] == host) sum += taciti_async_bytes(topology, r, n, hosts);
    return sum;
}
