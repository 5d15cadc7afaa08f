/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/rounds.h"

#include "base/log.h"
#include "base/memory.h"

/* What is filled while rounds are walked. */
typedef struct walk {
    const taciti_scene *scene;
    const taciti_method *method;
    const taciti_links *links;
    taciti_rounds *out;
    size_t member_count;
    taciti_demand *demands; /* [ranks] */
} walk;

/* ---- transfers --------------------------------------------------------------------------------------------------- */

/* What every rank of a round asks of the links for one bucket. */
static tacit_status demands_of(walk *w, size_t round, size_t wire_bytes, size_t f32_bytes) {
    const taciti_scene *s = w->scene;
    if (w->method->topology != NULL)
        return taciti_mix_demands(s->where, w->method->topology, round, s->placement, wire_bytes, f32_bytes,
                                  w->demands);
    const taciti_meeting *all = &w->out->meetings[0];
    const taciti_demand demand =
        taciti_allreduce_demand(s->where, all->members, all->count, s->placement, wire_bytes, f32_bytes);
    for (size_t i = 0; i < all->count; i++) w->demands[all->members[i]] = demand;
    return TACIT_OK;
}

static const taciti_codec *codec_of(const walk *w, const taciti_meeting *meeting) {
    const taciti_members members = {meeting->members, meeting->count};
    const bool along_edges = meeting->taker >= 0;
    return along_edges ? w->method->wire : taciti_mix_codec(w->scene->where, members, w->method->wire);
}

/* The transfers of one bucket; with that of the bucket before when they are of one size, as most are. */
static tacit_status time_bucket(walk *w, size_t round, size_t first, size_t k) {
    const taciti_bucket *bucket = &w->scene->layout->buckets[k];
    taciti_rounds *r = w->out;
    const size_t f32_bytes = bucket->n * sizeof(float);
    const bool same = k > 0 && bucket->n == bucket[-1].n;
    if (!same) TACITI_TRY(demands_of(w, round, w->method->wire->bound(bucket->n), f32_bytes));
    for (size_t m = first; m < r->meeting_count; m++) {
        const taciti_meeting *meeting = &r->meetings[m];
        taciti_transfer_time *time = &r->times[m * r->buckets + k];
        taciti_transfer transfer = {
            .ranks = (int)meeting->count, .f32_bytes = f32_bytes, .library = w->method->library, .by = w->method->by};
        if (same) {
            *time = time[-1];
            continue;
        }
        transfer.demand = w->demands[meeting->taker >= 0 ? meeting->taker : meeting->members[0]];
        transfer.codec = codec_of(w, meeting);
        transfer.hosts = taciti_links_hosts(w->scene->where, meeting->members, meeting->count);
        *time = taciti_links_time(w->links, &transfer);
    }
    return TACIT_OK;
}

/* ---- who meets whom ---------------------------------------------------------------------------------------------- */

static void append(walk *w, size_t round, const int *members, size_t count, int taker) {
    taciti_rounds *r = w->out;
    const size_t at = r->meeting_count++ * r->buckets;
    taciti_meeting *meeting = &r->meetings[r->meeting_count - 1];
    *meeting = (taciti_meeting){.members = members, .count = count, .taker = taker, .transfer_s = r->transfer_s + at};
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

static void find_meetings(walk *w, size_t round) {
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

static tacit_status walk_rounds(walk *w) {
    for (size_t round = 0; round < w->out->period; round++) {
        const size_t first = w->out->meeting_count;
        find_meetings(w, round);
        if (w->out->meeting_count == first) continue;
        for (size_t k = 0; k < w->out->buckets; k++) TACITI_TRY(time_bucket(w, round, first, k));
    }
    return TACIT_OK;
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
    w.demands = taciti_calloc((size_t)scene->where->ranks, sizeof *w.demands);
    const tacit_status status = w.demands == NULL ? TACIT_E_MEMORY : walk_rounds(&w);
    taciti_free(w.demands);
    if (status != TACIT_OK) {
        taciti_rounds_destroy(&r);
        return status;
    }
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
