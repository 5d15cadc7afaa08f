/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of measurements: medians, the line through message times, and the moments of repeated computation.
 */
#ifndef TACITI_PLAN_FIT_H
#define TACITI_PLAN_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/cluster.h"

/* Of n >= 1 finite numbers. Sorts them. */
double taciti_median(double *samples, size_t n);

/* The line seconds = alpha + bytes * beta through message times, alpha >= 0 and beta > 0. Short messages tell alpha,
 * long ones beta; what lies between (a protocol that changes with the size, a shaper that lets a burst pass) is not
 * linear and bends neither. Sizes ascend, times are positive, n is 2 to TACITI_FIT_MAX. False, and nothing written,
 * when long messages do not take longer with their size: too much disturbed them. */
enum { TACITI_FIT_MAX = 32 };
bool taciti_fit_link(const double *bytes, const double *seconds, size_t n, taciti_link_cost *out);

/* What is said of equal pieces of computation: seconds[ranks][pieces], all positive, pieces >= 2. */
typedef struct taciti_jitter {
    double mean_s;
    double cv;          /* standard deviation / mean, over all ranks and times */
    double lag1;        /* correlation of a rank's neighbouring pieces about the common mean; -2 when nothing varies */
    double rank_spread; /* (greatest - least mean of a rank) / mean */
} taciti_jitter;
taciti_jitter taciti_jitter_of(const double *seconds, size_t ranks, size_t pieces);

/* To `digits` significant decimal digits. */
double taciti_rounded(double value, int digits);

#endif
