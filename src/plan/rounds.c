/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/rounds.h"

#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "plan/compressed.h"

/* The tables that are filled while rounds are walked. */
typedef struct walk {
    const taciti_scene *scene;
    const taciti_method *method;
    taciti_rounds *out;
    size_t member_count;
    taciti_length *lengths; /* [lengths] */
    taciti_price *sums;     /* [lengths] */
    taciti_demand *demands; /* [lengths][ranks] */
    size_t *next;           /* [ranks + 1] of a round of edges: where each rank's neighbours go */
    int *seen;              /* [ranks] marks */
} walk;

/* ---- transfers --------------------------------------------------------------------------------------------------- */

/* Whether buckets of this length are compressed. */
static bool is_coded(const walk *w, size_t length) {
    return w->method->compression.encoding.codec != NULL && !w->out->stretches->plain[length];
}

/* Fills in the demand of every rank of a round on the links. */
static tacit_status demands_of(walk *w, size_t round) {
    const taciti_scene *s = w->scene;
    const size_t count = w->out->stretches->length_count, ranks = (size_t)s->hosts->ranks;
    if (w->method->topology != NULL)
        return taciti_mix_demands(s->hosts, w->method->topology, round, s->placement, w->lengths, count, w->demands);
    taciti_placement placement = s->placement;
    if (w->method->lanes > 0) placement.lanes = w->method->lanes;
    for (size_t i = 0; i < count; i++)
        w->demands[i * ranks] = taciti_allreduce_demand(s->hosts, NULL, ranks, placement, w->lengths[i].wire_bytes,
                                                        w->lengths[i].f32_bytes);
    for (size_t i = 0; i < count; i++)
        if (is_coded(w, i)) taciti_compressed_demand(&w->sums[i], &w->demands[i * ranks]);
    return TACIT_OK;
}

/* No field of a demand but counts: there is no padding to compare. */
_Static_assert(sizeof(taciti_demand) == 3 * sizeof(double) + 4 * sizeof(int), "demands are compared as bytes");

/* One rank and its only partner, or the two that it has in a round of directed edges, are as fast as a pair. */
static bool is_pair(const taciti_meeting *meeting) { return meeting->taker >= 0 && meeting->count <= 3; }

static bool same_kind(const walk *w, const taciti_transfer *kind, int ranks, const taciti_demand *demand,
                      const taciti_codec *codec) {
    for (size_t i = 0; i < w->out->stretches->length_count; i++)
        if (kind[i].ranks != ranks || kind[i].codec != codec ||
            memcmp(&kind[i].demand, demand + i * (size_t)w->scene->hosts->ranks, sizeof *demand) != 0)
            return false;
    return true;
}

/* Sets *out to the kind since `first` with the demand of this meeting, or to a new one if there is none. */
static tacit_status find_kind(walk *w, size_t first, const taciti_meeting *meeting, size_t *out) {
    taciti_rounds *r = w->out;
    const size_t lengths = r->stretches->length_count, ranks = (size_t)w->scene->hosts->ranks;
    const int rank = meeting->taker >= 0 ? meeting->taker : meeting->members[0];
    const taciti_demand *demand = w->demands + rank;
    const bool inside = meeting->taker < 0 && w->scene->hosts->count > 1 && demand->hosts == 1;
    const taciti_codec *codec = inside ? taciti_codec_find("f32") : w->method->wire; /* as taciti_mix_codec() */
    const int members = is_pair(meeting) ? 2 : (int)meeting->count;
    for (*out = first; *out < r->kind_count; (*out)++)
        if (same_kind(w, r->transfers + *out * lengths, members, demand, codec)) return TACIT_OK;
    taciti_transfer *transfers = taciti_with_room(r->transfers, r->kind_count, lengths * sizeof *transfers);
    if (transfers == NULL) return TACIT_E_MEMORY;
    r->transfers = transfers;
    *out = r->kind_count++;
    for (size_t i = 0; i < lengths; i++) {
        taciti_transfer *t = &r->transfers[*out * lengths + i];
        *t = (taciti_transfer){.demand = demand[i * ranks],
                               .hosts = demand[i * ranks].hosts,
                               .ranks = members,
                               .price = w->sums[i],
                               .compressed = is_coded(w, i),
                               .codec = codec,
                               .library = w->method->library,
                               .by = w->method->by};
        if (is_pair(meeting) && t->hosts > 2) t->hosts = 2; /* on uncontended links */
    }
    return TACIT_OK;
}

/* ---- who meets whom ---------------------------------------------------------------------------------------------- */

static void append_meeting(walk *w, size_t round, const int *members, size_t count, int taker) {
    taciti_rounds *r = w->out;
    r->meetings[r->meeting_count++] = (taciti_meeting){.members = members, .count = count, .taker = taker};
    r->list[round].count++;
}

/* Every rank and its neighbours, the rank first: next[rank] becomes where they end. */
static void list_neighbours(walk *w, const taciti_round *edges) {
    const int ranks = w->scene->hosts->ranks;
    for (int i = 0; i < ranks; i++) w->next[i + 1] = 1;
    for (size_t e = 0; e < edges->edge_count; e++) {
        w->next[edges->edges[e].to + 1]++;
        w->next[edges->edges[e].from + 1]++;
    }
    w->next[0] = w->member_count;
    for (int i = 0; i < ranks; i++) w->next[i + 1] += w->next[i];
    w->member_count = w->next[ranks];
    for (int i = 0; i < ranks; i++) w->out->members[w->next[i]++] = i;
    for (size_t e = 0; e < edges->edge_count; e++) {
        const taciti_edge *edge = &edges->edges[e];
        w->out->members[w->next[edge->to]++] = edge->from;
        w->out->members[w->next[edge->from]++] = edge->to;
    }
}

/* A rank of a round of edges is done when it has what it receives and what it sends has left. */
static void append_neighbours(walk *w, size_t round, const taciti_round *edges) {
    size_t begin = w->member_count;
    list_neighbours(w, edges);
    for (int rank = 0; rank < w->scene->hosts->ranks; rank++) {
        int *members = w->out->members + begin;
        const size_t listed = w->next[rank] - begin;
        size_t count = 0;
        for (size_t i = 0; i < listed; i++) { /* each once */
            if (w->seen[members[i]] == rank + 1) continue;
            w->seen[members[i]] = rank + 1;
            members[count++] = members[i];
        }
        if (count > 1) append_meeting(w, round, members, count, rank);
        begin += listed;
    }
    for (int i = 0; i < w->scene->hosts->ranks; i++) w->seen[i] = 0;
}

static void find_meetings(walk *w, size_t round) {
    const taciti_topology *topology = w->method->topology;
    w->out->list[round].list = w->out->meetings + w->out->meeting_count;
    if (topology == NULL) {
        for (int r = 0; r < w->scene->hosts->ranks; r++) w->out->members[w->member_count++] = r;
        if (w->member_count > 1) append_meeting(w, round, w->out->members, w->member_count, -1);
        return;
    }
    const taciti_round *r = &topology->rounds[round];
    for (size_t g = 0; g < r->groups; g++)
        append_meeting(w, round, r->members + r->first[g], r->first[g + 1] - r->first[g], -1);
    if (r->edge_count > 0) append_neighbours(w, round, r);
}

static tacit_status walk_rounds(walk *w) {
    taciti_rounds *r = w->out;
    for (size_t i = 0; i < r->stretches->length_count; i++) {
        const taciti_plan_compression *c = is_coded(w, i) ? &w->method->compression : &TACITI_PLAN_DENSE;
        TACITI_TRY(
            taciti_plan_price(w->scene, w->method, c, TACITI_PHASE_ALL_REDUCE, r->stretches->lengths[i], &w->sums[i]));
        w->lengths[i] = w->sums[i].length;
    }
    for (size_t round = 0; round < r->period; round++) {
        const size_t first = r->meeting_count, kinds = r->kind_count;
        find_meetings(w, round);
        if (r->meeting_count == first) continue;
        TACITI_TRY(demands_of(w, round));
        for (size_t m = first; m < r->meeting_count; m++) {
            TACITI_TRY(find_kind(w, kinds, &r->meetings[m], &r->kind_of[m]));
            r->meetings_of[r->kind_of[m]]++;
        }
    }
    return TACIT_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Counts the meetings, and the members that are not the topology's own. */
static void count_meetings(const taciti_scene *scene, const taciti_topology *topology, size_t *meetings,
                           size_t *members) {
    *meetings = topology == NULL ? 1 : 0;
    *members = topology == NULL ? (size_t)scene->hosts->ranks : 0;
    for (size_t t = 0; topology != NULL && t < topology->period; t++) {
        const taciti_round *r = &topology->rounds[t];
        *meetings += r->groups > 0 ? r->groups : (size_t)topology->ranks;
        if (r->groups == 0) *members += (size_t)topology->ranks + 2 * r->edge_count;
    }
}

static tacit_status fill_rounds(walk *w) {
    const size_t ranks = (size_t)w->scene->hosts->ranks, lengths = w->out->stretches->length_count;
    w->lengths = taciti_calloc(lengths, sizeof *w->lengths);
    w->sums = taciti_calloc(lengths, sizeof *w->sums);
    w->demands = taciti_calloc(lengths * ranks, sizeof *w->demands);
    w->next = taciti_calloc(ranks + 1, sizeof *w->next);
    w->seen = taciti_calloc(ranks, sizeof *w->seen);
    const bool room = w->lengths != NULL && w->sums != NULL && w->demands != NULL && w->next != NULL && w->seen != NULL;
    const tacit_status status = room ? walk_rounds(w) : TACIT_E_MEMORY;
    taciti_free(w->lengths);
    taciti_free(w->sums);
    taciti_free(w->demands);
    taciti_free(w->next);
    taciti_free(w->seen);
    return status;
}

/* Allocates the seconds of all kinds and points every meeting to its own. */
static tacit_status allocate_seconds(taciti_rounds *r) {
    const size_t table = r->stretches->count * TACITI_SCENARIOS;
    r->transfer_s = taciti_calloc((r->kind_count + 1) * table, sizeof *r->transfer_s);
    r->behind_s = taciti_calloc((r->kind_count + 1) * table, sizeof *r->behind_s);
    if (r->transfer_s == NULL || r->behind_s == NULL) return TACIT_E_MEMORY;
    for (size_t m = 0; m < r->meeting_count; m++) {
        r->meetings[m].transfer_s = r->transfer_s + r->kind_of[m] * table;
        r->meetings[m].behind_s = r->behind_s + r->kind_of[m] * table;
    }
    return TACIT_OK;
}

tacit_status taciti_rounds_create(const taciti_scene *scene, const taciti_method *method,
                                  const taciti_stretches *stretches, taciti_rounds *out) {
    size_t meetings, members;
    count_meetings(scene, method->topology, &meetings, &members);
    taciti_rounds r = {.period = method->topology == NULL ? 1 : method->topology->period,
                       .topology = method->topology,
                       .wire = method->wire,
                       .stretches_key = taciti_stretches_key(stretches)};
    taciti_rounds_adopt(&r, method, stretches);
    r.list = taciti_calloc(r.period, sizeof *r.list);
    r.meetings = taciti_calloc(meetings + 1, sizeof *r.meetings);
    r.kind_of = taciti_calloc(2 * (meetings + 1), sizeof *r.kind_of);
    r.meetings_of = r.kind_of == NULL ? NULL : r.kind_of + meetings + 1;
    r.members = taciti_calloc(members + 1, sizeof *r.members);
    walk w = {.scene = scene, .method = method, .out = &r};
    const bool room = r.list != NULL && r.meetings != NULL && r.kind_of != NULL && r.members != NULL;
    tacit_status status = room ? fill_rounds(&w) : TACIT_E_MEMORY;
    if (status == TACIT_OK) status = allocate_seconds(&r);
    double wire_bytes = 0;
    for (size_t i = 0; i < stretches->length_count; i++)
        wire_bytes +=
            (double)stretches->buckets[i] * (double)taciti_codec_length(method->wire, NULL, stretches->lengths[i]).max;
    if (status == TACIT_OK && method->topology != NULL)
        r.nic_bytes = taciti_mix_nic_bytes_mean(scene->hosts, method->topology, scene->placement, (size_t)wire_bytes);
    if (status == TACIT_OK)
        *out = r;
    else
        taciti_rounds_destroy(&r);
    return status;
}

void taciti_rounds_adopt(taciti_rounds *rounds, const taciti_method *method, const taciti_stretches *stretches) {
    const size_t transfers = rounds->kind_count * stretches->length_count;
    for (size_t i = 0; i < transfers; i++)
        if (rounds->transfers[i].codec == rounds->wire) rounds->transfers[i].codec = method->wire;
    const size_t seconds = rounds->kind_count * stretches->count * TACITI_SCENARIOS;
    for (size_t i = 0; i < seconds; i++) rounds->transfer_s[i] = rounds->behind_s[i] = 0;
    rounds->stretches = stretches;
    rounds->wire = method->wire;
    for (size_t c = 0; c < TACITI_SCENARIOS; c++) rounds->spread[c] = 1;
}

void taciti_rounds_destroy(taciti_rounds *rounds) {
    taciti_free(rounds->list);
    taciti_free(rounds->meetings);
    taciti_free(rounds->kind_of);
    taciti_free(rounds->members);
    taciti_free(rounds->transfers);
    taciti_free(rounds->transfer_s);
    taciti_free(rounds->behind_s);
    *rounds = (taciti_rounds){0};
}

tacit_status taciti_rounds_time(taciti_rounds *rounds, size_t scenario, const taciti_links *links, double latency,
                                double bytes) {
    const size_t lengths = rounds->stretches->length_count, count = rounds->stretches->count;
    double *seconds = taciti_calloc(lengths + 2 * count, sizeof *seconds);
    if (seconds == NULL) return TACIT_E_MEMORY;
    double *own = seconds + lengths, *behind = own + count;
    for (size_t kind = 0; kind < rounds->kind_count; kind++) {
        for (size_t i = 0; i < lengths; i++) {
            const taciti_transfer_time time = taciti_links_time(links, &rounds->transfers[kind * lengths + i]);
            const double spread = rounds->transfers[kind * lengths + i].compressed ? rounds->spread[scenario] : 1;
            seconds[i] = latency * time.latency_s + spread * bytes * time.bytes_s;
        }
        taciti_stretches_fill(rounds->stretches, seconds, own, behind);
        for (size_t k = 0; k < count; k++) {
            rounds->transfer_s[(kind * count + k) * TACITI_SCENARIOS + scenario] = own[k];
            rounds->behind_s[(kind * count + k) * TACITI_SCENARIOS + scenario] = behind[k];
        }
    }
    taciti_free(seconds);
    return TACIT_OK;
}

uint64_t taciti_rounds_key(const taciti_rounds *rounds, uint64_t key) {
    const size_t seconds = rounds->kind_count * rounds->stretches->count * TACITI_SCENARIOS;
    key = XXH3_64bits_withSeed(rounds->kind_of, rounds->meeting_count * sizeof *rounds->kind_of, key);
    key = XXH3_64bits_withSeed(rounds->transfer_s, seconds * sizeof *rounds->transfer_s, key);
    return XXH3_64bits_withSeed(rounds->behind_s, seconds * sizeof *rounds->behind_s, key);
}

void taciti_rounds_doubts(const taciti_rounds *rounds, const taciti_links *links, double *error, double *calibrated) {
    const taciti_stretches *s = rounds->stretches;
    double sum = 0, doubtful = 0, known = 0;
    for (size_t kind = 0; kind < rounds->kind_count; kind++)
        for (size_t i = 0; i < s->length_count; i++) {
            const taciti_transfer *transfer = &rounds->transfers[kind * s->length_count + i];
            const taciti_transfer_time time = taciti_links_time(links, transfer);
            const double count = (double)rounds->meetings_of[kind] * (double)s->buckets[i];
            const double seconds = count * (time.latency_s + time.bytes_s);
            sum += seconds;
            doubtful += seconds * time.error;
            known += time.calibrated ? seconds : 0;
        }
    *error = sum > 0 ? doubtful / sum : 0;
    *calibrated = sum > 0 ? known / sum : 0;
}

/* Returns the seconds of the busiest meeting. */
static double longest_s(const taciti_rounds *rounds, size_t round, size_t scenario) {
    const taciti_meetings *meetings = &rounds->list[round];
    double longest = 0;
    for (size_t g = 0; g < meetings->count; g++) {
        const double *behind_s = meetings->list[g].behind_s;
        double seconds = 0;
        if (g > 0 && behind_s == meetings->list[g - 1].behind_s) continue; /* often the same kind */
        for (size_t k = 0; k < rounds->stretches->count; k++) seconds += behind_s[k * TACITI_SCENARIOS + scenario];
        longest = seconds > longest ? seconds : longest;
    }
    return longest;
}

/* Where a topology alternates, a host sends in one of two rounds, and half of its buckets are in that one. */
double taciti_rounds_transfer_s(const taciti_rounds *rounds, size_t scenario) {
    const bool alternates = rounds->topology != NULL && rounds->topology->alternates;
    double sum = 0, before = 0;
    for (size_t t = 0; t < rounds->period; t++) {
        const double now = longest_s(rounds, t, scenario);
        if (!alternates)
            sum += now;
        else if (t % 2 == 1)
            sum += now > before ? now : before;
        before = now;
    }
    return sum / (double)rounds->period;
}
