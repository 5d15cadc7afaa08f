/* SPDX-License-Identifier: Apache-2.0
 *
 * The all-reduce of a short array, where the number of messages in a row counts and not the bytes: everybody gets
 * everybody's array in ceil(log2 N) steps, and computes the sum of exchange.h by itself. The result is the same bits as
 * that of reduce-scatter and all-gather (halves.h).
 */
#ifndef TACITI_EXCHANGE_SMALL_H
#define TACITI_EXCHANGE_SMALL_H

#include "exchange/arrangement.h"
#include "exchange/payload.h"

typedef struct taciti_small {
    taciti_comm *comm;                     /* borrows */
    const taciti_encoding *encoding;       /* of a wire; fixed size, no state; borrows */
    const taciti_arrangement *arrangement; /* borrows */
    float *blocks;                         /* [size][n], mine first, then those of the positions after mine; borrows */
    float *part;                           /* [n] what one host contributes; in the same block, like the next */
    float *error;                          /* [n] what this rank's encodings lost */
    char *payload;
} taciti_small;

/* memory: taciti_small_memory_bytes() of it, borrowed. */
taciti_small taciti_small_of(taciti_comm *comm, const taciti_encoding *encoding, const taciti_arrangement *arrangement,
                             void *memory);
size_t taciti_small_memory_bytes(const taciti_encoding *encoding, const taciti_arrangement *arrangement);

/* x[n] = sum over members, n <= taciti_small_max_n(), plus back * what this rank's encodings lost: the first member of
 * a host encodes its part, the first of all the sum. Communication thread. Collective. */
tacit_status taciti_small_run(taciti_small *small, float *x, size_t n, const taciti_bucket_task *task, float back);

/* Whether this path can take such payloads: every rank encodes for all, so their codec must fix the size and have no
 * state. */
bool taciti_small_takes(const taciti_encoding *encoding);

/* Whether this is estimated to be faster than reduce-scatter and all-gather for n floats; the same answer on all ranks.
 */
bool taciti_small_pays(const taciti_arrangement *arrangement, size_t n);
size_t taciti_small_max_n(const taciti_arrangement *arrangement); /* longest array; 0: there is nobody to talk to */

/* The estimate, in seconds, for this and for the two halves: messages in a row, messages to handle, bytes of one link.
 */
double taciti_small_cost_s(const taciti_arrangement *arrangement, size_t n);
double taciti_small_halves_cost_s(const taciti_arrangement *arrangement, size_t n);

/* Messages in a row between machines, and within one. */
void taciti_small_hops(const taciti_arrangement *arrangement, int *wire, int *local);

/* Bytes that each rank sends, those of them that the rank at `at` sends to its own machine, and what the ranks of a
 * machine together send to others. */
uint64_t taciti_small_bytes(const taciti_arrangement *arrangement, size_t n);
uint64_t taciti_small_local_bytes(const taciti_arrangement *arrangement, int at, size_t n);
uint64_t taciti_small_nic_bytes(const taciti_arrangement *arrangement, size_t n, int machine);

/* Adds, for every machine, what its ranks send to others and get from them. */
void taciti_small_carry(const taciti_arrangement *arrangement, size_t n, double *out, double *in);

#endif
