/* SPDX-License-Identifier: Apache-2.0 */
#include "adapt/change.h"

#include <math.h>
#include <stdbool.h>

enum { MEMORY = 50, SAMPLES_OF_MEAN = 3, PRIOR_SAMPLES = 2 };
#define PRIOR_NOISE .15
#define LARGEST_DEVIATION 3 /* standard deviations that a sample may tell of the noise */
#define SLACK .5            /* of k, in s */
#define LIMIT 7             /* of h, in s */
#define NEWEST (1.0 / 3)    /* weight of a sample in the shift, at least: the first ones may lie before the change */

double taciti_noise_deviation(const taciti_noise *noise) {
    const double prior = PRIOR_SAMPLES * (1 - noise->weight / MEMORY);
    return sqrt((noise->weight * noise->variance + prior * PRIOR_NOISE * PRIOR_NOISE) / (noise->weight + prior));
}

void taciti_noise_observe(taciti_noise *noise, double d, int64_t steps) {
    const double one = fmin(fabs(d) * sqrt((double)steps), LARGEST_DEVIATION * taciti_noise_deviation(noise));
    noise->weight = fmin(noise->weight + 1, MEMORY);
    noise->variance += (one * one - noise->variance) / noise->weight;
}

void taciti_change_move(taciti_change *c) { *c = (taciti_change){.noise = c->noise}; }

/* The CUSUM of one direction; d is positive in it. parts: samples that an alarm needs. */
static bool add(taciti_change *c, int way, double d, double k, double h, int parts) {
    static const double ROUNDING = 1 - 1e-9;
    c->sum[way] = fmax(c->sum[way] + fmin(d - k, h / parts), 0);
    const bool counts = c->sum[way] > h / 3 * ROUNDING;
    c->seen[way] = counts ? c->seen[way] + 1 : 0;
    c->shift[way] += counts ? fmax(1 / (double)c->seen[way], NEWEST) * (d - c->shift[way]) : -c->shift[way];
    return c->sum[way] > h * ROUNDING;
}

/* Mean logarithm of the change; 0: none. */
static double test(taciti_change *c, double d, int64_t steps) {
    const double s = taciti_noise_deviation(&c->noise) / sqrt((double)steps), half = log(TACITI_CHANGE_MIN) / 2;
    const double k = fmax(SLACK * s, half) + s / sqrt(c->samples), h = fmax(LIMIT * s, 3 * half);
    const bool up = add(c, 0, d, k, h, steps > 1 ? 2 : 3), down = add(c, 1, -d, k, h, steps > 1 ? 2 : 3);
    if (up) return c->shift[0];
    return down ? -c->shift[1] : 0;
}

double taciti_change_observe(taciti_change *c, double x, int64_t steps) {
    if (!(x > 0) || !isfinite(x) || steps < 1) return 1;
    const double d = c->samples > 0 ? log(x) - c->mean : 0;
    const double shift = c->samples >= SAMPLES_OF_MEAN ? test(c, d, steps) : 0;
    if (shift != 0) {
        taciti_change_move(c);
        return exp(shift);
    }
    if (c->samples > 0) taciti_noise_observe(&c->noise, d, steps);
    c->samples = fmin(c->samples + 1, MEMORY);
    c->mean += (c->samples == 1 ? log(x) : d) / c->samples;
    return 1;
}
