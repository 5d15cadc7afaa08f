/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells a change of a positive quantity from its noise, whatever the noise is: two CUSUMs of logarithms (Page 1954).
 *
 *   up <- max(0, up + min(d - k, h / 3)), down likewise of -d              d = log(x / mean); a change: up or down > h
 *   k = max(s / 2, log(MIN) / 2) + s / sqrt(samples of the mean)         h = max(7 s, 3 log(MIN) / 2)
 *
 * s: standard deviation of d, measured. The second term of k is the error of the mean. Siegmund's approximation of the
 * mean number of samples until an alarm is (exp(2 K B) - 2 K B - 1) / (2 K^2) with K = k / s and B = h / s + 1.166:
 * 44000 each way with K = 0.64 of a mean of 50 samples, if nothing changes. It assumes normal noise, and no single
 * sample may add more than a third of h, which makes alarms rarer. With D = shift / s - K the delay after a change is
 * B / D - 1 / (2 D^2): 4.6 samples for twice the time under noise of 30 %. Where the noise is small it is three
 * samples, the least there can be. A change smaller than MIN takes longer, or the mean follows it.
 *
 * A sample may be the mean of several steps: its noise is smaller by their root, and two may be enough. {0} knows
 * nothing. Plain bytes.
 */
#ifndef TACITI_ADAPT_CHANGE_H
#define TACITI_ADAPT_CHANGE_H

#include <stdint.h>

#define TACITI_CHANGE_MIN 1.3 /* ratio that is noticed at once */

/* Variance of one step's logarithm. A sample tells at most 3 standard deviations: a change is not noise. */
typedef struct taciti_noise {
    double variance, weight; /* weight: samples that it holds, 50 at most */
} taciti_noise;

/* d: deviation of the mean over `steps` steps. */
void taciti_noise_observe(taciti_noise *noise, double d, int64_t steps);

/* Standard deviation of one step; 0.15 as long as nothing is known. */
double taciti_noise_deviation(const taciti_noise *noise);

typedef struct taciti_change {
    taciti_noise noise;
    double mean;             /* of the logarithm, since the last change */
    double samples;          /* in it, 50 at most */
    double sum[2], shift[2]; /* of the CUSUMs up and down; mean of d since the sum passed a third of its limit */
    int64_t seen[2];         /* samples in shift */
} taciti_change;

/* Takes a sample in, the mean over `steps` steps. Returns the factor by which x has changed, 1: not at all. Anything
 * but x > 0 and finite is left out. */
double taciti_change_observe(taciti_change *change, double x, int64_t steps);

/* Begins again at another mean and keeps the noise. */
void taciti_change_move(taciti_change *change);

#endif
