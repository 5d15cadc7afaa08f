/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/mix_ways.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "exchange/demand.h"
#include "exchange/reference.h"

#define ROUNDING 1e-9 /* of weights */

/* ---- partners ---------------------------------------------------------------------------------------------------- */

/* A partner of which one edge has been seen counts as other + ranks, until the edge back comes. */
static int note_meeting(int before, int other, int ranks) {
    if (before == TACITI_MEETS_NOBODY) return other + ranks;
    return before == other + ranks ? other : TACITI_MEETS_SEVERAL;
}

void taciti_round_partners(const taciti_round *round, int ranks, int *out) {
    for (int rank = 0; rank < ranks; rank++) out[rank] = TACITI_MEETS_NOBODY;
    for (size_t e = 0; e < round->edge_count; e++) {
        const taciti_edge *edge = &round->edges[e];
        out[edge->from] = note_meeting(out[edge->from], edge->to, ranks);
        out[edge->to] = note_meeting(out[edge->to], edge->from, ranks);
    }
    for (int rank = 0; rank < ranks; rank++)
        if (out[rank] >= ranks) out[rank] = TACITI_MEETS_SEVERAL;
}

/* Weights that are not equal would not keep the sum. */
static bool is_taken(const taciti_round *round, const int *partners, int rank) {
    if (partners[rank] == TACITI_MEETS_NOBODY) return true;
    if (!taciti_partners_are_pair(partners, rank)) return false;
    return fabs(round->self[rank] - round->self[partners[rank]]) < ROUNDING;
}

bool taciti_mix_takes_power(const taciti_topology *topology) {
    int *partners = taciti_calloc((size_t)topology->ranks, sizeof *partners);
    bool taken = partners != NULL && !topology->directed;
    for (size_t r = 0; r < topology->period && taken; r++) {
        if (topology->rounds[r].groups > 0) continue;
        taciti_round_partners(&topology->rounds[r], topology->ranks, partners);
        for (int rank = 0; rank < topology->ranks && taken; rank++)
            taken = is_taken(&topology->rounds[r], partners, rank);
    }
    taciti_free(partners);
    return taken;
}

/* ---- what ranks remember ----------------------------------------------------------------------------------------- */

bool taciti_members_equal(taciti_members a, taciti_members b) {
    return a.count == b.count && memcmp(a.ranks, b.ranks, a.count * sizeof *a.ranks) == 0;
}

tacit_status taciti_mix_refuse_ways(const taciti_topology *topology, int rank) {
    return taciti_fail(TACIT_E_CONFIG,
                       "topology %s: rank %d meets others in more than %d ways, and compressed mixing remembers what "
                       "each of them knows; take a topology with fewer rounds (base-k, exp), or mix as it is: "
                       "--gossip.codec none",
                       topology->name, rank, (int)TACITI_REFERENCES_MAX);
}

/* A group of a round, or the two ranks of a pair along edges. */
typedef struct way {
    size_t round, group;
    bool pair;
    int ranks[2];
} way;

/* The knowledge of one rank. */
typedef struct memory {
    way known[TACITI_REFERENCES_MAX]; /* that may come again */
    size_t known_count, ways, arrays;
} memory;

typedef struct survey {
    const taciti_hosts *hosts;
    const taciti_topology *topology;
    taciti_placement requested;
    const taciti_codec *codec; /* NULL: PowerGossip */
    memory *ranks;             /* one per rank; owned */
    int *partners;             /* [ranks]; owned */
} survey;

static taciti_members members_at(const survey *s, const way *at) {
    if (at->pair) return (taciti_members){.ranks = at->ranks, .count = 2};
    return taciti_members_of(&s->topology->rounds[at->round], at->group);
}

static int lanes_at(const survey *s, const way *at) {
    return taciti_mix_placement(s->hosts, &s->topology->rounds[at->round], members_at(s, at), s->requested).lanes;
}

/* As a mix tells them apart (mix.c). Lanes are counted where members agree, which is rare. */
static bool is_same(const survey *s, const way *a, const way *b) {
    if (!taciti_members_equal(members_at(s, a), members_at(s, b))) return false;
    return s->codec == NULL || lanes_at(s, a) == lanes_at(s, b);
}

static tacit_status remember_way(const survey *s, int rank, taciti_reference_kind kind) {
    memory *m = &s->ranks[rank];
    if (m->ways == TACITI_REFERENCES_MAX) return taciti_mix_refuse_ways(s->topology, rank);
    if (s->codec != NULL) m->arrays += taciti_reference_arrays(kind) + (m->ways == 0 ? TACITI_REFERENCE_APART : 0);
    m->ways++;
    return TACIT_OK;
}

static tacit_status remember_once(const survey *s, int rank, const way *at) {
    memory *m = &s->ranks[rank];
    for (size_t i = 0; i < m->known_count; i++)
        if (is_same(s, &m->known[i], at)) return TACIT_OK;
    TACITI_TRY(remember_way(s, rank, TACITI_REFERENCE_GROUP));
    m->known[m->known_count++] = *at;
    return TACIT_OK;
}

static tacit_status survey_groups(const survey *s, size_t r) {
    for (size_t g = 0; g < s->topology->rounds[r].groups; g++) {
        const way at = {.round = r, .group = g};
        const taciti_members members = members_at(s, &at);
        const bool encoded = s->codec == NULL || taciti_mix_codec(s->hosts, members, s->codec) == s->codec;
        for (size_t i = 0; i < members.count && encoded; i++) TACITI_TRY(remember_once(s, members.ranks[i], &at));
    }
    return TACIT_OK;
}

/* References of edges are those of their round. */
static tacit_status survey_edges(const survey *s, size_t r) {
    taciti_round_partners(&s->topology->rounds[r], s->topology->ranks, s->partners);
    for (int rank = 0; rank < s->topology->ranks; rank++) {
        const int other = s->partners[rank];
        const bool pair = taciti_partners_are_pair(s->partners, rank);
        const way at = {.pair = true, .ranks = {rank < other ? rank : other, rank < other ? other : rank}};
        if (other == TACITI_MEETS_NOBODY) continue;
        if (s->codec == NULL)
            TACITI_TRY(remember_once(s, rank, &at));
        else
            TACITI_TRY(remember_way(s, rank, pair ? TACITI_REFERENCE_PAIR : TACITI_REFERENCE_EDGES));
    }
    return TACIT_OK;
}

tacit_status taciti_mix_check_ways(const taciti_hosts *hosts, const taciti_topology *topology,
                                   taciti_placement requested, const taciti_codec *codec, size_t *arrays) {
    const size_t ranks = (size_t)topology->ranks;
    const survey s = {.hosts = hosts,
                      .topology = topology,
                      .requested = requested,
                      .codec = codec,
                      .ranks = taciti_calloc(ranks, sizeof *s.ranks),
                      .partners = taciti_calloc(ranks, sizeof *s.partners)};
    tacit_status status = s.ranks != NULL && s.partners != NULL ? TACIT_OK : TACIT_E_MEMORY;
    for (size_t r = 0; r < topology->period && status == TACIT_OK; r++)
        status = (topology->rounds[r].groups > 0 ? survey_groups : survey_edges)(&s, r);
    *arrays = 0;
    for (size_t rank = 0; rank < ranks && status == TACIT_OK; rank++)
        *arrays = taciti_max(*arrays, s.ranks[rank].arrays);
    taciti_free(s.ranks);
    taciti_free(s.partners);
    return status;
}
