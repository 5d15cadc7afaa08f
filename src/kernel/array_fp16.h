/* SPDX-License-Identifier: Apache-2.0
 *
 * IEEE 754-2019 binary16: the definition of one element by integer arithmetic, and the conversions of F16C where the
 * file that includes this is compiled for them. They agree bit for bit, NaN included.
 */
#ifndef TACITI_KERNEL_ARRAY_FP16_H
#define TACITI_KERNEL_ARRAY_FP16_H

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "kernel/array_element.h"

/* Exponents of binary16 and binary32 differ by 112 in their bias, mantissas by 13 bits. */
enum { FP16_SHIFT = 13 };
#define FP16_INF 0x7c00u
#define FP16_REBIAS 0x38000000u     /* 112 << 23 */
#define FP16_MIN_NORMAL 0x38800000u /* bits of 2^-14 */

/* Rounds to nearest even: denormals are kept, 65520 and more becomes Inf. A NaN keeps its sign and the upper 10
 * bits of its payload, and becomes quiet. Adding 0.5, whose ulp is the step of the denormals, rounds those. */
static inline taciti_fp16 fp16_of(float x) {
    const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    const uint32_t denormal = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
    const uint32_t odd = size >> FP16_SHIFT & 1u;
    const uint32_t rounded = (size - FP16_REBIAS + 0xfffu + odd) >> FP16_SHIFT;
    const uint32_t normal = rounded < FP16_INF ? rounded : FP16_INF;
    const uint32_t quiet = FP16_INF | 0x200u | (size >> FP16_SHIFT & 0x3ffu);
    const uint32_t finite = size < FP16_MIN_NORMAL ? denormal : normal;
    return (taciti_fp16)(sign | (size > 0x7f800000u ? quiet : finite));
}

/* Exact; a signalling NaN becomes quiet. */
static inline float float_of_fp16(taciti_fp16 x) {
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, size = (uint32_t)(x & 0x7fffu) << FP16_SHIFT;
    const uint32_t denormal = bits_of(float_of(size + FP16_MIN_NORMAL) - float_of(FP16_MIN_NORMAL));
    const uint32_t quiet = (x & 0x3ffu) != 0 ? 0x400000u : 0u;
    const uint32_t special = (size + 2 * FP16_REBIAS) | quiet;
    const uint32_t finite = (x & FP16_INF) == 0 ? denormal : size + FP16_REBIAS;
    return float_of(sign | ((x & FP16_INF) == FP16_INF ? special : finite));
}

/* ---- 16 elements ------------------------------------------------------------------------------------------------- */
enum { FP16_LANES = 16, FP16_BLOCK = 256 };

static inline void fp16_store(taciti_fp16 *restrict out, const float *restrict x) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)(void *)out, _mm512_cvtps_ph(_mm512_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__)
    for (int i = 0; i < FP16_LANES; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < FP16_LANES; i++) out[i] = fp16_of(x[i]);
#endif
}

static inline void fp16_load(float *restrict out, const taciti_fp16 *restrict x) {
#if defined(__AVX512F__)
    _mm512_storeu_ps(out, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x)));
#elif defined(__F16C__)
    for (int i = 0; i < FP16_LANES; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + i))));
#else
    for (int i = 0; i < FP16_LANES; i++) out[i] = float_of_fp16(x[i]);
#endif
}

/* ---- the kernels ------------------------------------------------------------------------------------------------- */
static void fp16_encode(taciti_fp16 *restrict out, const float *restrict x, size_t n) {
    size_t i = 0;
    for (; i + FP16_LANES <= n; i += FP16_LANES) fp16_store(out + i, x + i);
    for (; i < n; i++) out[i] = fp16_of(x[i]);
}

static void fp16_decode(float *restrict out, const taciti_fp16 *restrict x, size_t n) {
    size_t i = 0;
    for (; i + FP16_LANES <= n; i += FP16_LANES) fp16_load(out + i, x + i);
    for (; i < n; i++) out[i] = float_of_fp16(x[i]);
}

/* These two decode blocks that stay in the first cache. */
static void fp16_encode_error(taciti_fp16 *restrict out, float *restrict error, const float *restrict x, size_t n) {
    float decoded[FP16_BLOCK];
    for (size_t i = 0; i < n; i += FP16_BLOCK) {
        const size_t count = n - i < FP16_BLOCK ? n - i : FP16_BLOCK;
        fp16_encode(out + i, x + i, count);
        fp16_decode(decoded, out + i, count);
        for (size_t j = 0; j < count; j++) error[i + j] = x[i + j] - decoded[j];
    }
}

static void fp16_add(float *restrict acc, const taciti_fp16 *restrict x, size_t n) {
    float decoded[FP16_BLOCK];
    for (size_t i = 0; i < n; i += FP16_BLOCK) {
        const size_t count = n - i < FP16_BLOCK ? n - i : FP16_BLOCK;
        fp16_decode(decoded, x + i, count);
        for (size_t j = 0; j < count; j++) acc[i + j] += decoded[j];
    }
}

#endif
