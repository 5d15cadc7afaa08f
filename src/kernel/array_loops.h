/* SPDX-License-Identifier: Apache-2.0
 *
 * The array kernels as plain loops over the definition of one element, and the function that enters them into a table.
 * Every instruction set's file includes this and is compiled with its own flags: the compiler vectorises the same
 * roundings, so the sets agree bit for bit by construction. What a set does better by hand it overwrites afterwards.
 */
#ifndef TACITI_KERNEL_ARRAY_LOOPS_H
#define TACITI_KERNEL_ARRAY_LOOPS_H

#include "kernel/array_element.h"

static void add(float *restrict acc, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += x[i];
}

static void scale(float *x, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static void bf16_encode(taciti_bf16 *restrict out, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = bf16_of(x[i]);
}

static void bf16_decode(float *restrict out, const taciti_bf16 *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = float_of_bf16(x[i]);
}

static void bf16_add(float *restrict acc, const taciti_bf16 *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += float_of_bf16(x[i]);
}

static double sum_squares(const float *x, size_t n) {
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i + l < n; l++) lanes[l] += (double)x[i + l] * (double)x[i + l];
    return fold_lanes(lanes);
}

static int all_finite(const float *x, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (bits_of(x[i]) & 0x7f800000u) == 0x7f800000u;
    return bad == 0;
}

static void adamw(const taciti_adamw_step *step, float *restrict p, const float *restrict g, float *restrict m,
                  float *restrict v, taciti_bf16 *restrict copy, size_t n) {
    const taciti_adamw_step s = *step;
    for (size_t i = 0; i < n; i++) p[i] = adamw_element(&s, p[i], g[i], &m[i], &v[i]);
    if (copy != NULL) bf16_encode(copy, p, n);
}

static void sgd(const taciti_sgd_step *step, float *restrict p, const float *restrict g, float *restrict m,
                taciti_bf16 *restrict copy, size_t n) {
    const taciti_sgd_step s = *step;
    if (m != NULL)
        for (size_t i = 0; i < n; i++) p[i] = sgd_element(&s, p[i], g[i], &m[i]);
    else
        for (size_t i = 0; i < n; i++) p[i] = sgd_plain_element(&s, p[i], g[i]);
    if (copy != NULL) bf16_encode(copy, p, n);
}

static void fill_array_loops(taciti_kernels *table) {
    table->add = add;
    table->scale = scale;
    table->bf16_encode = bf16_encode;
    table->bf16_decode = bf16_decode;
    table->bf16_add = bf16_add;
    table->sum_squares = sum_squares;
    table->all_finite = all_finite;
    table->adamw = adamw;
    table->sgd = sgd;
}

#endif
