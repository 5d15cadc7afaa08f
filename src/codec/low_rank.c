/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/low_rank.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

void taciti_low_rank_times_right(float *out, const float *m, const float *right, size_t rows, size_t columns,
                                 size_t rank) {
    const taciti_kernels *kernels = taciti_kernels_get();
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < rank; k++)
            out[k * rows + i] = (float)kernels->dot(m + i * columns, right + k * columns, columns);
}

void taciti_low_rank_times_left(float *out, const float *m, const float *left, size_t rows, size_t columns,
                                size_t rank) {
    const taciti_kernels *kernels = taciti_kernels_get();
    memset(out, 0, rank * columns * sizeof *out);
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < rank; k++)
            kernels->add_scaled(out + k * columns, m + i * columns, left[k * rows + i], columns);
}

void taciti_low_rank_add_product(float *m, const float *left, const float *right, float sign, size_t rows,
                                 size_t columns, size_t rank) {
    const taciti_kernels *kernels = taciti_kernels_get();
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < rank; k++)
            kernels->add_scaled(m + i * columns, right + k * columns, sign * left[k * rows + i], columns);
}

void taciti_low_rank_orthonormalise(float *factor, size_t n, size_t rank) {
    const taciti_kernels *kernels = taciti_kernels_get();
    for (size_t k = 0; k < rank; k++) {
        float *column = factor + k * n;
        const double before = sqrt(kernels->dot(column, column, n));
        if (isfinite(before)) kernels->scale(column, before < (double)FLT_MIN ? 0 : (float)(1 / before), n);
        for (int pass = 0; pass < 2; pass++)
            for (size_t j = 0; j < k; j++)
                kernels->add_scaled(column, factor + j * n, (float)-kernels->dot(column, factor + j * n, n), n);
        const double rest = sqrt(kernels->dot(column, column, n));
        const float by = !isfinite(rest) ? NAN : rest < 1e-6 ? 0 : (float)(1 / rest);
        kernels->scale(column, by, n);
    }
}

bool taciti_low_rank_draw_missing(float *factor, size_t n, size_t rank, uint64_t key) {
    bool any = false;
    for (size_t k = 0; k < rank; k++) {
        if (taciti_kernels_get()->dot(factor + k * n, factor + k * n, n) > 0) continue;
        for (size_t i = 0; i < n; i++) factor[k * n + i] = (float)(taciti_rng_unit(key, k * n + i) - 0.5);
        any = true;
    }
    return any;
}
