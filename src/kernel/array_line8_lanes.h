/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of the loops in array_line8.h: a group of lines is encoded, a line is decoded. The scalar form is
 * the definition, of one line a group. AVX2 and AVX-512 encode four lines a group, whose maxima are found together.
 * Both do so in 256 bits: 512 were not faster.
 *
 * With powers of two, products with the scale and its inverse are exact. The only rounding is that of x / scale to an
 * integer, and what was decoded is encoded to the same bytes again.
 */
#ifndef TACITI_KERNEL_ARRAY_LINE8_LANES_H
#define TACITI_KERNEL_ARRAY_LINE8_LANES_H

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "kernel/array_element.h"

enum { LINE8_N = TACITI_LINE8_N, LINE8_MIN = 1, LINE8_MAX = 248, LINE8_LIMIT = 127, LINE8_NAN = 255 };

/* 127 is 2^6 times 1.984375: a mantissa above 0x7e0000 carries into the exponent. */
enum { LINE8_CARRY = 0x1ffff };

/* Returns the factor that the first byte of a line stands for. */
static inline float line8_factor(const int8_t *in) {
    const uint32_t scale = (uint8_t)in[0];
    return scale <= LINE8_MAX ? float_of(scale << 23) : (float)NAN;
}

#if defined(__AVX2__)

enum { LINE8_GROUP = 4 };

/* The scales of four lines, one word each; finite is all ones or 0. */
typedef struct line8_scales {
    uint32_t bytes; /* the first bytes of the lines, from the lowest up */
    __m128i inverse, finite;
} line8_scales;

/* max: the largest magnitudes of the lines, as bits. */
static inline line8_scales line8_scales_of(__m128i max) {
    const __m128i exponent = _mm_srli_epi32(_mm_add_epi32(max, _mm_set1_epi32(LINE8_CARRY)), 23);
    const __m128i above = _mm_max_epi32(_mm_sub_epi32(exponent, _mm_set1_epi32(6)), _mm_set1_epi32(LINE8_MIN));
    const __m128i scale = _mm_min_epi32(above, _mm_set1_epi32(LINE8_MAX));
    const __m128i inverse = _mm_slli_epi32(_mm_sub_epi32(_mm_set1_epi32(254), scale), 23);
    const __m128i finite = _mm_cmpgt_epi32(_mm_set1_epi32(TACITI_MAGNITUDE_INF), max);
    const __m128i used = _mm_and_si128(scale, _mm_cmpgt_epi32(max, _mm_setzero_si128()));
    const __m128i first = _mm_or_si128(used, _mm_andnot_si128(finite, _mm_set1_epi32(LINE8_NAN)));
    const __m128i lowest = _mm_shuffle_epi8(first, _mm_set1_epi32(0x0c080400));
    return (line8_scales){(uint32_t)_mm_cvtsi128_si32(lowest), inverse, finite};
}

static inline void line8_store(int8_t *out, uint32_t scale, __m128i codes) {
    memset(out, (int)(scale & 0xffu), 1);
    _mm_storeu_si128((__m128i *)(void *)(out + 1), codes);
}

static inline __m128i line8_load(const int8_t *in) { return _mm_loadu_si128((const __m128i *)(const void *)(in + 1)); }

/* Returns the larger magnitudes of the two halves of a line. */
static inline __m256i line8_magnitudes(const float *x) {
    const __m256i mask = _mm256_set1_epi32(TACITI_MAGNITUDE_MASK);
    const __m256i lower = _mm256_castps_si256(_mm256_loadu_ps(x)), upper = _mm256_castps_si256(_mm256_loadu_ps(x + 8));
    return _mm256_max_epi32(_mm256_and_si256(lower, mask), _mm256_and_si256(upper, mask));
}

/* Returns the largest magnitudes of four lines. */
static inline __m128i line8_maxima(const float *x) {
    const __m256i a = line8_magnitudes(x), b = line8_magnitudes(x + 16);
    const __m256i c = line8_magnitudes(x + 32), d = line8_magnitudes(x + 48);
    const __m256i ab = _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    const __m256i cd = _mm256_max_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    const __m256i halves = _mm256_max_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return _mm_max_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

/* Sixteen halfwords: 0-3, 8-11, 4-7, 12-15. */
static inline __m256i line8_integers(const float *x, __m256 inverse) {
    return _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse)),
                              _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse)));
}

/* Two lines. Packing limits to -128 .. 127. In each half it leaves eight codes of either line. */
static inline __m256i line8_codes(__m256i a, __m256i b, __m256i finite) {
    const __m256i limited = _mm256_max_epi8(_mm256_packs_epi16(a, b), _mm256_set1_epi8(-LINE8_LIMIT));
    const __m256i by_line = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_and_si256(limited, finite), by_line);
}

static inline void line8_put(int8_t *restrict out, const float *restrict x) {
    const line8_scales s = line8_scales_of(line8_maxima(x));
    const __m256 inverse = _mm256_castsi256_ps(_mm256_broadcastsi128_si256(s.inverse));
    const __m256i finite = _mm256_broadcastsi128_si256(s.finite);
    const __m256i a = line8_integers(x, _mm256_permute_ps(inverse, 0x00));
    const __m256i b = line8_integers(x + 16, _mm256_permute_ps(inverse, 0x55));
    const __m256i c = line8_integers(x + 32, _mm256_permute_ps(inverse, 0xaa));
    const __m256i d = line8_integers(x + 48, _mm256_permute_ps(inverse, 0xff));
    const __m256i ab = line8_codes(a, b, _mm256_shuffle_epi32(finite, 0x50));
    const __m256i cd = line8_codes(c, d, _mm256_shuffle_epi32(finite, 0xfa));
    line8_store(out, s.bytes, _mm256_castsi256_si128(ab));
    line8_store(out + 17, s.bytes >> 8, _mm256_extracti128_si256(ab, 1));
    line8_store(out + 34, s.bytes >> 16, _mm256_castsi256_si128(cd));
    line8_store(out + 51, s.bytes >> 24, _mm256_extracti128_si256(cd, 1));
}

#if defined(__AVX512F__)

static inline void line8_get(float *restrict out, const int8_t *restrict in) {
    const __m512 codes = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(line8_load(in)));
    _mm512_storeu_ps(out, _mm512_mul_ps(codes, _mm512_set1_ps(line8_factor(in))));
}

#else

static inline void line8_get(float *restrict out, const int8_t *restrict in) {
    const __m128i codes = line8_load(in);
    const __m256 factor = _mm256_set1_ps(line8_factor(in));
    const __m256 lower = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
    const __m256 upper = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8)));
    _mm256_storeu_ps(out, _mm256_mul_ps(lower, factor));
    _mm256_storeu_ps(out + 8, _mm256_mul_ps(upper, factor));
}

#endif

#else /* the definition */

enum { LINE8_GROUP = 1 };

/* Adding it rounds to an integer, ties to even, whose two's complement is then in the lower bits. */
#define LINE8_ROUNDER 0x1.8p23f

static inline uint32_t line8_scale(uint32_t max_bits) {
    const uint32_t exponent = (max_bits + LINE8_CARRY) >> 23;
    const uint32_t scale = exponent > 6 + LINE8_MIN ? exponent - 6 : LINE8_MIN;
    return scale < LINE8_MAX ? scale : LINE8_MAX;
}

static inline void line8_put(int8_t *restrict out, const float *restrict x) {
    uint32_t max = 0;
    for (int i = 0; i < LINE8_N; i++) {
        const uint32_t magnitude = bits_of(x[i]) & TACITI_MAGNITUDE_MASK;
        max = magnitude > max ? magnitude : max;
    }
    if (max == 0 || max >= TACITI_MAGNITUDE_INF) {
        memset(out, 0, TACITI_LINE8_BYTES);
        if (max != 0) memset(out, LINE8_NAN, 1);
        return;
    }
    const uint32_t scale = line8_scale(max);
    const float inverse = float_of((254u - scale) << 23);
    memset(out, (int)scale, 1);
    for (int i = 0; i < LINE8_N; i++) {
        const float q = x[i] * inverse; /* above 127 in size only where the scale is the largest */
        const float limited = q > LINE8_LIMIT ? LINE8_LIMIT : q < -LINE8_LIMIT ? -LINE8_LIMIT : q;
        out[1 + i] = (int8_t)(uint8_t)bits_of(limited + LINE8_ROUNDER);
    }
}

static inline void line8_get(float *restrict out, const int8_t *restrict in) {
    const float factor = line8_factor(in);
    for (int i = 0; i < LINE8_N; i++) out[i] = (float)in[1 + i] * factor;
}

#endif

#endif
