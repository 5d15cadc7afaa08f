/* SPDX-License-Identifier: Apache-2.0
 *
 * What the released code of TAGC (arXiv 2504.05638; github.com/ipolyakov/TAGC, commit 4b5ba94) does differently from
 * its papers, so that the cost can be shown: options sketch.compat and tagc.compat. Results are wrong by design.
 *
 *   selection  a threshold from a ladder of 25 rungs: the rung before the first with which at least the wanted share of
 *              the elements is zero, so the wanted sparsity is not reached
 *   index      1 bit per element, merged by a sum of bytes modulo 256: carries clear bits that are true and set false
 *              ones. The bit also replaces the lowest bit of the value
 *   sketch     taciti_sketch_init_compat with units of 1024 and a fixed ratio, whatever the union is
 *   decoding   what does not peel is estimated by the median of its three counters; an element that the index has lost
 *              stays in the counters. Neither error is noticed, nor fed back
 *
 * Deviations: the owner of a range alone merges indices (the release all-reduces them, 2 bits per element instead of
 * 1), so the lowest bit of a value is the bit of its own rank's index; a range that is no multiple of 1024 ends with a
 * short unit (the release sums the rest densely).
 *
 * Nothing allocates. Any thread; not collective.
 */
#ifndef TACITI_CODEC_RELEASED_H
#define TACITI_CODEC_RELEASED_H

#include "codec/homomorphic.h"

enum { TACITI_RELEASED_RUNGS = 25, TACITI_RELEASED_UNIT = 1024 };
#define TACITI_RELEASED_RATIO 2.0 /* elements per counter, unless the options say otherwise */

/* The threshold for x[n], of which a share `sparsity` should become 0; 0 if no rung is low enough. */
float taciti_released_threshold(const float *x, size_t n, double sparsity);

/* selected[n] = x where |x| >= threshold, else 0; error[n], unless NULL, the rest. Returns the number of the selected.
 */
size_t taciti_released_select(const float *x, size_t n, float threshold, float *selected, float *error);

/* x[n]: the lowest bit of every value becomes that of the index. */
void taciti_released_inject(float *x, size_t n, const uint64_t *index);

/* words += other, byte by byte; bits behind n are cleared. */
void taciti_released_merge(uint64_t *words, const uint64_t *other, size_t n);

/* x[n] = what the sketch, in the compat layout and in f32, gives with that merged index; estimates where it does not
 * decode. *estimated: their number, and `pending` their bits. Uses up the counters. */
tacit_status taciti_released_decode(const taciti_sketch *sketch, const uint64_t *index, void *counters, void *workspace,
                                    uint64_t *pending, float *x, size_t *estimated);

#endif
