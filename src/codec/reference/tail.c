/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/reference/tail.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

double taciti_tail_exponential(double mean, double share) { return -mean * log(share); }

/* Source: SIDCo (arXiv 2101.10761), equations of section 2.3: kk is minus the paper's shape. */
double taciti_tail_pareto(double mean, double variance, double share) {
    if (!(variance > 0)) return taciti_tail_exponential(mean, share);
    const double ratio = mean * mean / variance;
    const double kk = 0.5 * (ratio - 1), scale = 0.5 * mean * (ratio + 1);
    if (fabs(kk) < 1e-9) return taciti_tail_exponential(mean, share);
    return scale * -expm1(kk * log(share)) / kk;
}

/* Source: Minka, "Estimating a Gamma distribution" (2002): closed form near the maximum of the likelihood. */
double taciti_tail_gamma_shape(double mean, double mean_log) {
    const double s = fmax(log(mean) - mean_log, 1e-9); /* 0 when all magnitudes are equal */
    return (3 - s + sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s);
}

double taciti_tail_gamma(double mean, double mean_log, double share) {
    const double shape = taciti_tail_gamma_shape(mean, mean_log);
    return mean / shape * taciti_gamma_upper_inverse(shape, share);
}

/* Halves an interval in which `above` turns from true to false until it has no inner point. */
static double turning_point(double low, double high, bool (*above)(double x, const double *law), const double *law) {
    for (int i = 0; i < 200; i++) {
        const double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) break;
        if (above(middle, law))
            low = middle;
        else
            high = middle;
    }
    return low + (high - low) / 2;
}

static bool normal_above(double x, const double *law) { return erfc(x * 0.7071067811865476) > law[0]; }

double taciti_tail_normal(double share) { return turning_point(0, 40, normal_above, &share); }

/* ---- incomplete gamma function ----------------------------------------------------------------------------------- */

double taciti_log_gamma(double a) {
    double product = 1;
    for (; a < 12; a++) product *= a;
    const double r = 1 / a, r2 = r * r;
    const double series = r * (1.0 / 12 - r2 * (1.0 / 360 - r2 * (1.0 / 1260 - r2 / 1680)));
    return (a - 0.5) * log(a) - a + 0.9189385332046727 + series - log(product);
}

/* P(a, x) = x^a e^-x sum of x^i / (a (a + 1) .. (a + i)) / Gamma(a); for x < a + 1 (DLMF 8.11.4). */
static double lower_series(double a, double x, double factor) {
    double term = 1 / a, sum = term;
    for (int i = 1; i < 10000 && term > sum * 1e-17; i++) {
        term *= x / (a + i);
        sum += term;
    }
    return factor * sum;
}

/* Q(a, x) by its continued fraction (DLMF 8.9.2), evaluated forwards by the method of Lentz. */
static double upper_fraction(double a, double x, double factor) {
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int i = 1; i < 10000; i++) {
        const double numerator = -i * (i - a);
        b += 2;
        d = 1 / (numerator * d + b);
        c = b + numerator / c;
        h *= c * d;
        if (fabs(c * d - 1) < 1e-16) break;
    }
    return factor * h;
}

double taciti_gamma_upper(double a, double x) {
    if (!(x > 0)) return 1;
    const double factor = exp(a * log(x) - x - taciti_log_gamma(a));
    return x < a + 1 ? 1 - lower_series(a, x, factor) : upper_fraction(a, x, factor);
}

/* law: a, ln q. In ln x, because for small a the solution spans hundreds of powers of ten. */
static bool gamma_above(double log_x, const double *law) { return taciti_gamma_upper(law[0], exp(log_x)) > law[1]; }

double taciti_gamma_upper_inverse(double a, double q) {
    const double law[] = {a, q};
    return exp(turning_point(-700, 50, gamma_above, law));
}

/* ---- logarithms -------------------------------------------------------------------------------------------------- */

/* The product of 64 mantissas stays far below the largest double; exponents add up as integers. */
double taciti_sum_of_logs(const float *x, size_t n, size_t *counted) {
    enum { GROUP = 64 };
    int64_t exponents = 0;
    double mantissas = 1, logs = 0;
    size_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        int exponent = 0;
        if (x[i] == 0) continue;
        mantissas *= 2 * frexp(fabs((double)x[i]), &exponent);
        exponents += exponent - 1;
        if (++seen % GROUP != 0) continue;
        mantissas = frexp(mantissas, &exponent);
        exponents += exponent;
    }
    logs = log(mantissas);
    *counted = seen;
    return logs + (double)exponents * 0.6931471805599453;
}
