/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange of buckets through a codec of class LINEAR. Every rank encodes its whole bucket; the payloads, arrays of
 * floats of the same length on all ranks, go through the dense all-reduce (allreduce.h); every rank decodes the sum. A
 * codec of several rounds repeats this: the encode of a round reads the summed payload of the round before.
 *
 * Error feedback: the encoding error of a rank is what it put in without its own share of the result,
 *
 *   error = x - decode(own payload of the last round, with the sums of the rounds before)
 *
 * and decode is linear in the last payload, so result + sum of errors = sum of inputs, up to the rounding of floats.
 * The payloads of exchange.wire are rounded as gradients are without compression; that rounding is not fed back.
 *
 * The codec's state has two versions per bucket. A run reads the version of the last step that was taken and writes the
 * other one; settling a step as taken swaps them.
 */
#ifndef TACITI_EXCHANGE_LINEAR_H
#define TACITI_EXCHANGE_LINEAR_H

#include "base/memory.h"
#include "exchange/route.h"

typedef struct taciti_linear_bucket {
    taciti_codec_matrix *matrices; /* within the bucket; borrows */
    size_t n_matrices;
    size_t state_bytes; /* rounded up */
    char *state[2];     /* borrows */
    int now;            /* index of the version of the last step that was taken */
    bool pending;       /* the other version has been written */
} taciti_linear_bucket;

typedef struct taciti_linear_reduce {
    taciti_comm *comm;           /* borrows */
    const taciti_layout *layout; /* borrows */
    taciti_encoding encoding;
    int rank, ranks;
    taciti_allreduce *reduce;      /* of the payloads of a round, by the wire; borrows */
    taciti_linear_bucket *buckets; /* one per bucket; owned */
    taciti_codec_matrix *matrices; /* of all buckets; owned */
    float *payload[2];             /* of this round and of the one before; borrow, like the next */
    void *scratch;
    taciti_pages pages; /* payloads, scratch, states */
} taciti_linear_reduce;

/* x[n] of bucket task->bucket becomes the decoded sum over all ranks, the same bits on all of them. error[n], if not
 * NULL, receives this rank's encoding error; it does not overlap x. tally: NULL, or what encodes of the last round have
 * seen. With one rank x stays, and errors are zeros. The codec's state changes when the step is settled. Communication
 * thread. Collective. */
tacit_status taciti_linear_run(taciti_linear_reduce *linear, float *x, size_t n, const taciti_bucket_task *task,
                               float *error, taciti_codec_tally *tally);

/* The matrices within bucket `bucket` of the layout: every tensor of two or more dimensions as shape[0] rows; of one
 * that the bucket cuts, the whole rows. Writes them unless `out` is NULL and returns their number. */
size_t taciti_linear_matrices(const taciti_layout *layout, size_t bucket, taciti_codec_matrix *out);

#endif
