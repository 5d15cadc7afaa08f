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

/* How many machines the members are on; count[machine] of them each. */
static int count_machines(const taciti_where *where, taciti_members members, int size, int *count) {
    int machines = 0;
    for (int i = 0; i < size; i++) machines += count[where->host_of[member(members, i)]]++ == 0;
    return machines;
}

/* Every member is a host of its own. */
static void fill_flat(const taciti_where *where, taciti_members members, taciti_arrangement *place) {
    for (int i = 0; i < place->size; i++) {
        place->first[i] = i;
        place->order[i] = member(members, i);
        place->machine[i] = where->host_of[place->order[i]];
    }
    place->first[place->size] = place->hosts = place->size;
    place->lanes = 1;
}

/* Hosts come in the order of their lowest ranks. count[machine] and next[machine]: its members, and 1 + the place of
 * the next of them, 0 before the first. */
static void fill_hosts(const taciti_where *where, taciti_members members, const int *count, int *next,
                       taciti_arrangement *place) {
    int end = 0;
    place->lanes = place->size;
    for (int i = 0; i < place->size; i++) {
        const int rank = member(members, i), machine = where->host_of[rank];
        if (next[machine] == 0) {
            if (count[machine] < place->lanes) place->lanes = count[machine];
            place->first[place->hosts++] = end;
            next[machine] = end + 1;
            end += count[machine];
        }
        const int at = next[machine]++ - 1;
        place->order[at] = rank;
        place->machine[at] = machine;
    }
    place->first[place->hosts] = end;
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
    int max = place->hosts > 1 ? TACITI_FLOWS / (place->hosts - 1) : place->lanes;
    if (max < 1) max = 1;
    if (wish > 0) max = wish;
    return place->lanes < max ? place->lanes : max;
}

tacit_status taciti_arrangement_of(const taciti_where *where, taciti_members members, int rank, taciti_placement wish,
                                   taciti_arrangement *out) {
    const int size = members.ranks == NULL ? where->ranks : (int)members.count;
    int *block = taciti_calloc((size_t)size * 3 + 1 + 2 * (size_t)where->hosts, sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    int *count = block + 3 * size + 1, *next = count + where->hosts;
    const int hosts = count_machines(where, members, size, count);
    const bool flat =
        wish.scheme == TACITI_SCHEME_AUTO ? hosts == 1 || hosts == size : wish.scheme == TACITI_SCHEME_FLAT;
    taciti_arrangement place = {
        .size = size, .one_host = hosts == 1, .order = block, .machine = block + size, .first = block + 2 * size};
    if (flat)
        fill_flat(where, members, &place);
    else
        fill_hosts(where, members, count, next, &place);
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
