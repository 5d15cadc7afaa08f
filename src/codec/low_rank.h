/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of a matrix (rows x columns, row by row) with thin factors of `rank` columns, which are stored column by
 * column. Sums are those of kernel.h, so all ranks compute the same bits from the same numbers.
 */
#ifndef TACITI_CODEC_LOW_RANK_H
#define TACITI_CODEC_LOW_RANK_H

#include <stdbool.h>

#include "codec/codec.h"

/* Whether two factors have less than half of the matrix's elements: the rule of PyTorch's powerSGD_hook. */
static inline bool taciti_low_rank_pays(const taciti_codec_matrix *m, size_t rank) {
    return (m->rows + m->columns) * rank * 2 < m->rows * m->columns;
}

/* out = M right: rank columns of `rows`. */
void taciti_low_rank_times_right(float *out, const float *m, const float *right, size_t rows, size_t columns,
                                 size_t rank);

/* out = M^T left: rank columns of `columns`. */
void taciti_low_rank_times_left(float *out, const float *m, const float *left, size_t rows, size_t columns,
                                size_t rank);

/* M += sign * left right^T. */
void taciti_low_rank_add_product(float *m, const float *left, const float *right, float sign, size_t rows,
                                 size_t columns, size_t rank);

/* Gram-Schmidt, twice, because once loses orthogonality where columns are nearly parallel. A column without a direction
 * of its own becomes 0; one that is not finite becomes NaN, and so do those after it. */
void taciti_low_rank_orthonormalise(float *factor, size_t n, size_t rank);

/* Replaces columns of zeros, and of NaN, by random ones. Returns whether there were any. */
bool taciti_low_rank_draw_missing(float *factor, size_t n, size_t rank, uint64_t key);

#endif
