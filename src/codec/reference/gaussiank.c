/* SPDX-License-Identifier: Apache-2.0
 *
 * gaussiank: the elements above the threshold of a normal distribution that has the array's mean and deviation.
 *
 * Source: Shi et al., "Understanding Top-k Sparsification in Distributed Deep Learning", arXiv 1911.08772, algorithm 1:
 * threshold |mean + z deviation|, P(|N| > z) = k / n; then up to 3 times halved, or multiplied by 1.5, until 2/3 k to
 * 4/3 k elements reach it.
 *
 * Gradients have heavier tails than a normal distribution, so at high factors several times k elements can be sent; the
 * tally tells. Properties (test_estimators.c): on normal data within 2/3 k to 4/3 k (gaussiank_fits_normal_data); class
 * GATHER; deterministic.
 */
#include <math.h>

#include "codec/estimate.h"
#include "codec/largest.h"
#include "codec/quantiser.h"
#include "codec/reference/tail.h"
#include "kernel/kernel.h"

enum { CORRECTIONS = 3 };

static taciti_estimate estimate(const taciti_codec_call *call, const float *x, size_t n, size_t k, float *work) {
    const taciti_block_sums sums = taciti_block_sums_of(x, n);
    const double mean = sums.sum / (double)n, variance = fmax(sums.squares / (double)n - mean * mean, 0);
    double threshold = fabs(mean + taciti_tail_normal((double)k / (double)n) * sqrt(variance));
    (void)call;
    (void)work;
    for (int i = 0; i < CORRECTIONS; i++) {
        const double count = (double)taciti_kernels_get()->count_above(x, n, taciti_estimate_bits(threshold));
        if (count < 2.0 / 3 * (double)k)
            threshold *= 0.5;
        else if (count > 4.0 / 3 * (double)k)
            threshold *= 1.5;
        else
            break;
    }
    return (taciti_estimate){.bits = taciti_estimate_bits(threshold)};
}

static const taciti_selector SELECTOR = {.estimate = estimate};

extern const taciti_codec taciti_codec_gaussiank;
const taciti_codec taciti_codec_gaussiank = {
    TACITI_COMPOSED(SELECTOR),
    .name = "gaussiank",
    .reference = true,
    .help = "sends the elements above the threshold of a normal distribution; n / factor if the array is one",
    .source = "Gaussian-k (arXiv 1911.08772)",
    .selects = true,
    .keyless = true,
};
