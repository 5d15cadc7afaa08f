/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of repeated measurements.
 */
#ifndef TACITI_CLI_SPREAD_H
#define TACITI_CLI_SPREAD_H

/* Median, smallest and largest. */
typedef struct taciti_spread {
    double median, least, most;
} taciti_spread;

/* count >= 1. Sorts the samples. */
taciti_spread taciti_spread_of(double *samples, int count);

#endif
