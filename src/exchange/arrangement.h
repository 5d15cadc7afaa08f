/* SPDX-License-Identifier: Apache-2.0
 *
 * The arrangement of ranks for an all-reduce, and how an array is divided among them.
 *
 * Members are numbered by (host, number within the host). A host has *lanes*, at most as many as the smallest host has
 * ranks: lane l of a host is its rank with number l, and only lanes talk to other hosts, each with the same lane there.
 * The flat arrangement treats every rank as a host of its own; `host_of` holds the real hosts.
 *
 *   array = pieces, one after the other in time;  piece = one share per lane;  share = one chunk per host
 *   contiguous: array = one share per lane;  share = one range per host;  chunk = the part of that range that belongs
 * to a piece. So every lane owns one range whatever the pieces are, and a share is a range, too
 *
 * All of it is a function of data that are equal on every rank, so all members divide an array in the same way.
 */
#ifndef TACITI_EXCHANGE_ARRANGEMENT_H
#define TACITI_EXCHANGE_ARRANGEMENT_H

#include "comm/comm.h"
#include "tensor/layout.h"

typedef enum taciti_scheme { TACITI_SCHEME_AUTO, TACITI_SCHEME_FLAT, TACITI_SCHEME_HOSTS } taciti_scheme;

/* The participating ranks in ascending order; borrowed. ranks NULL: all ranks; count is then ignored. */
typedef struct taciti_members {
    const int *ranks;
    size_t count;
} taciti_members;

/* How ranks are to be arranged. */
typedef struct taciti_placement {
    taciti_scheme scheme;
    int lanes; /* maximum of lanes per host; 0: the largest number that keeps the flows of a link within TACITI_FLOWS */
    bool gather; /* between hosts, payloads of whole shares go to all; otherwise of chunks to their owners, and back */
    bool contiguous; /* each lane owns one range of an array instead of a chunk per piece */
} taciti_placement;

/* Maximum of flows into one link, from all lanes of all other hosts, that TCP shares without much loss. With more flows
 * their windows overrun the queue of the link (4 hosts x 4 ranks at 200 Mbit/s, 64 MB: 12 flows reach 87 % of the line,
 * 6 reach 98 %; 8 hosts x 2: 14 flows 90 %, 7 flows 98 %). */
enum { TACITI_FLOWS = 8 };

typedef struct taciti_arrangement {
    int size, hosts, lanes;
    int host, number; /* this rank's; 0 if it is not a member */
    int *order;       /* [size] ranks, host by host; owned */
    int *host_of;     /* [size] the real host of each, an index of taciti_hosts; part of the block of `order` */
    int *first;       /* [hosts + 1] where each host begins in `order`; part of the same block */
    bool one_host;    /* all members are on the same real host */
} taciti_arrangement;

/* Computes the arrangement for `rank`. AUTO: by hosts if there are several and one of them has several members, else
 * flat. */
tacit_status taciti_arrangement_of(const taciti_hosts *hosts, taciti_members members, int rank,
                                   taciti_placement requested, taciti_arrangement *out);
void taciti_arrangement_destroy(taciti_arrangement *arrangement);

static inline int taciti_arrangement_local_size(const taciti_arrangement *p, int host) {
    return p->first[host + 1] - p->first[host];
}
static inline int taciti_arrangement_rank(const taciti_arrangement *p, int host, int number) {
    return p->order[p->first[host] + number];
}
/* The index of this rank in `order`. */
static inline int taciti_arrangement_position(const taciti_arrangement *p) { return p->first[p->host] + p->number; }
static inline bool taciti_arrangement_is_lane(const taciti_arrangement *p) { return p->number < p->lanes; }

typedef struct taciti_cut {
    size_t n, piece_n, pieces;
    size_t together; /* pieces that travel in one message between hosts; 1: each in its own */
    bool contiguous; /* pieces and their shares are then no ranges */
} taciti_cut;

static inline size_t taciti_cut_messages(const taciti_cut *cut) {
    return cut->pieces / cut->together + (cut->pieces % cut->together != 0);
}

/* The part of `count` parts of an array that has this index; parts differ by at most 16 floats. */
taciti_range taciti_cut_part(taciti_range whole, int index, int count);

/* Returns the range that lane `lane` of `host` owns of n floats with taciti_placement.contiguous, and that lane's
 * share. */
taciti_range taciti_arrangement_range(const taciti_arrangement *arrangement, size_t n, int lane, int host);
taciti_range taciti_arrangement_share(const taciti_arrangement *arrangement, size_t n, int lane);

/* The first two not of a cut that is contiguous. */
taciti_range taciti_cut_piece(const taciti_cut *cut, size_t piece);
taciti_range taciti_cut_share(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int lane);
taciti_range taciti_cut_chunk(const taciti_arrangement *arrangement, const taciti_cut *cut, size_t piece, int lane,
                              int host);

#endif
