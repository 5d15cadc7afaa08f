/* SPDX-License-Identifier: Apache-2.0 */
#include "adapt/reference/staleness.h"

#include <math.h>

#define FADE 0.98 /* of a sample per step: averages hold 1 / (1 - FADE) = 50 steps */

static void average(double *value, double weight, double x) { *value += (x - *value) / weight; }

void taciti_staleness_observe(taciti_staleness *s, const taciti_adapt_facts *facts) {
    const taciti_tally *model = &facts->model;
    if (!(model->squares_gradient > 0) || !isfinite(model->sent.squares_in)) return;
    if (facts->factor <= 1) return; /* what compressed steps have shown stays */
    s->lanes = facts->lanes;
    s->weight = 1 + FADE * s->weight;
    average(&s->gradient, s->weight, model->squares_gradient);
    average(&s->crossed, s->weight, model->sent.squares_in - model->squares_gradient - model->squares_residual);
    average(&s->rate, s->weight, facts->lr);
    average(&s->factor, s->weight, facts->factor - 1);
    const double sent = model->sent.squares_out;
    const double agreement = model->squares_total > 0 && sent > 0 ? model->squares_total / sent : 1.0;
    average(&s->agreement, s->weight, fmin(fmax(agreement, 1), facts->lanes));
}

double taciti_staleness_steps(const taciti_staleness *s) { return s->weight; }

double taciti_staleness_factor(const taciti_staleness *s) { return 1 + s->factor; }

double taciti_staleness_penalty(const taciti_staleness *s, double stretch, double rate) {
    if (!(s->gradient > 0) || !(s->rate > 0)) return 0;
    const double seen = fmax(s->crossed / s->gradient, 0) * s->lanes / fmax(s->agreement, 1);
    const double x = seen / (1 + seen) * stretch * rate / s->rate;
    return x < 1 ? x / (1 - x) : HUGE_VAL;
}
