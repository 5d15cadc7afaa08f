/* SPDX-License-Identifier: Apache-2.0
 *
 * quantile-sketch: every element becomes one of a few levels, which are quantiles of the array.
 *
 * Source: Jiang et al., "SketchML: Accelerating Distributed Machine Learning with Data Sketches", SIGMOD 2018, section
 * 3.2 (quantile-bucket quantification): levels that equal numbers of elements belong to, and their numbers as codes.
 *   deviation: the sketch is a sample of up to 4096 elements at equal distances, sorted; a level is the mean of the
 *   sample between two quantiles; an element becomes the nearest level. Keys are not sent (the codec is dense), so the
 *   paper's MinMax sketch and its delta coding of keys have no counterpart.
 *
 * Properties (test_grace.c): levels have equal shares of the elements (quantile_sketch_levels_are_quantiles); an array
 * of as many different values as there are levels arrives (quantile_sketch_keeps_few_values); elements beyond the last
 * levels are cut to them, so it needs error feedback; class SUM; deterministic.
 */
#include "codec/quantiser.h"

enum { SAMPLE = 4096 };

typedef struct quantile_sketch_options {
    int64_t levels;
} quantile_sketch_options;

static const taciti_option OPTIONS[] = {TACITI_OPTION("levels", INT, offsetof(quantile_sketch_options, levels), "256",
                                                      .min = 2, .max = TACITI_QUANTISER_PARAMETERS,
                                                      .help = "quantiles; 4 bytes each in every message")};

static const taciti_option_table TABLE = {.section = "quantile-sketch",
                                          .help = "levels that are quantiles of the array (SketchML)",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

static size_t levels_of(const void *options) { return (size_t)((const quantile_sketch_options *)options)->levels; }

static taciti_quantiser_shape shape(const void *options) {
    const size_t levels = levels_of(options);
    return (taciti_quantiser_shape){.block = 0, .parameters = levels, .codes = (unsigned)levels};
}

/* Shell's sort with the gaps of Ciura (2001); qsort() may allocate. */
static void sort(float *v, size_t n) {
    static const size_t GAPS[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof GAPS / sizeof *GAPS; g++)
        for (size_t i = GAPS[g]; i < n; i++) {
            const float value = v[i];
            size_t j = i;
            for (; j >= GAPS[g] && v[j - GAPS[g]] > value; j -= GAPS[g]) v[j] = v[j - GAPS[g]];
            v[j] = value;
        }
}

/* The mean of v[begin .. end), or the element before it if there is none. */
static float mean_of(const float *v, size_t begin, size_t end) {
    double sum = 0;
    if (begin == end) return v[begin > 0 ? begin - 1 : 0];
    for (size_t i = begin; i < end; i++) sum += (double)v[i];
    return (float)(sum / (double)(end - begin));
}

static void measure(const taciti_codec_call *call, const taciti_quantiser_part *block, float *parameters) {
    const size_t levels = levels_of(call->options), m = block->n < SAMPLE ? block->n : SAMPLE;
    float v[SAMPLE];
    for (size_t i = 0; i < m; i++) v[i] = block->x[i * block->n / m];
    sort(v, m);
    for (size_t j = 0; j < levels; j++) parameters[j] = mean_of(v, j * m / levels, (j + 1) * m / levels);
}

/* The number of levels below the nearest one. */
static size_t nearest(const float *levels, size_t count, float x) {
    size_t low = 0;
    while (count > 1) {
        const size_t half = count / 2;
        const double middle = ((double)levels[low + half - 1] + (double)levels[low + half]) / 2;
        if ((double)x > middle) low += half;
        count -= (double)x > middle ? half : count - half;
    }
    return low;
}

static void quantise(const taciti_codec_call *call, const float *parameters, const taciti_quantiser_part *part,
                     uint8_t *codes) {
    const size_t levels = levels_of(call->options);
    for (size_t i = 0; i < part->n; i++) codes[i] = (uint8_t)nearest(parameters, levels, part->x[i]);
}

static bool legal(const void *options, const float *parameters) {
    for (size_t j = 1; j < levels_of(options); j++)
        if (parameters[j] < parameters[j - 1]) return false;
    return true;
}

static void restore(const void *options, const float *parameters, const uint8_t *codes, size_t n, float *y) {
    (void)options;
    for (size_t i = 0; i < n; i++) y[i] = parameters[codes[i]];
}

static const taciti_quantiser QUANTISER = {.name = "quantile-sketch",
                                           .shape = shape,
                                           .measure = measure,
                                           .quantise = quantise,
                                           .legal = legal,
                                           .restore = restore};

TACITI_QUANTISER_FUNCTIONS(QUANTISER, )

extern const taciti_codec taciti_codec_quantile_sketch;
const taciti_codec taciti_codec_quantile_sketch = {
    .name = "quantile-sketch",
    .help = "sends for every element which quantile of the array is nearest",
    .source = "SketchML (SIGMOD 2018), dense, quantiles of a sample",
    .options = &TABLE,
    .options_size = sizeof(quantile_sketch_options),
    .aggregation = TACITI_CODEC_SUM,
    .rounds = 1,
    .fixed_size = true,
    .keyless = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
