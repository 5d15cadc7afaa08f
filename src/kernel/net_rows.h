/* SPDX-License-Identifier: Apache-2.0
 *
 * The row kernels of a transformer over sixteen lanes: norm, residual, GELU, bias. Included by net.c only.
 */
#ifndef TACITI_KERNEL_NET_ROWS_H
#define TACITI_KERNEL_NET_ROWS_H

#include "kernel/lanes16.h"

static void layernorm(float *restrict y, taciti_bf16 *restrict y16, float *restrict mean, float *restrict rstd,
                      const float *restrict x, const float *restrict weight, const float *restrict bias, size_t rows,
                      size_t c) {
    for (size_t row = 0; row < rows; row++, x += c) {
        floats16 sum = splat(0.0f), squares = splat(0.0f);
        EACH_16(j, k, c, sum = add16(sum, load(x + j, k)););
        const float m = fold_sum(sum) / (float)c;
        EACH_16(j, k, c, {
            const floats16 d = first_or(sub16(load(x + j, k), splat(m)), k, splat(0.0f));
            squares = fma16(d, d, squares);
        });
        const float s = 1.0f / sqrtf(fold_sum(squares) / (float)c + 1e-5f);
        EACH_16(j, k, c, {
            const floats16 norm = mul16(sub16(load(x + j, k), splat(m)), splat(s));
            store_both(y, y16, row * c + j, fma16(norm, load(weight + j, k), load(bias + j, k)), k);
        });
        mean[row] = m;
        rstd[row] = s;
    }
}

/* With n = (x - mean) rstd and g = weight dy: dx += rstd (g - avg(g) - n avg(g n)). */
static void layernorm_backward(float *restrict dx, float *restrict dweight, float *restrict dbias,
                               const float *restrict dy, const float *restrict x, const float *restrict mean,
                               const float *restrict rstd, const float *restrict weight, size_t rows, size_t c) {
    for (size_t row = 0; row < rows; row++, x += c, dy += c, dx += c) {
        const floats16 m = splat(mean[row]), s = splat(rstd[row]);
        floats16 sum = splat(0.0f), dot = splat(0.0f);
        EACH_16(j, k, c, {
            const floats16 d = load(dy + j, k), n = mul16(sub16(load(x + j, k), m), s);
            const floats16 g = mul16(d, load(weight + j, k));
            add_to(dbias + j, d, k);
            store(dweight + j, fma16(d, n, load(dweight + j, k)), k);
            sum = add16(sum, g);
            dot = fma16(g, n, dot);
        });
        const floats16 a = splat(fold_sum(sum) / (float)c), b = splat(fold_sum(dot) / (float)c);
        EACH_16(j, k, c, {
            const floats16 n = mul16(sub16(load(x + j, k), m), s);
            const floats16 g = mul16(load(dy + j, k), load(weight + j, k));
            store(dx + j, fma16(s, fnma16(n, b, sub16(g, a)), load(dx + j, k)), k);
        });
    }
}

static void residual(float *restrict out, const float *restrict x, const float *restrict a, const float *restrict bias,
                     size_t rows, size_t c, float p, uint64_t key, size_t first) {
    const uint32_t threshold = dropout_threshold(p);
    const floats16 kept = splat(1.0f / (1.0f - p));
    for (size_t at = 0; at < rows * c; at += c)
        EACH_16(j, k, c, {
            floats16 v = add16(load(a + at + j, k), load(bias + j, k));
            if (threshold > 0) v = keep_from(random16(key, (uint32_t)(first + at + j)), threshold, mul16(v, kept));
            store(out + at + j, add16(load(x + at + j, k), v), k);
        });
}

static void residual_backward(float *restrict d, taciti_bf16 *restrict d16, float *restrict dbias,
                              const float *restrict dout, size_t rows, size_t c, float p, uint64_t key, size_t first) {
    const uint32_t threshold = dropout_threshold(p);
    const floats16 kept = splat(1.0f / (1.0f - p));
    for (size_t at = 0; at < rows * c; at += c)
        EACH_16(j, k, c, {
            floats16 v = load(dout + at + j, k);
            if (threshold > 0) v = keep_from(random16(key, (uint32_t)(first + at + j)), threshold, mul16(v, kept));
            store_both(d, d16, at + j, v, k);
            add_to(dbias + j, v, k);
        });
}

/* 0.5 x (1 + tanh(u)) = x / (1 + e^(-2u)), 2u = x (GELU_1 + GELU_3 x^2): no cancellation for negative x. */
#define GELU_1 0x1.988454p+0f /* 2 sqrt(2 / pi) */
#define GELU_3 0x1.2444f2p-4f /* 0.044715 times that */

static inline floats16 gelu_denominator(floats16 x) {
    const floats16 u = mul16(x, fma16(mul16(x, x), splat(-GELU_3), splat(-GELU_1)));
    return add16(splat(1.0f), exp16(u));
}

static void gelu(float *restrict y, taciti_bf16 *restrict y16, float *restrict x, const float *restrict bias,
                 size_t rows, size_t c) {
    for (size_t at = 0; at < rows * c; at += c)
        EACH_16(j, k, c, {
            const floats16 v = add16(load(x + at + j, k), load(bias + j, k));
            store(x + at + j, v, k);
            store_both(y, y16, at + j, div16(v, gelu_denominator(v)), k);
        });
}

/* With s = 1 / (1 + e^(-2u)): s + x s (1 - s) (2u)'. Beyond 16 the derivative is 0 or 1 in f32; clamping there keeps
 * Inf times 0 away and lets NaN through. */
static inline floats16 gelu_slope(floats16 x) {
    x = min16(splat(16.0f), max16(splat(-16.0f), x));
    const floats16 one = splat(1.0f), s = div16(one, gelu_denominator(x));
    const floats16 inner = mul16(x, fma16(mul16(x, x), splat(3.0f * GELU_3), splat(GELU_1)));
    return fma16(mul16(s, sub16(one, s)), inner, s);
}

static void gelu_backward(float *dx, taciti_bf16 *dx16, float *dbias, const float *dy, const float *x, size_t rows,
                          size_t c) {
    for (size_t at = 0; at < rows * c; at += c)
        EACH_16(j, k, c, {
            const floats16 v = mul16(load(dy + at + j, k), gelu_slope(load(x + at + j, k)));
            store_both(dx, dx16, at + j, v, k);
            add_to(dbias + j, v, k);
        });
}

static void bias_backward(float *restrict dbias, taciti_bf16 *restrict d16, const float *restrict d, size_t rows,
                          size_t c) {
    for (size_t at = 0; at < rows * c; at += c)
        EACH_16(j, k, c, {
            const floats16 v = load(d + at + j, k);
            store_both(NULL, d16, at + j, v, k);
            add_to(dbias + j, v, k);
        });
}

#endif
