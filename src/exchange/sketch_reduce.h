/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange of buckets through a codec with taciti_codec.sketches: contributions travel as sketches that add up
 * (codec/homomorphic.h). Arrangement, owners, cut, residuals and the way back are those of the all-reduce (allreduce.h)
 * of that codec; between hosts, or between ranks in the flat arrangement, the first half is this one instead:
 *
 *   1  every member encodes what it has of each owner's ranges of the bucket, taken together as one array. The
 *      rest, which the codec does not select, is the residual; its selection goes to the owner as index and sketch
 *   2  the owner adds the sketches up in the order of the members, decodes the sum, and replies
 *   3  elements that did not decode follow as packed values, which the owner adds in the same order
 *
 * (sketch_message.h.) So the result holds what was selected, whatever the size of the sketch. The second half sends the
 * sums back as elements that are not 0: exactly.
 *
 * A bucket is cut into *blocks*, each some of its pieces, with a sketch per owner and block: what codec and sketch
 * touch of a block stays in the cache, and blocks are pipelined. With lag L, cycle c sends contributions of block c,
 * decodes the own sums of block c - L and replies, sends the index of what is pending of block c - 2 L, and its values
 * of block c - 3 L. So one block travels while others are encoded and decoded. The order of messages between two
 * members is a function of the replies alone, and sums have the order of members: timing changes no bit. The k largest
 * elements are those of a block.
 *
 * The sketch of a range is as large as the densest union of its section of the bucket (sixteenths) in the last step
 * that was taken would need, which owners told all members; in the first step as large as a union of different elements
 * would need. With taciti_sketch_options.ratio it is always n / ratio counters. Where that is as many as elements,
 * there is no sketch, and all values of the union are packed.
 */
#ifndef TACITI_EXCHANGE_SKETCH_REDUCE_H
#define TACITI_EXCHANGE_SKETCH_REDUCE_H

#include "base/memory.h"
#include "codec/sketch.h"
#include "exchange/allreduce.h"
#include "exchange/sketch_message.h"
#include "tensor/layout.h"

/* Cycles between the steps of a block (2.76 s there; 2.86 with 1, where ranks wait for each other more often); blocks
 * under way; parts of a bucket whose densities are told apart. */
enum { TACITI_SKETCH_LAG = 2, TACITI_SKETCH_SLOTS = 3 * TACITI_SKETCH_LAG + 1, TACITI_SKETCH_SECTIONS = 16 };

/* The content of the replies of a bucket's owners; the same on all members, for any number of them. {0}: none yet. */
typedef struct taciti_sketch_learnt {
    double density[TACITI_SKETCH_SECTIONS]; /* of the union, as measured, over n: the maximum over owners and blocks */
    double unused;                          /* keeps the layout of checkpoints */
    double factor;                          /* at which they were selected */
} taciti_sketch_learnt;

/* The contribution of a member to an owner in a block. */
typedef struct taciti_sketch_share {
    size_t at, n; /* in `selected` */
    taciti_sketch_form form;
    taciti_sketch_reply reply;
    taciti_engine_request *contribution;       /* [parts] that arrive from that member */
    taciti_engine_request told, index, values; /* so do these */
} taciti_sketch_share;

/* A block under way. */
typedef struct taciti_sketch_slot {
    size_t block;                /* of the bucket */
    size_t contributed, posted;  /* sends of the outbox when its contributions, and all its messages were posted */
    taciti_sketch_share *shares; /* [count], by owner */
    float *selected;             /* what this member sends, owner by owner */
    char *leaving, *arriving;    /* [count] messages */
    char *pending;               /* [count] indices that arrive; the own one is the union */
    int decoder;                 /* what its own sums are decoded in; -1: nothing yet, or not needed any more */
    taciti_sketch_total sum;
} taciti_sketch_slot;

typedef struct taciti_sketch_reduce {
    taciti_comm *comm; /* borrows, as the next two */
    const taciti_layout *layout;
    taciti_allreduce *reduce;
    taciti_sketch_options options;
    int count, me; /* members of this lane; 1: this rank has no part in it */
    int *ranks;    /* [count]; owned */
    taciti_sketch_slot slots[TACITI_SKETCH_SLOTS];
    taciti_sketch_share *shares;          /* of all slots; owned, as the next */
    taciti_engine_request *contributions; /* of all shares */
    taciti_sketch_learnt *learnt[2];      /* [bucket_count]: of the last step that was taken, and of the next; owned */
    size_t range_n, parts;                /* of the longest range of a block, rounded up; of its contribution */
    size_t message_bytes, index_bytes;
    taciti_outbox sends;
    taciti_pages pages; /* of everything below and in the slots */
    float *x, *error;   /* [range_n]: ranges one after the other; what the codec leaves */
    char *decoders;     /* sums, counters and workspaces: one for each slot in use */
    size_t decoder_bytes;
    int idle[TACITI_SKETCH_SLOTS]; /* the decoders that are free; the one that was used last is taken first, as the
                                      cache holds it */
    size_t idle_count;
    void *scratch, *payload;
} taciti_sketch_reduce;

#endif
