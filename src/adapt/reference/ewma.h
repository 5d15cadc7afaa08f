/* SPDX-License-Identifier: Apache-2.0
 *
 * Exponentially weighted moving averages. {0} is empty.
 */
#ifndef TACITI_ADAPT_REFERENCE_EWMA_H
#define TACITI_ADAPT_REFERENCE_EWMA_H

typedef struct taciti_ewma {
    double value, weight; /* weight: sum of the samples' weights, the newest one's being 1; 0: empty */
} taciti_ewma;

/* Weights (1 - a)^age, divided by their sum: no bias towards the first sample. */
static inline void taciti_ewma_add(taciti_ewma *e, double a, double x) {
    e->weight = 1 + (1 - a) * e->weight;
    e->value += (x - e->value) / e->weight;
}

#endif
