/* SPDX-License-Identifier: Apache-2.0
 *
 * One round of edges, as one rank sees it. The rank sends its array along its outgoing edges and computes
 * x = self x + sum of weight x_from over its incoming edges, in ascending order of `from`. Several segments are under
 * way at a time, so that transfers overlap with additions. For the communication thread.
 *
 * All receivers of a segment get the same payload; each applies its own weight. The sender adds the encoding error,
 * times the sum of the receivers' weights, to its own result; this preserves the sum over all ranks.
 */
#ifndef TACITI_EXCHANGE_NEIGHBOURS_H
#define TACITI_EXCHANGE_NEIGHBOURS_H

#include "exchange/arrangement.h"
#include "exchange/outbox.h"
#include "exchange/payload.h"
#include "topo/topo.h"

typedef struct taciti_neighbour {
    int rank;
    double weight; /* of an incoming edge; for an outgoing edge, the weight that the receiver applies */
} taciti_neighbour;

typedef struct taciti_neighbours {
    taciti_comm *comm;               /* borrows */
    const taciti_encoding *encoding; /* borrows */
    int rank;                        /* this rank */
    double self, given;              /* weight of the own array; sum of the receivers' weights */
    taciti_neighbour *in, *out;      /* ascending; out begins with the ranks after this one. One block, owned by `in` */
    size_t in_count, out_count;
    size_t segment_n, slots; /* floats of a segment; segments under way, plus one */
    size_t stride_bytes;
    char *arriving;               /* [slots][in_count] payloads; borrows */
    char *leaving;                /* [slots] payloads; NULL if the codec is the identity */
    float *decoded;               /* one segment; NULL if the codec is the identity */
    char *scratch;                /* of the codec; NULL if it is the identity */
    taciti_engine_request *heard; /* [slots][in_count]; owned */
    taciti_outbox sends;          /* its requests are in the same block */
    size_t *sent;                 /* [slots] `posted` after that segment's sends; owned */
} taciti_neighbours;

/* Describes the round, without buffers. Not collective. */
tacit_status taciti_neighbours_describe(const taciti_hosts *hosts, const taciti_round *round, int rank,
                                        const taciti_encoding *encoding, size_t segment_bytes, taciti_neighbours *out);
size_t taciti_neighbours_workspace_bytes(const taciti_neighbours *neighbours);
/* Makes a described object ready to run. memory: the workspace, 64-byte aligned and borrowed; objects whose runs do not
 * overlap in time may share it. */
tacit_status taciti_neighbours_open(taciti_neighbours *neighbours, taciti_comm *comm, void *memory);
void taciti_neighbours_destroy(taciti_neighbours *neighbours);

/* x[n] = this rank's row of W times the arrays. apart[n], if not NULL, receives the own array as it was decoded by the
 * receivers, 0 without any, and x the weighted sum of the others' alone. Communication thread. Collective over the
 * neighbours. */
tacit_status taciti_neighbours_run(taciti_neighbours *neighbours, float *x, float *apart, size_t n,
                                   const taciti_bucket_task *task);

#endif
