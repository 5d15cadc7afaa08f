/* SPDX-License-Identifier: Apache-2.0 */
#include "base/series.h"

#include <math.h>

#define PI 3.14159265358979323846
#define SQRT2 1.41421356237309504880
#define LN2 0.69314718055994530942
#define MIN_EXPONENT (-700.0)

/* x = m 2^e with m in [sqrt(1/2), sqrt(2)), then 2 atanh((m - 1) / (m + 1)). */
double taciti_series_log(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < SQRT2 / 2) {
        m *= 2;
        e--;
    }
    const double s = (m - 1) / (m + 1), s2 = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k; /* s2 < 0.03: the next term is below 1e-17 */
    return 2 * s * sum + e * LN2;
}

/* x = n log 2 + r with r in [-log(2)/2, log(2)/2]; Taylor series of e^r: the next term is below 1e-17. */
double taciti_series_exp(double x) {
    if (!(x >= MIN_EXPONENT)) return 0;
    const double n = floor(x / LN2 + 0.5), r = x - n * LN2;
    double sum = 1;
    for (int k = 14; k >= 1; k--) sum = 1 + sum * r / k;
    return ldexp(sum, (int)n);
}

/* Taylor series on [-pi/4, pi/4]. */
void taciti_series_circle(double u, double *cosine, double *sine) {
    const int quarter = (int)(u * 4 + 0.5);
    const double x = (u - quarter * 0.25) * (2 * PI), x2 = x * x;
    double c = 0, s = 0;
    for (int k = 16; k >= 2; k -= 2) {
        c = (1 - c) * x2 / ((k - 1) * k); /* 1 - x^2/2! (1 - x^2/(3 4) (...)) */
        s = (1 - s) * x2 / (k * (k + 1));
    }
    c = 1 - c;
    s = x * (1 - s);
    *cosine = quarter % 2 == 0 ? (quarter == 2 ? -c : c) : (quarter == 1 ? -s : s);
    *sine = quarter % 2 == 0 ? (quarter == 2 ? -s : s) : (quarter == 1 ? c : -c);
}
