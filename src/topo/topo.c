/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of topologies, and what can be asked of one.
 */
#include "topo/topo.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "topo/placement.h"

enum { RANKS_MAX = 1 << 16 };

/* Which rank takes which place of the graph. */
typedef enum seats {
    SEATS_IMPROVED, /* host by host, then better where swapping helps */
    SEATS_BY_HOST,  /* made of hosts already: no rank is moved */
    SEATS_GIVEN,    /* rank i has place i: the user wrote row i for rank i */
} seats;

typedef struct family {
    taciti_family_draw *draw;
    seats seats;
} family;

#define WANG "Wang et al., arXiv 2410.11998"

/* X(function, seats, name, help, source, demands) */
#define TOPOLOGIES(X)                                                                                                  \
    X(complete, SEATS_BY_HOST, "complete", "everybody with everybody in every round: the mean of all",                 \
      "dense all-reduce", "any")                                                                                       \
    X(one_peer_ring, SEATS_IMPROVED, "one-peer-ring", "one neighbour of a ring per round, left and right in turns",    \
      WANG, "any")                                                                                                     \
    X(ring, SEATS_IMPROVED, "ring", "both neighbours of a ring in every round, 1/3 each",                              \
      "Lian et al., arXiv 1705.09056", "any")                                                                          \
    X(torus, SEATS_IMPROVED, "torus", "four neighbours of a torus, 1/5 each", "Lian et al., arXiv 1705.09056",         \
      "any; columns divide it")                                                                                        \
    X(exp, SEATS_IMPROVED, "exp", "one peer per round, at the distances 1, 2, 4, ...", WANG,                           \
      "any; exact for powers of two")                                                                                  \
    X(exp_directed, SEATS_IMPROVED, "exp-directed", "as exp, but hears one and tells another",                         \
      "Assran et al., arXiv 1811.10792", "any")                                                                        \
    X(exp_static, SEATS_IMPROVED, "exp-static", "peers at all distances 1, 2, 4, ... in every round",                  \
      "Ying et al., arXiv 2110.13363", "any")                                                                          \
    X(aer, SEATS_BY_HOST, "aer", "alternating exponential ring: hosts meet in pairs, every second round", WANG,        \
      "any; needs several ranks per host to pay")                                                                      \
    X(base_k, SEATS_IMPROVED, "base-k", "at most `degree` peers per round, and the exact mean in finite time",         \
      "Takezawa et al., arXiv 2305.11420", "any")                                                                      \
    X(random, SEATS_IMPROVED, "random", "pairs drawn at random", "Boyd et al., IEEE Trans. Inf. Theory 52(6), 2006",   \
      "any")                                                                                                           \
    X(file, SEATS_GIVEN, "file", "a matrix of yours, or several in turns, from a .csv file", "-",                      \
      "that of the file; doubly stochastic, or columns alone (push-sum)")

#define KIND(function, seats, name, help, source, demands) {name, help, source, demands},
#define FAMILY(function, seats, name, help, source, demands) {taciti_family_##function, seats},
static const taciti_topo_kind KINDS[] = {TOPOLOGIES(KIND){NULL, NULL, NULL, NULL}};
static const family FAMILIES[] = {TOPOLOGIES(FAMILY)};

const taciti_topo_kind *taciti_topo_kinds(void) { return KINDS; }

static int count_hosts(const taciti_topo_request *request) {
    if (request->per_host > 0) return (request->ranks + request->per_host - 1) / request->per_host;
    return request->hosts == NULL ? 1 : request->hosts->count;
}

const char *taciti_topology_name(const taciti_topo_request *request) {
    if (strcmp(request->name, TACITI_TOPO_AUTO) != 0) return request->name;
    return 3 * count_hosts(request) <= 2 * request->ranks ? "aer" : "exp";
}

static tacit_status find_family(const char *name, size_t *out) {
    taciti_nearest nearest = {0};
    char quoted[TACITI_QUOTED_BYTES];
    for (*out = 0; KINDS[*out].name != NULL; ++*out) {
        if (strcmp(name, KINDS[*out].name) == 0) return TACIT_OK;
        taciti_nearest_offer(&nearest, name, KINDS[*out].name);
    }
    return taciti_fail(TACIT_E_CONFIG, "topology %s is not known%s; `tacit info topologies` lists all",
                       taciti_quote(name, quoted), nearest.hint);
}

static tacit_status draw_rounds(const taciti_topo_request *request, const family *how, taciti_draft *draft,
                                taciti_seating *seating, taciti_topology *out) {
    draft->hosts = &seating->hosts;
    TACITI_TRY(how->draw(request, draft));
    if (taciti_draft_period(draft) == 0) taciti_draft_close(draft);
    if (how->seats == SEATS_IMPROVED) TACITI_TRY(taciti_seating_improve(draft, seating));
    for (int place = 0; place < request->ranks && how->seats == SEATS_GIVEN; place++) seating->rank_at[place] = place;
    TACITI_TRY(taciti_draft_finish(draft, seating->rank_at, request->name, out));
    tacit_status status = taciti_topology_check_reach(out);
    if (status == TACIT_OK) status = taciti_topology_check_agreement(out);
    if (status != TACIT_OK) taciti_topology_destroy(out);
    return status;
}

static tacit_status seat_ranks(const taciti_topo_request *request, taciti_seating *out) {
    taciti_topo_request assumed = *request;
    taciti_hosts hosts = {0};
    if (request->per_host > 0) {
        TACITI_TRY(taciti_hosts_by_size(request->ranks, request->per_host, &hosts));
        assumed.hosts = &hosts;
    }
    const tacit_status status = taciti_seating_create(&assumed, out);
    taciti_hosts_destroy(&hosts);
    return status;
}

tacit_status taciti_topology_create(const taciti_topo_request *request, taciti_topology *out) {
    size_t kind = 0;
    taciti_seating seating = {0};
    taciti_draft draft = {0};
    taciti_topology topology = {0};
    taciti_topo_request named = *request;
    named.name = taciti_topology_name(request);
    request = &named;
    TACITI_TRY(find_family(request->name, &kind));
    if (request->ranks < 1 || request->ranks > RANKS_MAX)
        return taciti_fail(TACIT_E_CONFIG, "topology %s: %d ranks; it is made for 1 to %d", request->name,
                           request->ranks, RANKS_MAX);
    if (request->degree < 0 || request->degree > RANKS_MAX)
        return taciti_fail(TACIT_E_CONFIG, "topology %s: degree %d; give 0 (default) or more, up to %d", request->name,
                           request->degree, RANKS_MAX);
    TACITI_TRY(seat_ranks(request, &seating));
    tacit_status status = taciti_draft_create(request->ranks, &draft);
    if (status == TACIT_OK) status = draw_rounds(request, &FAMILIES[kind], &draft, &seating, &topology);
    taciti_draft_destroy(&draft);
    taciti_seating_destroy(&seating);
    if (status == TACIT_OK) *out = topology;
    return status;
}

void taciti_topology_destroy(taciti_topology *topology) {
    taciti_free(topology->rounds);
    *topology = (taciti_topology){0};
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

static bool has_member(const int *members, size_t count, int rank) {
    return bsearch(&rank, members, count, sizeof rank, taciti_rank_order) != NULL;
}

size_t taciti_topology_round(const taciti_topology *topology, int64_t number, int half) {
    const size_t round = (size_t)number % topology->period;
    return topology->alternates && half == 1 ? round ^ 1 : round;
}

size_t taciti_topology_group(const taciti_topology *topology, size_t round, int rank, const int **members) {
    const taciti_round *r = &topology->rounds[round];
    *members = NULL;
    for (size_t g = 0; g < r->groups && r->members[r->first[g]] <= rank; g++) { /* ascending by lowest member */
        const size_t count = r->first[g + 1] - r->first[g];
        if (!has_member(r->members + r->first[g], count, rank)) continue;
        *members = r->members + r->first[g];
        return count;
    }
    return 1;
}

double taciti_topology_weight(const taciti_topology *topology, size_t round, int to, int from) {
    const taciti_round *r = &topology->rounds[round];
    if (r->self != NULL && to == from) return r->self[to];
    if (r->self != NULL) {
        const taciti_edge key = {.to = to, .from = from};
        const taciti_edge *edge = bsearch(&key, r->edges, r->edge_count, sizeof key, taciti_edge_order);
        return edge == NULL ? 0 : edge->weight;
    }
    const int *members = NULL;
    const size_t count = taciti_topology_group(topology, round, to, &members);
    if (members == NULL) return to == from ? 1 : 0;
    return has_member(members, count, from) ? 1.0 / (double)count : 0;
}

void taciti_topology_mix(const taciti_topology *topology, size_t round, const double *x, double *out) {
    const taciti_round *r = &topology->rounds[round];
    for (int i = 0; i < topology->ranks; i++) out[i] = r->self == NULL ? x[i] : r->self[i] * x[i];
    for (size_t g = 0; g < r->groups; g++) {
        double sum = 0;
        for (size_t i = r->first[g]; i < r->first[g + 1]; i++) sum += x[r->members[i]];
        const double mean = sum / (double)(r->first[g + 1] - r->first[g]);
        for (size_t i = r->first[g]; i < r->first[g + 1]; i++) out[r->members[i]] = mean;
    }
    for (size_t e = 0; e < r->edge_count; e++) out[r->edges[e].to] += r->edges[e].weight * x[r->edges[e].from];
}
