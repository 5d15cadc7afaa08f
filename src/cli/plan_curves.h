/* SPDX-License-Identifier: Apache-2.0
 *
 * The step times of the main methods as functions of the rate between hosts and of the number of hosts.
 */
#ifndef TACITI_CLI_PLAN_CURVES_H
#define TACITI_CLI_PLAN_CURVES_H

#include "advise/candidates.h"

/* LINES: what choose_lines() adds at most. DECADE: points of a decade of the rate. */
enum { TACITI_CURVE_LINES = 7, TACITI_CURVE_POINTS = 40, TACITI_CURVE_DECADE = 10 };

typedef struct taciti_plan_curve {
    double x[TACITI_CURVE_POINTS]; /* Gbit/s, or hosts */
    int ranks[TACITI_CURVE_POINTS];
    double step_s[TACITI_CURVE_LINES][TACITI_CURVE_POINTS]; /* NaN: not possible on these ranks */
    size_t count;                                           /* 0: there is nothing to vary */
    double here;                                            /* the cluster's own x */
} taciti_plan_curve;

typedef struct taciti_plan_curves {
    const taciti_candidate *lines[TACITI_CURVE_LINES]; /* borrows */
    size_t line_count;
    taciti_plan_curve rate, hosts;
} taciti_plan_curves;

/* Computes the curves. Borrows everything; the candidates must have predictions. */
tacit_status taciti_plan_curves_compute(const taciti_settings *settings, const taciti_candidates *candidates,
                                        const taciti_scene *scene, const taciti_plan_options *options,
                                        taciti_plan_curves *out);

#endif
