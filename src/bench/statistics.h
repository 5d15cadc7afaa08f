/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of repeated measurements.
 */
#ifndef TACITI_BENCH_STATISTICS_H
#define TACITI_BENCH_STATISTICS_H

#include <jansson.h>
#include <stddef.h>

/* Median, smallest and largest. */
typedef struct taciti_statistics {
    double median, min, max;
} taciti_statistics;

/* count >= 1. Sorts the samples. */
taciti_statistics taciti_statistics_of(double *samples, int count);

/* {"median", "least", "most"}. Returns owned; NULL if out of memory. */
json_t *taciti_statistics_json(const taciti_statistics *statistics);

/* Statistics with the mean and its uncertainty. */
typedef struct taciti_moments {
    taciti_statistics statistics;
    double mean;
    double cv;             /* standard deviation (n - 1) / mean; NaN for one sample or a mean of 0 */
    double standard_error; /* of the mean, assuming independent samples; NaN for one sample */
    size_t count;
} taciti_moments;

/* count >= 1. Sorts the samples. */
taciti_moments taciti_moments_of(double *samples, size_t count);

/* {"median", "least", "most", "mean", "cv", "standard_error", "count"}; null for NaN. As above. */
json_t *taciti_moments_json(const taciti_moments *moments);

/* A JSON number; null if the value is not finite, because JSON has no NaN. */
json_t *taciti_real_json(double value);

#endif
