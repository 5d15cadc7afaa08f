/* SPDX-License-Identifier: Apache-2.0
 *
 * Two doubles at once: SSE2, which every x86-64 has, or an array. Both round alike. max2() is a > b ? a : b.
 */
#ifndef TACITI_KERNEL_DOUBLES2_H
#define TACITI_KERNEL_DOUBLES2_H

#if defined(__SSE2__)

#include <emmintrin.h>

typedef __m128d doubles2;

static inline doubles2 splat2(double x) { return _mm_set1_pd(x); }
static inline doubles2 load2(const double *p) { return _mm_loadu_pd(p); }
static inline doubles2 add2(doubles2 a, doubles2 b) { return _mm_add_pd(a, b); }
static inline doubles2 sub2(doubles2 a, doubles2 b) { return _mm_sub_pd(a, b); }
static inline doubles2 mul2(doubles2 a, doubles2 b) { return _mm_mul_pd(a, b); }
static inline doubles2 max2(doubles2 a, doubles2 b) { return _mm_max_pd(a, b); }

#else

typedef struct doubles2 {
    double at[2];
} doubles2;

static inline doubles2 splat2(double x) { return (doubles2){{x, x}}; }
static inline doubles2 load2(const double *p) { return (doubles2){{p[0], p[1]}}; }
static inline doubles2 add2(doubles2 a, doubles2 b) { return (doubles2){{a.at[0] + b.at[0], a.at[1] + b.at[1]}}; }
static inline doubles2 sub2(doubles2 a, doubles2 b) { return (doubles2){{a.at[0] - b.at[0], a.at[1] - b.at[1]}}; }
static inline doubles2 mul2(doubles2 a, doubles2 b) { return (doubles2){{a.at[0] * b.at[0], a.at[1] * b.at[1]}}; }
static inline doubles2 max2(doubles2 a, doubles2 b) {
    return (doubles2){{a.at[0] > b.at[0] ? a.at[0] : b.at[0], a.at[1] > b.at[1] ? a.at[1] : b.at[1]}};
}

#endif

#endif
