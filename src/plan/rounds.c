/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/rounds.h"

#include "base/memory.h"

/* What is filled while rounds are walked. */
typedef struct walk {
    const taciti_scene *scene;
    const taciti_method *method;
    const taciti_links *links;
    taciti_rounds *out;
    size_t member_count;
} walk;

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static taciti_demand demand_of(const walk *w, size_t round, const taciti_meeting *meeting, size_t wire_bytes,
                               size_t f32_bytes) {
    const taciti_scene *s = w->scene;
    if (w->method->topology == NULL)
        return taciti_allreduce_demand(s->where, meeting->members, meeting->count, s->placement, wire_bytes, f32_bytes);
    const int rank = meeting->taker >= 0 ? meeting->taker : meeting->members[0];
    return taciti_mix_demand(s->where, w->method->topology, round, rank, s->placement, wire_bytes, f32_bytes);
}

/* Most buckets are of one size. */
static void time_buckets(const walk *w, size_t round, const taciti_meeting *meeting, taciti_transfer_time *out) {
    const taciti_bucket *buckets = w->scene->layout->buckets;
    taciti_transfer transfer = {.codec = w->method->wire};
    taciti_links_crowd(w->scene->where, w->scene->placement, meeting->members, meeting->count, &transfer);
    for (size_t k = 0; k < w->out->buckets; k++) {
        if (k > 0 && buckets[k].n == buckets[k - 1].n) {
            out[k] = out[k - 1];
            continue;
        }
        transfer.f32_bytes = buckets[k].n * sizeof(float);
        transfer.demand = demand_of(w, round, meeting, w->method->wire->bound(buckets[k].n), transfer.f32_bytes);
        out[k] = taciti_links_time(w->links, &transfer);
    }
}

/* ---- who meets whom ---------------------------------------------------------------------------------------------- */

static void append(walk *w, size_t round, const int *members, size_t count, int taker) {
    taciti_rounds *r = w->out;
    const size_t at = r->meeting_count++ * r->buckets;
    taciti_meeting *meeting = &r->meetings[r->meeting_count - 1];
    *meeting = (taciti_meeting){.members = members, .count = count, .taker = taker, .transfer_s = r->transfer_s + at};
    time_buckets(w, round, meeting, r->times + at);
    r->list[round].count++;
}

static void add_member(walk *w, size_t first, int rank) {
    for (size_t m = first; m < w->member_count; m++)
        if (w->out->members[m] == rank) return;
    w->out->members[w->member_count++] = rank;
}

/* A rank of a round of edges is done when it has what it receives and what it sends has left. */
static void append_neighbours(walk *w, size_t round, const taciti_round *edges, int rank) {
    const size_t first = w->member_count;
    add_member(w, first, rank);
    for (size_t e = 0; e < edges->edge_count; e++) {
        if (edges->edges[e].to == rank) add_member(w, first, edges->edges[e].from);
        if (edges->edges[e].from == rank) add_member(w, first, edges->edges[e].to);
    }
    if (w->member_count - first > 1) append(w, round, w->out->members + first, w->member_count - first, rank);
}

static void walk_round(walk *w, size_t round) {
    const taciti_topology *topology = w->method->topology;
    w->out->list[round].list = w->out->meetings + w->out->meeting_count;
    if (topology == NULL) {
        for (int r = 0; r < w->scene->where->ranks; r++) add_member(w, 0, r);
        if (w->member_count > 1) append(w, round, w->out->members, w->member_count, -1);
        return;
    }
    const taciti_round *r = &topology->rounds[round];
    for (size_t g = 0; g < r->groups; g++)
        append(w, round, r->members + r->first[g], r->first[g + 1] - r->first[g], -1);
    if (r->groups > 0) return;
    for (int rank = 0; rank < topology->ranks; rank++) append_neighbours(w, round, r, rank);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Meetings, and members that are not the topology's own. */
static void measure(const taciti_scene *scene, const taciti_topology *topology, size_t *meetings, size_t *members) {
    *meetings = topology == NULL ? 1 : 0;
    *members = topology == NULL ? (size_t)scene->where->ranks : 0;
    for (size_t t = 0; topology != NULL && t < topology->period; t++) {
        const taciti_round *r = &topology->rounds[t];
        *meetings += r->groups > 0 ? r->groups : (size_t)topology->ranks;
        if (r->groups == 0) *members += (size_t)topology->ranks + 2 * r->edge_count;
    }
}

tacit_status taciti_rounds_create(const taciti_scene *scene, const taciti_method *method, const taciti_links *links,
                                  taciti_rounds *out) {
    size_t meetings, members;
    measure(scene, method->topology, &meetings, &members);
    taciti_rounds r = {.period = method->topology == NULL ? 1 : method->topology->period,
                       .buckets = scene->layout->bucket_count};
    r.list = taciti_calloc(r.period, sizeof *r.list);
    r.meetings = taciti_calloc(meetings + 1, sizeof *r.meetings);
    r.members = taciti_calloc(members + 1, sizeof *r.members);
    r.times = taciti_calloc((meetings + 1) * r.buckets, sizeof *r.times);
    r.transfer_s = taciti_calloc((meetings + 1) * r.buckets, sizeof *r.transfer_s);
    if (r.list == NULL || r.meetings == NULL || r.members == NULL || r.times == NULL || r.transfer_s == NULL) {
        taciti_rounds_destroy(&r);
        return TACIT_E_MEMORY;
    }
    walk w = {.scene = scene, .method = method, .links = links, .out = &r};
    for (size_t round = 0; round < r.period; round++) walk_round(&w, round);
    taciti_rounds_weigh(&r, 1, 1);
    *out = r;
    return TACIT_OK;
}

void taciti_rounds_destroy(taciti_rounds *rounds) {
    taciti_free(rounds->list);
    taciti_free(rounds->meetings);
    taciti_free(rounds->members);
    taciti_free(rounds->times);
    taciti_free(rounds->transfer_s);
    *rounds = (taciti_rounds){0};
}

void taciti_rounds_weigh(taciti_rounds *rounds, double latency, double bytes) {
    for (size_t i = 0; i < rounds->meeting_count * rounds->buckets; i++)
        rounds->transfer_s[i] = latency * rounds->times[i].latency_s + bytes * rounds->times[i].bytes_s;
}

double taciti_rounds_transfer_s(const taciti_rounds *rounds) {
    double sum = 0;
    for (size_t t = 0; t < rounds->period; t++) {
        double most = 0;
        for (size_t g = 0; g < rounds->list[t].count; g++) {
            double seconds = 0;
            for (size_t k = 0; k < rounds->buckets; k++) seconds += rounds->list[t].list[g].transfer_s[k];
            most = seconds > most ? seconds : most;
        }
        sum += most;
    }
    return sum / (double)rounds->period;
}
