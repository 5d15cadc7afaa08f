/* SPDX-License-Identifier: Apache-2.0
 *
 * redsync: the elements above a threshold; a search that begins at the root mean square finds it.
 *
 * Source: Fang et al., "RedSync: Reducing Synchronization Bandwidth for Distributed Deep Learning Training System",
 * JPDC 2019, arXiv 1808.04357: algorithm 3 (threshold binary search): halves the interval of thresholds until k to 2 k
 * elements reach one.
 *   deviation: it halves bit patterns of magnitudes, not real numbers. The paper's steps of a fixed length stop where
 *   the distribution has a long tail, and with k/2 to k elements the published code moves away from k. Bit patterns
 *   take 32 steps at most, and then the threshold is exact. The search begins at the root mean square, not the mean.
 *
 * Properties (test_estimators.c): sends k to 2 k elements of every array whose magnitudes differ, and k of one where
 * they are equal (redsync_lands_between_k_and_the_ratio); class GATHER; deterministic.
 */
#include <math.h>

#include "codec/largest.h"
#include "kernel/kernel.h"

static const double MAX_RATIO = 2;

/* At least k elements reach `low`, fewer reach `high`; both hold in every step. No magnitude is above the norm. */
static uint32_t bisect(const float *x, size_t n, size_t k) {
    const taciti_kernels *kernels = taciti_kernels_get();
    const double squares = kernels->sum_squares(x, n);
    uint32_t low = 0, high = taciti_estimate_bits(sqrt(squares)) + 1;
    uint32_t middle = taciti_estimate_bits(sqrt(squares / (double)n));
    while (high - low > 1) {
        const size_t count = kernels->count_above(x, n, middle);
        if (count < k)
            high = middle;
        else
            low = middle;
        if (count >= k && (double)count <= MAX_RATIO * (double)k) break;
        middle = low + (high - low) / 2;
    }
    return low;
}

static taciti_estimate estimate(const taciti_codec_call *call, const float *x, size_t n, size_t k, float *work) {
    const uint32_t bits = bisect(x, n, k);
    (void)call;
    (void)work;
    return (taciti_estimate){bits > 0 ? bits : 1, MAX_RATIO};
}

static const taciti_selector SELECTOR = {.estimate = estimate};

extern const taciti_codec taciti_codec_redsync;
const taciti_codec taciti_codec_redsync = {
    TACITI_COMPOSED(SELECTOR),
    .name = "redsync",
    .reference = true,
    .help = "sends n / factor to twice as many elements, those above a threshold found by halving",
    .source = "RedSync (arXiv 1808.04357), bisection of bit patterns",
    .selects = true,
    .keyless = true,
};
