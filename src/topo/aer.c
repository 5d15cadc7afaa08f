/* SPDX-License-Identifier: Apache-2.0
 *
 * Alternating exponential ring (Wang et al., arXiv 2410.11998, figure 12): hosts meet in pairs as ranks do in `exp`,
 * and each meeting takes two rounds. Pair number p, counted by its lower host: when p is even, both hosts first average
 * inside, then all ranks of both together; when p is odd, the other way round. So in every round half of the links
 * rest, and each host's link carries one array every second round, however many ranks share it. Exact after 2
 * log2(hosts) rounds from an even one on, when hosts are a power of two and have as many ranks each.
 *
 * Where we deviate: any number of hosts (pairs as in `exp`; a host that is left over averages inside in both rounds),
 * and any number of ranks per host, unequal and 1 included (a joint mean is that of all ranks of both hosts).
 */
#include "base/memory.h"
#include "topo/family.h"

typedef struct scene {
    taciti_draft *draft;
    const taciti_host_positions *hosts;
    int *members; /* [ranks] workspace */
} scene;

/* The mean of one host (b == a) or two. */
static void average(const scene *s, int a, int b) {
    size_t count = 0;
    for (int i = s->hosts->first[a]; i < s->hosts->first[a + 1]; i++) s->members[count++] = i;
    for (int i = s->hosts->first[b]; a != b && i < s->hosts->first[b + 1]; i++) s->members[count++] = i;
    taciti_draft_mean(s->draft, s->members, count);
}

/* One half of a matching: pairs whose number is of this parity average inside, the others jointly. */
static void half_round(const scene *s, const int *partner, int inside_parity) {
    int pair = 0;
    for (int host = 0; host < s->hosts->count; host++) {
        if (partner[host] < host) continue;
        const bool alone = partner[host] == host;
        if (alone) {
            average(s, host, host);
        } else if (pair++ % 2 == inside_parity) {
            average(s, host, host);
            average(s, partner[host], partner[host]);
        } else {
            average(s, host, partner[host]);
        }
    }
    taciti_draft_close(s->draft);
}

tacit_status taciti_family_aer(const taciti_topo_request *request, const taciti_host_positions *hosts,
                               taciti_draft *draft) {
    const int matchings = taciti_matchings(hosts->count);
    int *block = taciti_calloc((size_t)request->ranks, 2 * sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    const scene s = {.draft = draft, .hosts = hosts, .members = block};
    int *partner = block + request->ranks; /* [hosts], and there are no more hosts than ranks */
    for (int m = 0; m < matchings; m++) {
        taciti_matching(hosts->count, m, partner);
        half_round(&s, partner, 0);
        half_round(&s, partner, 1);
    }
    if (matchings == 0) {
        average(&s, 0, 0);
        taciti_draft_close(draft);
    }
    taciti_free(block);
    return TACIT_OK;
}
