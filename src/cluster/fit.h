/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of measurements: medians, the line through message times, and the moments of repeated computation.
 */
#ifndef TACITI_CLUSTER_FIT_H
#define TACITI_CLUSTER_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "cluster/cluster.h"

/* Returns the median of n >= 1 finite numbers. Sorts them. */
double taciti_median(double *samples, size_t n);

/* Fits seconds = alpha + bytes * beta to message times, alpha >= 0 and beta > 0. Short messages determine alpha, long
 * ones beta; sizes in between, which are not linear (protocol changes, bursts through a shaper), influence neither.
 * Sizes ascend, times are positive, n is 2 to TACITI_FIT_MAX. Returns false, and writes nothing, if the time of long
 * messages does not grow with their size: the measurement was disturbed. */
enum { TACITI_FIT_MAX = 32 };
bool taciti_fit_link(const double *bytes, const double *seconds, size_t n, taciti_link_cost *out);

/* Statistics of equal pieces of computation: seconds[ranks][pieces], all positive, pieces >= 2. */
typedef struct taciti_jitter {
    double mean_s;
    double cv;   /* standard deviation / mean, over all ranks and times */
    double lag1; /* autocorrelation of consecutive pieces of a rank about the common mean; -2 if nothing varies */
    double rank_spread; /* (max - min of the ranks' means) / mean */
} taciti_jitter;
taciti_jitter taciti_jitter_of(const double *seconds, size_t ranks, size_t pieces);

#endif
