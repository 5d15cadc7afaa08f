/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection for AVX-512. Elements are compressed in a register and stored as a full vector, which the slack of the
 * arrays allows: a compress whose destination is memory is several times slower on some CPUs.
 */
#include "kernel/sets.h"

#include <immintrin.h>

#include "kernel/array_element.h"

#define INLINE static inline __attribute__((always_inline))

enum { LINE = 16 };

INLINE __m512i magnitudes(__m512 v) {
    return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32((int)TACITI_MAGNITUDE_MASK));
}

INLINE size_t bits_in(__mmask16 mask) { return (size_t)__builtin_popcount(mask); }

INLINE __mmask16 first_of_line(size_t n) { return (__mmask16)(n < LINE ? (1u << n) - 1 : 0xffffu); }

typedef struct pass {
    __m512i threshold, half, index, near;
    __m512d lower, upper; /* lanes 0..7 and 8..15 of the squares */
    size_t count;
} pass;

INLINE void measure_line(pass *p, __m512 v, __m512i m, __mmask16 inside) {
    const __m512d lower = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
    const __m512d upper = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    const __mmask16 near = _mm512_mask_cmpge_epu32_mask(inside, m, p->half);
    /* the product of two floats is exact in double, so this rounds once, as the definition does */
    p->lower = _mm512_fmadd_pd(lower, lower, p->lower);
    p->upper = _mm512_fmadd_pd(upper, upper, p->upper);
    p->near = _mm512_mask_add_epi32(p->near, near, p->near, _mm512_set1_epi32(1));
}

/* One line, of whose elements `inside` count. The flags are constants wherever this is inlined. */
INLINE void select_line(pass *p, const taciti_select *s, __m512 v, __mmask16 inside, int skip) {
    const __m512i m = magnitudes(v);
    const __mmask16 keep = _mm512_mask_cmpge_epu32_mask(inside, m, p->threshold);
    if (s->measure) measure_line(p, v, m, inside);
    if (!skip || keep != 0) {
        _mm512_storeu_ps(s->values + p->count, _mm512_maskz_compress_ps(keep, v));
        _mm512_storeu_si512(s->indices + p->count, _mm512_maskz_compress_epi32(keep, p->index));
        p->count += bits_in(keep);
    }
    p->index = _mm512_add_epi32(p->index, _mm512_set1_epi32(LINE));
}

INLINE void store_error(const pass *p, float *error, __m512 v, __mmask16 inside) {
    const __mmask16 stays = _mm512_cmplt_epu32_mask(magnitudes(v), p->threshold);
    _mm512_mask_storeu_ps(error, inside, _mm512_maskz_mov_ps(stays, v));
}

/* Elements [begin, end). */
INLINE void select_block(pass *p, const taciti_select *s, const float *x, size_t begin, size_t end, int skip,
                         int error) {
    size_t i = begin;
    for (; i + LINE <= end; i += LINE) {
        const __m512 v = _mm512_loadu_ps(x + i);
        if (error) prefetch_for_store(s->error + i);
        if (error) store_error(p, s->error + i, v, 0xffff);
        select_line(p, s, v, 0xffff, skip);
    }
    if (i == end) return;
    const __mmask16 inside = first_of_line(end - i);
    const __m512 v = _mm512_maskz_loadu_ps(inside, x + i);
    if (error) store_error(p, s->error + i, v, inside);
    select_line(p, s, v, inside, skip);
}

INLINE pass begin_pass(const taciti_select *s) {
    return (pass){.threshold = _mm512_set1_epi32((int)s->threshold),
                  .half = _mm512_set1_epi32((int)s->half),
                  .index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                  .near = _mm512_setzero_si512(),
                  .lower = _mm512_setzero_pd(),
                  .upper = _mm512_setzero_pd()};
}

INLINE void finish_pass(const pass *p, taciti_select *s, const float *x, size_t i, size_t n) {
    (void)x, (void)i, (void)n; /* masks have selected among the rest as well */
    uint32_t near[LINE];
    double lanes[LANES];
    _mm512_storeu_si512(near, p->near);
    _mm512_storeu_pd(lanes, p->lower);
    _mm512_storeu_pd(lanes + 8, p->upper);
    s->count = p->count;
    s->near = 0;
    for (size_t l = 0; l < LINE; l++) s->near += near[l];
    s->squares = fold_lanes(lanes);
}

#include "kernel/select_pass.h"

static void select_above(taciti_select *s, const float *x, size_t n) { select_whole(s, x, n, n); }

static size_t count_above(const float *x, size_t n, uint32_t threshold) {
    const __m512i t = _mm512_set1_epi32((int)threshold);
    size_t count = 0, i = 0;
    for (; i + LINE <= n; i += LINE) count += bits_in(_mm512_cmpge_epu32_mask(magnitudes(_mm512_loadu_ps(x + i)), t));
    const __mmask16 inside = first_of_line(n - i);
    return count + bits_in(_mm512_mask_cmpge_epu32_mask(inside, magnitudes(_mm512_maskz_loadu_ps(inside, x + i)), t));
}

/* The first `count` bits that are set in a mask. */
INLINE __mmask16 first_bits(__mmask16 mask, size_t count) {
    uint32_t left = mask, taken = 0;
    for (; left != 0 && count > 0; count--, left &= left - 1) taken |= left & (0u - left);
    return (__mmask16)taken;
}

static size_t select_among(uint32_t *restrict indices, float *restrict values, float *restrict error, size_t n,
                           uint32_t threshold, size_t ties) {
    const __m512i t = _mm512_set1_epi32((int)threshold);
    size_t count = 0;
    for (size_t i = 0; i < n; i += LINE) {
        const __mmask16 inside = first_of_line(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(inside, values + i);
        const __m512i index = _mm512_maskz_loadu_epi32(inside, indices + i), m = magnitudes(v);
        __mmask16 tied = _mm512_mask_cmpeq_epi32_mask(inside, m, t);
        if (tied != 0 && bits_in(tied) > ties) tied = first_bits(tied, ties);
        ties -= bits_in(tied);
        const __mmask16 keep = _mm512_mask_cmpgt_epu32_mask(inside, m, t) | tied;
        if (error != NULL)
            for (uint32_t left = (uint32_t)(inside & ~keep); left != 0; left &= left - 1) {
                const size_t at = i + (size_t)__builtin_ctz(left);
                error[indices[at]] = values[at];
            }
        _mm512_storeu_ps(values + count, _mm512_maskz_compress_ps(keep, v));
        _mm512_storeu_si512(indices + count, _mm512_maskz_compress_epi32(keep, index));
        count += bits_in(keep);
    }
    return count;
}

static size_t select_band(float *out, const float *x, size_t n, uint32_t low, uint32_t high) {
    const __m512i l = _mm512_set1_epi32((int)low), h = _mm512_set1_epi32((int)high);
    size_t count = 0;
    for (size_t i = 0; i < n; i += LINE) {
        const __mmask16 inside = first_of_line(n - i);
        const __m512 v = _mm512_maskz_loadu_ps(inside, x + i);
        const __m512i m = magnitudes(v);
        const __mmask16 keep = _mm512_mask_cmplt_epu32_mask(_mm512_mask_cmpge_epu32_mask(inside, m, l), m, h);
        _mm512_storeu_ps(out + count, _mm512_maskz_compress_ps(keep, v));
        count += bits_in(keep);
    }
    return count;
}

void FILL_OF_SET(select)(taciti_kernels *table) {
    table->count_above = count_above;
    table->select_above = select_above;
    table->select_among = select_among;
    table->select_band = select_band;
}
