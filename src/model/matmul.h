/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products for the model: C = op(A) op(B) (+ C), row-major, f32 or bf16 operands, f32 result. Each thread of our
 * pool calls oneDNN, single-threaded, for one slab of C, so there is no second thread pool in the process.
 */
#ifndef TACITI_MODEL_MATMUL_H
#define TACITI_MODEL_MATMUL_H

#include "base/pool.h"
#include "tacit/tacit.h"

typedef enum taciti_product_form {
    TACITI_PRODUCT_NN, /* A [m][k], B [k][n] */
    TACITI_PRODUCT_NT, /* A [m][k], B [n][k] */
    TACITI_PRODUCT_TN, /* A [k][m], B [k][n] */
} taciti_product_form;

typedef struct taciti_product {
    taciti_product_form form;
    size_t m, n, k;
    const void *a, *b;    /* float, or taciti_bf16 where the product is created for bf16 */
    float *c;             /* [m][n] */
    size_t lda, ldb, ldc; /* floats from row to row; 0: as many as there are columns */
    bool accumulate;      /* C += instead of C = */
} taciti_product;

typedef struct taciti_matmul taciti_matmul;

/* Borrows the pool. bf16: all operands are bf16, else f32. Not collective. */
tacit_status taciti_matmul_create(taciti_pool *pool, bool bf16, taciti_matmul **out);
void taciti_matmul_destroy(taciti_matmul *matmul); /* NULL is fine */

/* Computes one product on all threads of the pool; the caller must be the pool's owner. The first product of a shape
 * may allocate (generated code, packing memory); later products of that shape do not. k = 0 sets C to zero, or leaves
 * it unchanged with accumulate. */
tacit_status taciti_matmul_run(taciti_matmul *matmul, const taciti_product *product);

/* Returns how bf16 products are computed on this CPU: "native" by kernels of the library, or "f32" with widened
 * operands. Any thread. */
const char *taciti_matmul_bf16_path(void);

#endif
