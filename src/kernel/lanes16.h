/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen float lanes, whatever the registers are: one __m512, two __m256 or an array. The network kernels (net_*.h)
 * are written once over these and compiled once per instruction set; every operation below rounds exactly as the array
 * form does, so the sets agree bit for bit.
 *
 * floats16  sixteen floats            words16  sixteen uint32_t
 * A count k (1..16) limits loads and stores to the first k lanes; lanes beyond are read as zero and not written.
 */
#ifndef TACITI_KERNEL_LANES16_H
#define TACITI_KERNEL_LANES16_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "kernel/array_element.h"

#if defined(LANES16_AVX512)

#include <immintrin.h>

typedef __m512 floats16;
typedef __m512i words16;

static inline __mmask16 first_lanes(size_t k) { return (__mmask16)((1u << k) - 1u); }

static inline floats16 splat(float x) { return _mm512_set1_ps(x); }
static inline floats16 load(const float *p, size_t k) {
    return k == 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first_lanes(k), p);
}
static inline void store(float *p, floats16 x, size_t k) {
    if (k == 16)
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, first_lanes(k), x);
}
/* The first k lanes of x, the others of y. */
static inline floats16 first_or(floats16 x, size_t k, floats16 y) { return _mm512_mask_mov_ps(y, first_lanes(k), x); }
static inline floats16 add16(floats16 a, floats16 b) { return _mm512_add_ps(a, b); }
static inline floats16 sub16(floats16 a, floats16 b) { return _mm512_sub_ps(a, b); }
static inline floats16 mul16(floats16 a, floats16 b) { return _mm512_mul_ps(a, b); }
static inline floats16 div16(floats16 a, floats16 b) { return _mm512_div_ps(a, b); }
static inline floats16 fma16(floats16 a, floats16 b, floats16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline floats16 fnma16(floats16 a, floats16 b, floats16 c) { return _mm512_fnmadd_ps(a, b, c); }
static inline floats16 max16(floats16 a, floats16 b) { return _mm512_max_ps(a, b); }
static inline floats16 min16(floats16 a, floats16 b) { return _mm512_min_ps(a, b); }

/* x * 2^n, rounded once; n is integral. */
static inline floats16 scale16(floats16 x, floats16 n) { return _mm512_scalef_ps(x, n); }

static inline void store_bf16(taciti_bf16 *p, floats16 x, size_t k) {
    const words16 bits = _mm512_castps_si512(x);
    const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    const words16 even = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
    const words16 rounded = _mm512_mask_add_epi32(even, odd, even, _mm512_set1_epi32(1));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const words16 best = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    const words16 uppers = _mm512_setr_epi32(0x30001, 0x70005, 0xb0009, 0xf000d, 0x130011, 0x170015, 0x1b0019, 0x1f001d,
                                             0, 0, 0, 0, 0, 0, 0, 0);
    const __m256i half = _mm512_castsi512_si256(_mm512_permutexvar_epi16(uppers, best));
    if (k == 16)
        _mm256_storeu_si256((__m256i *)(void *)p, half);
    else
        _mm256_mask_storeu_epi16(p, first_lanes(k), half);
}

static inline words16 no_words(void) { return _mm512_setzero_si512(); }
static inline words16 bits16(floats16 x) { return _mm512_castps_si512(x); }
static inline words16 count_from(uint32_t first) {
    const words16 lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(lane, _mm512_set1_epi32((int)first));
}
static inline words16 flip_bits(words16 a, uint32_t b) { return _mm512_xor_si512(a, _mm512_set1_epi32((int)b)); }
static inline words16 times(words16 a, uint32_t b) { return _mm512_mullo_epi32(a, _mm512_set1_epi32((int)b)); }
static inline words16 fold_down(words16 a, unsigned shift) { return _mm512_xor_si512(a, _mm512_srli_epi32(a, shift)); }
/* x where word >= threshold, else 0 */
static inline floats16 keep_from(words16 word, uint32_t threshold, floats16 x) {
    return _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(word, _mm512_set1_epi32((int)threshold)), x);
}

static inline __m256 lower_half(floats16 x) { return _mm512_castps512_ps256(x); }
static inline __m256 upper_half(floats16 x) { return _mm512_extractf32x8_ps(x, 1); }

#elif defined(LANES16_AVX2)

#include <immintrin.h>

typedef struct floats16 {
    __m256 l, h;
} floats16;
typedef struct words16 {
    __m256i l, h;
} words16;

/* An operation on both halves of its operands. */
#define BOTH(f, a, b)                                                                                                  \
    { f((a).l, (b).l), f((a).h, (b).h) }
#define BOTH_BY(f, a, b)                                                                                               \
    { f((a).l, b), f((a).h, b) }
#define BOTH3(f, a, b, c)                                                                                              \
    { f((a).l, (b).l, (c).l), f((a).h, (b).h, (c).h) }

/* Eight lanes of all ones for those among the first k (0..16) that start at lane `from`. */
static inline __m256i first_lanes(size_t k, size_t from) {
    static const int32_t window[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(const void *)(window + 16 - k + from));
}

static inline floats16 splat(float x) { return (floats16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline floats16 load(const float *p, size_t k) {
    if (k == 16) return (floats16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
    return (floats16){_mm256_maskload_ps(p, first_lanes(k, 0)), _mm256_maskload_ps(p + 8, first_lanes(k, 8))};
}
static inline void store(float *p, floats16 x, size_t k) {
    if (k == 16) {
        _mm256_storeu_ps(p, x.l);
        _mm256_storeu_ps(p + 8, x.h);
    } else {
        _mm256_maskstore_ps(p, first_lanes(k, 0), x.l);
        _mm256_maskstore_ps(p + 8, first_lanes(k, 8), x.h);
    }
}
static inline floats16 first_or(floats16 x, size_t k, floats16 y) {
    return (floats16){_mm256_blendv_ps(y.l, x.l, _mm256_castsi256_ps(first_lanes(k, 0))),
                      _mm256_blendv_ps(y.h, x.h, _mm256_castsi256_ps(first_lanes(k, 8)))};
}
static inline floats16 add16(floats16 a, floats16 b) { return (floats16)BOTH(_mm256_add_ps, a, b); }
static inline floats16 sub16(floats16 a, floats16 b) { return (floats16)BOTH(_mm256_sub_ps, a, b); }
static inline floats16 mul16(floats16 a, floats16 b) { return (floats16)BOTH(_mm256_mul_ps, a, b); }
static inline floats16 div16(floats16 a, floats16 b) { return (floats16)BOTH(_mm256_div_ps, a, b); }
static inline floats16 fma16(floats16 a, floats16 b, floats16 c) { return (floats16)BOTH3(_mm256_fmadd_ps, a, b, c); }
static inline floats16 fnma16(floats16 a, floats16 b, floats16 c) { return (floats16)BOTH3(_mm256_fnmadd_ps, a, b, c); }
static inline floats16 max16(floats16 a, floats16 b) { return (floats16)BOTH(_mm256_max_ps, a, b); }
static inline floats16 min16(floats16 a, floats16 b) { return (floats16)BOTH(_mm256_min_ps, a, b); }

/* Two factors 2^(n/2): the first product is exact, the second rounds once, also into the denormals and to infinity. */
static inline __m256 scale8(__m256 x, __m256 n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(2 * 127));
    const __m256i half = _mm256_srai_epi32(biased, 1), rest = _mm256_sub_epi32(biased, half);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(half, 23)));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(rest, 23)));
}
static inline floats16 scale16(floats16 x, floats16 n) { return (floats16){scale8(x.l, n.l), scale8(x.h, n.h)}; }

/* The rounded upper halves, as 32-bit words. */
static inline __m256i bf16_words(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256 best = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
    return _mm256_srli_epi32(_mm256_castps_si256(best), 16);
}
static inline void store_bf16(taciti_bf16 *p, floats16 x, size_t k) {
    const __m256i mixed = _mm256_packus_epi32(bf16_words(x.l), bf16_words(x.h)); /* quarters 0 2 1 3 */
    const __m256i all = _mm256_permute4x64_epi64(mixed, 0xd8);
    if (k == 16) {
        _mm256_storeu_si256((__m256i *)(void *)p, all);
    } else {
        taciti_bf16 lanes[16];
        _mm256_storeu_si256((__m256i *)(void *)lanes, all);
        memcpy(p, lanes, k * sizeof *p);
    }
}

static inline words16 no_words(void) { return (words16){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline words16 bits16(floats16 x) { return (words16){_mm256_castps_si256(x.l), _mm256_castps_si256(x.h)}; }
static inline words16 count_from(uint32_t first) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (words16){_mm256_add_epi32(lane, _mm256_set1_epi32((int)first)),
                     _mm256_add_epi32(lane, _mm256_set1_epi32((int)(first + 8)))};
}
static inline words16 flip_bits(words16 a, uint32_t b) {
    return (words16)BOTH_BY(_mm256_xor_si256, a, _mm256_set1_epi32((int)b));
}
static inline words16 times(words16 a, uint32_t b) {
    return (words16)BOTH_BY(_mm256_mullo_epi32, a, _mm256_set1_epi32((int)b));
}
static inline words16 fold_down(words16 a, unsigned shift) {
    return (words16){_mm256_xor_si256(a.l, _mm256_srli_epi32(a.l, (int)shift)),
                     _mm256_xor_si256(a.h, _mm256_srli_epi32(a.h, (int)shift))};
}
static inline __m256 keep_from8(__m256i word, __m256i threshold, __m256 x) {
    const __m256i kept = _mm256_cmpeq_epi32(_mm256_max_epu32(word, threshold), word);
    return _mm256_and_ps(x, _mm256_castsi256_ps(kept));
}
static inline floats16 keep_from(words16 word, uint32_t threshold, floats16 x) {
    const __m256i t = _mm256_set1_epi32((int)threshold);
    return (floats16){keep_from8(word.l, t, x.l), keep_from8(word.h, t, x.h)};
}

static inline __m256 lower_half(floats16 x) { return x.l; }
static inline __m256 upper_half(floats16 x) { return x.h; }

#else /* the definition */

typedef struct floats16 {
    float lane[16];
} floats16;
typedef struct words16 {
    uint32_t lane[16];
} words16;

#define EACH_LANE for (size_t i = 0; i < 16; i++)

static inline floats16 splat(float x) {
    floats16 r;
    EACH_LANE r.lane[i] = x;
    return r;
}
static inline floats16 load(const float *p, size_t k) {
    floats16 r = {{0}};
    memcpy(r.lane, p, k * sizeof *p);
    return r;
}
static inline void store(float *p, floats16 x, size_t k) { memcpy(p, x.lane, k * sizeof *p); }
static inline floats16 first_or(floats16 x, size_t k, floats16 y) {
    EACH_LANE x.lane[i] = i < k ? x.lane[i] : y.lane[i];
    return x;
}
static inline floats16 add16(floats16 a, floats16 b) {
    EACH_LANE a.lane[i] = a.lane[i] + b.lane[i];
    return a;
}
static inline floats16 sub16(floats16 a, floats16 b) {
    EACH_LANE a.lane[i] = a.lane[i] - b.lane[i];
    return a;
}
static inline floats16 mul16(floats16 a, floats16 b) {
    EACH_LANE a.lane[i] = a.lane[i] * b.lane[i];
    return a;
}
static inline floats16 div16(floats16 a, floats16 b) {
    EACH_LANE a.lane[i] = a.lane[i] / b.lane[i];
    return a;
}
static inline floats16 fma16(floats16 a, floats16 b, floats16 c) { /* a * b + c, rounded once */
    EACH_LANE a.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
    return a;
}
static inline floats16 fnma16(floats16 a, floats16 b, floats16 c) { /* c - a * b, rounded once */
    EACH_LANE a.lane[i] = fmaf(-a.lane[i], b.lane[i], c.lane[i]);
    return a;
}
static inline floats16 max16(floats16 a, floats16 b) { /* b when either is NaN */
    EACH_LANE a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}
static inline floats16 min16(floats16 a, floats16 b) { /* b when either is NaN */
    EACH_LANE a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}

/* x * 2^n, rounded once; n is integral, |n| < 254. Two factors 2^(n/2): only the second product can round. A NaN in n
 * comes with one in x. */
static inline float scale_lane(float x, float n) {
    const int whole = n == n ? (int)n : 0;
    const int half = whole >= 0 ? whole / 2 : -((1 - whole) / 2);
    return x * float_of((uint32_t)(half + 127) << 23) * float_of((uint32_t)(whole - half + 127) << 23);
}
static inline floats16 scale16(floats16 x, floats16 n) {
    EACH_LANE x.lane[i] = scale_lane(x.lane[i], n.lane[i]);
    return x;
}

static inline void store_bf16(taciti_bf16 *p, floats16 x, size_t k) {
    for (size_t i = 0; i < k; i++) p[i] = bf16_of(x.lane[i]);
}

static inline words16 no_words(void) { return (words16){{0}}; }
static inline words16 bits16(floats16 x) {
    words16 r;
    memcpy(r.lane, x.lane, sizeof r.lane);
    return r;
}
static inline words16 count_from(uint32_t first) {
    words16 r;
    EACH_LANE r.lane[i] = first + (uint32_t)i;
    return r;
}
static inline words16 flip_bits(words16 a, uint32_t b) {
    EACH_LANE a.lane[i] ^= b;
    return a;
}
static inline words16 times(words16 a, uint32_t b) {
    EACH_LANE a.lane[i] *= b;
    return a;
}
static inline words16 fold_down(words16 a, unsigned shift) {
    EACH_LANE a.lane[i] ^= a.lane[i] >> shift;
    return a;
}
static inline floats16 keep_from(words16 word, uint32_t threshold, floats16 x) {
    EACH_LANE x.lane[i] = word.lane[i] >= threshold ? x.lane[i] : 0.0f;
    return x;
}

/* Halve the lanes three times, joining lane i with i + 8, then i + 4, i + 2, i + 1: the fold of kernel.h. */
static inline float fold_sum(floats16 x) {
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) x.lane[i] = x.lane[i] + x.lane[i + half];
    return x.lane[0];
}
static inline float fold_max(floats16 x) {
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t i = 0; i < half; i++) x.lane[i] = x.lane[i] > x.lane[i + half] ? x.lane[i] : x.lane[i + half];
    return x.lane[0];
}

/* out[j][i] = in[i][j] for i, j < 8 */
static inline void transpose8(float *out, size_t out_row, const float *in, size_t in_row) {
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < 8; j++) out[j * out_row + i] = in[i * in_row + j];
}

#endif

#if defined(LANES16_AVX512) || defined(LANES16_AVX2)
static inline float fold_sum(floats16 x) {
    const __m256 eight = _mm256_add_ps(lower_half(x), upper_half(x));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float fold_max(floats16 x) {
    const __m256 eight = _mm256_max_ps(lower_half(x), upper_half(x));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* out[j][i] = in[i][j] for i, j < 8: pairs of rows, pairs of pairs, halves. */
static inline void transpose8(float *out, size_t out_row, const float *in, size_t in_row) {
    __m256 a[8], b[8];
    for (size_t i = 0; i < 8; i++) a[i] = _mm256_loadu_ps(in + i * in_row);
    for (size_t i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t j = 0; j < 2; j++) {
            a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
            a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0xee);
        }
    for (size_t j = 0; j < 4; j++) {
        _mm256_storeu_ps(out + j * out_row, _mm256_permute2f128_ps(a[j], a[j + 4], 0x20));
        _mm256_storeu_ps(out + (j + 4) * out_row, _mm256_permute2f128_ps(a[j], a[j + 4], 0x31));
    }
}
#endif

/* Runs the block for all columns j of n in steps of 16; k is 16 but in the last step. */
#define EACH_16(j, k, n, ...)                                                                                          \
    do {                                                                                                               \
        size_t j = 0;                                                                                                  \
        for (; j + 16 <= (n); j += 16) {                                                                               \
            enum { k = 16 };                                                                                           \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
        if (j < (n)) {                                                                                                 \
            const size_t k = (n)-j;                                                                                    \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    } while (0)

/* v to either or both of two arrays of any precision; NULL: not wanted. */
static inline void store_both(float *y, taciti_bf16 *y16, size_t at, floats16 v, size_t k) {
    if (y != NULL) store(y + at, v, k);
    if (y16 != NULL) store_bf16(y16 + at, v, k);
}

static inline void add_to(float *sum, floats16 v, size_t k) { store(sum, add16(load(sum, k), v), k); }

/* e^x within 1 ulp; 0 below -104 and Inf above 89; NaN stays. x = n ln2 + r with |r| <= ln2 / 2 (ln2 in two parts, the
 * first with 9 trailing zeros so that n times it is exact); e^r = 1 + r + r^2 p(r), p of degree 4 fitted for the least
 * largest relative error (3.7e-9, far below the rounding). */
static inline floats16 exp16(floats16 x) {
    const floats16 shift = splat(0x1.8p23f); /* adding it rounds to an integer, ties to even */
    x = min16(splat(89.0f), max16(splat(-104.0f), x));
    const floats16 n = sub16(fma16(x, splat(0x1.715476p+0f), shift), shift);
    const floats16 r = fnma16(n, splat(0x1.7f7d1cp-20f), fnma16(n, splat(0x1.62e4p-1f), x));
    floats16 p = fma16(splat(0x1.6a23d0p-10f), r, splat(0x1.123a20p-7f));
    p = fma16(p, r, splat(0x1.5558f2p-5f));
    p = fma16(p, r, splat(0x1.555492p-3f));
    p = fma16(p, r, splat(0x1.fffffcp-2f));
    p = fma16(p, r, splat(1.0f));
    return scale16(fma16(p, r, splat(1.0f)), n);
}

/* taciti_rng_u32 of sixteen consecutive elements. */
static inline words16 mix16(words16 x) {
    x = times(fold_down(x, 16), UINT32_C(0x7feb352d));
    x = times(fold_down(x, 15), UINT32_C(0x846ca68b));
    return fold_down(x, 16);
}
static inline words16 random16(uint64_t key, uint32_t first) {
    return mix16(flip_bits(mix16(flip_bits(count_from(first), (uint32_t)key)), (uint32_t)(key >> 32)));
}

/* An element is dropped when its random word is below p * 2^32. */
static inline uint32_t dropout_threshold(float p) { return (uint32_t)((double)p * 4294967296.0); }

#endif
