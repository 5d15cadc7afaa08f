/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/placement.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"

#define MAX_STEPS 1e8

tacit_status taciti_seating_create(const taciti_topo_request *request, taciti_seating *out) {
    const int n = request->ranks;
    const int *host_of = request->hosts != NULL ? request->hosts->host_of : NULL;
    int hosts = 1;
    for (int r = 0; r < n && host_of != NULL; r++) {
        const int host = host_of[r];
        if (host < 0 || host >= n)
            return taciti_fail(TACIT_E_CONFIG, "rank %d is on host %d; %d ranks can be on the hosts 0 to %d", r, host,
                               n, n - 1);
        if (host >= hosts) hosts = host + 1;
    }
    taciti_seating s = {.rank_at = taciti_calloc((size_t)n * 3 + 1, sizeof(int))};
    if (s.rank_at == NULL) return TACIT_E_MEMORY;
    s.host_at = s.rank_at + n;
    s.first = s.host_at + n;
    int at = 0;
    for (int h = 0; h < hosts; h++) {
        const int begin = at;
        for (int r = 0; r < n; r++) {
            if (host_of != NULL && host_of[r] != h) continue;
            s.rank_at[at] = r;
            s.host_at[at++] = s.hosts.count;
        }
        if (at > begin) s.first[++s.hosts.count] = at; /* numbers that no rank has are left out */
    }
    s.hosts.first = s.first;
    *out = s;
    return TACIT_OK;
}

void taciti_seating_destroy(taciti_seating *seating) {
    taciti_free(seating->rank_at);
    *seating = (taciti_seating){0};
}

/* ---- what a seating costs ---------------------------------------------------------------------------------------- */

typedef struct books {
    const taciti_draft *draft;
    const int *host_at;
    int hosts;
    double *sent, *received; /* [hosts] arrays of this round */
    int *seen;               /* [hosts] last group that had a member there */
    int group;
} books;

static void add_groups(books *b, const taciti_draft_round *round) {
    const size_t *sizes = taciti_draft_sizes(b->draft, round);
    const int *members = taciti_draft_members(b->draft, round);
    for (size_t g = 0; g < round->groups; members += sizes[g++]) {
        int hosts = 0;
        b->group++;
        for (size_t i = 0; i < sizes[g]; i++) {
            int *seen = &b->seen[b->host_at[members[i]]];
            hosts += *seen != b->group;
            *seen = b->group;
        }
        for (size_t i = 0; i < sizes[g] && hosts > 1; i++) {
            const int host = b->host_at[members[i]];
            if (b->seen[host] != b->group) continue;
            b->sent[host] += 2.0 * (hosts - 1) / hosts;
            b->seen[host] = 0; /* once per host */
        }
    }
}

static double round_cost(books *b, const taciti_draft_round *round) {
    const taciti_edge *edges = taciti_draft_edges(b->draft, round);
    memset(b->sent, 0, (size_t)b->hosts * 2 * sizeof *b->sent);
    add_groups(b, round);
    for (size_t e = 0; e < round->edges; e++) {
        const int from = b->host_at[edges[e].from], to = b->host_at[edges[e].to];
        b->sent[from] += from != to;
        b->received[to] += from != to;
    }
    double max = 0;
    for (int h = 0; h < b->hosts; h++) {
        if (b->sent[h] > max) max = b->sent[h];
        if (b->received[h] > max) max = b->received[h];
    }
    return max;
}

static double total_cost(books *b) {
    double sum = 0;
    b->group = 0;
    for (int h = 0; h < b->hosts; h++) b->seen[h] = 0;
    for (size_t r = 0; r < taciti_draft_period(b->draft); r++) sum += round_cost(b, taciti_draft_at(b->draft, r));
    return sum;
}

/* ---- swapping ---------------------------------------------------------------------------------------------------- */

static void swap_int(int *a, int *b) {
    const int held = *a;
    *a = *b;
    *b = held;
}

static void swap_seats(taciti_seating *s, int a, int b) {
    swap_int(&s->rank_at[a], &s->rank_at[b]);
    swap_int(&s->host_at[a], &s->host_at[b]);
}

/* One pass; whether it found something. */
static bool improve_once(books *b, taciti_seating *seating, double *best) {
    bool found = false;
    for (int i = 0; i < b->draft->ranks; i++) {
        for (int k = i + 1; k < b->draft->ranks; k++) {
            if (seating->host_at[i] == seating->host_at[k]) continue;
            swap_seats(seating, i, k);
            const double now = total_cost(b);
            if (now < *best - 1e-9) {
                *best = now;
                found = true;
            } else {
                swap_seats(seating, i, k);
            }
        }
    }
    return found;
}

tacit_status taciti_seating_improve(const taciti_draft *draft, taciti_seating *seating) {
    const int hosts = seating->hosts.count;
    const double pairs = 0.5 * draft->ranks * draft->ranks, rounds = (double)taciti_draft_period(draft);
    const double steps = /* of one pass over all pairs, roughly */
        pairs * (2 * (double)draft->members.count + (double)draft->edges.count + 3 * rounds * hosts);
    if (draft->status != TACIT_OK || hosts == 1 || hosts == draft->ranks || steps > MAX_STEPS) return draft->status;
    books b = {.draft = draft, .host_at = seating->host_at, .hosts = hosts};
    b.sent = taciti_calloc((size_t)hosts, 2 * sizeof *b.sent);
    b.seen = taciti_calloc((size_t)hosts, sizeof *b.seen);
    const bool room = b.sent != NULL && b.seen != NULL;
    if (room) {
        b.received = b.sent + hosts;
        double best = total_cost(&b), spent = steps;
        while (best > 0 && improve_once(&b, seating, &best) && spent + steps <= MAX_STEPS) spent += steps;
    }
    taciti_free(b.sent);
    taciti_free(b.seen);
    return room ? TACIT_OK : TACIT_E_MEMORY;
}
