/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/arrangement.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"

enum { GRAIN = 16 };

int taciti_hosts_of(const taciti_comm *comm, int *host_of) {
    const int size = taciti_comm_size(comm);
    int hosts = 0;
    for (int leader = 0; leader < size; leader++) {
        if (taciti_comm_peer(comm, leader)->local_rank != 0) continue;
        for (int r = leader; r < size; r++)
            if (taciti_comm_same_host(comm, leader, r)) host_of[r] = hosts;
        hosts++;
    }
    return hosts;
}

static int member(taciti_members members, int i) { return members.ranks == NULL ? i : members.ranks[i]; }

/* Whether no member before this one is on its machine. */
static bool is_leader(const taciti_where *where, taciti_members members, int i) {
    for (int k = 0; k < i; k++)
        if (where->host_of[member(members, k)] == where->host_of[member(members, i)]) return false;
    return true;
}

/* Appends the members of one host; hosts come in the order of their lowest ranks. */
static void append_host(const taciti_where *where, taciti_members members, int leader, bool flat,
                        taciti_arrangement *place) {
    int at = place->first[place->hosts];
    const int machine = where->host_of[member(members, leader)];
    for (int i = leader; i < place->size; i++) {
        if (i != leader && (flat || where->host_of[member(members, i)] != machine)) continue;
        place->machine[at] = machine;
        place->order[at++] = member(members, i);
    }
    const int count = at - place->first[place->hosts];
    if (place->hosts == 0 || count < place->lanes) place->lanes = count;
    place->first[++place->hosts] = at;
}

static void find_myself(taciti_arrangement *place, int rank) {
    for (int h = 0; h < place->hosts; h++)
        for (int at = place->first[h]; at < place->first[h + 1]; at++) {
            if (place->order[at] != rank) continue;
            place->host = h;
            place->number = at - place->first[h];
        }
}

/* Lanes of every host: see TACITI_FLOWS. */
static int limit_lanes(const taciti_arrangement *place, int wish) {
    int most = place->hosts > 1 ? TACITI_FLOWS / (place->hosts - 1) : place->lanes;
    if (most < 1) most = 1;
    if (wish > 0) most = wish;
    return place->lanes < most ? place->lanes : most;
}

tacit_status taciti_arrangement_of(const taciti_where *where, taciti_members members, int rank, taciti_placement wish,
                                   taciti_arrangement *out) {
    const int size = members.ranks == NULL ? where->ranks : (int)members.count;
    int hosts = 0;
    for (int i = 0; i < size; i++) hosts += is_leader(where, members, i);
    const bool flat =
        wish.scheme == TACITI_SCHEME_AUTO ? hosts == 1 || hosts == size : wish.scheme == TACITI_SCHEME_FLAT;
    taciti_arrangement place = {.size = size, .one_host = hosts == 1};
    place.order = taciti_calloc((size_t)size * 3 + 1, sizeof *place.order);
    if (place.order == NULL) return TACIT_E_MEMORY;
    place.machine = place.order + size;
    place.first = place.machine + size;
    for (int i = 0; i < size; i++)
        if (flat || is_leader(where, members, i)) append_host(where, members, i, flat, &place);
    find_myself(&place, rank);
    place.lanes = limit_lanes(&place, wish.lanes);
    *out = place;
    return TACIT_OK;
}

void taciti_arrangement_destroy(taciti_arrangement *place) {
    taciti_free(place->order);
    *place = (taciti_arrangement){0};
}

static taciti_range part(taciti_range whole, int index, int count) {
    size_t begin = 0, end = 0;
    taciti_pool_part(whole.n, GRAIN, index, count, &begin, &end);
    return (taciti_range){.at = whole.at + begin, .n = end - begin};
}

taciti_range taciti_cut_piece(const taciti_cut *cut, size_t piece) {
    const size_t at = piece * cut->piece_n, left = cut->n - at;
    return (taciti_range){.at = at, .n = left < cut->piece_n ? left : cut->piece_n};
}

taciti_range taciti_cut_share(const taciti_arrangement *place, const taciti_cut *cut, size_t piece, int lane) {
    return part(taciti_cut_piece(cut, piece), lane, place->lanes);
}

taciti_range taciti_cut_chunk(const taciti_arrangement *place, const taciti_cut *cut, size_t piece, int lane,
                              int host) {
    return part(taciti_cut_share(place, cut, piece, lane), host, place->hosts);
}
