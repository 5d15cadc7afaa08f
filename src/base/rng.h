/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: a number is a pure function of a key, folded from (seed, stream, step, ...), and an
 * index. There is no state to save. Every thread, rank and instruction set computes the same value for an element.
 *
 * taciti_rng_u64  SplitMix64's finalizer (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators")
 *                 applied twice: for data order, initial values, decisions.
 * taciti_rng_u32  a 32-bit mixer ("lowbias32", C. Wellons 2018) applied twice with two halves of the key: cheap in
 *                 every vector unit; for element-wise work such as dropout and stochastic rounding.
 */
#ifndef TACITI_BASE_RNG_H
#define TACITI_BASE_RNG_H

#include <stdint.h>

static inline uint64_t taciti_mix64(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Folds one more value into the key of a stream: taciti_rng_key(taciti_rng_key(seed, 'd'), step). */
static inline uint64_t taciti_rng_key(uint64_t key, uint64_t value) {
    return taciti_mix64(taciti_mix64(key + UINT64_C(0x9e3779b97f4a7c15)) ^ (value + UINT64_C(0xd1b54a32d192ed03)));
}

/* 64 uniform bits for element `index` of stream `key`. */
static inline uint64_t taciti_rng_u64(uint64_t key, uint64_t index) {
    return taciti_mix64(taciti_mix64(key + index * UINT64_C(0x9e3779b97f4a7c15)) ^ key);
}

static inline uint32_t taciti_mix32(uint32_t x) {
    x ^= x >> 16;
    x *= UINT32_C(0x7feb352d);
    x ^= x >> 15;
    x *= UINT32_C(0x846ca68b);
    return x ^ (x >> 16);
}

/* 32 uniform bits for element `index` (< 2^32) of stream `key`. */
static inline uint32_t taciti_rng_u32(uint64_t key, uint32_t index) {
    return taciti_mix32(taciti_mix32(index ^ (uint32_t)key) ^ (uint32_t)(key >> 32));
}

/* Uniform in [0, 1) with 53 bits. */
static inline double taciti_rng_unit(uint64_t key, uint64_t index) {
    return (double)(taciti_rng_u64(key, index) >> 11) * 0x1p-53;
}

/* Uniform in [0, bound), bound > 0, by the high half of a 64 x 64 product (bias below bound / 2^64). */
static inline uint64_t taciti_rng_below(uint64_t key, uint64_t index, uint64_t bound) {
    const uint64_t u = taciti_rng_u64(key, index), ul = u & 0xffffffffu, uh = u >> 32;
    const uint64_t bl = bound & 0xffffffffu, bh = bound >> 32;
    const uint64_t mid = uh * bl + ((ul * bl) >> 32), low = ul * bh + (mid & 0xffffffffu);
    return uh * bh + (mid >> 32) + (low >> 32);
}

#endif
