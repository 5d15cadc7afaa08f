/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of selection on sixteen lanes beyond lanes16.h, for the sets with wide registers. lanes_set says which
 * lanes; AVX2 finds and uses them by eights.
 */
#ifndef TACITI_KERNEL_SELECT_LANES_H
#define TACITI_KERNEL_SELECT_LANES_H

#include "kernel/quantise_lanes.h"

#if defined(LANES16_AVX512)

static inline words16 splat_word(uint32_t a) { return _mm512_set1_epi32((int)a); }
static inline words16 add_to_words(words16 a, uint32_t b) { return _mm512_add_epi32(a, splat_word(b)); }
static inline words16 load_words(const uint32_t *p) { return _mm512_loadu_si512(p); }

typedef __mmask16 lanes_set;
static inline lanes_set lanes_of(uint32_t bits) { return (lanes_set)bits; } /* bit i for lane i */
static inline uint32_t bits_of_lanes(lanes_set lanes) { return lanes; }
static inline bool any_lane(lanes_set lanes) { return lanes != 0; }
static inline size_t count_lanes(lanes_set lanes) { return (size_t)__builtin_popcount(lanes); }
/* As signed numbers. */
static inline lanes_set greater(words16 a, words16 b) { return _mm512_cmpgt_epi32_mask(a, b); }
static inline lanes_set equal(words16 a, words16 b) { return _mm512_cmpeq_epi32_mask(a, b); }
static inline lanes_set between(words16 a, words16 low, words16 high) { /* low < a <= high */
    return _mm512_mask_cmple_epi32_mask(_mm512_cmpgt_epi32_mask(a, low), a, high);
}
/* x where a is not greater than b, else 0 */
static inline floats16 keep_up_to(words16 a, words16 b, floats16 x) {
    return _mm512_maskz_mov_ps(_mm512_cmple_epi32_mask(a, b), x);
}
/* Lanes move to the front; sixteen are written. A compress whose destination is memory is several times slower on some
 * CPUs. */
static inline void put_floats(float *p, lanes_set lanes, floats16 x) {
    _mm512_storeu_ps(p, _mm512_maskz_compress_ps(lanes, x));
}
static inline void put_words(uint32_t *p, lanes_set lanes, words16 a) {
    _mm512_storeu_si512(p, _mm512_maskz_compress_epi32(lanes, a));
}

#elif defined(LANES16_AVX2) /* no compress: a table gives the permutation that moves lanes of 8 to the front */

/* Byte i of the entry of a mask: the place of its i-th bit that is set. */
#define BIT(m, i) ((uint64_t)((m) >> (i)) & 1u)
#define BELOW(m, i) (unsigned)__builtin_popcount((unsigned)(m) & ((1u << (i)) - 1u))
#define PLACE(m, i) (BIT(m, i) * ((uint64_t)(i) << (8u * (BELOW(m, i) & 7u))))
#define ENTRY(m)                                                                                                       \
    (PLACE(m, 0) | PLACE(m, 1) | PLACE(m, 2) | PLACE(m, 3) | PLACE(m, 4) | PLACE(m, 5) | PLACE(m, 6) | PLACE(m, 7))
#define ENTRIES4(m) ENTRY(m), ENTRY((m) + 1), ENTRY((m) + 2), ENTRY((m) + 3)
#define ENTRIES16(m) ENTRIES4(m), ENTRIES4((m) + 4), ENTRIES4((m) + 8), ENTRIES4((m) + 12)
#define ENTRIES64(m) ENTRIES16(m), ENTRIES16((m) + 16), ENTRIES16((m) + 32), ENTRIES16((m) + 48)
static const uint64_t ORDERS[256] = {ENTRIES64(0), ENTRIES64(64), ENTRIES64(128), ENTRIES64(192)};

static inline __m256i order_of(uint32_t mask) {
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)ORDERS[mask]));
}
static inline words16 splat_word(uint32_t a) { return (words16){_mm256_set1_epi32((int)a), _mm256_set1_epi32((int)a)}; }
static inline words16 add_to_words(words16 a, uint32_t b) { return (words16)BOTH(_mm256_add_epi32, a, splat_word(b)); }
static inline words16 load_words(const uint32_t *p) {
    return (words16){_mm256_loadu_si256((const __m256i *)(const void *)p),
                     _mm256_loadu_si256((const __m256i *)(const void *)(p + 8))};
}

typedef struct lanes_set {
    uint32_t l, h;
} lanes_set;
static inline lanes_set lanes_of(uint32_t bits) { return (lanes_set){bits & 0xffu, bits >> 8}; }
static inline uint32_t bits_of_lanes(lanes_set lanes) { return lanes.l | lanes.h << 8; }
static inline bool any_lane(lanes_set lanes) { return (lanes.l | lanes.h) != 0; }
static inline size_t count_eight(uint32_t bits) { return (size_t)__builtin_popcount(bits); }
static inline size_t count_lanes(lanes_set lanes) { return count_eight(lanes.l) + count_eight(lanes.h); }
static inline lanes_set set_lanes(words16 a) {
    return (lanes_set){(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(a.l)),
                       (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(a.h))};
}
static inline lanes_set greater(words16 a, words16 b) { return set_lanes((words16)BOTH(_mm256_cmpgt_epi32, a, b)); }
static inline lanes_set equal(words16 a, words16 b) { return set_lanes((words16)BOTH(_mm256_cmpeq_epi32, a, b)); }
static inline lanes_set between(words16 a, words16 low, words16 high) {
    const words16 above = BOTH(_mm256_cmpgt_epi32, a, low), beyond = BOTH(_mm256_cmpgt_epi32, a, high);
    return set_lanes((words16)BOTH(_mm256_andnot_si256, beyond, above));
}
static inline floats16 keep_up_to(words16 a, words16 b, floats16 x) {
    return (floats16){_mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.l, b.l)), x.l),
                      _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.h, b.h)), x.h)};
}
static inline void put_floats(float *p, lanes_set lanes, floats16 x) {
    _mm256_storeu_ps(p, _mm256_permutevar8x32_ps(x.l, order_of(lanes.l)));
    _mm256_storeu_ps(p + count_eight(lanes.l), _mm256_permutevar8x32_ps(x.h, order_of(lanes.h)));
}
static inline void put_words(uint32_t *p, lanes_set lanes, words16 a) {
    __m256i *upper = (__m256i *)(void *)(p + count_eight(lanes.l));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permutevar8x32_epi32(a.l, order_of(lanes.l)));
    _mm256_storeu_si256(upper, _mm256_permutevar8x32_epi32(a.h, order_of(lanes.h)));
}

#endif

#endif
