/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/rotation.h"

#include <math.h>

#include "base/rng.h"

static void flip_signs(float *x, size_t n, uint64_t key) {
    for (size_t begin = 0; begin < n; begin += 64) {
        uint64_t signs = taciti_rng_u64(key, begin);
        for (size_t i = begin; i < n && i < begin + 64; i++, signs >>= 1)
            if ((signs & 1) != 0) x[i] = -x[i];
    }
}

static void add_and_subtract(float *restrict a, float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float sum = a[i] + b[i], difference = a[i] - b[i];
        a[i] = sum;
        b[i] = difference;
    }
}

static void transform(float *x, size_t n) {
    const float scale = (float)(1 / sqrt((double)n));
    for (size_t half = 1; half < n; half *= 2)
        for (size_t at = 0; at < n; at += 2 * half) add_and_subtract(x + at, x + at + half, half);
    for (size_t i = 0; i < n; i++) x[i] *= scale;
}

void taciti_rotate(float *x, size_t n, uint64_t key) {
    flip_signs(x, n, key);
    transform(x, n);
}

void taciti_rotate_back(float *x, size_t n, uint64_t key) {
    transform(x, n);
    flip_signs(x, n, key);
}
