/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/collective_numbers.h"

#include <string.h>

#include "base/memory.h"

enum {
    PHASES = 4,    /* contributions are 0 .. PHASES - 1 */
    SUMMANDS = 64, /* maximum of ranks that contribute to one element */
    REPEATS = 64,  /* of the shortest period: fewer, longer copies and comparisons */
};

/* Ranks are dealt out to groups; element i is the business of one group. */
static size_t groups_of(int ranks) { return ((size_t)ranks + SUMMANDS - 1) / SUMMANDS; }

static float contribution(size_t i, int rank, int ranks) {
    const size_t r = (size_t)rank, groups = groups_of(ranks);
    return (i + r) % groups == 0 ? (float)((i / groups + r) % PHASES) : 0;
}

tacit_status taciti_numbers_create(int ranks, taciti_numbers *out) {
    const size_t period_n = groups_of(ranks) * PHASES * REPEATS;
    float *table = taciti_calloc(((size_t)ranks + 1) * period_n, sizeof *table);
    if (table == NULL) return TACIT_E_MEMORY;
    float *sum = table + (size_t)ranks * period_n;
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < period_n; i++) {
            table[(size_t)r * period_n + i] = contribution(i, r, ranks);
            sum[i] += contribution(i, r, ranks);
        }
    *out = (taciti_numbers){.ranks = ranks, .period_n = period_n, .table = table};
    return TACIT_OK;
}

void taciti_numbers_destroy(taciti_numbers *numbers) {
    taciti_free(numbers->table);
    *numbers = (taciti_numbers){0};
}

/* Returns the bytes of x[n] from element `at` on that one period of the numbers covers. */
static size_t period_bytes(const taciti_numbers *numbers, size_t at, size_t n) {
    return (n - at < numbers->period_n ? n - at : numbers->period_n) * sizeof(float);
}

void taciti_numbers_write(const taciti_numbers *numbers, int whose, float *x, size_t n) {
    const float *row = numbers->table + (size_t)whose * numbers->period_n;
    for (size_t i = 0; i < n; i += numbers->period_n) memcpy(x + i, row, period_bytes(numbers, i, n));
}

bool taciti_numbers_are(const taciti_numbers *numbers, int whose, const float *x, size_t n) {
    const float *row = numbers->table + (size_t)whose * numbers->period_n;
    for (size_t i = 0; i < n; i += numbers->period_n)
        if (memcmp(x + i, row, period_bytes(numbers, i, n)) != 0) return false;
    return true;
}
