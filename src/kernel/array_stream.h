/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores past the caches, for results that are too large to be found there by whoever reads them.
 */
#ifndef TACITI_KERNEL_ARRAY_STREAM_H
#define TACITI_KERNEL_ARRAY_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LINE_BYTES = 64 };

/* Elements of `size` bytes from `out` to the next line. */
static inline size_t floats_to_line(const void *out, size_t size) {
    return (LINE_BYTES - (uintptr_t)out % LINE_BYTES) % LINE_BYTES / size;
}

/* Copies whole lines between line-aligned blocks. */
static inline void store_past_caches(void *restrict out, const void *restrict staged, size_t bytes) {
#if defined(__AVX512F__)
    for (size_t at = 0; at < bytes; at += 64)
        _mm512_stream_si512((__m512i *)(void *)((char *)out + at), _mm512_load_si512((const char *)staged + at));
#elif defined(__AVX2__)
    for (size_t at = 0; at < bytes; at += 32)
        _mm256_stream_si256((__m256i *)(void *)((char *)out + at),
                            _mm256_load_si256((const __m256i *)(const void *)((const char *)staged + at)));
#elif defined(__x86_64__)
    for (size_t at = 0; at < bytes; at += 16)
        _mm_stream_si128((__m128i *)(void *)((char *)out + at),
                         _mm_load_si128((const __m128i *)(const void *)((const char *)staged + at)));
#else
    memcpy(out, staged, bytes);
#endif
}

/* Makes the stores visible in program order to other threads. */
static inline void stores_done(void) {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#endif
