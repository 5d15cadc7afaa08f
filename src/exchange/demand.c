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
#include "base/number.h"
#include "exchange/small.h"

/* The bytes that every host's link carries, for each of some lengths, and marks for one pass over members; one block.
 */
typedef struct loads {
    int hosts;
    double *out, *in; /* [lengths][hosts] */
    int *crowd;       /* [hosts] groups of the round that are on this host and on others */
    int *count;       /* [hosts] marks; 0 between two uses */
} loads;

static tacit_status loads_create(const taciti_hosts *hosts, size_t lengths, loads *l) {
    const size_t n = (size_t)hosts->count;
    l->hosts = hosts->count;
    l->out = taciti_calloc(1, n * (2 * lengths * sizeof *l->out + 2 * sizeof *l->crowd));
    if (l->out == NULL) return TACIT_E_MEMORY;
    l->in = l->out + lengths * n;
    l->crowd = (int *)(void *)(l->in + lengths * n);
    l->count = l->crowd + n;
    return TACIT_OK;
}

/* Returns the loads of one length. */
static loads loads_of(const loads *l, size_t length) {
    loads one = *l;
    one.out += length * (size_t)l->hosts;
    one.in += length * (size_t)l->hosts;
    return one;
}

static double busy_bytes(const loads *l, int host) { return taciti_max_real(l->out[host], l->in[host]); }

/* ---- all-reduces ------------------------------------------------------------------------------------------------- */

static bool takes_small(const taciti_arrangement *p, taciti_length len) {
    return taciti_small_pays(p, len.f32_bytes / sizeof(float));
}

/* Several "hosts" of a flat arrangement share one host: sets how many, or clears it. */
static void mark_hosts(const taciti_arrangement *p, const loads *l, bool mark) {
    for (int h = 0; h < p->hosts; h++) l->count[p->host_of[p->first[h]]] = 0;
    for (int h = 0; h < p->hosts && mark; h++) l->count[p->host_of[p->first[h]]]++;
}

static double chunk_of(const taciti_arrangement *p, taciti_length len) {
    return (double)len.wire_bytes / p->lanes / p->hosts;
}

/* Every lane of a host sends its chunk to its like on all others, and theirs back. Between marks. */
static void carry_allreduce(const taciti_arrangement *p, taciti_length len, const loads *l) {
    if (takes_small(p, len)) {
        taciti_small_carry(p, len.f32_bytes / sizeof(float), l->out, l->in);
        return;
    }
    for (int h = 0; h < p->hosts && p->hosts > 1; h++) {
        const int host = p->host_of[p->first[h]], away = p->hosts - l->count[host];
        const double bytes = p->lanes * (2 * chunk_of(p, len) * away);
        l->out[host] += bytes;
        l->in[host] += bytes;
    }
}

/* Bytes that the member with this number sends within its host. */
static double local_bytes_at(const taciti_arrangement *p, int host, int number, taciti_length len, const loads *l) {
    const int at = p->first[host] + number, size = taciti_arrangement_local_size(p, host);
    if (takes_small(p, len)) return (double)taciti_small_local_bytes(p, at, len.f32_bytes / sizeof(float));
    const double share = (double)len.f32_bytes / p->lanes;
    const double bytes = number < p->lanes ? share * (p->lanes - 1 + size - 1) : share * p->lanes;
    return bytes + 2 * chunk_of(p, len) * (l->count[p->host_of[at]] - 1);
}

static double max_local_bytes(const taciti_arrangement *p, taciti_length len, const loads *l) {
    double bytes = 0;
    for (int h = 0; h < p->hosts; h++)
        for (int number = 0; number < taciti_arrangement_local_size(p, h); number++)
            bytes = taciti_max_real(bytes, local_bytes_at(p, h, number, len, l));
    return bytes;
}

/* Bytes that the busiest lane sends to other hosts. */
static double flow_bytes(const taciti_arrangement *p, taciti_length len, const loads *l) {
    int max = 0;
    for (int h = 0; h < p->hosts && !p->one_host && !takes_small(p, len); h++) {
        const int away = p->hosts - l->count[p->host_of[p->first[h]]];
        max = away > max ? away : max;
    }
    return 2 * chunk_of(p, len) * max;
}

/* Returns the demand of an all-reduce on links that carry all of `l`. Call it between marks. */
static taciti_demand demand_of(const taciti_arrangement *p, int hosts, taciti_length len, const loads *l) {
    taciti_demand d = {.hosts = hosts, .lanes = p->lanes};
    if (p->size == 1 || len.f32_bytes == 0) return d;
    for (int at = 0; at < p->size && !p->one_host; at++)
        d.host_bytes = taciti_max_real(d.host_bytes, busy_bytes(l, p->host_of[at]));
    d.flow_bytes = flow_bytes(p, len, l);
    d.local_bytes = max_local_bytes(p, len, l);
    if (takes_small(p, len))
        taciti_small_hops(p, &d.wire_hops, &d.local_hops);
    else {
        d.wire_hops = p->one_host ? 0 : 2;
        d.local_hops = p->one_host || p->hosts < p->size ? 2 : 0;
    }
    return d;
}

/* Hosts that these members are on. */
static int hosts_of_members(const taciti_hosts *hosts, taciti_members members) {
    int seen = 0;
    if (members.ranks == NULL) return hosts->count;
    for (size_t i = 0; i < members.count; i++) {
        bool first = true;
        for (size_t k = 0; k < i && first; k++)
            first = hosts->host_of[members.ranks[k]] != hosts->host_of[members.ranks[i]];
        seen += first;
    }
    return seen;
}

taciti_demand taciti_allreduce_demand(const taciti_hosts *hosts, const int *members, size_t count,
                                      taciti_placement placement, size_t wire_bytes, size_t f32_bytes) {
    const taciti_length len = {wire_bytes, f32_bytes};
    const taciti_members all = {members, members == NULL ? (size_t)hosts->ranks : count};
    taciti_demand demand = {0};
    taciti_arrangement arrangement = {0};
    loads l = {0};
    if (taciti_arrangement_of(hosts, all, 0, placement, &arrangement) == TACIT_OK &&
        loads_create(hosts, 1, &l) == TACIT_OK) {
        mark_hosts(&arrangement, &l, true);
        carry_allreduce(&arrangement, len, &l);
        demand = demand_of(&arrangement, hosts_of_members(hosts, all), len, &l);
    }
    taciti_arrangement_destroy(&arrangement);
    taciti_free(l.out);
    return demand;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

taciti_members taciti_members_of(const taciti_round *round, size_t group) {
    const size_t first = round->first[group];
    return (taciti_members){.ranks = round->members + first, .count = round->first[group + 1] - first};
}

/* Some are on this host, some not. */
static bool members_cross(const taciti_hosts *hosts, taciti_members members, int host) {
    size_t here = 0;
    for (size_t i = 0; i < members.count; i++) here += hosts->host_of[members.ranks[i]] == host;
    return here > 0 && here < members.count;
}

/* Most groups of this round that share a link of that group's. */
static int crowd_of(const taciti_hosts *hosts, const taciti_round *round, taciti_members members) {
    int max = 1;
    for (size_t i = 0; i < members.count; i++) {
        int crowd = 0;
        for (size_t g = 0; g < round->groups; g++)
            crowd += members_cross(hosts, taciti_members_of(round, g), hosts->host_of[members.ranks[i]]);
        if (crowd > max) max = crowd;
    }
    return max;
}

const taciti_codec *taciti_mix_codec(const taciti_hosts *hosts, taciti_members members, const taciti_codec *wire) {
    return hosts->count > 1 && hosts_of_members(hosts, members) == 1 ? taciti_codec_find("f32") : wire;
}

/* Groups that share links share their flows as well. */
static taciti_placement placement_of(taciti_placement requested, int hosts, int crowd) {
    if (requested.lanes > 0 || hosts == 1) return requested;
    const int lanes = TACITI_FLOWS / (hosts - 1) / crowd;
    requested.lanes = lanes > 1 ? lanes : 1;
    return requested;
}

taciti_placement taciti_mix_placement(const taciti_hosts *hosts, const taciti_round *round, taciti_members members,
                                      taciti_placement requested) {
    return placement_of(requested, hosts_of_members(hosts, members), crowd_of(hosts, round, members));
}

/* The groups of a round that every link is shared by, in one pass; crowd_of() says the same of one group. */
static void find_crowds(const taciti_hosts *hosts, const taciti_round *round, const loads *l) {
    for (size_t g = 0; g < round->groups; g++) {
        const taciti_members members = taciti_members_of(round, g);
        const bool crosses = hosts_of_members(hosts, members) > 1;
        for (size_t i = 0; i < members.count && crosses; i++) {
            const int host = hosts->host_of[members.ranks[i]];
            l->crowd[host] += l->count[host]++ == 0;
        }
        for (size_t i = 0; i < members.count; i++) l->count[hosts->host_of[members.ranks[i]]] = 0;
    }
}

/* The request for a round. */
typedef struct order {
    const taciti_hosts *hosts;
    const taciti_round *round;
    taciti_placement requested;
    const taciti_length *lengths;
    size_t count;
} order;

static tacit_status arrange_group(const order *o, taciti_members members, const loads *l, taciti_arrangement *out) {
    int crowd = 1;
    for (size_t i = 0; i < members.count; i++) {
        const int here = l->crowd[o->hosts->host_of[members.ranks[i]]];
        crowd = here > crowd ? here : crowd;
    }
    return taciti_arrangement_of(o->hosts, members, members.ranks[0],
                                 placement_of(o->requested, hosts_of_members(o->hosts, members), crowd), out);
}

static void leave_groups(const order *o, taciti_arrangement *groups) {
    for (size_t g = 0; g < o->round->groups && groups != NULL; g++) taciti_arrangement_destroy(&groups[g]);
    taciti_free(groups);
}

/* All groups of a round; owned. Without groups NULL. */
static tacit_status arrange_groups(const order *o, const loads *l, taciti_arrangement **out) {
    tacit_status status = TACIT_OK;
    *out = o->round->groups == 0 ? NULL : taciti_calloc(o->round->groups, sizeof **out);
    if (*out == NULL) return o->round->groups == 0 ? TACIT_OK : TACIT_E_MEMORY;
    for (int h = 0; h < o->hosts->count; h++) l->crowd[h] = 0;
    find_crowds(o->hosts, o->round, l);
    for (size_t g = 0; g < o->round->groups && status == TACIT_OK; g++)
        status = arrange_group(o, taciti_members_of(o->round, g), l, &(*out)[g]);
    if (status == TACIT_OK) return TACIT_OK;
    leave_groups(o, *out);
    return status;
}

static void carry_round(const order *o, const loads *l, const taciti_arrangement *groups) {
    for (size_t g = 0; g < o->round->groups; g++) {
        mark_hosts(&groups[g], l, true);
        for (size_t i = 0; i < o->count; i++) {
            const loads one = loads_of(l, i);
            carry_allreduce(&groups[g], o->lengths[i], &one);
        }
        mark_hosts(&groups[g], l, false);
    }
    for (size_t i = 0; i < o->count; i++) {
        const loads one = loads_of(l, i);
        for (size_t e = 0; e < o->round->edge_count; e++) {
            const int from = o->hosts->host_of[o->round->edges[e].from], to = o->hosts->host_of[o->round->edges[e].to];
            if (from == to) continue;
            one.out[from] += (double)o->lengths[i].wire_bytes;
            one.in[to] += (double)o->lengths[i].wire_bytes;
        }
    }
}

static void demands_of_groups(const order *o, const loads *l, const taciti_arrangement *groups, taciti_demand *out) {
    for (size_t g = 0; g < o->round->groups; g++) {
        const taciti_members members = taciti_members_of(o->round, g);
        const int hosts = hosts_of_members(o->hosts, members);
        mark_hosts(&groups[g], l, true);
        for (size_t i = 0; i < o->count; i++) {
            const loads one = loads_of(l, i);
            taciti_length len = o->lengths[i];
            if (o->hosts->count > 1 && hosts == 1) len.wire_bytes = len.f32_bytes; /* taciti_mix_codec() */
            const taciti_demand demand = demand_of(&groups[g], hosts, len, &one);
            for (size_t m = 0; m < members.count; m++)
                out[i * (size_t)o->hosts->ranks + (size_t)members.ranks[m]] = demand;
        }
        mark_hosts(&groups[g], l, false);
    }
}

/* The demand that either end of an edge makes on the links, together with its other edges. */
static void meet_edge(const taciti_demand *edge, taciti_demand *rank) {
    rank->host_bytes = taciti_max_real(rank->host_bytes, edge->host_bytes);
    rank->flow_bytes = taciti_max_real(rank->flow_bytes, edge->flow_bytes);
    rank->local_bytes = taciti_max_real(rank->local_bytes, edge->local_bytes);
    rank->wire_hops |= edge->wire_hops;
    rank->local_hops |= edge->local_hops;
}

/* Bytes that a rank sends within its host, sends to other hosts, and receives from them; `beside`: another host that it
 * talks to. */
typedef struct rank_load {
    double local, out, in;
    int beside;
} rank_load;

static void add_edge(const taciti_hosts *hosts, const taciti_edge *edge, double bytes, rank_load *ranks) {
    if (hosts->host_of[edge->from] == hosts->host_of[edge->to]) {
        ranks[edge->from].local += bytes;
        return;
    }
    ranks[edge->from].out += bytes;
    ranks[edge->to].in += bytes;
}

static void demands_of_edges(const order *o, taciti_length len, const loads *l, rank_load *ranks, taciti_demand *out) {
    const taciti_hosts *hosts = o->hosts;
    for (int r = 0; r < hosts->ranks; r++) ranks[r] = (rank_load){0};
    for (size_t e = 0; e < o->round->edge_count; e++)
        add_edge(hosts, &o->round->edges[e], (double)len.wire_bytes, ranks);
    for (size_t e = 0; e < o->round->edge_count && len.f32_bytes > 0; e++) {
        const taciti_edge *edge = &o->round->edges[e];
        const int from = hosts->host_of[edge->from], to = hosts->host_of[edge->to];
        const taciti_demand demand = {
            .host_bytes = from == to ? 0 : taciti_max_real(busy_bytes(l, from), busy_bytes(l, to)),
            .flow_bytes = from == to ? 0 : taciti_max_real(ranks[edge->from].out, ranks[edge->to].in),
            .local_bytes = taciti_max_real(ranks[edge->from].local, ranks[edge->to].local),
            .wire_hops = from != to,
            .local_hops = from == to};
        meet_edge(&demand, &out[edge->from]);
        meet_edge(&demand, &out[edge->to]);
    }
}

/* Some host beside a rank's own that its edges lead to. */
enum { ALONE = -1, SEVERAL = -2 };
static void note_host(int own, int other, int *beside) {
    if (other != own && *beside != other) *beside = *beside == ALONE ? other : SEVERAL;
}

/* On how many hosts a rank and its neighbours are: 1, 2, or 3 for more. */
static void count_hosts_of_edges(const order *o, rank_load *ranks, taciti_demand *out) {
    const int *host_of = o->hosts->host_of;
    for (int r = 0; r < o->hosts->ranks; r++) ranks[r].beside = ALONE;
    for (size_t e = 0; e < o->round->edge_count; e++) {
        const taciti_edge *edge = &o->round->edges[e];
        note_host(host_of[edge->from], host_of[edge->to], &ranks[edge->from].beside);
        note_host(host_of[edge->to], host_of[edge->from], &ranks[edge->to].beside);
    }
    for (size_t i = 0; i < o->count; i++)
        for (int r = 0; r < o->hosts->ranks; r++)
            out[i * (size_t)o->hosts->ranks + (size_t)r].hosts = ranks[r].beside == ALONE     ? 1
                                                                 : ranks[r].beside == SEVERAL ? 3
                                                                                              : 2;
}

static tacit_status demands_of_all_edges(const order *o, const loads *l, taciti_demand *out) {
    const size_t n = (size_t)o->hosts->ranks;
    rank_load *ranks = o->round->edge_count == 0 ? NULL : taciti_calloc(n, sizeof *ranks);
    if (o->round->edge_count == 0) return TACIT_OK;
    if (ranks == NULL) return TACIT_E_MEMORY;
    for (size_t i = 0; i < o->count; i++) {
        const loads one = loads_of(l, i);
        demands_of_edges(o, o->lengths[i], &one, ranks, out + i * n);
    }
    count_hosts_of_edges(o, ranks, out);
    taciti_free(ranks);
    return TACIT_OK;
}

tacit_status taciti_mix_demands(const taciti_hosts *hosts, const taciti_topology *topology, size_t round,
                                taciti_placement placement, const taciti_length *lengths, size_t count,
                                taciti_demand *out) {
    const order o = {hosts, &topology->rounds[round], placement, lengths, count};
    loads l = {0};
    for (size_t i = 0; i < count * (size_t)hosts->ranks; i++) out[i] = (taciti_demand){0};
    taciti_arrangement *groups = NULL;
    tacit_status status = loads_create(hosts, count, &l);
    if (status == TACIT_OK) status = arrange_groups(&o, &l, &groups);
    if (status == TACIT_OK) {
        carry_round(&o, &l, groups);
        demands_of_groups(&o, &l, groups, out);
        leave_groups(&o, groups);
        status = demands_of_all_edges(&o, &l, out);
    }
    taciti_free(l.out);
    return status;
}

/* Bytes of the busiest link in the rounds begin .. end - 1 together. */
static double nic_bytes_of_rounds(const taciti_hosts *hosts, const taciti_topology *topology, size_t begin, size_t end,
                                  taciti_placement placement, size_t wire_bytes) {
    const taciti_length len = {wire_bytes, SIZE_MAX};
    double max = 0;
    loads l = {0};
    tacit_status status = loads_create(hosts, 1, &l);
    for (size_t r = begin; r < end && status == TACIT_OK; r++) {
        const order o = {hosts, &topology->rounds[r], placement, &len, 1};
        taciti_arrangement *groups = NULL;
        status = arrange_groups(&o, &l, &groups);
        if (status != TACIT_OK) break;
        carry_round(&o, &l, groups);
        leave_groups(&o, groups);
    }
    for (int h = 0; h < hosts->count && status == TACIT_OK; h++) max = taciti_max_real(max, busy_bytes(&l, h));
    taciti_free(l.out);
    return max;
}

double taciti_mix_nic_bytes_of(const taciti_hosts *hosts, const taciti_topology *topology, size_t round,
                               taciti_placement placement, size_t wire_bytes) {
    return nic_bytes_of_rounds(hosts, topology, round, round + 1, placement, wire_bytes);
}

double taciti_mix_nic_bytes_mean(const taciti_hosts *hosts, const taciti_topology *topology, taciti_placement placement,
                                 size_t wire_bytes) {
    return nic_bytes_of_rounds(hosts, topology, 0, topology->period, placement, wire_bytes) / (double)topology->period;
}
