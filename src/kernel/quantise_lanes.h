/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of quantisers on sixteen lanes beyond lanes16.h. A mask has bit i for lane i.
 */
#ifndef TACITI_KERNEL_QUANTISE_LANES_H
#define TACITI_KERNEL_QUANTISE_LANES_H

#include "kernel/lanes16.h"

#if defined(LANES16_AVX512)

static inline words16 magnitude_bits(floats16 x) { return _mm512_and_si512(bits16(x), _mm512_set1_epi32(0x7fffffff)); }
static inline floats16 abs16(floats16 x) { return _mm512_castsi512_ps(magnitude_bits(x)); }
static inline words16 max_words(words16 a, words16 b) { return _mm512_max_epi32(a, b); }
static inline uint32_t fold_max_words(words16 a) { return (uint32_t)_mm512_reduce_max_epi32(a); }
static inline void store_low_bytes(void *p, words16 a) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(a)); }
static inline words16 join_nibbles(words16 low, words16 high) {
    return _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(15)), _mm512_slli_epi32(high, 4));
}
static inline words16 load_bytes(const void *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
static inline floats16 load_int8(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p))); }
static inline words16 high_nibbles(words16 a) { return _mm512_srli_epi32(a, 4); }
static inline floats16 lookup(const float *table, words16 index) {
    return _mm512_permutexvar_ps(index, _mm512_loadu_ps(table));
}
static inline uint32_t sign_mask(floats16 x) { return _mm512_movepi32_mask(bits16(x)); }
static inline uint32_t above_mask(floats16 x, floats16 t) { return _mm512_cmp_ps_mask(x, t, _CMP_GT_OQ); }
static inline floats16 add_above(floats16 sum, floats16 x, floats16 t, floats16 y) {
    return _mm512_mask_add_ps(sum, _mm512_cmp_ps_mask(x, t, _CMP_GT_OQ), sum, y);
}
static inline floats16 add_others(floats16 sum, floats16 x, floats16 t, floats16 y) {
    return _mm512_mask_add_ps(sum, _knot_mask16(_mm512_cmp_ps_mask(x, t, _CMP_GT_OQ)), sum, y);
}
static inline floats16 where(uint32_t mask, floats16 yes, floats16 no) {
    return _mm512_mask_blend_ps((__mmask16)mask, no, yes);
}
static inline floats16 swap_lanes(floats16 x, int distance) {
    switch (distance) {
    case 8: return _mm512_shuffle_f32x4(x, x, 0x4e);
    case 4: return _mm512_shuffle_f32x4(x, x, 0xb1);
    case 2: return _mm512_permute_ps(x, 0x4e);
    default: return _mm512_permute_ps(x, 0xb1);
    }
}

typedef struct doubles16 {
    __m512d l, h;
} doubles16;
static inline doubles16 no_doubles(void) { return (doubles16){_mm512_setzero_pd(), _mm512_setzero_pd()}; }
/* The product of two floats is exact in double: here, too, one rounding per lane. */
static inline doubles16 add_squares(doubles16 sum, const float *x) {
    const __m512d l = _mm512_cvtps_pd(_mm256_loadu_ps(x)), h = _mm512_cvtps_pd(_mm256_loadu_ps(x + 8));
    return (doubles16){_mm512_fmadd_pd(l, l, sum.l), _mm512_fmadd_pd(h, h, sum.h)};
}
static inline void store_doubles(double *p, doubles16 a) {
    _mm512_storeu_pd(p, a.l);
    _mm512_storeu_pd(p + 8, a.h);
}

#elif defined(LANES16_AVX2)

static inline words16 magnitude_bits(floats16 x) {
    return (words16)BOTH_BY(_mm256_and_si256, bits16(x), _mm256_set1_epi32(0x7fffffff));
}
static inline floats16 abs16(floats16 x) {
    const words16 bits = magnitude_bits(x);
    return (floats16){_mm256_castsi256_ps(bits.l), _mm256_castsi256_ps(bits.h)};
}
static inline words16 max_words(words16 a, words16 b) { return (words16)BOTH(_mm256_max_epi32, a, b); }
static inline uint32_t fold_max_words(words16 a) {
    const __m256i eight = _mm256_max_epi32(a.l, a.h);
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
static inline void store_low_bytes(void *p, words16 a) {
    const __m256i byte = _mm256_set1_epi32(255);
    const __m256i mixed = _mm256_packus_epi32(_mm256_and_si256(a.l, byte), _mm256_and_si256(a.h, byte));
    const __m256i all = _mm256_permute4x64_epi64(mixed, 0xd8); /* 16-bit words in order */
    _mm_storeu_si128(p, _mm_packus_epi16(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}
static inline words16 join_nibbles(words16 low, words16 high) {
    const __m256i nibble = _mm256_set1_epi32(15);
    return (words16){_mm256_or_si256(_mm256_and_si256(low.l, nibble), _mm256_slli_epi32(high.l, 4)),
                     _mm256_or_si256(_mm256_and_si256(low.h, nibble), _mm256_slli_epi32(high.h, 4))};
}
static inline words16 load_bytes(const void *p) {
    const __m128i all = _mm_loadu_si128(p);
    return (words16){_mm256_cvtepu8_epi32(all), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(all, all))};
}
static inline floats16 load_int8(const void *p) {
    const __m128i all = _mm_loadu_si128(p);
    return (floats16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(all)),
                      _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(all, all)))};
}
static inline words16 high_nibbles(words16 a) { return (words16)BOTH_BY(_mm256_srli_epi32, a, 4); }
static inline __m256 lookup8(const float *table, __m256i index) {
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), index);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}
static inline floats16 lookup(const float *table, words16 index) {
    return (floats16){lookup8(table, index.l), lookup8(table, index.h)};
}
static inline uint32_t sign_mask(floats16 x) {
    return (uint32_t)_mm256_movemask_ps(x.l) | (uint32_t)_mm256_movemask_ps(x.h) << 8;
}
static inline uint32_t above_mask(floats16 x, floats16 t) {
    return sign_mask((floats16){_mm256_cmp_ps(x.l, t.l, _CMP_GT_OQ), _mm256_cmp_ps(x.h, t.h, _CMP_GT_OQ)});
}
static inline floats16 add_above(floats16 sum, floats16 x, floats16 t, floats16 y) {
    return (floats16){_mm256_add_ps(sum.l, _mm256_and_ps(_mm256_cmp_ps(x.l, t.l, _CMP_GT_OQ), y.l)),
                      _mm256_add_ps(sum.h, _mm256_and_ps(_mm256_cmp_ps(x.h, t.h, _CMP_GT_OQ), y.h))};
}
static inline floats16 add_others(floats16 sum, floats16 x, floats16 t, floats16 y) {
    return (floats16){_mm256_add_ps(sum.l, _mm256_andnot_ps(_mm256_cmp_ps(x.l, t.l, _CMP_GT_OQ), y.l)),
                      _mm256_add_ps(sum.h, _mm256_andnot_ps(_mm256_cmp_ps(x.h, t.h, _CMP_GT_OQ), y.h))};
}
static inline __m256 where8(uint32_t mask, __m256 yes, __m256 no) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), lane), lane);
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(set));
}
static inline floats16 where(uint32_t mask, floats16 yes, floats16 no) {
    return (floats16){where8(mask, yes.l, no.l), where8(mask >> 8, yes.h, no.h)};
}
static inline floats16 swap_lanes(floats16 x, int distance) {
    switch (distance) {
    case 8: return (floats16){x.h, x.l};
    case 4: return (floats16){_mm256_permute2f128_ps(x.l, x.l, 1), _mm256_permute2f128_ps(x.h, x.h, 1)};
    case 2: return (floats16){_mm256_permute_ps(x.l, 0x4e), _mm256_permute_ps(x.h, 0x4e)};
    default: return (floats16){_mm256_permute_ps(x.l, 0xb1), _mm256_permute_ps(x.h, 0xb1)};
    }
}

typedef struct doubles16 {
    __m256d a, b, c, d;
} doubles16;
static inline doubles16 no_doubles(void) {
    const __m256d zero = _mm256_setzero_pd();
    return (doubles16){zero, zero, zero, zero};
}
static inline __m256d add_squares4(__m256d sum, const float *x) {
    const __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(x));
    return _mm256_fmadd_pd(wide, wide, sum);
}
static inline doubles16 add_squares(doubles16 sum, const float *x) {
    return (doubles16){add_squares4(sum.a, x), add_squares4(sum.b, x + 4), add_squares4(sum.c, x + 8),
                       add_squares4(sum.d, x + 12)};
}
static inline void store_doubles(double *p, doubles16 x) {
    _mm256_storeu_pd(p, x.a);
    _mm256_storeu_pd(p + 4, x.b);
    _mm256_storeu_pd(p + 8, x.c);
    _mm256_storeu_pd(p + 12, x.d);
}

#else /* the definition */

static inline words16 magnitude_bits(floats16 x) { /* without the sign: ascends with the magnitude, then Inf, NaN */
    words16 r;
    EACH_LANE r.lane[i] = bits_of(x.lane[i]) & 0x7fffffffu;
    return r;
}
static inline floats16 abs16(floats16 x) {
    EACH_LANE x.lane[i] = float_of(bits_of(x.lane[i]) & 0x7fffffffu);
    return x;
}
static inline words16 max_words(words16 a, words16 b) { /* as signed numbers */
    EACH_LANE a.lane[i] = (int32_t)a.lane[i] > (int32_t)b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}
static inline uint32_t fold_max_words(words16 a) {
    for (size_t i = 1; i < 16; i++) a.lane[0] = (int32_t)a.lane[i] > (int32_t)a.lane[0] ? a.lane[i] : a.lane[0];
    return a.lane[0];
}
static inline void store_low_bytes(void *p, words16 a) {
    unsigned char *byte = p;
    EACH_LANE byte[i] = (unsigned char)a.lane[i];
}
/* Low nibbles of both words in the low byte. */
static inline words16 join_nibbles(words16 low, words16 high) {
    EACH_LANE low.lane[i] = (low.lane[i] & 15u) | high.lane[i] << 4;
    return low;
}
static inline words16 load_bytes(const void *p) {
    const unsigned char *byte = p;
    words16 r;
    EACH_LANE r.lane[i] = byte[i];
    return r;
}
static inline floats16 load_int8(const void *p) {
    const int8_t *byte = p;
    floats16 r;
    EACH_LANE r.lane[i] = (float)byte[i];
    return r;
}
static inline words16 high_nibbles(words16 a) {
    EACH_LANE a.lane[i] >>= 4;
    return a;
}
/* table[16] at the lower 4 bits of each word */
static inline floats16 lookup(const float *table, words16 index) {
    floats16 r;
    EACH_LANE r.lane[i] = table[index.lane[i] & 15u];
    return r;
}
static inline uint32_t sign_mask(floats16 x) {
    uint32_t mask = 0;
    EACH_LANE mask |= bits_of(x.lane[i]) >> 31 << i;
    return mask;
}
static inline uint32_t above_mask(floats16 x, floats16 t) {
    uint32_t mask = 0;
    EACH_LANE mask |= (uint32_t)(x.lane[i] > t.lane[i]) << i;
    return mask;
}
/* sum + y where x > t, sum elsewhere; and the other way round. No sum is -0. */
static inline floats16 add_above(floats16 sum, floats16 x, floats16 t, floats16 y) {
    EACH_LANE sum.lane[i] += x.lane[i] > t.lane[i] ? y.lane[i] : 0.0f;
    return sum;
}
static inline floats16 add_others(floats16 sum, floats16 x, floats16 t, floats16 y) {
    EACH_LANE sum.lane[i] += x.lane[i] > t.lane[i] ? 0.0f : y.lane[i];
    return sum;
}
static inline floats16 where(uint32_t mask, floats16 yes, floats16 no) {
    EACH_LANE no.lane[i] = (mask >> i & 1u) != 0 ? yes.lane[i] : no.lane[i];
    return no;
}
/* Lane i gets what lane i ^ distance holds; 8, 4, 2 or 1. */
static inline floats16 swap_lanes(floats16 x, int distance) {
    floats16 r;
    EACH_LANE r.lane[i] = x.lane[i ^ (size_t)distance];
    return r;
}

typedef struct doubles16 {
    double lane[16];
} doubles16;
static inline doubles16 no_doubles(void) { return (doubles16){{0}}; }
/* sum + x^2 of x[16] */
static inline doubles16 add_squares(doubles16 sum, const float *x) {
    EACH_LANE sum.lane[i] += (double)x[i] * (double)x[i];
    return sum;
}
static inline void store_doubles(double *p, doubles16 a) { EACH_LANE p[i] = a.lane[i]; }

#endif

/* The fold of kernel.h. */
static inline double fold_doubles(doubles16 a) {
    double lanes[LANES];
    store_doubles(lanes, a);
    return fold_lanes(lanes);
}

#endif
