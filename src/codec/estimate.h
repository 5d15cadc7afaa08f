/* SPDX-License-Identifier: Apache-2.0
 *
 * Selectors that estimate the threshold above which about k elements lie, instead of finding the k largest. They send
 * as many elements as reach it, which the tally tells, and differ in the estimate alone.
 */
#ifndef TACITI_CODEC_ESTIMATE_H
#define TACITI_CODEC_ESTIMATE_H

#include "codec/selector.h"

typedef struct taciti_estimate {
    uint32_t bits;    /* of the threshold's magnitude (kernel.h) */
    double max_ratio; /* if more than so many times k elements reach it, the k largest of those are sent; 0: never */
} taciti_estimate;

/* x[n] finite, 0 < k < n; work: n + 16 floats. */
typedef taciti_estimate (*taciti_estimator)(const taciti_codec_call *call, const float *x, size_t n, size_t k,
                                            float *work);

/* The slot `select` of a selector. If no element reaches the threshold, the largest is sent; if k = n, all are. If an
 * element is not finite, only elements that are not finite are sent: the step is skipped anyway. */
void taciti_select_estimated(taciti_estimator estimator, const taciti_codec_call *call, const float *x, size_t n,
                             void *scratch, taciti_selection *out);

/* The bits of a threshold, at least those of the smallest magnitude above zero and finite. */
uint32_t taciti_estimate_bits(double threshold);

#endif
