/* SPDX-License-Identifier: Apache-2.0
 *
 * The all-reduce of a short array, whose time depends on the number of consecutive messages rather than on the bytes:
 * every rank receives the arrays of all ranks in ceil(log2 N) steps and computes the sum of exchange.h itself. The
 * result is bit-equal to that of reduce-scatter and all-gather (halves.h).
 */
#ifndef TACITI_EXCHANGE_SMALL_H
#define TACITI_EXCHANGE_SMALL_H

#include "exchange/arrangement.h"
#include "exchange/payload.h"

typedef struct taciti_small {
    taciti_comm *comm;                     /* borrows */
    const taciti_encoding *encoding;       /* of a wire; fixed size; borrows */
    const taciti_arrangement *arrangement; /* borrows */
    float *blocks;                         /* [size][n] this rank's, then those of the positions after it; borrows */
    float *part;  /* [n] one host's contribution; part of the block of `blocks`, like the two below */
    float *error; /* [n] sum of this rank's encoding errors */
    char *payload;
} taciti_small;

/* memory: taciti_small_memory_bytes() bytes; borrowed. */
taciti_small taciti_small_of(taciti_comm *comm, const taciti_encoding *encoding, const taciti_arrangement *arrangement,
                             void *memory);
size_t taciti_small_memory_bytes(const taciti_encoding *encoding, const taciti_arrangement *arrangement);

/* x[n] = sum over members; n <= taciti_small_max_n(). keep: small->error[n] receives this rank's encoding errors: that
 * of a host's part belongs to the first member of the host, that of the sum to the first member of all. Communication
 * thread. Collective over the members. */
tacit_status taciti_small_run(taciti_small *small, float *x, size_t n, const taciti_bucket_task *task, bool keep);

/* Returns whether this file supports the encoding: every rank encodes the contributions of all, so the codec must have
 * payloads of fixed size and no scratch memory. */
bool taciti_small_takes(const taciti_encoding *encoding);

/* Returns whether this is estimated to be faster than reduce-scatter and all-gather for n floats; the same on all
 * ranks.
 */
bool taciti_small_pays(const taciti_arrangement *arrangement, size_t n);
size_t taciti_small_max_n(const taciti_arrangement *arrangement); /* longest array; 0 with one member */

/* The estimates in seconds, for this file and for the two halves, from the number of consecutive messages, of messages
 * that a rank handles, and of bytes on one link. */
double taciti_small_cost_s(const taciti_arrangement *arrangement, size_t n);
double taciti_small_halves_cost_s(const taciti_arrangement *arrangement, size_t n);

/* Consecutive messages that depend on each other: between hosts, and within a host. */
void taciti_small_hops(const taciti_arrangement *arrangement, int *wire, int *local);

/* Bytes that each rank sends, and that the rank at position `at` sends within its host. */
uint64_t taciti_small_bytes(const taciti_arrangement *arrangement, size_t n);
uint64_t taciti_small_local_bytes(const taciti_arrangement *arrangement, int at, size_t n);

/* Adds, for every host, the bytes that its ranks send to and receive from other hosts. */
void taciti_small_carry(const taciti_arrangement *arrangement, size_t n, double *out, double *in);

#endif
