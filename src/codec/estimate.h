/* SPDX-License-Identifier: Apache-2.0
 *
 * Selectors that estimate the threshold above which about k elements lie, instead of finding the k largest. They send
 * as many elements as reach it, which the tally tells, and differ in the estimate alone.
 */
#ifndef TACITI_CODEC_ESTIMATE_H
#define TACITI_CODEC_ESTIMATE_H

#include "codec/selector.h"

/* Selects by selector->estimate. If no element reaches the threshold, the largest is sent; if k = n, all are. If an
 * element is not finite, only elements that are not finite are sent: the step is skipped anyway. */
void taciti_select_estimated(const taciti_selector *selector, const taciti_codec_call *call, const float *x, size_t n,
                             void *scratch, taciti_selection *out);

/* The bits of a threshold, at least those of the smallest magnitude above zero and finite. */
uint32_t taciti_estimate_bits(double threshold);

#endif
