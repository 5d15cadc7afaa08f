/* SPDX-License-Identifier: Apache-2.0
 *
 * What a lossy codec's rounding takes from an array, kept by the rank that rounds.
 */
#ifndef TACITI_EXCHANGE_RESIDUAL_H
#define TACITI_EXCHANGE_RESIDUAL_H

/* kept[i] = what this rank's encodes took from element i: from its part of the sum, and from the sum where this rank
 * adds it up; 0 where it encodes nothing. The sum of kept over all ranks is what the decoded result lacks.
 *
 * back 0: that is all, as error feedback wants it. Else the rank's own result is the decoded one + back * kept, so that
 * results of different ranks differ, and what kept[] holds afterwards is not specified. */
typedef struct taciti_residual {
    float *kept; /* [n]; borrows */
    float back;
} taciti_residual;

#endif
