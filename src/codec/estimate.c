/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/estimate.h"

#include "codec/largest.h"
#include "kernel/kernel.h"

uint32_t taciti_estimate_bits(double threshold) {
    if (!(threshold > 0)) return 1;
    const uint32_t bits = taciti_magnitude_bits(threshold), max = TACITI_MAGNITUDE_INF - 1;
    return bits < max ? bits : max;
}

void taciti_select_estimated(const taciti_selector *selector, const taciti_codec_call *call, const float *x, size_t n,
                             void *scratch, taciti_selection *out) {
    const size_t k = taciti_kept_of(call->setting.factor, TACITI_FACTOR, n);
    if (k >= n) {
        taciti_select_largest(x, n, n, scratch, out);
        return;
    }
    taciti_estimate estimate = {.bits = TACITI_MAGNITUDE_INF};
    if (taciti_kernels_get()->all_finite(x, n)) estimate = selector->estimate(call, x, n, k, scratch);
    taciti_select_by_threshold(x, n, estimate.bits, out);
    if (out->count == 0)
        taciti_select_largest(x, n, 1, scratch, out);
    else if (estimate.max_ratio > 0 && (double)out->count > estimate.max_ratio * (double)k)
        taciti_selection_reduce(out, k, scratch);
}
