/* SPDX-License-Identifier: Apache-2.0
 *
 * What a lossy codec's rounding takes from an array, kept by the rank that rounds.
 */
#ifndef TACITI_EXCHANGE_RESIDUAL_H
#define TACITI_EXCHANGE_RESIDUAL_H

#include "codec/codec.h"
#include "kernel/kernel.h"

/* kept[i] = what this rank's encodes took from element i: from its part of the sum, and from the sum where this rank
 * adds it up; 0 where it encodes nothing. The sum of kept over all ranks is what the decoded result lacks.
 *
 * back 0: that is all, as error feedback wants it. Else the rank's own result is the decoded one + back * kept, which
 * is what kept[] holds afterwards, and results of different ranks differ. */
typedef struct taciti_residual {
    float *kept; /* [n]; borrows */
    float back;
} taciti_residual;

/* out[n] = x - decoded payload. */
static inline tacit_status taciti_residual_of(const taciti_codec *codec, const void *payload, const float *x, size_t n,
                                              float *out) {
    const tacit_status status = codec->decode(payload, codec->bound(n), out, n);
    if (status != TACIT_OK) return status;
    taciti_kernels_get()->scale(out, -1.0f, n);
    taciti_kernels_get()->add(out, x, n);
    return TACIT_OK;
}

/* x[n] += back * kept[n]. */
static inline void taciti_residual_give_back(float back, float *x, float *kept, size_t n) {
    taciti_kernels_get()->scale(kept, back, n);
    taciti_kernels_get()->add(x, kept, n);
}

#endif
