/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/statistics.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

taciti_statistics taciti_statistics_of(double *samples, int count) {
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    const double median = count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
    return (taciti_statistics){.median = median, .min = samples[0], .max = samples[count - 1]};
}

json_t *taciti_real_json(double value) { return isfinite(value) ? json_real(value) : json_null(); }

json_t *taciti_statistics_json(const taciti_statistics *statistics) {
    return json_pack("{s:o, s:o, s:o}", "median", taciti_real_json(statistics->median), "least",
                     taciti_real_json(statistics->min), "most", taciti_real_json(statistics->max));
}

taciti_moments taciti_moments_of(double *samples, size_t count) {
    taciti_moments m = {.statistics = taciti_statistics_of(samples, (int)count), .count = count};
    for (size_t i = 0; i < count; i++) m.mean += samples[i] / (double)count;
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += (samples[i] - m.mean) * (samples[i] - m.mean);
    const double deviation = count > 1 ? sqrt(squares / (double)(count - 1)) : (double)NAN;
    m.cv = m.mean != 0 ? deviation / m.mean : (double)NAN;
    m.standard_error = deviation / sqrt((double)count);
    return m;
}

json_t *taciti_moments_json(const taciti_moments *m) {
    json_t *object = taciti_statistics_json(&m->statistics);
    (void)json_object_set_new(object, "mean", taciti_real_json(m->mean));
    (void)json_object_set_new(object, "cv", taciti_real_json(m->cv));
    (void)json_object_set_new(object, "standard_error", taciti_real_json(m->standard_error));
    (void)json_object_set_new(object, "count", json_integer((json_int_t)m->count));
    return object;
}
