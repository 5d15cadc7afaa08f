/* SPDX-License-Identifier: Apache-2.0
 *
 * dgc: the elements above a threshold that a sample of the array gives.
 *
 * Source: Lin et al., "Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed Training", ICLR
 * 2018, arXiv 1712.01887, section 3 and appendix on hierarchical selection; constants of the authors' code (sample of
 * 1 %, at least 2 n / k elements, at a stride of 1 modulo 32; 0.8, 1.3, 10 attempts).
 *   If more than 1.3 k elements reach the threshold, the k largest of those are sent; if fewer than 0.8 k do, the
 *   threshold is multiplied by 0.8, 10 times at most.
 *   deviation: what is kept of too many are the largest, where the authors' code cuts off the end of the array.
 * Momentum correction, momentum factor masking, clipping and warm-up belong to what feeds a codec: compress.momentum,
 * optim.clip and compress.warmup.
 *
 * Properties (test_estimators.c): on 10^5 elements of any continuous distribution 0.8 k to 1.3 k are sent
 * (dgc_sends_between_0_8_and_1_3_of_k); what is sent are the largest elements; class GATHER; the sample begins at
 * random by the key of the call.
 */
#include <math.h>

#include "codec/largest.h"
#include "kernel/kernel.h"

enum { STRIDE_UNIT = 32, ATTEMPTS = 10 };
static const double SHARE = 0.01, LOWER = 0.8, MIN_RATIO = 0.8, MAX_RATIO = 1.3, MIN_HITS = 2;

/* Copies elements at a stride of 1 modulo 32, so that all columns of a matrix are met, to work. Returns their number.
 */
static size_t sample(const taciti_codec_call *call, const float *x, size_t n, size_t k, float *work) {
    const double wanted = fmin(fmax(SHARE * (double)n, MIN_HITS * (double)n / (double)k), (double)n);
    size_t stride = (size_t)((double)n / wanted);
    if (stride > STRIDE_UNIT) stride = stride / STRIDE_UNIT * STRIDE_UNIT + 1;
    size_t count = 0;
    for (size_t i = taciti_rng_below(call->key, 0, stride); i < n; i += stride) work[count++] = x[i];
    return count;
}

static taciti_estimate estimate(const taciti_codec_call *call, const float *x, size_t n, size_t k, float *work) {
    const size_t count = sample(call, x, n, k, work);
    const size_t rank = (size_t)ceil((double)count * (double)k / (double)n);
    uint32_t bits = taciti_magnitude_of_rank(work, count, rank, work);
    for (int i = 0; i < ATTEMPTS; i++) {
        if ((double)taciti_kernels_get()->count_above(x, n, bits) >= MIN_RATIO * (double)k) break;
        bits = taciti_estimate_bits(LOWER * taciti_magnitude_of(bits));
    }
    return (taciti_estimate){bits > 0 ? bits : 1, MAX_RATIO};
}

static const taciti_selector SELECTOR = {.estimate = estimate};

extern const taciti_codec taciti_codec_dgc;
const taciti_codec taciti_codec_dgc = {
    TACITI_COMPOSED(SELECTOR),
    .name = "dgc",
    .reference = true,
    .help = "sends about n / factor elements, those above a threshold that a sample gives",
    .source = "deep gradient compression (arXiv 1712.01887)",
    .selects = true,
};
