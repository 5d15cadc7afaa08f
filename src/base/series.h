/* SPDX-License-Identifier: Apache-2.0
 *
 * Logarithm, exponential, cosine and sine computed from series in plain double arithmetic. Ranks compute some values
 * redundantly and must agree on every bit, but mathematics libraries round differently from one host to another.
 */
#ifndef TACITI_BASE_SERIES_H
#define TACITI_BASE_SERIES_H

/* Natural logarithm of a finite x > 0. */
double taciti_series_log(double x);

/* e^x for x <= 0; 0 below -700. */
double taciti_series_exp(double x);

/* Cosine and sine of 2 pi u for u in [0, 1). */
void taciti_series_circle(double u, double *cosine, double *sine);

#endif
