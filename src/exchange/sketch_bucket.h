/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduce-scatter of one bucket between the members of a lane, by sketches: the conversation that sketch_reduce.h
 * describes. sketch_blocks.c divides the bucket, sketch_member.c has what a member does for the owners of ranges,
 * sketch_owner.c what an owner does, and sketch_bucket.c runs the cycles. Communication thread. Collective over the
 * members.
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

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

/* Blocks of a bucket: each has BLOCK_PIECES pieces at most, and about BLOCK_N floats per owner (two hosts at 2 Gbit/s,
 * gpt2-124m, tagc: 2.87 s per step; 2.92 with twice as many floats, which do not fit the cache). */
enum { TACITI_SKETCH_BLOCK_N = 1 << 17, TACITI_SKETCH_BLOCK_PIECES = 8 };
size_t taciti_sketch_block_count(const taciti_allreduce *reduce, const taciti_cut *cut);

typedef struct taciti_sketch_pieces {
    size_t first, end;
} taciti_sketch_pieces;
taciti_sketch_pieces taciti_sketch_pieces_of(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block);

static inline taciti_range taciti_sketch_range(const taciti_allreduce *reduce, const taciti_cut *cut, size_t piece,
                                               int owner) {
    return reduce->wire_shape.range(&reduce->arrangement, cut, piece, owner);
}

/* Floats of an owner's ranges of a block. */
size_t taciti_sketch_owned_n(const taciti_allreduce *reduce, const taciti_cut *cut, size_t block, int owner);

static inline size_t taciti_sketch_padded_n(size_t n) { return taciti_round_up(n, TACITI_SKETCH_LINE); }

/* Whether these ranges follow each other; *first is then where the first begins. */
bool taciti_sketch_is_one_range(const taciti_sketch_bucket *b, size_t block, int owner, size_t *first);

/* Moves an owner's ranges of a block between the bucket and one array. */
void taciti_sketch_gather(const taciti_sketch_bucket *b, size_t block, int owner, const float *x, float *out);
void taciti_sketch_scatter(const taciti_sketch_bucket *b, size_t block, int owner, const float *from, float *x);

/* ---- members ----------------------------------------------------------------------------------------------------- */

static inline int taciti_sketch_behind(const taciti_sketch_reduce *s, int k) { return (s->me + k) % s->count; }
static inline int taciti_sketch_before(const taciti_sketch_reduce *s, int k) {
    return (s->me - k + s->count) % s->count;
}
static inline char *taciti_sketch_message(const taciti_sketch_reduce *s, char *messages, int member) {
    return messages + (size_t)member * s->message_bytes;
}
static inline uint64_t *taciti_sketch_pending_of(const taciti_sketch_reduce *s, const taciti_sketch_slot *t,
                                                 int owner) {
    return (uint64_t *)(void *)(t->pending + (size_t)owner * s->index_bytes);
}

/* Bytes of the packed values of what is pending. */
size_t taciti_sketch_values_bytes(const taciti_sketch_share *share);

/* A contribution travels as messages of at most this size, see pipeline.h. */
enum { TACITI_SKETCH_PART_BYTES = 60 << 10 };

tacit_status taciti_sketch_send(taciti_sketch_bucket *b, int member, const void *bytes, size_t count);

/* Forwards `status`; an error is logged with the name of the member. */
tacit_status taciti_sketch_refused(const taciti_sketch_bucket *b, tacit_status status, int member);

/* ---- steps of a block -------------------------------------------------------------------------------------------- */

/* Selects what this member has for every owner, and sends it. The rest becomes the residual. */
tacit_status taciti_sketch_contribute_block(taciti_sketch_bucket *b, taciti_sketch_slot *t);

/* Sends values of what is pending to every owner. */
tacit_status taciti_sketch_send_values(taciti_sketch_bucket *b, taciti_sketch_slot *t);

/* Adds up and decodes the own ranges, and replies. */
tacit_status taciti_sketch_add_up(taciti_sketch_bucket *b, taciti_sketch_slot *t);

/* Sends the index of what is pending, if anything is. */
tacit_status taciti_sketch_send_pending(taciti_sketch_bucket *b, taciti_sketch_slot *t);

/* Adds the values of what is pending. */
tacit_status taciti_sketch_add_values(taciti_sketch_bucket *b, taciti_sketch_slot *t);

/* x = the sums in this rank's ranges; elsewhere it is not specified. */
tacit_status taciti_sketch_bucket_reduce_scatter(taciti_sketch_bucket *b);

#endif
