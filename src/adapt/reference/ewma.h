/* SPDX-License-Identifier: Apache-2.0
 *
 * Exponentially weighted moving averages. {0} is empty.
 */
#ifndef TACITI_ADAPT_REFERENCE_EWMA_H
#define TACITI_ADAPT_REFERENCE_EWMA_H

typedef struct taciti_ewma {
    double value, weight; /* weight: sum of the samples' weights, the newest one's being 1; 0: empty */
} taciti_ewma;

/* value <- (1 - a) value + a x, and the first sample as it is. */
static inline void taciti_ewma_recursive(taciti_ewma *e, double a, double x) {
    e->value += (e->weight > 0 ? a : 1) * (x - e->value);
    e->weight = 1;
}

/* Weights (1 - a)^age, divided by their sum: no bias towards the first sample. */
static inline void taciti_ewma_normalised(taciti_ewma *e, double a, double x) {
    e->weight = 1 + (1 - a) * e->weight;
    e->value += (x - e->value) / e->weight;
}

#endif
