/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of sketches on sixteen lanes beyond those of quantisers. A mask has bit i for lane i.
 */
#ifndef TACITI_KERNEL_SKETCH_LANES_H
#define TACITI_KERNEL_SKETCH_LANES_H

#include "kernel/quantise_lanes.h"

#if defined(LANES16_AVX512)

static inline floats16 keep_lanes(uint32_t mask, floats16 x) { return _mm512_maskz_mov_ps((__mmask16)mask, x); }
static inline uint32_t nonzero_mask(floats16 x) { return _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ); }
static inline void store_lanes(float *p, uint32_t mask, floats16 x) { _mm512_mask_storeu_ps(p, (__mmask16)mask, x); }
static inline floats16 to_front(uint32_t mask, floats16 x) { return _mm512_maskz_compress_ps((__mmask16)mask, x); }
/* The lanes of a mask are filled from the first popcount(mask) numbers at p; the others are 0. */
static inline floats16 spread(uint32_t mask, const float *p) { return _mm512_maskz_expandloadu_ps((__mmask16)mask, p); }

static inline __m128i load_counts(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline __m128i ones_of(uint32_t mask) { return _mm_maskz_set1_epi8((__mmask16)mask, 1); }
static inline uint32_t alone(const uint8_t *counts, uint32_t mask) {
    return _mm_mask_cmpeq_epi8_mask((__mmask16)mask, load_counts(counts), _mm_set1_epi8(1));
}
static inline void raise_counts(uint8_t *counts, uint32_t mask) {
    _mm_storeu_si128((__m128i *)(void *)counts, _mm_adds_epu8(load_counts(counts), ones_of(mask)));
}
static inline void lower_counts(uint8_t *counts, uint32_t mask) {
    _mm_storeu_si128((__m128i *)(void *)counts, _mm_sub_epi8(load_counts(counts), ones_of(mask)));
}

#elif defined(LANES16_AVX2)

/* Bytes of all ones for the lanes of a mask. */
static inline __m128i lane_bytes(uint32_t mask) {
    const __m128i place = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m128i bit = _mm_set1_epi64x((long long)0x8040201008040201);
    const __m128i all = _mm_shuffle_epi8(_mm_cvtsi32_si128((int)mask), place);
    return _mm_cmpeq_epi8(_mm_and_si128(all, bit), bit);
}
static inline words16 lane_words(uint32_t mask) {
    const __m128i bytes = lane_bytes(mask);
    return (words16){_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}

static inline floats16 keep_lanes(uint32_t mask, floats16 x) {
    const words16 m = lane_words(mask);
    return (floats16){_mm256_and_ps(x.l, _mm256_castsi256_ps(m.l)), _mm256_and_ps(x.h, _mm256_castsi256_ps(m.h))};
}
static inline uint32_t nonzero_mask(floats16 x) {
    const __m256 zero = _mm256_setzero_ps();
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.l, zero, _CMP_NEQ_UQ)) |
           (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.h, zero, _CMP_NEQ_UQ)) << 8;
}
static inline void store_lanes(float *p, uint32_t mask, floats16 x) {
    const words16 m = lane_words(mask);
    _mm256_maskstore_ps(p, m.l, x.l);
    _mm256_maskstore_ps(p + 8, m.h, x.h);
}

static inline __m128i load_counts(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline uint32_t alone(const uint8_t *counts, uint32_t mask) {
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(load_counts(counts), _mm_set1_epi8(1))) & mask;
}
static inline void raise_counts(uint8_t *counts, uint32_t mask) {
    const __m128i ones = _mm_and_si128(lane_bytes(mask), _mm_set1_epi8(1));
    _mm_storeu_si128((__m128i *)(void *)counts, _mm_adds_epu8(load_counts(counts), ones));
}
static inline void lower_counts(uint8_t *counts, uint32_t mask) {
    _mm_storeu_si128((__m128i *)(void *)counts, _mm_add_epi8(load_counts(counts), lane_bytes(mask)));
}

#else /* the definition */

static inline floats16 keep_lanes(uint32_t mask, floats16 x) {
    EACH_LANE x.lane[i] = mask >> i & 1u ? x.lane[i] : 0;
    return x;
}
static inline uint32_t nonzero_mask(floats16 x) {
    uint32_t mask = 0;
    EACH_LANE mask |= (uint32_t) !(fabsf(x.lane[i]) <= 0) << i;
    return mask;
}
static inline void store_lanes(float *p, uint32_t mask, floats16 x) {
    for (; mask != 0; mask &= mask - 1) p[__builtin_ctz(mask)] = x.lane[__builtin_ctz(mask)];
}
static inline uint32_t alone(const uint8_t *counts, uint32_t mask) {
    uint32_t ones = 0;
    EACH_LANE ones |= (uint32_t)(counts[i] == 1) << i;
    return ones & mask;
}
static inline void raise_counts(uint8_t *counts, uint32_t mask) {
    EACH_LANE counts[i] = (uint8_t)(counts[i] + (counts[i] < TACITI_SKETCH_COUNT_MAX ? mask >> i & 1u : 0));
}
static inline void lower_counts(uint8_t *counts, uint32_t mask) {
    EACH_LANE counts[i] = (uint8_t)(counts[i] - (mask >> i & 1u));
}

#endif

#if !defined(LANES16_AVX512)
static inline floats16 to_front(uint32_t mask, floats16 x) {
    float lanes[16], front[16] = {0};
    size_t k = 0;
    store(lanes, x, 16);
    for (; mask != 0; mask &= mask - 1) front[k++] = lanes[__builtin_ctz(mask)];
    return load(front, 16);
}
/* The lanes of a mask are filled from the first popcount(mask) numbers at p; the others are 0. */
static inline floats16 spread(uint32_t mask, const float *p) {
    float lanes[16] = {0};
    for (; mask != 0; mask &= mask - 1) lanes[__builtin_ctz(mask)] = *p++;
    return load(lanes, 16);
}
#endif

#endif
