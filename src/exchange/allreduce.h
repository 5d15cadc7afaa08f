/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense all-reduce of one array, for the communication thread. See exchange.h for what it computes.
 *
 * Turn t of the pipeline, one per segment, does three things; D turns lie between the stages of a segment, so that up
 * to D + 1 segments are on the wire in each stage while this rank reduces:
 *
 *   scatter(t)       encode segment t of every other rank's chunk, post its send and the receives of my chunk
 *
 *   combine(t - D)   await my chunk's segment from all ranks, add in rank order, post the sum to all
 *
 *   collect(t - 2D)  await the other chunks' sums, decode
 *
 * Every rank runs the same turns over the same sizes, so messages between two ranks match by their order alone.
 */
#ifndef TACITI_EXCHANGE_ALLREDUCE_H
#define TACITI_EXCHANGE_ALLREDUCE_H

#include "codec/codec.h"
#include "comm/comm.h"

typedef struct taciti_allreduce {
    taciti_comm *comm; /* borrows */
    const taciti_codec *codec;
    int rank, size;
    size_t segment_n;    /* floats */
    size_t depth, slots; /* turns between the stages of a segment; buffers per stage: depth + 1 */
    size_t stride_bytes; /* of one segment's payload in the buffers below */
    size_t prefix_bytes;
    char *memory; /* owned; all buffers, one after the other */
    size_t memory_bytes;
    char *arriving; /* [slots][size] payloads of my chunk's segment, by rank */
    char *leaving;  /* [slots][size] my payloads for the others; NULL when the codec is the identity */
    char *sum;      /* [slots] payload of my chunk's sum; NULL when identity */
    char *sums;     /* [slots][size] payloads of the other chunks' sums; NULL when identity */
    float *prefix;  /* one segment: sum of the ranks before mine */
    taciti_engine_request *scatter_in, *scatter_out, *gather_in, *gather_out; /* [slots][size]; owned by the first */
} taciti_allreduce;

/* Workspaces for arrays of any length. Not collective. */
tacit_status taciti_allreduce_create(taciti_comm *comm, const taciti_codec *codec, size_t segment_bytes,
                                     taciti_allreduce *out);
/* Bytes of those workspaces, before they exist. */
size_t taciti_allreduce_memory_bytes(const taciti_comm *comm, const taciti_codec *codec, size_t segment_bytes);

void taciti_allreduce_destroy(taciti_allreduce *reduce);

/* x[n] = sum over ranks. Communication thread. Collective. A single rank keeps its array as it is. */
tacit_status taciti_allreduce_run(taciti_allreduce *reduce, float *x, size_t n);

/* Bytes this rank sends (and receives, up to the rounding of chunks) for an array of n floats. */
uint64_t taciti_allreduce_bytes(const taciti_allreduce *reduce, size_t n);

/* Bytes that the ranks of this rank's host together send to other hosts for it. */
uint64_t taciti_allreduce_nic_bytes(const taciti_allreduce *reduce, size_t n);

#endif
