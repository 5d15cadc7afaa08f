/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products for the model: C = op(A) op(B) (+ C), row-major, f32 or bf16 operands, f32 result. oneDNN computes
 * slabs of C, one per thread of our pool and each single-threaded, so that no second thread pool exists in the process.
 */
#ifndef TACITI_MODEL_MATMUL_H
#define TACITI_MODEL_MATMUL_H

#include <stdbool.h>
#include <stddef.h>

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
    const void *a, *b; /* float, or taciti_bf16 where the product is created for bf16 */
    float *c;          /* [m][n] */
    size_t lda, ldb, ldc;
    bool accumulate; /* C += instead of C = */
} taciti_product;

typedef struct taciti_matmul taciti_matmul;

/* Borrows the pool. bf16: type of all operands. Not collective. */
tacit_status taciti_matmul_create(taciti_pool *pool, bool bf16, taciti_matmul **out);
void taciti_matmul_destroy(taciti_matmul *matmul); /* NULL is fine */

/* Computes one product on all threads of the pool; the caller must be the pool's owner. The first product of a shape
 * may allocate (generated code, packing memory), later ones of that shape do not. k = 0 gives zeros (or leaves C). */
tacit_status taciti_matmul_run(taciti_matmul *matmul, const taciti_product *product);

/* How bf16 products are computed on this CPU: "native" (the library has kernels) or "f32" (operands are widened).
 * Any thread. */
const char *taciti_matmul_bf16_path(void);

#endif
