/* SPDX-License-Identifier: Apache-2.0
 *
 * What a topology must be. Nothing else in the program has to ask again.
 */
#include "topo/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

/* Sets out[i] to whether rank i has something, after one round, of those whose `has` is set; or, `against` the edges,
 * whether something of rank i comes to one of those. Weights up to `negligible` count as 0. If `out` is `has`, what is
 * known spreads over several edges of the round. */
static void pass_on(const taciti_round *round, int ranks, bool against, double negligible, const bool *has, bool *out) {
    for (int i = 0; i < ranks; i++) out[i] = has[i] && (round->self == NULL || round->self[i] > negligible);
    for (size_t g = 0; g < round->groups; g++) {
        bool any = false;
        for (size_t i = round->first[g]; i < round->first[g + 1]; i++) any = any || has[round->members[i]];
        for (size_t i = round->first[g]; i < round->first[g + 1]; i++) out[round->members[i]] = any;
    }
    for (size_t e = 0; e < round->edge_count; e++) {
        const taciti_edge *edge = &round->edges[e];
        const int from = against ? edge->to : edge->from, to = against ? edge->from : edge->to;
        out[to] = out[to] || (has[from] && edge->weight > negligible);
    }
}

static int count_set(const bool *set, int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum += set[i];
    return sum;
}

/* ---- reach ------------------------------------------------------------------------------------------------------- */

static tacit_status check_reach(const taciti_topology *topology, bool against, bool *knows) {
    const int ranks = topology->ranks;
    for (int i = 0; i < ranks; i++) knows[i] = i == 0;
    for (int before = 0, now = 1; now > before;) {
        before = now;
        for (size_t r = 0; r < topology->period; r++) pass_on(&topology->rounds[r], ranks, against, -1, knows, knows);
        now = count_set(knows, ranks);
    }
    for (int i = 0; i < topology->ranks; i++)
        if (!knows[i])
            return taciti_fail(TACIT_E_CONFIG,
                               "%s: in none of its %zu rounds does what rank %d has come to rank %d, not even over "
                               "others, so they would never agree; connect them (more rounds, or more edges)",
                               topology->name, topology->period, against ? i : 0, against ? 0 : i);
    return TACIT_OK;
}

tacit_status taciti_topology_check_reach(const taciti_topology *topology) {
    bool *knows = taciti_calloc((size_t)topology->ranks, sizeof *knows);
    if (knows == NULL) return TACIT_E_MEMORY;
    tacit_status status = check_reach(topology, false, knows);
    if (status == TACIT_OK) status = check_reach(topology, true, knows);
    taciti_free(knows);
    return status;
}

/* ---- agreement --------------------------------------------------------------------------------------------------- */

/* Follows the set of ranks that have something of rank 0 after k periods: it grows to everybody or enters a cycle. The
 * cycle is found as Brent does, by comparing with the set of the last power of two. Returns 0 for everybody, else the
 * length of the cycle. */
static size_t find_cycle(const taciti_topology *t, bool against, bool *block) {
    const size_t bytes = (size_t)t->ranks * sizeof *block;
    bool *has = block, *kept = block + t->ranks, *scratch = block + 2 * t->ranks;
    size_t length = 0, power = 1;
    memset(has, 0, bytes);
    has[0] = true;
    memcpy(kept, has, bytes);
    for (;;) {
        for (size_t r = 0; r < t->period; r++) {
            pass_on(&t->rounds[against ? t->period - 1 - r : r], t->ranks, against, TACITI_TOPO_TOLERANCE, has,
                    scratch);
            memcpy(has, scratch, bytes);
        }
        length++;
        if (memchr(has, 0, bytes) == NULL) return 0;
        if (memcmp(has, kept, bytes) == 0) return length;
        if (length < power) continue;
        memcpy(kept, has, bytes);
        power *= 2;
        length = 0;
    }
}

/* The product of a period has the d-th roots of 1 among its eigenvalues; or, with d = 1, 1 twice. */
static tacit_status refuse_cycle(const taciti_topology *t, size_t d) {
    char text[64] = "1, which it has more than once";
    const double angle = 2 * acos(-1) / (double)d;
    if (d == 2) (void)snprintf(text, sizeof text, "-1");
    if (d > 2) (void)snprintf(text, sizeof text, "%.4g + %.4g i", cos(angle), sin(angle));
    return taciti_fail(TACIT_E_CONFIG,
                       "%s: the ranks never agree: the product of its %zu round%s has contraction 1, by the eigenvalue "
                       "%s, so what differs between ranks only changes places; let every rank keep a part of its own: "
                       "a larger diagonal, as in (W + I) / 2",
                       t->name, t->period, t->period > 1 ? "s" : "", text);
}

/* From rank 0 to everybody and from everybody to rank 0 within k periods, for all k from some on: then the 2 k-th power
 * of the product has no zero. */
tacit_status taciti_topology_check_agreement(const taciti_topology *topology) {
    /* Where every rank keeps a part of its own in every round, reach is enough: the product of a period has all edges
     * of all rounds and a positive diagonal, so it is primitive. */
    bool all_keep_some = true;
    for (size_t r = 0; r < topology->period; r++)
        for (int i = 0; topology->rounds[r].self != NULL && i < topology->ranks; i++)
            all_keep_some = all_keep_some && topology->rounds[r].self[i] > TACITI_TOPO_TOLERANCE;
    if (all_keep_some) return TACIT_OK;
    bool *block = taciti_calloc((size_t)topology->ranks, 3 * sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    size_t cycle = find_cycle(topology, false, block);
    if (cycle == 0) cycle = find_cycle(topology, true, block);
    taciti_free(block);
    return cycle == 0 ? TACIT_OK : refuse_cycle(topology, cycle);
}
