/* SPDX-License-Identifier: Apache-2.0
 *
 * Eigenvalues of a nonsymmetric linear operator, given as a function that applies it to a vector.
 */
#ifndef TACITI_TOPO_EIGEN_H
#define TACITI_TOPO_EIGEN_H

#include "tacit/tacit.h"

typedef struct taciti_linear {
    void (*apply)(const void *context, const double *x, double *out);
    const void *context;
    size_t n;
    size_t steps; /* maximum dimension of the Krylov space, 1 .. n */
} taciti_linear;

double taciti_dot_product(const double *a, const double *b, size_t n);

/* Computes the eigenvalues re[i] + im[i] i of the operator on the Krylov space of `start` (length n, not zero). With a
 * random start these are all distinct eigenvalues of the smallest invariant subspace that contains `start`, accurate to
 * the rounding of 1 or of the operator's norm, whichever is larger; with fewer steps than n, some of them are
 * approached. re and im have room for `steps`; *count entries are set.
 * Returns E_NUMERICS if the iteration does not converge. */
tacit_status taciti_eigenvalues(const taciti_linear *a, const double *start, double *re, double *im, size_t *count);

#endif
