/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy over sixteen lanes. Included by net.c only.
 */
#ifndef TACITI_KERNEL_NET_LOSS_H
#define TACITI_KERNEL_NET_LOSS_H

#include "kernel/lanes16.h"

/* Returns the largest element. A NaN may be ignored; the subtraction that follows propagates it. */
static inline float row_max(const float *x, size_t n) {
    floats16 largest = splat(-INFINITY);
    EACH_16(j, k, n, largest = max16(largest, first_or(load(x + j, k), k, splat(-INFINITY))););
    return fold_max(largest);
}

/* Sum of e^(x - shift); the terms replace x when `keep`. */
static inline float exponentials(float *x, float shift, size_t n, int keep) {
    floats16 sum = splat(0.0f);
    EACH_16(j, k, n, {
        const floats16 e = first_or(exp16(sub16(load(x + j, k), splat(shift))), k, splat(0.0f));
        if (keep) store(x + j, e, k);
        sum = add16(sum, e);
    });
    return fold_sum(sum);
}

static void loss_gradient(float *x, taciti_bf16 *x16, float factor, size_t vocab, size_t stride) {
    EACH_16(j, k, vocab, store_both(x, x16, j, mul16(load(x + j, k), splat(factor)), k););
    float *rest = x + vocab;
    taciti_bf16 *rest16 = x16 != NULL ? x16 + vocab : NULL;
    EACH_16(j, k, stride - vocab, store_both(rest, rest16, j, splat(0.0f), k););
}

/* Lanes are folded into a double every 4096 columns: with 50000 columns the f32 sums still err by less than 1e-6. */
static double cross_entropy_row(float *x, taciti_bf16 *x16, size_t target, size_t vocab, size_t stride, float scale,
                                int gradient) {
    enum { BLOCK = 4096 };
    const double at_target = (double)x[target];
    const float largest = row_max(x, vocab);
    double sum = 0;
    for (size_t j = 0; j < vocab; j += BLOCK)
        sum += (double)exponentials(x + j, largest, vocab - j < BLOCK ? vocab - j : BLOCK, gradient);
    if (gradient) {
        loss_gradient(x, x16, (float)((double)scale / sum), vocab, stride);
        x[target] -= scale;
        if (x16 != NULL) x16[target] = bf16_of(x[target]);
    }
    return log(sum) + ((double)largest - at_target);
}

static double cross_entropy(float *restrict logits, taciti_bf16 *restrict gradient16, const int32_t *restrict target,
                            size_t rows, size_t vocab, size_t stride, float scale, int gradient) {
    double loss = 0;
    for (size_t row = 0; row < rows; row++) {
        float *x = logits + row * stride;
        taciti_bf16 *x16 = gradient && gradient16 != NULL ? gradient16 + row * stride : NULL;
        if (target[row] >= 0)
            loss += cross_entropy_row(x, x16, (size_t)target[row], vocab, stride, scale, gradient);
        else if (gradient)
            loss_gradient(x, x16, 0.0f, 0, stride);
    }
    return loss;
}

#endif
