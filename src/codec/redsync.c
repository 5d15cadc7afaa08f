/* SPDX-License-Identifier: Apache-2.0
 *
 * redsync: the elements above a threshold that a search between the mean and the largest magnitude finds.
 *
 * Source: Fang et al., "RedSync: Reducing Synchronization Bandwidth for Distributed Deep Learning Training System",
 * JPDC 2019, arXiv 1808.04357: algorithm 2 (trimmed top-k) and algorithm 3 (threshold binary search).
 *   redsync.search bisection: halves the interval of thresholds until k to max_ratio k elements reach one.
 *     deviation: it halves bit patterns of magnitudes, not real numbers. The paper's steps of a fixed length stop where
 *     the distribution has a long tail, and with k/2 to k elements the published code moves away from k. Bit patterns
 *     take 31 steps at most, and then the threshold is exact.
 *   redsync.search trimmed: lowers the threshold from the maximum towards the mean in steps of 1/5 of their distance
 *     until k elements reach it, then sends the k largest of those.
 * The paper's quantised variant is redsync.values signmean.
 *
 * Properties (test_estimators.c): bisection sends k to max_ratio k elements of every array whose magnitudes differ, and
 * k of one where they are equal (redsync_lands_between_k_and_the_ratio); class GATHER; deterministic.
 */
#include "codec/estimate.h"
#include "codec/largest.h"
#include "codec/quantiser.h"
#include "kernel/kernel.h"

typedef enum { SEARCH_BISECTION, SEARCH_TRIMMED } search_kind;
enum { TRIM_STEPS = 5 };

typedef struct redsync_options {
    taciti_composed_options composed;
    int search;
    double max_ratio;
} redsync_options;

static const taciti_option OPTIONS[] = {
    TACITI_COMPOSED_OPTIONS(redsync_options, "f32", "auto"),
    TACITI_OPTION("search", ENUM, offsetof(redsync_options, search), "bisection", .choices = "bisection|trimmed",
                  .help = "how the threshold is sought: by halving, or downwards from the maximum, then exactly"),
    TACITI_OPTION("max_ratio", REAL, offsetof(redsync_options, max_ratio), "2", .min = 1, .max = 100,
                  .when = "redsync.search=bisection",
                  .help = "bisection stops when so many times n / factor elements or fewer are left; 1: exact"),
};

static const taciti_option_table TABLE = {.section = "redsync",
                                          .help = "elements above a threshold found by search (RedSync)",
                                          .options = OPTIONS,
                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

/* At least k elements reach `low`, fewer reach `high`; both hold in every step. */
static uint32_t bisect(const float *x, size_t n, size_t k, double max_ratio, const taciti_block_sums *sums) {
    const taciti_kernels *kernels = taciti_kernels_get();
    uint32_t low = 0, high = taciti_estimate_bits((double)sums->largest) + 1;
    uint32_t middle = taciti_estimate_bits(sums->magnitudes / (double)n);
    while (high - low > 1) {
        const size_t count = kernels->count_above(x, n, middle);
        if (count < k)
            high = middle;
        else
            low = middle;
        if (count >= k && (double)count <= max_ratio * (double)k) break;
        middle = low + (high - low) / 2;
    }
    return low;
}

static uint32_t trim(const float *x, size_t n, size_t k, const taciti_block_sums *sums) {
    const double mean = sums->magnitudes / (double)n, distance = (double)sums->largest - mean;
    for (int step = 1; step < TRIM_STEPS; step++) {
        const uint32_t bits = taciti_estimate_bits(mean + distance * (TRIM_STEPS - step) / TRIM_STEPS);
        if (taciti_kernels_get()->count_above(x, n, bits) >= k) return bits;
    }
    const uint32_t bits = taciti_estimate_bits(mean);
    return taciti_kernels_get()->count_above(x, n, bits) >= k ? bits : 1;
}

static taciti_estimate estimate(const taciti_codec_call *call, const float *x, size_t n, size_t k, float *work) {
    const redsync_options *o = call->options;
    const taciti_block_sums sums = taciti_block_sums_of(x, n);
    (void)work;
    if (o->search == SEARCH_TRIMMED) return (taciti_estimate){trim(x, n, k, &sums), 1};
    const uint32_t bits = bisect(x, n, k, o->max_ratio, &sums);
    return (taciti_estimate){bits > 0 ? bits : 1, o->max_ratio};
}

static void select_redsync(const taciti_codec_call *call, const float *x, size_t n, void *scratch,
                           taciti_selection *out) {
    taciti_select_estimated(estimate, call, x, n, scratch, out);
}

static const taciti_selector SELECTOR = {.name = "redsync", .select = select_redsync};
TACITI_COMPOSED_FUNCTIONS

extern const taciti_codec taciti_codec_redsync;
const taciti_codec taciti_codec_redsync = {
    .name = "redsync",
    .help = "sends n / factor to twice as many elements, those above a threshold found by halving",
    .source = "RedSync (arXiv 1808.04357), bisection of bit patterns",
    .options = &TABLE,
    .options_size = sizeof(redsync_options),
    .aggregation = TACITI_CODEC_GATHER,
    .rounds = 1,
    .selects = true,
    .keyless = true,
    .bound = taciti_composed_bound,
    .expected_bytes = taciti_composed_expected_bytes,
    .scratch_bytes = scratch_bytes,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
