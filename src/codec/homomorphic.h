/* SPDX-License-Identifier: Apache-2.0
 *
 * A sketch that adds up: the sum of the sketches of several ranks is the sketch of the sum, and whoever knows which
 * elements of the sum are there (the index) decodes it exactly. For sums in a reduce-scatter.
 *
 * Source: Li et al., "Lossless Homomorphic Compression" (LHC, arXiv 2402.07529) and its code, and TAGC (arXiv
 * 2504.05638). x in R^n, U the union of nonzero elements, k = 3 hashes, Y the sketch, C the counts (mapping):
 *   index    n bits, merged by OR                                 taciti_sketch_index, _merge
 *   Y        rows of counters, Y[row_j(b)] += x for j = 0, 1, 2   taciti_sketch_add; merged by +
 *   C        how many elements of U each counter of Y holds       taciti_sketch_map, from the merged index
 *   peeling  an element that is alone in a counter is read there and removed from its others; again until none is
 *            alone                                                taciti_sketch_peel
 * Peeling recovers all elements while |U| is below 0.8185 of the counters (the threshold of 3-uniform hypergraphs).
 *
 * Deviations from LHC: a unit that hashes as one has 16 elements, not 1024; its three rows are different, and drawn
 * again for every seed; there are no signs, since nothing is ever estimated; large arrays are cut into zones of about
 * 8192 rows, which fit a cache; rows follow from the measured union.
 *
 * Sums decode up to rounding, about 1e-6 of the largest one. (The integers of LHC, which wrap around, would decode
 * the sum of rounded numbers exactly.)
 *
 * An element that cannot be decoded stays pending: it is counted and listed, never estimated. The caller fetches the
 * exact sums of those elements (taciti_sketch_pack with the list as index).
 *
 * An element that is not finite is decoded as such or stays pending, and poisons others.
 *
 * No function allocates, logs and forwards errors only. Any thread; not collective.
 */
#ifndef TACITI_CODEC_HOMOMORPHIC_H
#define TACITI_CODEC_HOMOMORPHIC_H

#include "kernel/kernel.h"

/* The parameters that all ranks must agree on. taciti_sketch_init() fills it; `zones` may be changed before the first
 * use. */
typedef struct taciti_sketch {
    size_t n;      /* floats of the array, < 2^32 */
    size_t rows;   /* of 16 counters, >= 3 */
    size_t zones;  /* that are peeled alone: up to as many as words of the index, of three rows or more; not 0 */
    uint64_t seed; /* another one in every step, so that a failure does not repeat */
} taciti_sketch;

/* ---- the index: n bits in words of 64, bit i for element i ----------------------------------------------------- */

static inline size_t taciti_sketch_index_words(size_t n) { return n / 64 + (n % 64 != 0); }
void taciti_sketch_index(const float *x, size_t n, uint64_t *words); /* NaN and Inf count, -0 does not */
void taciti_sketch_merge(uint64_t *words, const uint64_t *other, size_t n);
size_t taciti_sketch_union(const uint64_t *words, size_t n); /* number of bits */
/* The number that a sketch must be sized by: 16 times the largest number of elements with equal i % 16, since each of
 * the 16 lanes is peeled alone. At least the union, and little more if nonzeros are spread evenly. */
size_t taciti_sketch_measure(const uint64_t *words, size_t n);

/* ---- shape ------------------------------------------------------------------------------------------------------- */

/* Rows of 16 counters for a measured union: load 0.78, less below 4000 rows, where chance weighs more. */
size_t taciti_sketch_rows(size_t measured);
/* For a fixed ratio of elements per counter. */
size_t taciti_sketch_rows_at(size_t n, double ratio);

taciti_sketch taciti_sketch_init(size_t n, size_t rows, uint64_t seed);

enum { TACITI_SKETCH_NUMBER_BYTES = 4 };                 /* of a counter or packed value */
size_t taciti_sketch_bytes(const taciti_sketch *sketch); /* of the counters: what travels */

/* ---- sketch ------------------------------------------------------------------------------------------------------ */

/* counters[bytes] += sketch of x[n]. */
void taciti_sketch_add(const taciti_sketch *sketch, const float *x, float *counters);
/* acc += other: a rank's part of the reduction. */
void taciti_sketch_sum(const taciti_sketch *sketch, float *acc, const float *other);

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

size_t taciti_sketch_workspace_bytes(const taciti_sketch *sketch);

/* Builds the mapping from the merged index. workspace: aligned to 64. E_DATA: bits behind n. */
tacit_status taciti_sketch_map(const taciti_sketch *sketch, const uint64_t *index, void *workspace);

/* Decodes what can be decoded: x[n] = sums, 0 where the index has none and where elements stay pending. Uses up the
 * counters. *pending: number of elements that stay pending.
 * E_DATA, with x decoded but wrong, and pending not set: counters without pending elements are above 2^-10 of the
 * largest, so the sketch holds elements that the index lacks. */
tacit_status taciti_sketch_peel(const taciti_sketch *sketch, float *counters, void *workspace, float *x,
                                size_t *pending);

/* words = bits of the pending elements, after a peel. */
void taciti_sketch_pending(const taciti_sketch *sketch, const void *workspace, uint64_t *words);

/* ---- packed values: what an index that all ranks know makes possible, without a sketch --------------------------- */

/* values = the elements of x in the index, which add up as x does. TACITI_SKETCH_LINE numbers behind them may be
 * overwritten. E_DATA: bits behind n. */
tacit_status taciti_sketch_pack(const taciti_sketch *sketch, const uint64_t *index, const float *x, float *values);
/* x[n] = values where the index has elements, 0 elsewhere. E_DATA: bits behind n. */
tacit_status taciti_sketch_unpack(const taciti_sketch *sketch, const uint64_t *index, const float *values, float *x);

#endif
