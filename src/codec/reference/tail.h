/* SPDX-License-Identifier: Apache-2.0
 *
 * Laws of magnitudes, and the threshold above which a share of them lies. For selectors that estimate a threshold from
 * a few sums instead of searching it. All magnitudes are positive; 0 < share < 1.
 */
#ifndef TACITI_CODEC_REFERENCE_TAIL_H
#define TACITI_CODEC_REFERENCE_TAIL_H

#include <stddef.h>

/* Exponential: -mean ln share. */
double taciti_tail_exponential(double mean, double share);

/* Generalised Pareto by its first two moments; without variance, or with more than its law has, the exponential. */
double taciti_tail_pareto(double mean, double variance, double share);

/* Gamma by the mean and the mean logarithm; its shape alone, too. */
double taciti_tail_gamma_shape(double mean, double mean_log);
double taciti_tail_gamma(double mean, double mean_log, double share);

/* The two-sided normal law: the x with P(|N| > x) = share. */
double taciti_tail_normal(double share);

/* ln Gamma(a), a > 0: Stirling's series behind the recurrence. lgamma() writes a global variable, this does not. */
double taciti_log_gamma(double a);

/* The regularised upper incomplete gamma function Q(a, x), a > 0, x >= 0, and the x where it is `q`. */
double taciti_gamma_upper(double a, double x);
double taciti_gamma_upper_inverse(double a, double q);

/* Sum of ln of n positive, finite magnitudes |x|. Zeros are left out. *counted: the others. The same on every CPU up to
 * the last logarithm. */
double taciti_sum_of_logs(const float *x, size_t n, size_t *counted);

#endif
