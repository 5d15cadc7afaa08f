/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantisers of one block, over sixteen lanes (quantise_lanes.h). A block goes through the first cache twice: for
 * its scale and the squares of its numbers, then for its codes, its error and the squares of the codes.
 */
#ifndef TACITI_KERNEL_QUANTISE_BLOCK_H
#define TACITI_KERNEL_QUANTISE_BLOCK_H

#include <string.h>

#include "kernel/quantise_lanes.h"

/* Forms are constants: each gets loops of its own, but over arrays for lanes, where that is ten times the code. */
#if defined(LANES16_AVX512) || defined(LANES16_AVX2)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

enum { GROUP_N = TACITI_QUANTISE_GROUP, BLOCK_MAX = TACITI_QUANTISE_BLOCK_MAX, LLOYD_ROUNDS = 3 };

/* Blocks whose largest magnitude is not above 2^-120 become zeros: 127 / magnitude would overflow. */
#define TINY_BITS 0x03800000u
#define INF_BITS 0x7f800000u
#define NAN_BITS 0x7fc00000u

/* Adding it rounds to an integer, ties to even, whose two's complement is then in the lower bits. */
#define ROUNDER 0x1.8p23f

typedef struct group {
    floats16 l, h;
} group;

INLINE group load_group(const float *x) { return (group){load(x, 16), load(x + 16, 16)}; }

INLINE void store_group(float *x, group g) {
    store(x, g.l, 16);
    store(x + 16, g.h, 16);
}

INLINE group times_group(group g, floats16 factor) { return (group){mul16(g.l, factor), mul16(g.h, factor)}; }

INLINE doubles16 add_group_squares(doubles16 sum, const float *x) { return add_squares(add_squares(sum, x), x + 16); }

/* State that the blocks of one call share. */
typedef struct encoding {
    doubles16 in; /* squares of the numbers */
    double out;   /* squares of the numbers that whole blocks decode to */
} encoding;

/* x - decoded */
INLINE void store_error(float *error, group x, group decoded) {
    store_group(error, (group){sub16(x.l, decoded.l), sub16(x.h, decoded.h)});
}

/* ---- the transform ----------------------------------------------------------------------------------------------- */
INLINE floats16 butterfly(floats16 x, int distance) {
    static const float SIGNS[4][16] = {{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                                       {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                                       {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                                       {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
    const float *signs = SIGNS[distance == 8 ? 3 : distance == 4 ? 2 : distance == 2 ? 1 : 0];
    return fma16(x, load(signs, 16), swap_lanes(x, distance)); /* the product is exact: a sum or a difference */
}

INLINE floats16 hadamard16(floats16 x) { return butterfly(butterfly(butterfly(butterfly(x, 8), 4), 2), 1); }

/* The 32 x 32 matrix of Sylvester, without its factor 1 / sqrt(32); twice gives 32 times the group. */
INLINE group hadamard32(group g) { return (group){hadamard16(add16(g.l, g.h)), hadamard16(sub16(g.l, g.h))}; }

/* ---- one scale per block: int8, int4 ----------------------------------------------------------------------------- */
static const float LEVELS[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};

INLINE float largest_code(int form) { return form == TACITI_QUANTISE_INT8 ? 127.0f : 7.0f; }

/* Returns the codes' values, before the scale. */
INLINE group encode_group(int form, unsigned char *out, group x, floats16 inverse) {
    const group y = times_group(x, inverse);
    const floats16 rounder = splat(ROUNDER);
    const group rounded = {add16(y.l, rounder), add16(y.h, rounder)};
    if (form == TACITI_QUANTISE_INT8) {
        store_low_bytes(out, bits16(rounded.l));
        store_low_bytes(out + 16, bits16(rounded.h));
    } else {
        store_low_bytes(out, join_nibbles(bits16(rounded.l), bits16(rounded.h)));
    }
    return (group){sub16(rounded.l, rounder), sub16(rounded.h, rounder)};
}

INLINE group decode_group(int form, const unsigned char *in) {
    if (form == TACITI_QUANTISE_INT8) return (group){load_int8(in), load_int8(in + 16)};
    const words16 codes = load_bytes(in);
    return (group){lookup(LEVELS, codes), lookup(LEVELS, high_nibbles(codes))};
}

/* The bits of the largest magnitude of the block; `rotated` receives the transformed block. */
INLINE uint32_t largest_bits(int hadamard, encoding *e, const float *x, size_t count, float *rotated) {
    words16 max = no_words();
    doubles16 in = e->in;
    for (size_t i = 0; i < count; i += GROUP_N) {
        group g = load_group(x + i);
        in = add_group_squares(in, x + i);
        if (hadamard) {
            g = hadamard32(g);
            store_group(rotated + i, g);
        }
        max = max_words(max, max_words(magnitude_bits(g.l), magnitude_bits(g.h)));
    }
    e->in = in;
    return fold_max_words(max);
}

/* A block with something that is not finite decodes to NaN. */
INLINE void non_finite_block(encoding *e, unsigned char *out, size_t code_bytes, float *error, size_t count) {
    const uint32_t nan = NAN_BITS;
    memcpy(out, &nan, sizeof nan);
    memset(out + sizeof nan, 0, code_bytes);
    e->out += (double)float_of(nan);
    if (error == NULL) return;
    for (size_t i = 0; i < count; i++) memcpy(error + i, &nan, sizeof nan);
}

INLINE size_t code_bytes_of(int form, size_t count) {
    switch (form) {
    case TACITI_QUANTISE_INT8: return count;
    case TACITI_QUANTISE_SIGNMAG2: return count / 4;
    case TACITI_QUANTISE_SIGNMEAN: return count / 8;
    default: return count / 2;
    }
}

/* Lane by lane exact: sums of up to 256 squares of integers up to 127. */
INLINE floats16 add_code_squares(floats16 sum, group codes) {
    return add16(sum, add16(mul16(codes.l, codes.l), mul16(codes.h, codes.h)));
}

/* The matrix makes squares 32 times as large. */
INLINE double scaled_squares(int hadamard, floats16 codes, float scale) {
    return (double)fold_sum(codes) * ((double)scale * (double)scale) * (hadamard ? GROUP_N : 1);
}

INLINE void scaled_block(int form, int hadamard, encoding *e, unsigned char *out, float *error, const float *x,
                         size_t count) {
    _Alignas(64) float rotated[BLOCK_MAX];
    const uint32_t bits = largest_bits(hadamard, e, x, count, rotated);
    const float *y = hadamard ? rotated : x, max = bits > TINY_BITS ? float_of(bits) : 0.0f;
    if (bits >= INF_BITS) {
        non_finite_block(e, out, code_bytes_of(form, count), error, count);
        return;
    }
    const float levels = largest_code(form), scale = max * (1.0f / (hadamard ? levels * GROUP_N : levels));
    const floats16 inverse = splat(max > 0 ? levels / max : 0.0f), factor = splat(scale);
    floats16 squares = splat(0.0f);
    memcpy(out, &scale, sizeof scale);
    out += sizeof scale;
    for (size_t i = 0; i < count; i += GROUP_N, out += code_bytes_of(form, GROUP_N)) {
        group decoded = encode_group(form, out, load_group(y + i), inverse);
        squares = add_code_squares(squares, decoded);
        if (error == NULL) continue;
        if (hadamard) decoded = hadamard32(decoded);
        store_error(error + i, load_group(x + i), times_group(decoded, factor));
    }
    e->out += scaled_squares(hadamard, squares, scale);
}

/* ---- signs and means: signmag2, signmean ------------------------------------------------------------------------- */
INLINE uint32_t group_signs(group g) { return sign_mask(g.l) | sign_mask(g.h) << 16; }

INLINE uint32_t group_above(group g, floats16 t) { return above_mask(g.l, t) | above_mask(g.h, t) << 16; }

INLINE group group_where(uint32_t mask, group yes, group no) {
    return (group){where(mask & 0xffffu, yes.l, no.l), where(mask >> 16, yes.h, no.h)};
}

INLINE group splat_group(float x) { return (group){splat(x), splat(x)}; }

INLINE group abs_group(group g) { return (group){abs16(g.l), abs16(g.h)}; }

/* +-`magnitude` by the bits of `signs`. */
INLINE group signed_group(uint32_t signs, group magnitude) {
    const floats16 minus = splat(-1.0f);
    return group_where(signs, times_group(magnitude, minus), magnitude);
}

/* Mean magnitude of the `filled` numbers of the block; NaN if one is not finite or their sum overflows. */
INLINE float mean_magnitude(encoding *e, const float *x, size_t count, size_t filled) {
    floats16 sum = splat(0.0f);
    doubles16 in = e->in;
    for (size_t i = 0; i < count; i += GROUP_N) {
        const group g = abs_group(load_group(x + i));
        sum = add16(add16(sum, g.l), g.h);
        in = add_group_squares(in, x + i);
    }
    e->in = in;
    const float mean = fold_sum(sum) / (float)filled;
    return bits_of(mean) >= INF_BITS ? float_of(NAN_BITS) : mean;
}

INLINE void signmean_block(encoding *e, unsigned char *out, float *error, const float *x, size_t count, size_t filled) {
    const float mean = mean_magnitude(e, x, count, filled);
    if (!(mean >= 0)) {
        non_finite_block(e, out, count / 8, error, count);
        return;
    }
    memcpy(out, &mean, sizeof mean);
    out += sizeof mean;
    for (size_t i = 0; i < count; i += GROUP_N, out += 4) {
        const group g = load_group(x + i);
        const uint32_t signs = group_signs(g);
        memcpy(out, &signs, sizeof signs);
        if (error != NULL) store_error(error + i, g, signed_group(signs, splat_group(mean)));
    }
    e->out += (double)filled * ((double)mean * (double)mean);
}

typedef struct two_means {
    float low, high;
} two_means;

/* The means of the magnitudes up to t and above it; one that has no numbers equals the other. */
INLINE two_means means_at(const float *x, size_t count, size_t filled, float threshold) {
    const floats16 t = splat(threshold), one = splat(1.0f);
    floats16 low = splat(0.0f), high = low, counts = low; /* at most 256 per lane */
    for (size_t i = 0; i < count; i += 16) {
        const floats16 size = abs16(load(x + i, 16));
        high = add_above(high, size, t, size);
        low = add_others(low, size, t, size);
        counts = add_above(counts, size, t, one);
    }
    const float above = fold_sum(counts), below = (float)filled - above;
    const two_means means = {.low = fold_sum(low) / (below > 0 ? below : 1.0f),
                             .high = fold_sum(high) / (above > 0 ? above : 1.0f)};
    if (above > 0 && below > 0) return means;
    return above > 0 ? (two_means){means.high, means.high} : (two_means){means.low, means.low};
}

/* Lloyd's iteration: the threshold is amid of the two means, these are those of its two sides. */
INLINE two_means lloyd(const float *x, size_t count, size_t filled, float mean) {
    two_means means = {mean, mean};
    for (int i = 0; i < LLOYD_ROUNDS; i++) means = means_at(x, count, filled, 0.5f * (means.low + means.high));
    return means;
}

INLINE double two_level_squares(const taciti_bf16 *levels, size_t lows, size_t highs) {
    const double low = (double)float_of_bf16(levels[0]), high = (double)float_of_bf16(levels[1]);
    return (double)lows * (low * low) + (double)highs * (high * high);
}

INLINE void signmag2_block(encoding *e, unsigned char *out, float *error, const float *x, size_t count, size_t filled) {
    const float mean = mean_magnitude(e, x, count, filled);
    if (!(mean >= 0)) {
        const taciti_bf16 nan[2] = {NAN_BITS >> 16, NAN_BITS >> 16};
        non_finite_block(e, out, count / 4, error, count);
        memcpy(out, nan, sizeof nan);
        return;
    }
    const two_means means = lloyd(x, count, filled, mean);
    const taciti_bf16 levels[2] = {bf16_of(means.low), bf16_of(means.high)};
    const group low = splat_group(float_of_bf16(levels[0])), high = splat_group(float_of_bf16(levels[1]));
    const floats16 t = splat(0.5f * (float_of_bf16(levels[0]) + float_of_bf16(levels[1])));
    size_t highs = 0;
    memcpy(out, levels, sizeof levels);
    out += sizeof levels;
    for (size_t i = 0; i < count; i += GROUP_N, out += 8) {
        const group g = load_group(x + i);
        const uint32_t codes[2] = {group_signs(g), group_above(abs_group(g), t)};
        memcpy(out, codes, sizeof codes);
        highs += (size_t)__builtin_popcount(codes[1]);
        if (error == NULL) continue;
        store_error(error + i, g, signed_group(codes[0], group_where(codes[1], high, low)));
    }
    e->out += two_level_squares(levels, filled - highs, highs);
}

/* ---- decode ------------------------------------------------------------------------------------------------------ */
INLINE group decode_signs(int form, const unsigned char *in, const float *levels) {
    uint32_t codes[2];
    if (form == TACITI_QUANTISE_SIGNMEAN) {
        memcpy(codes, in, sizeof codes[0]);
        return signed_group(codes[0], splat_group(levels[0]));
    }
    memcpy(codes, in, sizeof codes);
    return signed_group(codes[0], group_where(codes[1], splat_group(levels[1]), splat_group(levels[0])));
}

/* The levels of a block: its scale, or its two means. */
INLINE void read_levels(int form, const unsigned char *in, float *levels) {
    if (form == TACITI_QUANTISE_SIGNMAG2) {
        taciti_bf16 means[2];
        memcpy(means, in, sizeof means);
        levels[0] = float_of_bf16(means[0]);
        levels[1] = float_of_bf16(means[1]);
    } else {
        memcpy(levels, in, sizeof *levels);
        levels[1] = levels[0];
    }
}

INLINE void decode_block(int form, int hadamard, int sum, float *x, const unsigned char *in, size_t count) {
    float levels[2];
    read_levels(form, in, levels);
    in += sizeof(float);
    for (size_t i = 0; i < count; i += GROUP_N, in += code_bytes_of(form, GROUP_N)) {
        group g;
        if (form == TACITI_QUANTISE_SIGNMEAN || form == TACITI_QUANTISE_SIGNMAG2) {
            g = decode_signs(form, in, levels);
        } else {
            g = decode_group(form, in);
            if (hadamard) g = hadamard32(g);
            g = times_group(g, splat(levels[0]));
        }
        if (sum) {
            const group before = load_group(x + i);
            g = (group){add16(before.l, g.l), add16(before.h, g.h)};
        }
        store_group(x + i, g);
    }
}

#endif
