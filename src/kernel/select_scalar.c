/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection, the definition, for any CPU. Compaction has no branch: every element is written, and the place moves on
 * behind those that are kept.
 *
 * The histogram, gather and scatter have no faster form: they are bound by stores to computed places.
 */
#include "kernel/sets.h"

#include "kernel/array_element.h"

enum { TABLES = 4, SMALL = 4096 };

/* Several tables, since neighbours often have the same bin: one counter would wait for its own store. */
static void count_histogram(uint64_t *counts, const float *x, size_t n, unsigned shift) {
    if (n < SMALL) {
        for (size_t i = 0; i < n; i++) counts[(bits_of_magnitude(x[i]) >> shift) % TACITI_MAGNITUDE_BINS]++;
        return;
    }
    uint32_t tables[TABLES][TACITI_MAGNITUDE_BINS] = {{0}};
    for (size_t i = 0; i < n; i++) tables[i % TABLES][(bits_of_magnitude(x[i]) >> shift) % TACITI_MAGNITUDE_BINS]++;
    for (size_t b = 0; b < TACITI_MAGNITUDE_BINS; b++)
        counts[b] += (uint64_t)tables[0][b] + tables[1][b] + tables[2][b] + tables[3][b];
}

static size_t count_above(const float *x, size_t n, uint32_t threshold) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += bits_of_magnitude(x[i]) >= threshold;
    return count;
}

static void select_above(taciti_select *s, const float *x, size_t n) {
    double lanes[LANES] = {0};
    select_rest(s, x, 0, n, 0, 0, lanes);
}

static size_t select_among(uint32_t *restrict indices, float *restrict values, float *restrict error, size_t n,
                           uint32_t threshold, size_t ties) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count = select_again(indices, values, error, i, count, threshold, &ties);
    return count;
}

static size_t select_band(float *out, const float *x, size_t n, uint32_t low, uint32_t high) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        const float v = x[i];
        out[count] = v;
        count += bits_of_magnitude(v) >= low && bits_of_magnitude(v) < high;
    }
    return count;
}

static void gather_elements(float *restrict out, const float *restrict x, const uint32_t *restrict indices, size_t k) {
    for (size_t i = 0; i < k; i++) out[i] = x[indices[i]];
}

static void scatter_elements(float *restrict x, const uint32_t *restrict indices, const float *restrict values,
                             size_t k) {
    for (size_t i = 0; i < k; i++) x[indices[i]] = values[i];
}

static void scatter_add(float *restrict x, const uint32_t *restrict indices, const float *restrict values, size_t k) {
    for (size_t i = 0; i < k; i++) x[indices[i]] += values[i];
}

void FILL_OF_SET(select)(taciti_kernels *table) {
    table->histogram = count_histogram;
    table->count_above = count_above;
    table->select_above = select_above;
    table->select_among = select_among;
    table->select_band = select_band;
    table->gather = gather_elements;
    table->scatter = scatter_elements;
    table->scatter_add = scatter_add;
}
