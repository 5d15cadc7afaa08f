/* SPDX-License-Identifier: Apache-2.0
 *
 * Closed formulas for the contraction of a topology, for any number of ranks N, with w = exp(2 pi i / N). Names are
 * those of the list in topo.c:
 *
 *   ring           max over k of |1 + 2 cos(2 pi k / N)| / 3
 *   one-peer-ring  cos(2 pi / N) for even N: two projections, the angle between them
 *   torus          max of |1 + 2 cos(2 pi a / rows) + 2 cos(2 pi b / columns)| / 5, both sides 3 or more
 *   exp-static     max over k of |1 + sum over r of w^(k 2^r)| / (rounds + 1)
 *   exp-directed   max over k of the product over r of |cos(pi k 2^r / N)|
 *
 * All but the second are circulant, hence normal: singular values are absolute eigenvalues (R. M. Gray, "Toeplitz and
 * Circulant Matrices", section 3).
 */
#ifndef TACITI_TOPO_CLOSED_FORM_H
#define TACITI_TOPO_CLOSED_FORM_H

#include "topo/topo.h"

/* Computes taciti_topo_figures.contraction. Returns false if no formula is known. Any thread. */
bool taciti_closed_contraction(const taciti_topology *topology, double *out);

#endif
