/* SPDX-License-Identifier: Apache-2.0
 *
 * The encoding error of a lossy codec, kept by the rank that encodes.
 */
#ifndef TACITI_EXCHANGE_RESIDUAL_H
#define TACITI_EXCHANGE_RESIDUAL_H

/* error[i]: what this rank's encodings lost of element i: of its own contribution, and of the sum where this rank owns
 * it; 0 where it encodes nothing. The errors of all ranks add up to exact sum - decoded result.
 *
 * back 0: nothing else happens. Otherwise the rank's own result is the decoded one + back * error, so
 * that results of different ranks differ, and what error[] holds afterwards is not specified. */
typedef struct taciti_residual {
    float *error; /* [n]; borrows */
    float back;
} taciti_residual;

#endif
