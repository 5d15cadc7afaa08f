/* SPDX-License-Identifier: Apache-2.0
 *
 * The slope of a link is the median of the slopes of all pairs of long messages (H. Theil 1950; P. K. Sen, "Estimates
 * of the regression coefficient based on Kendall's tau", JASA 63, 1968): differences do not see a constant that is
 * missing or in excess, such as a shaper's burst, and the median does not see a disturbed measurement. Long: at least
 * 1/16 of the longest. The intercept is the median of what the slope leaves of short messages.
 */
#include "cluster/fit.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { LONG_SHARE = 16, SHORT_BYTES = 64 };

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double taciti_median(double *samples, size_t n) {
    qsort(samples, n, sizeof *samples, by_value);
    return n % 2 == 1 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

/* ---- the line ---------------------------------------------------------------------------------------------------- */

/* Median slope of all pairs; the longest message is the last. */
static double slope_of(const double *bytes, const double *seconds, size_t n) {
    double slopes[TACITI_FIT_MAX * TACITI_FIT_MAX / 2];
    size_t count = 0, from = n - 2;
    while (from > 0 && bytes[from - 1] >= bytes[n - 1] / LONG_SHARE) from--;
    for (size_t i = from; i < n; i++)
        for (size_t j = i + 1; j < n; j++) slopes[count++] = (seconds[j] - seconds[i]) / (bytes[j] - bytes[i]);
    return taciti_median(slopes, count);
}

bool taciti_fit_link(const double *bytes, const double *seconds, size_t n, taciti_link_cost *out) {
    if (n < 2 || n > TACITI_FIT_MAX) return false;
    const double beta = slope_of(bytes, seconds, n);
    if (!(beta > 0) || !isfinite(beta)) return false;
    double rests[TACITI_FIT_MAX];
    size_t count = 0;
    for (; count < n && (count == 0 || bytes[count] <= SHORT_BYTES); count++)
        rests[count] = seconds[count] - beta * bytes[count];
    const double rest = taciti_median(rests, count);
    *out = (taciti_link_cost){.alpha_s = rest > 0 ? rest : 0, .beta_s_per_byte = beta};
    for (size_t i = 0; i < n; i++) {
        const double line = out->alpha_s + beta * bytes[i], error = fabs(seconds[i] - line) / line;
        if (error > out->fit_error) out->fit_error = error;
    }
    return true;
}

/* ---- jitter ------------------------------------------------------------------------------------------------------ */

static double mean_of(const double *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

taciti_jitter taciti_jitter_of(const double *seconds, size_t ranks, size_t pieces) {
    taciti_jitter jitter = {.mean_s = mean_of(seconds, ranks * pieces), .lag1 = -2};
    double squares = 0, products = 0, min = DBL_MAX, max = 0;
    for (size_t r = 0; r < ranks; r++) {
        const double *x = seconds + r * pieces, mean = mean_of(x, pieces);
        if (mean < min) min = mean;
        if (mean > max) max = mean;
        for (size_t t = 0; t < pieces; t++) {
            squares += (x[t] - jitter.mean_s) * (x[t] - jitter.mean_s);
            if (t > 0) products += (x[t] - jitter.mean_s) * (x[t - 1] - jitter.mean_s);
        }
    }
    const double variance = squares / (double)(ranks * pieces);
    jitter.cv = sqrt(variance) / jitter.mean_s;
    jitter.rank_spread = (max - min) / jitter.mean_s;
    if (variance > 0) jitter.lag1 = products / (double)(ranks * (pieces - 1)) / variance;
    if (jitter.lag1 > 1) jitter.lag1 = 1; /* the ends count once, the middle twice */
    if (variance > 0 && jitter.lag1 < -1) jitter.lag1 = -1;
    return jitter;
}
