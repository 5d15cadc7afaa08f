/* SPDX-License-Identifier: Apache-2.0
 *
 * One round of edges as one rank sees it: it sends its array to those it has edges to, and adds up its own and those
 * that arrive, each times its weight: x = self x + sum of weight x_from, in ascending order of `from`. Segment by
 * segment, several of them under way, so that wires are busy while ranks add. For the communication thread.
 *
 * The payload of a segment is the same for all who get it; the weight is the receiver's. The encoding
 * error, times the weights of all who get the payload, is added to the sender's result, so that nothing is lost. Every
 * encoding begins with the codec's first state.
 */
#ifndef TACITI_EXCHANGE_NEIGHBOURS_H
#define TACITI_EXCHANGE_NEIGHBOURS_H

#include "exchange/arrangement.h"
#include "exchange/outbox.h"
#include "exchange/payload.h"
#include "topo/topo.h"

typedef struct taciti_neighbour {
    int rank;
    double weight; /* of what comes from there, or of mine at the one it goes to */
} taciti_neighbour;

typedef struct taciti_neighbours {
    taciti_comm *comm;               /* borrows */
    const taciti_encoding *encoding; /* borrows */
    int rank;                        /* mine */
    double self, given;              /* weight of my own; sum of the weights of mine at others */
    taciti_neighbour *in, *out;      /* ascending; those after me first. Owned by the first */
    size_t in_count, out_count;
    size_t segment_n, slots; /* floats of a segment; segments under way and one more */
    size_t stride_bytes;
    char *arriving;               /* [slots][in_count] payloads; borrows */
    char *leaving;                /* [slots] payloads; NULL when the codec is the identity */
    float *decoded;               /* one segment; NULL when identity */
    char *state;                  /* of the codec: zeros to begin with, and what it makes of them; may have no bytes */
    taciti_engine_request *heard; /* [slots][in_count]; owned */
    taciti_outbox sends;          /* its requests are in the same block */
    size_t *sent;                 /* [slots] `posted` after that segment's sends; owned */
} taciti_neighbours;

/* Of a round of edges. No buffers yet. Not collective. */
tacit_status taciti_neighbours_describe(const taciti_hosts *hosts, const taciti_round *round, int rank,
                                        const taciti_encoding *encoding, size_t segment_bytes, taciti_neighbours *out);
size_t taciti_neighbours_workspace_bytes(const taciti_neighbours *neighbours);
/* memory: the workspace, 64-byte aligned; borrowed, may be shared by objects whose runs do not overlap in time. */
tacit_status taciti_neighbours_open(taciti_neighbours *neighbours, taciti_comm *comm, void *memory);
void taciti_neighbours_destroy(taciti_neighbours *neighbours);

/* x[n] = row of W times all arrays. Communication thread; collective over neighbours. */
tacit_status taciti_neighbours_run(taciti_neighbours *neighbours, float *x, size_t n, const taciti_bucket_task *task);

#endif
