/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank stores about its encodings: the encoding errors (the residuals of error feedback) and the codec's state.
 * Each array that a rank encodes has a cell of its own. A piece of a bucket has one cell per member, for this rank's
 * contribution to that member's range, and one cell for the result of this rank's own range.
 *
 * Commit and drop: there are two versions of every cell. An encoding reads the version of the last committed step
 * (v = x + residual) and writes its error to the other version. Committing a step swaps the versions; dropping it
 * changes nothing. So nothing is copied. Error feedback costs one addition per element and twice the memory of one
 * residual.
 */
#ifndef TACITI_EXCHANGE_RESIDUAL_H
#define TACITI_EXCHANGE_RESIDUAL_H

#include "exchange/payload.h"

/* The owner of the object sets the sizes, down to `back`. {0} stores nothing. */
typedef struct taciti_residual {
    size_t pieces;      /* with cells of their own; piece i uses the cells of i % pieces */
    size_t members;     /* cells of contributions per piece */
    size_t cell_n;      /* floats of a cell */
    size_t state_bytes; /* of the codec's state per cell, rounded up; 0: the codec has none */
    bool errors;        /* errors are stored */
    bool feedback;      /* errors are added to what is encoded next; else the caller may read them until the next run */
    bool lasting;       /* the codec's state lasts from step to step; else every encoding begins with zeros */
    float back;         /* if not 0, this rank's result is the decoded result + back * its errors */

    float *error[TACITI_PAYLOAD_KINDS][2]; /* [version][pieces][cells][cell_n]; borrows */
    char *state[TACITI_PAYLOAD_KINDS][2];
    int now[TACITI_PAYLOAD_KINDS];      /* index of the version of the last committed step */
    bool pending[TACITI_PAYLOAD_KINDS]; /* the other version has been written */
} taciti_residual;

size_t taciti_residual_bytes(const taciti_residual *residual);
/* memory: taciti_residual_bytes() bytes, zeroed, 64-byte aligned; borrowed. */
void taciti_residual_open(taciti_residual *residual, void *memory);

/* Prepares the encoding of x[n] in a cell (member: of a contribution; 0 for the result): adds the residual to x and
 * sets the call's state. Returns the array for the encoding error, or NULL. Communication thread. */
float *taciti_residual_enter(taciti_residual *residual, taciti_payload_kind kind, size_t piece, size_t member, float *x,
                             size_t n, taciti_codec_call *call);

/* Returns the error of the last encoding in that cell. For taciti_residual.errors without feedback. */
float *taciti_residual_error(const taciti_residual *residual, taciti_payload_kind kind, size_t piece, size_t member);

/* Commits a step (taken) or drops it. No run may be under way. */
void taciti_residual_settle(taciti_residual *residual, bool taken);

/* Returns the committed residuals of one kind, *n floats, for checkpoints. */
float *taciti_residual_array(const taciti_residual *residual, taciti_payload_kind kind, size_t *n);

#endif
