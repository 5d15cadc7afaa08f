/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduce-scatter of one bucket between the members of a lane, by sketches: the conversation that sketch_reduce.h
 * describes. Communication thread. Collective over the members.
 */
#ifndef TACITI_EXCHANGE_SKETCH_BUCKET_H
#define TACITI_EXCHANGE_SKETCH_BUCKET_H

#include "exchange/sketch_reduce.h"

/* The owner of the object sets it up to `tally`. */
typedef struct taciti_sketch_bucket {
    taciti_sketch_reduce *s;
    float *x;
    const taciti_bucket_task *task;
    taciti_residual *residual;
    const taciti_cut *cut;
    taciti_tally *tally; /* NULL: not wanted */
    float *errors;       /* of the bucket; NULL: not wanted */
    size_t blocks;
} taciti_sketch_bucket;

/* Blocks of a bucket: each has BLOCK_PIECES pieces at most, and about BLOCK_N floats per owner (two hosts at 2 Gbit/s,
 * gpt2-124m, tagc: 2.87 s per step; 2.92 with twice as many floats, which do not fit the cache). */
enum { TACITI_SKETCH_BLOCK_N = 1 << 17, TACITI_SKETCH_BLOCK_PIECES = 8 };
size_t taciti_sketch_block_count(const taciti_allreduce *reduce, const taciti_cut *cut);

typedef struct taciti_sketch_pieces {
    size_t first, end;
} taciti_sketch_pieces;
taciti_sketch_pieces taciti_sketch_pieces_of(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block);

/* Floats of an owner's ranges of a block. */
size_t taciti_sketch_owned_n(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block, int owner);

static inline size_t taciti_sketch_padded_n(size_t n) { return taciti_round_up(n, TACITI_SKETCH_LINE); }

/* A contribution travels as messages of at most this size, see pipeline.h. */
enum { TACITI_SKETCH_PART_BYTES = 60 << 10 };

/* x = the sums in this rank's ranges; elsewhere it is not specified. */
tacit_status taciti_sketch_bucket_reduce_scatter(taciti_sketch_bucket *b);

#endif
