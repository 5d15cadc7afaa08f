/* SPDX-License-Identifier: Apache-2.0
 *
 * Alternating exponential ring (Wang et al., arXiv 2410.11998, figure 12): hosts meet in pairs as ranks do in `exp`,
 * and each meeting takes two rounds. Pair number p, counted by its lower host: when p is even, both hosts first average
 * inside, then all ranks of both together; when p is odd, the other way round. So in every round half of the links
 * rest, and each host's link carries one array every second round, however many ranks share it. Exact after 2
 * log2(hosts) rounds from an even one on, when hosts are a power of two and have as many ranks each.
 *
 * Of the rounds 2 m and 2 m + 1 one half of the buckets takes the other (topo/topo.h): the product is the same, and a
 * host's link has half of an array to carry in every mix instead of a whole one in every second. A rank then waits for
 * the other host of its pair in every mix.
 *
 * Where we deviate: any number of hosts (pairs as in `exp`; a host that is left over averages inside in both rounds),
 * and any number of ranks per host, unequal and 1 included (a joint mean is that of all ranks of both hosts).
 */
#include "topo/family.h"

/* The mean of one host (b == a) or two. */
static void average_hosts(taciti_draft *draft, int a, int b) {
    const int *first = draft->hosts->first;
    size_t count = 0;
    for (int i = first[a]; i < first[a + 1]; i++) draft->places[count++] = i;
    for (int i = first[b]; a != b && i < first[b + 1]; i++) draft->places[count++] = i;
    taciti_draft_mean(draft, draft->places, count);
}

/* One half of a matching: pairs whose number is of this parity average inside, the others jointly. */
static void draw_half_round(taciti_draft *draft, const int *partner, int inside_parity) {
    int pair = 0;
    for (int host = 0; host < draft->hosts->count; host++) {
        if (partner[host] < host) continue;
        const bool inside = partner[host] == host || pair++ % 2 == inside_parity;
        average_hosts(draft, host, inside ? host : partner[host]);
        if (inside && partner[host] != host) average_hosts(draft, partner[host], partner[host]);
    }
    taciti_draft_close(draft);
}

tacit_status taciti_family_aer(const taciti_topo_request *request, taciti_draft *draft) {
    const int hosts = draft->hosts->count, matchings = taciti_matchings(hosts);
    int *partner = draft->places + request->ranks; /* [hosts], and there are no more hosts than ranks */
    for (int m = 0; m < matchings; m++) {
        taciti_matching(hosts, m, partner);
        draw_half_round(draft, partner, 0);
        draw_half_round(draft, partner, 1);
    }
    draft->alternates = matchings > 0;
    if (matchings == 0) average_hosts(draft, 0, 0);
    return TACIT_OK;
}
