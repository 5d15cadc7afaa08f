/* SPDX-License-Identifier: Apache-2.0
 *
 * Which k of n elements a payload holds, when all ranks must make the same choice: by a key, by turns, by magnitude.
 * Indices are ascending; n < 2^32.
 */
#ifndef TACITI_CODEC_SUPPORT_H
#define TACITI_CODEC_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

/* Work memory for arrays of n elements; `memory` has taciti_support_bytes(n) bytes, aligned to 64. */
typedef struct taciti_support {
    uint32_t *indices;    /* [k]: the result of every function below; room for n + 16 */
    float *values, *work; /* [n + 16] */
    uint64_t *marks;      /* one bit per element */
} taciti_support;
size_t taciti_support_bytes(size_t n);
taciti_support taciti_support_in(void *memory, size_t n);

/* One element of each of k equal parts of the array, drawn by the key: every element has the same probability, up to
 * the rounding of parts to whole elements. */
void taciti_support_draw(const taciti_support *s, uint64_t key, size_t n, size_t k);

/* The largest elements of x[n], at most `largest`, and from *cursor on the next ones in turn that are not among them,
 * so that there are k. *cursor becomes the element behind the last. x is not read if largest is 0. */
void taciti_support_fill(const taciti_support *s, const float *x, size_t n, size_t largest, size_t k, size_t *cursor);

/* A support as floats, each an integer below 2^24, so that the sum of it and of zeros is exact. The number of floats is
 * a function of k and n (Elias-Fano: 2 bits and log2(n / k) per index). decode returns E_DATA unless these are k
 * ascending indices below n; s->indices may have been written then. k > 0. */
size_t taciti_support_coded_n(size_t n, size_t k);
void taciti_support_encode(const taciti_support *s, size_t n, size_t k, float *out);
tacit_status taciti_support_decode(const taciti_support *s, const float *coded, size_t n, size_t k);

#endif
