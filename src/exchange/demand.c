/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes are those of allreduce.c, small.c and neighbours.c with every part of an array taken as n / parts. Real
 * chunks are multiples of 16 floats, which only the last piece of an array has to round: the chunk of a lane and host
 * is less than 48 floats off there. So of one all-reduce of one array, a host's link carries less than 2 x 48 floats,
 * as they travel, more or less than told here for each pair of ranks, one here and one elsewhere, that talk to each
 * other. Short arrays and edges are exact (test_demand.c).
 */
#include "exchange/demand.h"

#include "base/log.h"
#include "base/memory.h"
#include "exchange/small.h"

/* Length of an array in bytes: as it travels, and as it is. */
typedef struct length {
    size_t wire_bytes, f32_bytes;
} length;

/* What every host's link carries; both of one block. */
typedef struct loads {
    double *out, *in; /* [hosts] */
} loads;

static tacit_status loads_create(const taciti_where *where, loads *l) {
    l->out = taciti_calloc((size_t)where->hosts * 2, sizeof *l->out);
    if (l->out == NULL) return TACIT_E_MEMORY;
    l->in = l->out + where->hosts;
    return TACIT_OK;
}

static void carry(loads *l, int from, int to, double bytes) {
    if (from == to) return;
    l->out[from] += bytes;
    l->in[to] += bytes;
}

static double greater(double a, double b) { return a > b ? a : b; }

static double busy(const loads *l, int host) { return greater(l->out[host], l->in[host]); }

/* ---- all-reduces ------------------------------------------------------------------------------------------------- */
static bool takes_small(const taciti_arrangement *p, length len) {
    return taciti_small_pays(p, len.f32_bytes / sizeof(float));
}

static void carry_allreduce(const taciti_arrangement *p, length len, loads *l) {
    if (takes_small(p, len)) {
        taciti_small_carry(p, len.f32_bytes / sizeof(float), l->out, l->in);
        return;
    }
    const double chunk = (double)len.wire_bytes / p->lanes / p->hosts;
    for (int lane = 0; lane < p->lanes && p->hosts > 1; lane++)
        for (int here = 0; here < p->hosts; here++)
            for (int there = 0; there < p->hosts; there++)
                carry(l, p->machine[p->first[here] + lane], p->machine[p->first[there] + lane], 2 * chunk);
}

/* What the member at this position of `order` sends to its own machine. */
static double local_bytes_at(const taciti_arrangement *p, int host, int number, length len) {
    const int at = p->first[host] + number, size = taciti_arrangement_local_size(p, host);
    if (takes_small(p, len)) return (double)taciti_small_local_bytes(p, at, len.f32_bytes / sizeof(float));
    const double share = (double)len.f32_bytes / p->lanes, chunk = (double)len.wire_bytes / p->lanes / p->hosts;
    double bytes = number < p->lanes ? share * (p->lanes - 1 + size - 1) : share * p->lanes;
    for (int other = 0; other < p->hosts; other++) /* hosts of the flat arrangement share machines */
        if (other != host && p->machine[p->first[other]] == p->machine[at]) bytes += 2 * chunk;
    return bytes;
}

static double most_local_bytes(const taciti_arrangement *p, length len) {
    double bytes = 0;
    for (int h = 0; h < p->hosts; h++)
        for (int number = 0; number < taciti_arrangement_local_size(p, h); number++)
            bytes = greater(bytes, local_bytes_at(p, h, number, len));
    return bytes;
}

/* What the busiest lane sends to other machines. Hosts of the flat arrangement share machines. */
static double flow_bytes(const taciti_arrangement *p, length len) {
    const double chunk = (double)len.wire_bytes / p->lanes / p->hosts;
    int most = 0;
    for (int here = 0; here < p->hosts && !p->one_host && !takes_small(p, len); here++) {
        int others = 0;
        for (int there = 0; there < p->hosts; there++)
            others += p->machine[p->first[there]] != p->machine[p->first[here]];
        most = others > most ? others : most;
    }
    return 2 * chunk * most;
}

/* Of an all-reduce, with what the links carry altogether. */
static taciti_demand demand_of(const taciti_arrangement *p, length len, const loads *l) {
    taciti_demand d = {.lanes = p->lanes};
    if (p->size == 1 || len.f32_bytes == 0) return d;
    for (int at = 0; at < p->size && !p->one_host; at++) d.host_bytes = greater(d.host_bytes, busy(l, p->machine[at]));
    d.flow_bytes = flow_bytes(p, len);
    d.local_bytes = most_local_bytes(p, len);
    if (takes_small(p, len))
        taciti_small_turns(p, &d.wire_turns, &d.local_turns);
    else {
        d.wire_turns = p->one_host ? 0 : 2;
        d.local_turns = p->one_host || p->hosts < p->size ? 2 : 0;
    }
    return d;
}

taciti_demand taciti_allreduce_demand(const taciti_where *where, const int *members, size_t count,
                                      taciti_placement placement, size_t wire_bytes, size_t f32_bytes) {
    const length len = {wire_bytes, f32_bytes};
    taciti_demand demand = {0};
    taciti_arrangement place = {0};
    loads l = {0};
    if (taciti_arrangement_of(where, (taciti_members){members, count}, 0, placement, &place) == TACIT_OK &&
        loads_create(where, &l) == TACIT_OK) {
        carry_allreduce(&place, len, &l);
        demand = demand_of(&place, len, &l);
    }
    taciti_arrangement_destroy(&place);
    taciti_free(l.out);
    return demand;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */
taciti_members taciti_members_of(const taciti_round *round, size_t group) {
    const size_t first = round->first[group];
    return (taciti_members){.ranks = round->members + first, .count = round->first[group + 1] - first};
}

bool taciti_members_cross(const taciti_where *where, taciti_members members, int host) {
    size_t here = 0;
    for (size_t i = 0; i < members.count; i++) here += where->host_of[members.ranks[i]] == host;
    return here > 0 && here < members.count;
}

/* Most groups of this round that share a link of that group's. */
static int crowd_of(const taciti_where *where, const taciti_round *round, taciti_members members) {
    int most = 1;
    for (size_t i = 0; i < members.count; i++) {
        int crowd = 0;
        for (size_t g = 0; g < round->groups; g++)
            crowd += taciti_members_cross(where, taciti_members_of(round, g), where->host_of[members.ranks[i]]);
        if (crowd > most) most = crowd;
    }
    return most;
}

static int hosts_of_members(const taciti_where *where, taciti_members members) {
    int hosts = 0;
    for (size_t i = 0; i < members.count; i++) {
        bool first = true;
        for (size_t k = 0; k < i && first; k++)
            first = where->host_of[members.ranks[k]] != where->host_of[members.ranks[i]];
        hosts += first;
    }
    return hosts;
}

static bool share_one_of_hosts(const taciti_where *where, taciti_members members) {
    return where->hosts > 1 && hosts_of_members(where, members) == 1;
}

const taciti_codec *taciti_mix_codec(const taciti_where *where, taciti_members members, const taciti_codec *wire) {
    return share_one_of_hosts(where, members) ? taciti_codec_find("f32") : wire;
}

taciti_placement taciti_mix_placement(const taciti_where *where, const taciti_round *round, taciti_members members,
                                      taciti_placement wish) {
    const int hosts = hosts_of_members(where, members);
    if (wish.lanes > 0 || hosts == 1) return wish;
    const int lanes = TACITI_FLOWS / (hosts - 1) / crowd_of(where, round, members);
    wish.lanes = lanes > 1 ? lanes : 1;
    return wish;
}

static tacit_status arrange_group(const taciti_where *where, const taciti_round *round, taciti_members members,
                                  taciti_placement wish, taciti_arrangement *out) {
    return taciti_arrangement_of(where, members, members.ranks[0], taciti_mix_placement(where, round, members, wish),
                                 out);
}

static tacit_status carry_round(const taciti_where *where, const taciti_round *round, taciti_placement wish, length len,
                                loads *l) {
    for (size_t g = 0; g < round->groups; g++) {
        taciti_arrangement place;
        TACITI_TRY(arrange_group(where, round, taciti_members_of(round, g), wish, &place));
        carry_allreduce(&place, len, l);
        taciti_arrangement_destroy(&place);
    }
    for (size_t e = 0; e < round->edge_count; e++)
        carry(l, where->host_of[round->edges[e].from], where->host_of[round->edges[e].to], (double)len.wire_bytes);
    return TACIT_OK;
}

static tacit_status demands_of_groups(const taciti_where *where, const taciti_round *round, taciti_placement wish,
                                      length len, const loads *l, taciti_demand *out) {
    for (size_t g = 0; g < round->groups; g++) {
        const taciti_members members = taciti_members_of(round, g);
        taciti_arrangement place;
        TACITI_TRY(arrange_group(where, round, members, wish, &place));
        const size_t wire_bytes = share_one_of_hosts(where, members) ? len.f32_bytes : len.wire_bytes;
        const taciti_demand demand = demand_of(&place, (length){wire_bytes, len.f32_bytes}, l);
        for (size_t i = 0; i < members.count; i++) out[members.ranks[i]] = demand;
        taciti_arrangement_destroy(&place);
    }
    return TACIT_OK;
}

/* What either end of an edge asks of the links, together with its other edges. */
static void meet_edge(const taciti_demand *edge, taciti_demand *rank) {
    rank->host_bytes = greater(rank->host_bytes, edge->host_bytes);
    rank->flow_bytes = greater(rank->flow_bytes, edge->flow_bytes);
    rank->local_bytes = greater(rank->local_bytes, edge->local_bytes);
    rank->wire_turns |= edge->wire_turns;
    rank->local_turns |= edge->local_turns;
}

/* What a rank sends to its host, sends to other hosts, and receives from them. */
typedef struct rank_load {
    double local, out, in;
} rank_load;

static void add_edge(const taciti_where *where, const taciti_edge *edge, double bytes, rank_load *ranks) {
    if (where->host_of[edge->from] == where->host_of[edge->to]) {
        ranks[edge->from].local += bytes;
        return;
    }
    ranks[edge->from].out += bytes;
    ranks[edge->to].in += bytes;
}

static tacit_status demands_of_edges(const taciti_where *where, const taciti_round *round, length len, const loads *l,
                                     taciti_demand *out) {
    rank_load *ranks = taciti_calloc((size_t)where->ranks, sizeof *ranks);
    if (ranks == NULL) return TACIT_E_MEMORY;
    for (size_t e = 0; e < round->edge_count; e++) add_edge(where, &round->edges[e], (double)len.wire_bytes, ranks);
    for (size_t e = 0; e < round->edge_count && len.f32_bytes > 0; e++) {
        const taciti_edge *edge = &round->edges[e];
        const int from = where->host_of[edge->from], to = where->host_of[edge->to];
        const taciti_demand demand = {.host_bytes = from == to ? 0 : greater(busy(l, from), busy(l, to)),
                                      .flow_bytes = from == to ? 0 : greater(ranks[edge->from].out, ranks[edge->to].in),
                                      .local_bytes = greater(ranks[edge->from].local, ranks[edge->to].local),
                                      .wire_turns = from != to,
                                      .local_turns = from == to};
        meet_edge(&demand, &out[edge->from]);
        meet_edge(&demand, &out[edge->to]);
    }
    taciti_free(ranks);
    return TACIT_OK;
}

tacit_status taciti_mix_demands(const taciti_where *where, const taciti_topology *topology, size_t round,
                                taciti_placement placement, size_t wire_bytes, size_t f32_bytes, taciti_demand *out) {
    const length len = {wire_bytes, f32_bytes};
    const taciti_round *r = &topology->rounds[round];
    loads l = {0};
    for (int rank = 0; rank < where->ranks; rank++) out[rank] = (taciti_demand){0};
    tacit_status status = loads_create(where, &l);
    if (status == TACIT_OK) status = carry_round(where, r, placement, len, &l);
    if (status == TACIT_OK) status = demands_of_groups(where, r, placement, len, &l, out);
    if (status == TACIT_OK) status = demands_of_edges(where, r, len, &l, out);
    taciti_free(l.out);
    return status;
}

/* Bytes of the busiest link in the rounds begin .. end - 1 together. */
static double nic_bytes_of_rounds(const taciti_where *where, const taciti_topology *topology, size_t begin, size_t end,
                                  taciti_placement placement, size_t wire_bytes) {
    const length len = {wire_bytes, SIZE_MAX};
    double most = 0;
    loads l = {0};
    tacit_status status = loads_create(where, &l);
    for (size_t r = begin; r < end && status == TACIT_OK; r++)
        status = carry_round(where, &topology->rounds[r], placement, len, &l);
    for (int h = 0; h < where->hosts && status == TACIT_OK; h++) most = greater(most, busy(&l, h));
    taciti_free(l.out);
    return most;
}

double taciti_mix_nic_bytes_of(const taciti_where *where, const taciti_topology *topology, size_t round,
                               taciti_placement placement, size_t wire_bytes) {
    return nic_bytes_of_rounds(where, topology, round, round + 1, placement, wire_bytes);
}

double taciti_mix_nic_bytes_mean(const taciti_where *where, const taciti_topology *topology, taciti_placement placement,
                                 size_t wire_bytes) {
    return nic_bytes_of_rounds(where, topology, 0, topology->period, placement, wire_bytes) / (double)topology->period;
}
