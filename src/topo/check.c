/* SPDX-License-Identifier: Apache-2.0
 *
 * What a topology must be. Nothing else in the program has to ask again.
 */
#include "topo/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "topo/draft.h"

/* `which` round is meant, counted from 0. */
typedef struct scene {
    const taciti_topology *topology;
    size_t which;
    const taciti_round *round;
    double *sum, *column; /* [ranks] each */
} scene;

static bool is_rank(const scene *s, int rank) { return rank >= 0 && rank < s->topology->ranks; }

static tacit_status check_group(const scene *s, size_t group) {
    const taciti_round *r = s->round;
    const char *name = s->topology->name;
    if (r->first[group + 1] < r->first[group] + 2)
        return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: group %zu has fewer than 2 ranks; leave idle ranks out",
                           name, s->which, group);
    for (size_t i = r->first[group]; i < r->first[group + 1]; i++) {
        const int rank = r->members[i];
        if (!is_rank(s, rank))
            return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: group %zu has rank %d; ranks are 0 to %d", name,
                               s->which, group, rank, s->topology->ranks - 1);
        if (s->sum[rank] != 0)
            return taciti_fail(TACIT_E_CONFIG,
                               "%s, round %zu: rank %d is in group %.0f and in group %zu; once is legal", name,
                               s->which, rank, s->sum[rank] - 1, group);
        s->sum[rank] = (double)group + 1;
        if (i > r->first[group] && r->members[i - 1] >= rank)
            return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: group %zu lists rank %d before %d; they must ascend",
                               name, s->which, group, r->members[i - 1], rank);
    }
    if (group > 0 && r->members[r->first[group - 1]] >= r->members[r->first[group]])
        return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: group %zu begins with rank %d, the one before with %d", name,
                           s->which, group, r->members[r->first[group]], r->members[r->first[group - 1]]);
    return TACIT_OK;
}

static tacit_status check_groups(const scene *s) {
    for (int i = 0; i < s->topology->ranks; i++) s->sum[i] = 0;
    for (size_t g = 0; g < s->round->groups; g++) TACITI_TRY(check_group(s, g));
    return TACIT_OK;
}

static tacit_status check_edge(const scene *s, size_t e) {
    const taciti_edge *edge = &s->round->edges[e];
    const char *name = s->topology->name;
    if (!is_rank(s, edge->to) || !is_rank(s, edge->from) || edge->to == edge->from)
        return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: edge from rank %d to %d; two different ranks of 0 to %d",
                           name, s->which, edge->from, edge->to, s->topology->ranks - 1);
    if (!(edge->weight > 0 && edge->weight <= 1 + TACITI_TOPO_TOLERANCE))
        return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: weight %g from rank %d to %d; expected above 0, up to 1",
                           name, s->which, edge->weight, edge->from, edge->to);
    const taciti_edge *before = e > 0 ? edge - 1 : NULL;
    if (before != NULL && (before->to > edge->to || (before->to == edge->to && before->from >= edge->from)))
        return taciti_fail(TACIT_E_CONFIG,
                           "%s, round %zu: the edge to %d from %d follows the one to %d from %d; they must ascend",
                           name, s->which, edge->to, edge->from, before->to, before->from);
    s->sum[edge->to] += edge->weight;
    s->column[edge->from] += edge->weight;
    return TACIT_OK;
}

static tacit_status check_sums(const scene *s) {
    for (int i = 0; i < s->topology->ranks; i++) {
        if (fabs(s->column[i] - 1) > TACITI_TOPO_TOLERANCE)
            return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: column %d sums to %.12g, expected 1", s->topology->name,
                               s->which, i, s->column[i]);
        if (!s->topology->directed && fabs(s->sum[i] - 1) > TACITI_TOPO_TOLERANCE)
            return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: row %d sums to %.12g, expected 1", s->topology->name,
                               s->which, i, s->sum[i]);
    }
    return TACIT_OK;
}

static tacit_status check_edges(const scene *s) {
    for (int i = 0; i < s->topology->ranks; i++) {
        const double self = s->round->self[i];
        if (!(self >= -TACITI_TOPO_TOLERANCE && self <= 1 + TACITI_TOPO_TOLERANCE))
            return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: rank %d keeps %g of its own; expected 0 to 1",
                               s->topology->name, s->which, i, self);
        s->sum[i] = s->column[i] = self;
    }
    for (size_t e = 0; e < s->round->edge_count; e++) TACITI_TRY(check_edge(s, e));
    return check_sums(s);
}

static tacit_status check_round(const scene *s) {
    if (s->round->groups == 0 && s->round->self == NULL)
        return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: neither groups nor what ranks keep of their own",
                           s->topology->name, s->which);
    if (s->round->groups > 0 && (s->round->self != NULL || s->round->edge_count > 0))
        return taciti_fail(TACIT_E_CONFIG, "%s, round %zu: %zu groups and %zu edges; a round is one of the two",
                           s->topology->name, s->which, s->round->groups, s->round->edge_count);
    return s->round->groups > 0 ? check_groups(s) : check_edges(s);
}

tacit_status taciti_topology_check(const taciti_topology *topology) {
    if (topology->ranks < 1 || topology->period < 1)
        return taciti_fail(TACIT_E_CONFIG, "%s: %d ranks and %zu rounds; expected 1 or more of both", topology->name,
                           topology->ranks, topology->period);
    double *block = taciti_calloc((size_t)topology->ranks, 2 * sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    tacit_status status = TACIT_OK;
    for (size_t r = 0; r < topology->period && status == TACIT_OK; r++) {
        const scene s = {topology, r, &topology->rounds[r], block, block + topology->ranks};
        status = check_round(&s);
    }
    taciti_free(block);
    return status;
}

/* ---- reach ------------------------------------------------------------------------------------------------------- */

/* Lets what is known spread through one round, along its edges or against them; whether somebody learnt something. */
static bool spread(const taciti_round *round, bool against, bool *knows) {
    bool news = false;
    for (size_t g = 0; g < round->groups; g++) {
        bool any = false, all = true;
        for (size_t i = round->first[g]; i < round->first[g + 1]; i++) {
            any = any || knows[round->members[i]];
            all = all && knows[round->members[i]];
        }
        for (size_t i = round->first[g]; i < round->first[g + 1] && any && !all; i++) knows[round->members[i]] = true;
        news = news || (any && !all);
    }
    for (size_t e = 0; e < round->edge_count; e++) {
        const int from = against ? round->edges[e].to : round->edges[e].from;
        const int to = against ? round->edges[e].from : round->edges[e].to;
        news = news || (knows[from] && !knows[to]);
        knows[to] = knows[to] || knows[from];
    }
    return news;
}

static tacit_status check_reach(const taciti_topology *topology, bool against, bool *knows) {
    for (int i = 0; i < topology->ranks; i++) knows[i] = i == 0;
    for (bool news = true; news;) {
        news = false;
        for (size_t r = 0; r < topology->period; r++) news = spread(&topology->rounds[r], against, knows) || news;
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

/* Where every rank keeps a part of its own in every round, reach is enough: the product of a period has all edges of
 * all rounds and a positive diagonal, so it is primitive. */
static bool all_keep_some(const taciti_topology *t) {
    for (size_t r = 0; r < t->period; r++)
        for (int i = 0; t->rounds[r].self != NULL && i < t->ranks; i++)
            if (!(t->rounds[r].self[i] > TACITI_TOPO_TOLERANCE)) return false;
    return true;
}

/* out[i]: whether rank i has something, after one round, of those whose `has` is set; or, `against` the edges, whether
 * something of rank i comes to one of those. */
static void pass_on(const taciti_topology *t, const taciti_round *round, bool against, const bool *has, bool *out) {
    for (int i = 0; i < t->ranks; i++)
        out[i] = has[i] && (round->self == NULL || round->self[i] > TACITI_TOPO_TOLERANCE);
    for (size_t g = 0; g < round->groups; g++) {
        bool any = false;
        for (size_t i = round->first[g]; i < round->first[g + 1]; i++) any = any || has[round->members[i]];
        for (size_t i = round->first[g]; i < round->first[g + 1]; i++) out[round->members[i]] = any;
    }
    for (size_t e = 0; e < round->edge_count; e++) {
        const taciti_edge *edge = &round->edges[e];
        const int from = against ? edge->to : edge->from, to = against ? edge->from : edge->to;
        out[to] = out[to] || (has[from] && edge->weight > TACITI_TOPO_TOLERANCE);
    }
}

static void pass_period(const taciti_topology *t, bool against, bool *has, bool *scratch) {
    for (size_t r = 0; r < t->period; r++) {
        pass_on(t, &t->rounds[against ? t->period - 1 - r : r], against, has, scratch);
        memcpy(has, scratch, (size_t)t->ranks * sizeof *has);
    }
}

static bool is_all(const bool *has, int ranks) { return memchr(has, 0, (size_t)ranks * sizeof *has) == NULL; }

/* Who has something of rank 0 after k periods, for growing k: everybody in the end, or a cycle of sets, found as Brent
 * does, by comparing with the set of the last power of two. 0: everybody; else the length of the cycle. */
static size_t find_cycle(const taciti_topology *t, bool against, bool *block) {
    const size_t bytes = (size_t)t->ranks * sizeof *block;
    bool *has = block, *kept = block + t->ranks, *scratch = block + 2 * t->ranks;
    size_t length = 0, power = 1;
    memset(has, 0, bytes);
    has[0] = true;
    memcpy(kept, has, bytes);
    for (;;) {
        pass_period(t, against, has, scratch);
        length++;
        if (is_all(has, t->ranks)) return 0;
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
    if (all_keep_some(topology)) return TACIT_OK;
    bool *block = taciti_calloc((size_t)topology->ranks, 3 * sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    size_t cycle = find_cycle(topology, false, block);
    if (cycle == 0) cycle = find_cycle(topology, true, block);
    taciti_free(block);
    return cycle == 0 ? TACIT_OK : refuse_cycle(topology, cycle);
}
