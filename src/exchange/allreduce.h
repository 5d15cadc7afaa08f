/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense all-reduce of one array among some ranks, for the communication thread. See exchange.h for what it
 * computes.
 *
 * Inside a host (`local`) each lane reduces its share of a piece over all ranks of the host, in f32. Between hosts
 * (`wire`) the same lanes of all hosts reduce that share through the codec. Then each lane sends its share to the ranks
 * of its host. So the data crosses each host's link once, however many ranks share it. In the flat arrangement there is
 * no `local`. Short arrays take another way to the same bits (small.h).
 *
 * With taciti_placement.gather, every lane sends the payload of its whole share to the same lane of every other host,
 * and all of them add all payloads: one encoding instead of two, but hosts - 1 payloads instead of two parts of one.
 *
 * Pieces are pipelined through these steps, so that the steps inside the host and the arithmetic hide behind
 * the wire. In cycle u, with depth a of `local` and b of `wire`:
 *
 *   local scatter_begin(u)
 *   local scatter_end(u - a),        wire scatter_begin(u - a)
 *   wire scatter_end(u - a - b),     wire gather_begin(u - a - b)
 *   wire gather_end(u - a - 2b),     local gather_begin(u - a - 2b)
 *   local gather_end(u - 2a - 2b)
 *
 * Pieces of a short array of uneven payloads go through the cycles together, in one message (halves.h).
 *
 * With taciti_placement.contiguous a lane's share of a piece is one chunk per host, here and there in the array. Each
 * of these is a piece of its own to `local`.
 */
#ifndef TACITI_EXCHANGE_ALLREDUCE_H
#define TACITI_EXCHANGE_ALLREDUCE_H

#include "exchange/halves.h"
#include "exchange/small.h"

typedef struct taciti_allreduce {
    taciti_comm *comm;               /* borrows */
    taciti_encoding encoding, plain; /* between hosts, and inside a host: f32 */
    taciti_arrangement arrangement;
    bool gather, contiguous;        /* as in taciti_placement */
    size_t runs;                    /* pieces of `local` per piece: contiguous: one per host, else 1 */
    size_t segment_n;               /* maximum of floats in one message between hosts */
    size_t local_depth, wire_depth; /* cycles between the steps of a piece */
    size_t wire_sends;              /* between hosts: messages to one member that have not yet left */
    taciti_halves_shape local_shape, wire_shape;
    taciti_halves local, wire;
    taciti_small small;
    bool halves_only;    /* do not use small.h for short arrays: needed for error feedback; the owner sets it */
    bool ranges_at_once; /* all ranges of a member are one encoding (sketch_reduce.h); the owner sets it */
    void *memory;        /* of all buffers; owned, or NULL if they are borrowed */
} taciti_allreduce;

/* Describes the all-reduce as `rank` sees it, without buffers. `rank` need not be a member. That is enough for all
 * formulas below. The object must not move afterwards. Not collective. */
tacit_status taciti_allreduce_describe(const taciti_hosts *hosts, taciti_members members, int rank,
                                       const taciti_encoding *encoding, taciti_placement requested,
                                       size_t segment_bytes, taciti_allreduce *out);

/* Returns the pieces that an array of n > 0 floats is cut into. */
taciti_cut taciti_allreduce_cut(const taciti_allreduce *reduce, size_t n);

/* Bytes of workspace of a described object, for arrays of any length. */
size_t taciti_allreduce_workspace_bytes(const taciti_allreduce *reduce);

/* Makes a described object ready to run. memory: the workspace, 64-byte aligned and borrowed; objects whose runs do not
 * overlap in time may share it. NULL: the object allocates its own. After an error, only destroy may be called. Not
 * collective. */
tacit_status taciti_allreduce_open(taciti_allreduce *reduce, taciti_comm *comm, void *memory);

/* Describes and opens. Not collective. */
tacit_status taciti_allreduce_create(taciti_comm *comm, const taciti_encoding *encoding, taciti_members members,
                                     taciti_placement requested, size_t segment_bytes, taciti_allreduce *out);

void taciti_allreduce_destroy(taciti_allreduce *reduce);

/* Return this rank's residuals for arrays of up to n floats: for feedback from step to step, or for errors that are
 * kept or given back, with memory that the owner sets: `errors`, and segment_n floats of `scratch`. */
taciti_residual taciti_allreduce_residual(const taciti_allreduce *reduce, size_t n, taciti_feedback feedback);
taciti_residual taciti_allreduce_errors(const taciti_allreduce *reduce, float back);

/* x[n] = sum over members, or a part of that (taciti_phase):
 *   reduce-scatter   x holds the sum in the ranges that this rank owns; the rest of x is not specified
 *   all-gather       from x in the ranges that this rank owns to all of x on every rank
 *   reduce to lanes  the sum in this lane's share
 *   gather to lanes  from owners to the lanes
 *   gather in host   from the shares of this host's lanes to all of x
 * task: NULL for all of bucket 0 in step 0. residual: one of the above, opened; NULL: encoding errors are lost. Calls
 * the hooks of the task for the ranges of each piece that this rank brings (to a sum all of them, to a gather those it
 * owns) and gets; for a short array, and with one member, once for all of it; never for n = 0. With one member, nothing
 * else happens to x. Communication thread. Collective over the members. */
tacit_status taciti_allreduce_run(taciti_allreduce *reduce, float *x, size_t n, const taciti_bucket_task *task,
                                  taciti_residual *residual);

/* Adds to the task's tallies what the codec would see in this rank's x[n], without the other ranks of its
 * host. Nothing is sent. Communication thread. */
tacit_status taciti_allreduce_observe(taciti_allreduce *reduce, float *x, size_t n, const taciti_bucket_task *task);

/* Sets *out to the index-th range of an array of n floats that this rank owns between the halves, in ascending order;
 * it may be empty. Returns false if there is none. */
bool taciti_allreduce_owned(const taciti_allreduce *reduce, size_t n, size_t index, taciti_range *out);

/* Runs `begin` or `end` of a half of `local` for a piece. */
typedef tacit_status taciti_half_step(taciti_halves *halves, const taciti_piece *t);
tacit_status taciti_allreduce_local(taciti_allreduce *reduce, taciti_half_step *step, const taciti_piece *t);

/* Sets *out to the index-th range that this rank encodes contributions of; it may be empty. False if there is none. */
bool taciti_allreduce_encoded(const taciti_allreduce *reduce, size_t n, size_t index, taciti_range *out);

/* Mean bytes that this rank sends for it at these settings[TACITI_PAYLOAD_KINDS]. */
double taciti_allreduce_expected_bytes(const taciti_allreduce *reduce, size_t n, const taciti_codec_setting *settings);

/* Bytes this rank sends (and receives, up to the rounding of chunks) for an array of n floats; the maximum if the codec
 * does not fix them. */
uint64_t taciti_allreduce_bytes(const taciti_allreduce *reduce, size_t n);

#endif
