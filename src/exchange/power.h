/* SPDX-License-Identifier: Apache-2.0
 *
 * PowerGossip: the members of a group come closer to their mean by messages of low rank.
 *
 * Source: Vogels, Karimireddy, Jaggi, "PowerGossip: Practical Low-Rank Communication Compression in Decentralized Deep
 * Learning", arXiv 2008.01425, for pairs; here for groups of any size.
 *
 *   X_i (rows x columns)  replica of member i, rows <= columns (else transposed)   n  members
 *   P   (rows x width)    orthonormal columns, from the mix before, the same bits on all members
 *
 *   A_i = X_i^T P                  first all-reduce, with the elements of no matrix as they are
 *   Q_i = A_i - mean A             part of the deviation from the mean that lies in the columns of P
 *   X_i <- X_i - P Q_i^T           all members now agree in these directions
 *   B_i = X_i Q_i                  second all-reduce
 *   P   <- orthonormalised sum B   for the mix after
 *
 * As the Q_i add up to 0, sum B = sum of (X_i - mean X) Q_i: one step of subspace iteration for the deviations of all
 * members that remain. So the next mix takes other directions, the ones that matter in what is left. The sides are
 * exchanged where rows > columns: deviations of several members share more of the shorter side.
 *
 *   deviations: a mix of a pair has both halves of a power iteration, of which the first changes the replicas; the
 *   paper has one half per iteration, alternates between the sides, and every half changes the replicas. That needs the
 *   difference of two members; sums over more members do not have it. Columns that vanish are drawn from the key.
 *
 * Properties (test_power.c): the sum over members is kept up to the rounding of f32; deviations of rank <= width
 * vanish in two mixes, and none ever grow, up to rounding; the same factors on all members; equal replicas stay equal
 * to the bit, and their matrices do not change (elements of no matrix: up to the rounding of a mean of equals). A
 * number that is not finite spreads along its column of X_i. Deterministic.
 *
 * A matrix whose factors do not pay (low_rank.h) is mixed as elements of no matrix: exactly.
 */
#ifndef TACITI_EXCHANGE_POWER_H
#define TACITI_EXCHANGE_POWER_H

#include "base/memory.h"
#include "exchange/allreduce.h"

/* All members describe the same but for their own rank. Borrows what it points to. */
typedef struct taciti_power_setup {
    const taciti_hosts *hosts;
    int rank; /* whose view it is */
    const taciti_layout *layout;
    taciti_members members;
    taciti_placement placement;
    size_t segment_bytes;
    size_t width;  /* columns of a factor; > 0 */
    uint64_t seed; /* of the first factors, and of columns that vanish */
} taciti_power_setup;

typedef struct taciti_power_bucket {
    const taciti_codec_matrix *matrices; /* those that are compressed; borrows */
    size_t count;
    size_t first_n, second_n; /* floats of the two payloads */
    size_t own_n;             /* of the Q_i of one member */
    size_t at;                /* index of its factors; second_n floats */
    bool pending;             /* `coming` has been written */
} taciti_power_bucket;

typedef struct taciti_power {
    taciti_comm *comm; /* borrows */
    taciti_power_setup setup;
    taciti_allreduce reduce;
    taciti_power_bucket *buckets;  /* one per bucket; owned */
    taciti_codec_matrix *matrices; /* of all buckets; owned */
    size_t factors_n, payload_n, own_n;
    float *factors;       /* [factors_n] P of all buckets; owned */
    float *coming;        /* those that runs have made, until they are settled; part of the same block */
    float *payload, *own; /* part of the workspace */
    taciti_pages memory;  /* the workspace, unless it is borrowed */
} taciti_power;

/* Describes the mixes without buffers; the rank need not be a member. That is enough for all formulas below. The object
 * must not move afterwards. After an error, only destroy may be called. Not collective. */
tacit_status taciti_power_describe(const taciti_power_setup *setup, taciti_power *out);

/* Bytes of workspace of a described object, a multiple of 64; and what open() allocates besides that: the factors. */
size_t taciti_power_workspace_bytes(const taciti_power *power);
size_t taciti_power_factor_bytes(const taciti_power *power);

/* Makes a described object ready to run, with the first factors. workspace: 64-byte aligned and borrowed; objects whose
 * runs do not overlap in time may share it. NULL: the object allocates its own. After an error, only destroy may be
 * called. Not collective. */
tacit_status taciti_power_open(taciti_power *power, taciti_comm *comm, void *workspace);

/* Draws the first factors again. No run may be under way. */
void taciti_power_begin_anew(taciti_power *power);

void taciti_power_destroy(taciti_power *power); /* described, opened or {0} */

/* x[n], this member's replica of bucket task->bucket, becomes the mixed one: not a sum as in the other exchanges of
 * gossip. A function of x, the factors and task->step. The factors stay as they are until settle(). Communication
 * thread. Collective over the members. */
tacit_status taciti_power_run(taciti_power *power, float *x, size_t n, const taciti_bucket_task *task);

/* From now on the factors hold that the last run of the bucket has made; does nothing without a run since the last
 * settle. No run of the bucket may be under way. Submitting thread. */
void taciti_power_settle(taciti_power *power, size_t bucket);

/* The factors that hold, for checkpoints: *n floats, the same on all members. They may be overwritten while no run is
 * under way. */
float *taciti_power_factors(taciti_power *power, size_t *n);

/* Bytes that this rank sends in one mix of a bucket. */
uint64_t taciti_power_bytes(const taciti_power *power, size_t bucket);

#endif
