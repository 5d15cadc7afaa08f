/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense all-reduce of one array among some ranks, for the communication thread. See exchange.h for what it
 * computes.
 *
 * Inside a host (fan `local`) every lane gets its share of a piece from all ranks of the host, in f32; between hosts
 * (fan `wire`) the same lanes of all hosts reduce that share through the codec; then the lanes give it to their host.
 * So the data crosses each host's link once, however many ranks share it. In the flat arrangement there is no `local`.
 * Short arrays take another way to the same bits (small.h).
 *
 * Pieces go through these steps one behind the other, so that the steps inside the host and the arithmetic hide behind
 * the wire. In turn u, with depth a of `local` and b of `wire`:
 *
 *   local scatter(u)
 *   local combine(u - a),       wire scatter(u - a)
 *   wire combine(u - a - b),    wire spread(u - a - b)
 *   wire collect(u - a - 2b),   local spread(u - a - 2b)
 *   local collect(u - 2a - 2b)
 */
#ifndef TACITI_EXCHANGE_ALLREDUCE_H
#define TACITI_EXCHANGE_ALLREDUCE_H

#include "exchange/fan.h"
#include "exchange/residual.h"
#include "exchange/small.h"

typedef struct taciti_allreduce {
    taciti_comm *comm; /* borrows */
    const taciti_codec *codec;
    taciti_arrangement place;
    size_t segment_n;               /* most floats of one message on the wire */
    size_t local_depth, wire_depth; /* turns between the steps of a piece */
    taciti_fan_shape local_shape, wire_shape;
    taciti_fan local, wire;
    taciti_small small;
    bool fans_only; /* short arrays take that way as well; false unless set */
    void *memory;   /* of all buffers; owned, or NULL when they are borrowed */
} taciti_allreduce;

/* The object without its buffers, as `rank` sees it: enough for every formula below, of members or not. Not collective.
 * The object must stay in place. */
tacit_status taciti_allreduce_describe(const taciti_where *where, taciti_members members, int rank,
                                       const taciti_codec *codec, taciti_placement wish, size_t segment_bytes,
                                       taciti_allreduce *out);

/* Bytes of workspace of a described object, for arrays of any length. */
size_t taciti_allreduce_workspace_bytes(const taciti_allreduce *reduce);

/* Makes a described object ready to run. memory: its workspace, 64-byte aligned, borrowed; objects whose runs do not
 * overlap in time may have the same. NULL: its own. Not collective. A failed object is only good for destroy. */
tacit_status taciti_allreduce_open(taciti_allreduce *reduce, taciti_comm *comm, void *memory);

/* Both in one. */
tacit_status taciti_allreduce_create(taciti_comm *comm, const taciti_codec *codec, taciti_members members,
                                     taciti_placement wish, size_t segment_bytes, taciti_allreduce *out);
/* Bytes of workspace among all ranks, before it exists; 0 when there is no memory to tell. */
size_t taciti_allreduce_memory_bytes(const taciti_comm *comm, const taciti_codec *codec, taciti_placement wish,
                                     size_t segment_bytes);

void taciti_allreduce_destroy(taciti_allreduce *reduce);

/* x[n] = sum over members. residual: what rounding takes is kept there (residual.h); NULL: lost. With a codec that is
 * the identity it takes nothing. Communication thread. Collective over the members. A single member keeps its array as
 * it is. */
tacit_status taciti_allreduce_run(taciti_allreduce *reduce, float *x, size_t n, const taciti_residual *residual);

/* Bytes this rank sends (and receives, up to the rounding of chunks) for an array of n floats. */
uint64_t taciti_allreduce_bytes(const taciti_allreduce *reduce, size_t n);

/* Bytes that the members on one machine (a host of taciti_where) together send to other machines for it. */
uint64_t taciti_allreduce_nic_bytes(const taciti_allreduce *reduce, size_t n, int machine);

/* The machine of this rank. */
static inline int taciti_allreduce_machine(const taciti_allreduce *reduce) {
    return reduce->place.machine[taciti_arrangement_position(&reduce->place)];
}

#endif
