/* SPDX-License-Identifier: Apache-2.0
 *
 * What encoding leaves at the rank that encodes: the encoding error (the residual of error feedback) and the codec's
 * state. Every place of encoding has a cell of its own: in each piece of a bucket one per member, for this rank's
 * contribution to that member's range, and one for the result of this rank's own range.
 *
 * Commit or drop: an encoding reads the version that the last step taken has left (v = x + residual) and writes its
 * error to the other version. Settling a step that was taken swaps the two; dropping a step leaves the first as it is,
 * bit for bit. So nothing is copied: error feedback costs one addition per element more than to keep the error, and
 * twice the memory of one residual.
 */
#ifndef TACITI_EXCHANGE_RESIDUAL_H
#define TACITI_EXCHANGE_RESIDUAL_H

#include "exchange/payload.h"

/* Sizes first, set by the owner of the object; {0} keeps nothing. */
typedef struct taciti_residual {
    size_t pieces;      /* that have cells of their own; piece i has those of i % pieces */
    size_t members;     /* cells of contributions per piece */
    size_t cell_n;      /* floats of a cell */
    size_t state_bytes; /* codec's state of a cell, rounded up; 0: it has none */
    bool errors;        /* errors are kept */
    bool feedback;      /* they are added to what is encoded next; else they are the caller's until the next run */
    bool lasting;       /* the codec's state lasts from step to step; else every encoding begins with zeros */
    float back;         /* not 0: the rank's own result is the decoded one + back * its errors (taciti_allreduce_run) */

    float *error[TACITI_PAYLOAD_KINDS][2]; /* [version][pieces][cells][cell_n]; borrows */
    char *state[TACITI_PAYLOAD_KINDS][2];
    int now[TACITI_PAYLOAD_KINDS];      /* the version that the last step taken has left */
    bool pending[TACITI_PAYLOAD_KINDS]; /* the other version has been written since */
} taciti_residual;

size_t taciti_residual_bytes(const taciti_residual *residual);
/* memory: taciti_residual_bytes() of it, zeroed, 64-byte aligned; borrowed. */
void taciti_residual_open(taciti_residual *residual, void *memory);

/* An encoding of x[n] is about to begin in that cell (member: of a contribution; 0 for the result): adds the residual
 * to x, sets the call's state, and returns where the error goes, or NULL. Communication thread. */
float *taciti_residual_enter(taciti_residual *residual, taciti_payload_kind kind, size_t piece, size_t member, float *x,
                             size_t n, taciti_codec_call *call);

/* The error that the encoding of this piece has left in that cell: taciti_residual.errors without feedback. */
float *taciti_residual_error(const taciti_residual *residual, taciti_payload_kind kind, size_t piece, size_t member);

/* Ends a step: what it left is kept if it was taken, else forgotten. No run may be under way. */
void taciti_residual_settle(taciti_residual *residual, bool taken);

/* The residuals of one kind as the last step taken has left them: *n floats, which are what a checkpoint saves. */
float *taciti_residual_array(const taciti_residual *residual, taciti_payload_kind kind, size_t *n);

#endif
