/* SPDX-License-Identifier: Apache-2.0
 *
 * What error feedback costs in loss: the step-size limit of the factor.
 *
 * An element that is sent every tau steps gets tau gradients at once: they are late, not lost. On a quadratic with
 * curvature lambda and noise, w <- w - lr c keeps E w^2 where 2 lr E<w, c> = lr^2 E|c|^2. With c = g that is the level
 * of dense training; with error feedback E<w, c> stays and E|c|^2 grows. So
 *
 *   penalty = E|c|^2 / E|g|^2 - 1 = 2 E<g, r> / E|g|^2        relative growth of the stationary excess loss
 *
 * (the second form also holds before the residual r is stationary, and for values that are rounded, whose |c|^2 has
 * rounding noise in it). 2 <g, r> = |g + r|^2 - |g|^2 - |r|^2. For random-k the penalty is x / (1 - x) with
 * x = lr lambda F / (1 - momentum), the known limit. It needs no lambda: three sums of squares show it. Ranks' noise is
 * independent: what a rank sees of it is diluted by the number of ranks.
 *
 * x is proportional to the learning rate and to the time that energy waits, |r|^2 / |g|^2 steps, which predicts the
 * penalty at another factor and rate.
 *
 * It is exact for SGD. For AdamW, whose elements each have a scale of their own, it is a sign of the cliff and not its
 * size (docs/adaptive.md has a GPT's figures).
 */
#ifndef TACITI_ADAPT_REFERENCE_STALENESS_H
#define TACITI_ADAPT_REFERENCE_STALENESS_H

#include "adapt/adapt.h"

typedef struct taciti_staleness {
    /* moving averages: |g|^2, 2 <g, r>, the learning rate, factor - 1, and how much larger |sum of sent|^2 is
     * than the sum over ranks of |sent|^2 (1: independent noise, ranks: equal gradients) */
    double gradient, crossed, rate, factor, agreement;
    double weight; /* 0: nothing is known */
    int lanes;
} taciti_staleness;

/* Takes a step in. Needs squares_gradient; without it nothing becomes known. */
void taciti_staleness_observe(taciti_staleness *staleness, const taciti_adapt_facts *facts);

/* Compressed steps that the averages hold, 50 at most. */
double taciti_staleness_steps(const taciti_staleness *staleness);

/* Mean factor of the steps seen; 1: none. */
double taciti_staleness_factor(const taciti_staleness *staleness);

/* Predicted penalty where energy waits `stretch` times as long as in the steps seen; HUGE_VAL: training becomes
 * unstable. 0 if nothing is known. */
double taciti_staleness_penalty(const taciti_staleness *staleness, double stretch, double rate);

#endif
