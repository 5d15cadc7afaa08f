/* SPDX-License-Identifier: Apache-2.0
 *
 * Within a bin [lo, hi), with u = (x - lo) / (hi - lo), the density is 1 + tilt (2u - 1).
 */
#include "adapt/reference/curve.h"

#include <math.h>
#include <string.h>

enum { FINITE_BINS = 255 * 8 }; /* above: infinite and NaN */

static double bin_edge(int bin) { return bin < 8 ? ldexp(bin / 8.0, -126) : ldexp(1 + (bin % 8) / 8.0, bin / 8 - 127); }

/* The u at which `part` of the bin's elements are above, (1 - u) (1 + tilt u): a root of
 * tilt u^2 + (1 - tilt) u - (1 - part). */
static double cut(double tilt, double part) {
    const double b = 1 - tilt, c = 1 - part;
    const double root = sqrt(fmax(b * b + 4 * tilt * c, 0));
    return b + root > 0 ? fmin(2 * c / (b + root), 1) : 0; /* 0: the double root of u^2 */
}

/* Integral of x^2 over the density from u to 1. */
static double square_above(int bin, double tilt, double u) {
    const double lo = bin_edge(bin), w = bin_edge(bin + 1) - lo;
    const double i0 = 1 - u, i1 = (1 - u * u) / 2, i2 = (1 - u * u * u) / 3, i3 = (1 - u * u * u * u) / 4;
    const double flat = lo * lo * i0 + 2 * lo * w * i1 + w * w * i2;
    const double slope = 2 * (lo * lo * i1 + 2 * lo * w * i2 + w * w * i3) - flat;
    return flat + tilt * slope;
}

static double density(const double *counts, int bin) {
    if (bin < 0 || bin >= FINITE_BINS) return 0;
    return counts[bin] / (bin_edge(bin + 1) - bin_edge(bin));
}

static double bin_tilt(const double *counts, int bin) {
    const double mean = density(counts, bin);
    if (!(mean > 0) || bin == 0 || bin + 1 >= FINITE_BINS) return 0;
    const double below = density(counts, bin - 1), over = density(counts, bin + 1);
    if (!(below > 0) || !(over > 0)) return 0;
    const double span = (bin_edge(bin + 2) + bin_edge(bin + 1) - bin_edge(bin) - bin_edge(bin - 1)) / 2;
    const double tilt = (over - below) / span * (bin_edge(bin + 1) - bin_edge(bin)) / 2 / mean;
    return fmin(fmax(tilt, -1), 1);
}

void taciti_curve_build(const double *counts, taciti_curve *out) {
    memset(out, 0, sizeof *out);
    for (int bin = FINITE_BINS - 1; bin >= 0; bin--) {
        out->tilt[bin] = bin_tilt(counts, bin);
        out->above[bin] = out->above[bin + 1] + counts[bin];
        out->energy[bin] = out->energy[bin + 1];
        if (bin > 0 && counts[bin] > 0) /* bin 0 holds the zeros */
            out->energy[bin] += counts[bin] * square_above(bin, out->tilt[bin], 0);
    }
    out->count = out->above[0];
    out->squares = out->energy[0];
}

/* The bin that holds the k-th largest element, and where in it. */
static int locate(const taciti_curve *curve, double k, double *u) {
    int low = 0, high = FINITE_BINS; /* above[low] >= k > above[high] */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (curve->above[middle] >= k) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const double in_bin = curve->above[low] - curve->above[low + 1];
    *u = in_bin > 0 ? cut(curve->tilt[low], fmin((k - curve->above[low + 1]) / in_bin, 1)) : 0;
    return low;
}

double taciti_curve_gain(const taciti_curve *curve, double factor) {
    if (!(factor > 1) || !(curve->squares > 0)) return 1;
    double u;
    const int bin = locate(curve, curve->count / factor, &u);
    const double in_bin = curve->above[bin] - curve->above[bin + 1];
    const double kept = curve->energy[bin + 1] + in_bin * square_above(bin, curve->tilt[bin], u);
    return fmin(kept / curve->squares, 1);
}
