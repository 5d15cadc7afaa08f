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
    for (size_t g = 0; g < round->groups; g++)
        for (size_t i = round->first[g]; i < round->first[g + 1]; i++) out[round->members[i]] = (int)g;
    for (size_t e = 0; e < round->edge_count; e++) {
        const taciti_edge *edge = &round->edges[e];
        out[edge->from] = note_meeting(out[edge->from], edge->to, ranks);
        out[edge->to] = note_meeting(out[edge->to], edge->from, ranks);
    }
    for (int rank = 0; rank < ranks; rank++)
        if (out[rank] >= ranks) out[rank] = TACITI_MEETS_SEVERAL;
}

taciti_members taciti_round_members(const taciti_round *round, const int *partners, int rank, int pair[2]) {
    const int other = partners[rank];
    if (other == TACITI_MEETS_NOBODY) return (taciti_members){.ranks = NULL};
    if (round->groups > 0) return taciti_members_of(round, (size_t)other);
    pair[0] = other < rank ? other : rank;
    pair[1] = other < rank ? rank : other;
    return (taciti_members){.ranks = pair, .count = 2};
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

/* The number of ways in which one rank meets others, and the arrays that it holds for them. */
typedef struct memory {
    size_t ways, arrays;
} memory;

typedef struct survey {
    const taciti_hosts *hosts;
    const taciti_topology *topology;
    taciti_placement requested;
    const taciti_codec *codec; /* NULL: PowerGossip */
    memory *ranks;             /* one per rank; owned */
    int *partners;             /* [period][ranks]; owned */
} survey;

static const int *partners_in(const survey *s, size_t r) { return s->partners + r * (size_t)s->topology->ranks; }

static int lanes_in(const survey *s, size_t r, taciti_members members) {
    return taciti_mix_placement(s->hosts, &s->topology->rounds[r], members, s->requested).lanes;
}

/* Whether these members of a round have met before, as a mix tells that (mix.c). Lanes are counted where members agree,
 * which is rare. */
static bool have_met(const survey *s, size_t round, taciti_members members) {
    int pair[2];
    for (size_t r = 0; r < round; r++) {
        const taciti_round *before = &s->topology->rounds[r];
        if (before->groups == 0 && s->codec != NULL) continue; /* references of edges are those of their round */
        if (taciti_members_equal(taciti_round_members(before, partners_in(s, r), members.ranks[0], pair), members) &&
            (s->codec == NULL || lanes_in(s, r, members) == lanes_in(s, round, members)))
            return true;
    }
    return false;
}

static tacit_status remember_way(const survey *s, int rank, taciti_reference_kind kind) {
    memory *m = &s->ranks[rank];
    if (m->ways == TACITI_REFERENCES_MAX) return taciti_mix_refuse_ways(s->topology, rank);
    if (s->codec != NULL) m->arrays += taciti_reference_arrays(kind) + (m->ways == 0 ? TACITI_REFERENCE_APART : 0);
    m->ways++;
    return TACIT_OK;
}

static tacit_status survey_groups(const survey *s, size_t r) {
    for (size_t g = 0; g < s->topology->rounds[r].groups; g++) {
        const taciti_members members = taciti_members_of(&s->topology->rounds[r], g);
        const bool encoded = s->codec == NULL || taciti_mix_codec(s->hosts, members, s->codec) == s->codec;
        if (!encoded || have_met(s, r, members)) continue;
        for (size_t i = 0; i < members.count; i++)
            TACITI_TRY(remember_way(s, members.ranks[i], TACITI_REFERENCE_GROUP));
    }
    return TACIT_OK;
}

static tacit_status survey_edges(const survey *s, size_t r) {
    const int *partners = partners_in(s, r);
    for (int rank = 0; rank < s->topology->ranks; rank++) {
        int pair[2];
        const taciti_members members = taciti_round_members(&s->topology->rounds[r], partners, rank, pair);
        const bool paired = taciti_partners_are_pair(partners, rank);
        if (members.ranks == NULL || (s->codec == NULL && have_met(s, r, members))) continue;
        TACITI_TRY(remember_way(s, rank, paired ? TACITI_REFERENCE_PAIR : TACITI_REFERENCE_EDGES));
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
                      .partners = taciti_calloc(topology->period * ranks, sizeof *s.partners)};
    tacit_status status = s.ranks != NULL && s.partners != NULL ? TACIT_OK : TACIT_E_MEMORY;
    for (size_t r = 0; r < topology->period && status == TACIT_OK; r++) {
        taciti_round_partners(&topology->rounds[r], topology->ranks, s.partners + r * ranks);
        status = (topology->rounds[r].groups > 0 ? survey_groups : survey_edges)(&s, r);
    }
    *arrays = 0;
    for (size_t rank = 0; rank < ranks && status == TACIT_OK; rank++)
        *arrays = taciti_max(*arrays, s.ranks[rank].arrays);
    taciti_free(s.ranks);
    taciti_free(s.partners);
    return status;
}
