/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/spread.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

taciti_spread taciti_spread_of(double *samples, int count) {
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    const double median = count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
    return (taciti_spread){.median = median, .least = samples[0], .most = samples[count - 1]};
}
