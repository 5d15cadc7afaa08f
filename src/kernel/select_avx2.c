/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection for AVX2, which has no compress: a table gives the permutation that moves the selected of 8 elements to the
 * front.
 */
#include "kernel/sets.h"

#include <immintrin.h>

#include "kernel/array_element.h"

#define INLINE static inline __attribute__((always_inline))

enum { HALF_LINE = 8 };

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

INLINE __m256i order_of(unsigned mask) { return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)ORDERS[mask])); }

INLINE __m256i magnitudes(__m256 v) {
    return _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32((int)TACITI_MAGNITUDE_MASK));
}

/* All bits where m >= the threshold of which this is one less; magnitudes and thresholds have no sign. */
INLINE __m256i below(uint32_t threshold) { return _mm256_set1_epi32((int)(threshold - 1u)); }
INLINE __m256i reach(__m256i m, __m256i below_threshold) { return _mm256_cmpgt_epi32(m, below_threshold); }
INLINE unsigned bits_of_mask(__m256i mask) { return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(mask)); }
INLINE size_t bits_in(unsigned mask) { return (size_t)__builtin_popcount(mask); }

typedef struct pass {
    __m256i threshold, half, index, near;
    __m256d lanes[4]; /* 4 q .. 4 q + 3 of the squares */
    size_t count;
} pass;

INLINE void add_squares(__m256d *lanes, __m128 v) {
    const __m256d x = _mm256_cvtps_pd(v);
    *lanes = _mm256_fmadd_pd(x, x, *lanes); /* the product is exact in double */
}

/* 8 elements, the first or second of a line. The flags are constants wherever this is inlined. */
INLINE void select_half(pass *p, const taciti_select *s, const float *x, size_t i, int second, int skip, int error) {
    const __m256 v = _mm256_loadu_ps(x + i);
    const __m256i m = magnitudes(v), reached = reach(m, p->threshold);
    const unsigned keep = bits_of_mask(reached);
    if (s->measure) {
        p->near = _mm256_sub_epi32(p->near, reach(m, p->half));
        add_squares(&p->lanes[second ? 2 : 0], _mm256_castps256_ps128(v));
        add_squares(&p->lanes[second ? 3 : 1], _mm256_extractf128_ps(v, 1));
    }
    if (error) _mm256_storeu_ps(s->error + i, _mm256_andnot_ps(_mm256_castsi256_ps(reached), v));
    if (!skip || keep != 0) {
        const __m256i order = order_of(keep);
        _mm256_storeu_ps(s->values + p->count, _mm256_permutevar8x32_ps(v, order));
        _mm256_storeu_si256((__m256i *)(void *)(s->indices + p->count), _mm256_permutevar8x32_epi32(p->index, order));
        p->count += bits_in(keep);
    }
    p->index = _mm256_add_epi32(p->index, _mm256_set1_epi32(HALF_LINE));
}

/* Whole lines [begin, end). */
INLINE void select_block(pass *p, const taciti_select *s, const float *x, size_t begin, size_t end, int skip,
                         int error) {
    for (size_t i = begin; i < end; i += LANES) {
        if (error) prefetch_for_store(s->error + i);
        select_half(p, s, x, i, 0, skip, error);
        select_half(p, s, x, i + HALF_LINE, 1, skip, error);
    }
}

/* Selects among the rest of the last line, and writes the sums. */
INLINE void finish_pass(const pass *p, taciti_select *s, const float *x, size_t i, size_t n) {
    uint32_t near[HALF_LINE];
    double lanes[LANES];
    size_t sum = 0;
    _mm256_storeu_si256((__m256i *)(void *)near, p->near);
    for (size_t l = 0; l < HALF_LINE; l++) sum += near[l];
    for (size_t q = 0; q < 4; q++) _mm256_storeu_pd(lanes + 4 * q, p->lanes[q]);
    select_rest(s, x, i, n, p->count, sum, lanes);
}

INLINE pass begin_pass(const taciti_select *s) {
    const __m256d zero = _mm256_setzero_pd();
    return (pass){.threshold = below(s->threshold),
                  .half = below(s->half),
                  .index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                  .near = _mm256_setzero_si256(),
                  .lanes = {zero, zero, zero, zero}};
}

#include "kernel/select_pass.h"

static void select_above(taciti_select *s, const float *x, size_t n) { select_whole(s, x, n - n % LANES, n); }

static size_t count_above(const float *x, size_t n, uint32_t threshold) {
    const __m256i t = below(threshold);
    size_t count = 0, i = 0;
    for (; i + HALF_LINE <= n; i += HALF_LINE)
        count += bits_in(bits_of_mask(reach(magnitudes(_mm256_loadu_ps(x + i)), t)));
    for (; i < n; i++) count += bits_of_magnitude(x[i]) >= threshold;
    return count;
}

static size_t select_band(float *out, const float *x, size_t n, uint32_t low, uint32_t high) {
    const __m256i l = below(low), h = below(high);
    size_t count = 0, i = 0;
    for (; i + HALF_LINE <= n; i += HALF_LINE) {
        const __m256 v = _mm256_loadu_ps(x + i);
        const __m256i m = magnitudes(v);
        const unsigned keep = bits_of_mask(_mm256_andnot_si256(reach(m, h), reach(m, l)));
        _mm256_storeu_ps(out + count, _mm256_permutevar8x32_ps(v, order_of(keep)));
        count += bits_in(keep);
    }
    for (; i < n; i++) {
        out[count] = x[i];
        count += bits_of_magnitude(x[i]) >= low && bits_of_magnitude(x[i]) < high;
    }
    return count;
}

/* The rejected elements and the ties of 8 selected ones are rare or few: one by one. */
static size_t select_among(uint32_t *restrict indices, float *restrict values, float *restrict error, size_t n,
                           uint32_t threshold, size_t ties) {
    const __m256i t = _mm256_set1_epi32((int)threshold);
    size_t count = 0, i = 0;
    for (; i + HALF_LINE <= n; i += HALF_LINE) {
        const __m256 v = _mm256_loadu_ps(values + i);
        const __m256i index = _mm256_loadu_si256((const __m256i *)(const void *)(indices + i)), m = magnitudes(v);
        unsigned keep = bits_of_mask(_mm256_cmpgt_epi32(m, t));
        for (unsigned tied = bits_of_mask(_mm256_cmpeq_epi32(m, t)); tied != 0 && ties > 0; tied &= tied - 1, ties--)
            keep |= tied & (0u - tied);
        for (unsigned left = ~keep & 0xffu; error != NULL && left != 0; left &= left - 1) {
            const size_t at = i + (size_t)__builtin_ctz(left);
            error[indices[at]] = values[at];
        }
        const __m256i order = order_of(keep);
        _mm256_storeu_ps(values + count, _mm256_permutevar8x32_ps(v, order));
        _mm256_storeu_si256((__m256i *)(void *)(indices + count), _mm256_permutevar8x32_epi32(index, order));
        count += bits_in(keep);
    }
    for (; i < n; i++) count = select_again(indices, values, error, i, count, threshold, &ties);
    return count;
}

void FILL_OF_SET(select)(taciti_kernels *table) {
    table->count_above = count_above;
    table->select_above = select_above;
    table->select_among = select_among;
    table->select_band = select_band;
}
