/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/arrangement.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"

enum { GRAIN = 16 };

static bool is_leader(const taciti_comm *comm, int rank) { return taciti_comm_peer(comm, rank)->local_rank == 0; }

static int count_hosts(const taciti_comm *comm) {
    int hosts = 0;
    for (int r = 0; r < taciti_comm_size(comm); r++) hosts += is_leader(comm, r);
    return hosts;
}

/* Appends the ranks of one host; hosts come in the order of their lowest ranks. */
static void append_host(const taciti_comm *comm, int leader, bool flat, taciti_arrangement *place) {
    int at = place->first[place->hosts];
    for (int r = leader; r < place->size; r++) {
        if (r != leader && (flat || !taciti_comm_same_host(comm, leader, r))) continue;
        if (r == taciti_comm_rank(comm)) {
            place->host = place->hosts;
            place->number = at - place->first[place->hosts];
        }
        place->order[at++] = r;
    }
    const int count = at - place->first[place->hosts];
    if (place->hosts == 0 || count < place->lanes) place->lanes = count;
    place->first[++place->hosts] = at;
}

/* Lanes of every host: see TACITI_FLOWS. */
static int limit_lanes(const taciti_arrangement *place, int wish) {
    int most = place->hosts > 1 ? TACITI_FLOWS / (place->hosts - 1) : place->lanes;
    if (most < 1) most = 1;
    if (wish > 0) most = wish;
    return place->lanes < most ? place->lanes : most;
}

tacit_status taciti_arrangement_create(const taciti_comm *comm, taciti_placement wish, taciti_arrangement *out) {
    const int size = taciti_comm_size(comm), hosts = count_hosts(comm);
    const bool flat =
        wish.scheme == TACITI_SCHEME_AUTO ? hosts == 1 || hosts == size : wish.scheme == TACITI_SCHEME_FLAT;
    taciti_arrangement place = {.size = size, .one_host = hosts == 1};
    place.order = taciti_calloc((size_t)size * 2 + 1, sizeof *place.order);
    if (place.order == NULL) return TACIT_E_MEMORY;
    place.first = place.order + size;
    for (int r = 0; r < size; r++)
        if (flat || is_leader(comm, r)) append_host(comm, r, flat, &place);
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
