/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/arrangement.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/pool.h"

enum { GRAIN = 16, SEARCHED = 64 };

static int member_at(taciti_members members, int i) { return members.ranks == NULL ? i : members.ranks[i]; }

/* Finds the first member on the host of each, and returns how many hosts there are. seen[hosts] is the workspace of a
 * large group; NULL: the group is searched. */
static int find_firsts(const taciti_hosts *hosts, taciti_members members, int size, int *seen, int *first_of) {
    int host_count = 0;
    for (int i = 0; i < size; i++) {
        const int host = hosts->host_of[member_at(members, i)];
        int first = 0;
        if (seen != NULL) {
            if (seen[host] == 0) seen[host] = i + 1;
            first = seen[host] - 1;
        } else
            while (hosts->host_of[member_at(members, first)] != host) first++;
        first_of[i] = first;
        host_count += first == i;
    }
    return host_count;
}

/* Every member is a host of its own. */
static void fill_flat(const taciti_hosts *hosts, taciti_members members, taciti_arrangement *arrangement) {
    for (int i = 0; i < arrangement->size; i++) {
        arrangement->first[i] = i;
        arrangement->order[i] = member_at(members, i);
        arrangement->host_of[i] = hosts->host_of[arrangement->order[i]];
    }
    arrangement->first[arrangement->size] = arrangement->hosts = arrangement->size;
    arrangement->lanes = 1;
}

/* Hosts come in the order of their lowest ranks. first_of[size] as above; of the first member of a host, count: the
 * members there, next: where the next one of them goes in `order`. */
static void fill_hosts(const taciti_hosts *hosts, taciti_members members, const int *first_of, int *count, int *next,
                       taciti_arrangement *arrangement) {
    int end = 0;
    arrangement->lanes = arrangement->size;
    for (int i = 0; i < arrangement->size; i++) count[first_of[i]]++;
    for (int i = 0; i < arrangement->size; i++) {
        const int rank = member_at(members, i), first = first_of[i];
        if (first == i) {
            if (count[i] < arrangement->lanes) arrangement->lanes = count[i];
            arrangement->first[arrangement->hosts++] = next[i] = end;
            end += count[i];
        }
        const int at = next[first]++;
        arrangement->order[at] = rank;
        arrangement->host_of[at] = hosts->host_of[rank];
    }
    arrangement->first[arrangement->hosts] = end;
}

static void find_myself(taciti_arrangement *arrangement, int rank) {
    for (int h = 0; h < arrangement->hosts; h++)
        for (int at = arrangement->first[h]; at < arrangement->first[h + 1]; at++) {
            if (arrangement->order[at] != rank) continue;
            arrangement->host = h;
            arrangement->number = at - arrangement->first[h];
        }
}

/* Lanes of every host: see TACITI_FLOWS. */
static int limit_lanes(const taciti_arrangement *arrangement, int requested) {
    int max = arrangement->hosts > 1 ? TACITI_FLOWS / (arrangement->hosts - 1) : arrangement->lanes;
    if (max < 1) max = 1;
    if (requested > 0) max = requested;
    return arrangement->lanes < max ? arrangement->lanes : max;
}

tacit_status taciti_arrangement_of(const taciti_hosts *hosts, taciti_members members, int rank,
                                   taciti_placement requested, taciti_arrangement *out) {
    const int size = members.ranks == NULL ? hosts->ranks : (int)members.count;
    const bool large = size > SEARCHED;
    int *block = taciti_calloc((size_t)size * 6 + 1 + (large ? (size_t)hosts->count : 0), sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    int *first_of = block + 3 * size + 1, *count = first_of + size, *next = count + size;
    const int host_count = find_firsts(hosts, members, size, large ? next + size : NULL, first_of);
    const bool flat = requested.scheme == TACITI_SCHEME_AUTO ? host_count == 1 || host_count == size
                                                             : requested.scheme == TACITI_SCHEME_FLAT;
    taciti_arrangement arrangement = {
        .size = size, .one_host = host_count == 1, .order = block, .host_of = block + size, .first = block + 2 * size};
    if (flat)
        fill_flat(hosts, members, &arrangement);
    else
        fill_hosts(hosts, members, first_of, count, next, &arrangement);
    find_myself(&arrangement, rank);
    arrangement.lanes = limit_lanes(&arrangement, requested.lanes);
    *out = arrangement;
    return TACIT_OK;
}

void taciti_arrangement_destroy(taciti_arrangement *arrangement) {
    taciti_free(arrangement->order);
    *arrangement = (taciti_arrangement){0};
}

taciti_range taciti_cut_part(taciti_range whole, int index, int count) {
    size_t begin = 0, end = 0;
    taciti_pool_part(whole.n, GRAIN, index, count, &begin, &end);
    return (taciti_range){.at = whole.at + begin, .n = end - begin};
}

taciti_range taciti_cut_piece(const taciti_cut *cut, size_t piece) {
    const size_t at = piece * cut->piece_n, left = cut->n - at;
    return (taciti_range){.at = at, .n = taciti_min(left, cut->piece_n)};
}

taciti_range taciti_cut_share(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int lane) {
    return taciti_cut_part(taciti_cut_piece(cut, piece), lane, arrangement->lanes);
}

taciti_range taciti_arrangement_range(const taciti_arrangement *arrangement, size_t n, int lane, int host) {
    return taciti_cut_part((taciti_range){.n = n}, lane * arrangement->hosts + host,
                           arrangement->lanes * arrangement->hosts);
}

taciti_range taciti_arrangement_share(const taciti_arrangement *arrangement, size_t n, int lane) {
    const taciti_range first = taciti_arrangement_range(arrangement, n, lane, 0);
    const taciti_range last = taciti_arrangement_range(arrangement, n, lane, arrangement->hosts - 1);
    return (taciti_range){first.at, last.at + last.n - first.at};
}

taciti_range taciti_cut_chunk(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int lane,
                              int host) {
    if (!cut->contiguous)
        return taciti_cut_part(taciti_cut_share(arrangement, cut, piece, lane), host, arrangement->hosts);
    const taciti_range all = taciti_arrangement_range(arrangement, cut->n, lane, host);
    const size_t chunk_n = cut->piece_n / (size_t)(arrangement->hosts * arrangement->lanes);
    const size_t at = taciti_min(piece * chunk_n, all.n);
    return (taciti_range){.at = all.at + at, .n = taciti_min(all.n - at, chunk_n)};
}
