/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection by magnitude, for selectors: by a threshold, or exactly the k largest elements. Magnitudes are compared by
 * their bits (kernel.h). Lower indices come first among equal magnitudes. Zeros are never selected, and what is
 * not finite always is, even if that makes more than k elements.
 *
 * The k largest are found in one pass over x: a sample gives a threshold that probably lets a few more than k through,
 * and the exact threshold is then sought among those. If the sample was misleading, histograms of x find it.
 */
#ifndef TACITI_CODEC_LARGEST_H
#define TACITI_CODEC_LARGEST_H

#include "codec/selector.h"

/* The bits of the smallest magnitude that is at least `threshold` > 0, and the number of such bits. */
uint32_t taciti_magnitude_bits(double threshold);
double taciti_magnitude_of(uint32_t bits);
/* The bits of an estimated threshold, at least those of the smallest magnitude above zero and finite. */
uint32_t taciti_estimate_bits(double threshold);

/* The bits of the rank-th largest magnitude of v[n], 1 <= rank <= n. work[n] is overwritten and may be v. */
uint32_t taciti_magnitude_of_rank(const float *v, size_t n, size_t rank, float *work);

/* Both fill *out but for its arrays, whose use taciti_selection describes. `bits` as from taciti_magnitude_bits. */
void taciti_select_by_threshold(const float *x, size_t n, uint32_t bits, taciti_selection *out);
/* work: n floats. */
void taciti_select_largest(const float *x, size_t n, size_t k, float *work, taciti_selection *out);

/* taciti_selector.select by the call's threshold, or else by its factor. */
void taciti_select_topk(const taciti_codec_call *call, const float *x, size_t n, void *scratch, taciti_selection *out);

/* taciti_select_largest() for one of many short arrays of about the same scale, n <= 65536. *below is 1 before the
 * first one, and then what the call before left. The arrays of *out are filled even if all elements are selected. */
void taciti_select_largest_of_chunk(const float *x, size_t n, size_t k, float *work, taciti_selection *out,
                                    uint32_t *below);

/* Reduces a selection to its k largest elements; work: out->count floats. */
void taciti_selection_reduce(taciti_selection *out, size_t k, float *work);

#endif
