/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantisers, written once over sixteen lanes (quantise_lanes.h) and compiled once per instruction set. Forms and
 * layout: kernel.h. A block goes through the first cache twice: for its scale, then for its codes.
 */
#ifndef TACITI_KERNEL_QUANTISE_LOOPS_H
#define TACITI_KERNEL_QUANTISE_LOOPS_H

#include <string.h>

#include "kernel/array_stream.h"
#include "kernel/quantise_lanes.h"

enum { GROUP_N = TACITI_QUANTISE_GROUP, BLOCK_MAX = TACITI_QUANTISE_BLOCK_MAX, LLOYD_ROUNDS = 3 };

/* From this size on, results leave past the caches (12 MiB with what was read). */
enum { STREAM_FLOATS = 2 << 20 };

/* Blocks whose largest magnitude is not above 2^-120 become zeros: 127 / magnitude would overflow. */
#define TINY_BITS 0x03800000u
#define INF_BITS 0x7f800000u
#define NAN_BITS 0x7fc00000u

/* Adding it rounds to an integer, ties to even, whose two's complement is then in the lower bits. */
#define ROUNDER 0x1.8p23f

typedef struct group {
    floats16 l, h;
} group;

static inline group load_group(const float *x) { return (group){load(x, 16), load(x + 16, 16)}; }

static inline void store_group(float *x, group g, int stream) {
    if (stream) {
        store_past(x, g.l);
        store_past(x + 16, g.h);
    } else {
        store(x, g.l, 16);
        store(x + 16, g.h, 16);
    }
}

static inline group times_group(group g, floats16 factor) { return (group){mul16(g.l, factor), mul16(g.h, factor)}; }

/* x - decoded */
static inline void store_error(float *error, group x, group decoded, int stream) {
    store_group(error, (group){sub16(x.l, decoded.l), sub16(x.h, decoded.h)}, stream);
}

/* ---- the transform ----------------------------------------------------------------------------------------------- */
static inline floats16 butterfly(floats16 x, int distance) {
    static const float SIGNS[4][16] = {{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                                       {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                                       {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                                       {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
    const float *signs = SIGNS[distance == 8 ? 3 : distance == 4 ? 2 : distance == 2 ? 1 : 0];
    return fma16(x, load(signs, 16), swap_lanes(x, distance)); /* the product is exact: a sum or a difference */
}

static inline floats16 hadamard16(floats16 x) { return butterfly(butterfly(butterfly(butterfly(x, 8), 4), 2), 1); }

/* The 32 x 32 matrix of Sylvester, without its factor 1 / sqrt(32); twice gives 32 times the group. */
static inline group hadamard32(group g) { return (group){hadamard16(add16(g.l, g.h)), hadamard16(sub16(g.l, g.h))}; }

/* ---- one scale per block: int8, int4, e3m0 ----------------------------------------------------------------------- */
static const float LEVELS[2][16] = {{0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1},
                                    {0, 0x1p-6f, 0x1p-5f, 0x1p-4f, 0x1p-3f, 0x1p-2f, 0x1p-1f, 1, 0, -0x1p-6f, -0x1p-5f,
                                     -0x1p-4f, -0x1p-3f, -0x1p-2f, -0x1p-1f, -1}};

static inline const float *levels_of(int form) { return LEVELS[form == TACITI_QUANTISE_E3M0]; }

static inline float largest_code(int form) {
    return form == TACITI_QUANTISE_INT8 ? 127.0f : form == TACITI_QUANTISE_INT4 ? 7.0f : 1.0f;
}

/* Returns the codes' values, before the scale. */
static inline group encode_group(int form, unsigned char *out, group x, floats16 inverse) {
    const group y = times_group(x, inverse);
    if (form == TACITI_QUANTISE_E3M0) {
        const words16 low = with_signs(power_codes(abs16(y.l)), y.l), high = with_signs(power_codes(abs16(y.h)), y.h);
        store_low_bytes(out, join_nibbles(low, high));
        return (group){lookup(levels_of(form), low), lookup(levels_of(form), high)};
    }
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

static inline group decode_group(int form, const unsigned char *in) {
    if (form == TACITI_QUANTISE_INT8) return (group){load_int8(in), load_int8(in + 16)};
    const words16 codes = load_bytes(in);
    return (group){lookup(levels_of(form), codes), lookup(levels_of(form), high_nibbles(codes))};
}

/* The bits of the largest magnitude of the block; `rotated` receives the transformed block. */
static inline uint32_t largest_bits(int hadamard, const float *x, size_t count, float *rotated) {
    words16 max = no_words();
    for (size_t i = 0; i < count; i += GROUP_N) {
        group g = load_group(x + i);
        if (hadamard) {
            g = hadamard32(g);
            store_group(rotated + i, g, 0);
        }
        max = max_words(max, max_words(magnitude_bits(g.l), magnitude_bits(g.h)));
    }
    return fold_max_words(max);
}

/* A block with something that is not finite decodes to NaN. */
static inline void non_finite_block(unsigned char *out, size_t code_bytes, float *error, size_t count) {
    const uint32_t nan = NAN_BITS;
    memcpy(out, &nan, sizeof nan);
    memset(out + sizeof nan, 0, code_bytes);
    if (error == NULL) return;
    for (size_t i = 0; i < count; i++) memcpy(error + i, &nan, sizeof nan);
}

static inline size_t code_bytes_of(int form, size_t count) {
    switch (form) {
    case TACITI_QUANTISE_INT8: return count;
    case TACITI_QUANTISE_SIGNMAG2: return count / 4;
    case TACITI_QUANTISE_SIGNMEAN: return count / 8;
    default: return count / 2;
    }
}

static inline void scaled_block(int form, int hadamard, unsigned char *out, float *error, const float *x, size_t count,
                                int stream) {
    _Alignas(LINE_BYTES) float rotated[BLOCK_MAX];
    const uint32_t bits = largest_bits(hadamard, x, count, rotated);
    const float *y = hadamard ? rotated : x, max = bits > TINY_BITS ? float_of(bits) : 0.0f;
    if (bits >= INF_BITS) {
        non_finite_block(out, code_bytes_of(form, count), error, count);
        return;
    }
    const float levels = largest_code(form), scale = max * (1.0f / (hadamard ? levels * GROUP_N : levels));
    const floats16 inverse = splat(max > 0 ? levels / max : 0.0f), factor = splat(scale);
    memcpy(out, &scale, sizeof scale);
    out += sizeof scale;
    for (size_t i = 0; i < count; i += GROUP_N, out += code_bytes_of(form, GROUP_N)) {
        group decoded = encode_group(form, out, load_group(y + i), inverse);
        if (error == NULL) continue;
        if (hadamard) decoded = hadamard32(decoded);
        store_error(error + i, load_group(x + i), times_group(decoded, factor), stream);
    }
}

/* ---- signs and means: signmag2, signmean ------------------------------------------------------------------------- */
static inline uint32_t group_signs(group g) { return sign_mask(g.l) | sign_mask(g.h) << 16; }

static inline uint32_t group_above(group g, floats16 t) { return above_mask(g.l, t) | above_mask(g.h, t) << 16; }

static inline group group_where(uint32_t mask, group yes, group no) {
    return (group){where(mask & 0xffffu, yes.l, no.l), where(mask >> 16, yes.h, no.h)};
}

static inline group splat_group(float x) { return (group){splat(x), splat(x)}; }

static inline group abs_group(group g) { return (group){abs16(g.l), abs16(g.h)}; }

/* +-`magnitude` by the bits of `signs`. */
static inline group signed_group(uint32_t signs, group magnitude) {
    const floats16 minus = splat(-1.0f);
    return group_where(signs, times_group(magnitude, minus), magnitude);
}

/* Mean magnitude of the `filled` numbers of the block; NaN if one is not finite or their sum overflows. */
static inline float mean_magnitude(const float *x, size_t count, size_t filled) {
    floats16 sum = splat(0.0f);
    for (size_t i = 0; i < count; i += GROUP_N) {
        const group g = abs_group(load_group(x + i));
        sum = add16(add16(sum, g.l), g.h);
    }
    const float mean = fold_sum(sum) / (float)filled;
    return bits_of(mean) >= INF_BITS ? float_of(NAN_BITS) : mean;
}

static inline void signmean_block(unsigned char *out, float *error, const float *x, size_t count, size_t filled,
                                  int stream) {
    const float mean = mean_magnitude(x, count, filled);
    if (!(mean >= 0)) {
        non_finite_block(out, count / 8, error, count);
        return;
    }
    memcpy(out, &mean, sizeof mean);
    out += sizeof mean;
    for (size_t i = 0; i < count; i += GROUP_N, out += 4) {
        const group g = load_group(x + i);
        const uint32_t signs = group_signs(g);
        memcpy(out, &signs, sizeof signs);
        if (error != NULL) store_error(error + i, g, signed_group(signs, splat_group(mean)), stream);
    }
}

typedef struct two_means {
    float low, high;
} two_means;

/* The means of the magnitudes up to t and above it; one that has no numbers equals the other. */
static inline two_means means_at(const float *x, size_t count, size_t filled, float threshold) {
    const floats16 t = splat(threshold), one = splat(1.0f);
    floats16 low = splat(0.0f), high = low, counts = low; /* at most 256 per lane */
    for (size_t i = 0; i < count; i += 16) {
        const floats16 size = abs16(load(x + i, 16)), part = if_above(size, t, size);
        high = add16(high, part);
        low = add16(low, sub16(size, part));
        counts = add16(counts, if_above(size, t, one));
    }
    const float above = fold_sum(counts), below = (float)filled - above;
    const two_means means = {.low = fold_sum(low) / (below > 0 ? below : 1.0f),
                             .high = fold_sum(high) / (above > 0 ? above : 1.0f)};
    if (above > 0 && below > 0) return means;
    return above > 0 ? (two_means){means.high, means.high} : (two_means){means.low, means.low};
}

/* Lloyd's iteration: the threshold is amid of the two means, these are those of its two sides. */
static inline two_means lloyd(const float *x, size_t count, size_t filled, float mean) {
    two_means means = {mean, mean};
    for (int i = 0; i < LLOYD_ROUNDS; i++) means = means_at(x, count, filled, 0.5f * (means.low + means.high));
    return means;
}

static inline void signmag2_block(unsigned char *out, float *error, const float *x, size_t count, size_t filled,
                                  int stream) {
    const float mean = mean_magnitude(x, count, filled);
    if (!(mean >= 0)) {
        const taciti_bf16 nan[2] = {NAN_BITS >> 16, NAN_BITS >> 16};
        non_finite_block(out, count / 4, error, count);
        memcpy(out, nan, sizeof nan);
        return;
    }
    const two_means means = lloyd(x, count, filled, mean);
    const taciti_bf16 levels[2] = {bf16_of(means.low), bf16_of(means.high)};
    const group low = splat_group(float_of_bf16(levels[0])), high = splat_group(float_of_bf16(levels[1]));
    const floats16 t = splat(0.5f * (float_of_bf16(levels[0]) + float_of_bf16(levels[1])));
    memcpy(out, levels, sizeof levels);
    out += sizeof levels;
    for (size_t i = 0; i < count; i += GROUP_N, out += 8) {
        const group g = load_group(x + i);
        const uint32_t codes[2] = {group_signs(g), group_above(abs_group(g), t)};
        memcpy(out, codes, sizeof codes);
        if (error != NULL) store_error(error + i, g, signed_group(codes[0], group_where(codes[1], high, low)), stream);
    }
}

/* ---- decode ------------------------------------------------------------------------------------------------------ */
static inline group decode_signs(int form, const unsigned char *in, const float *levels) {
    uint32_t codes[2];
    if (form == TACITI_QUANTISE_SIGNMEAN) {
        memcpy(codes, in, sizeof codes[0]);
        return signed_group(codes[0], splat_group(levels[0]));
    }
    memcpy(codes, in, sizeof codes);
    return signed_group(codes[0], group_where(codes[1], splat_group(levels[1]), splat_group(levels[0])));
}

/* The levels of a block: its scale, or its two means. */
static inline void read_levels(int form, const unsigned char *in, float *levels) {
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

static inline void decode_block(int form, int hadamard, int sum, float *x, const unsigned char *in, size_t count,
                                int stream) {
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
        store_group(x + i, g, stream);
    }
}

/* ---- whole arrays ------------------------------------------------------------------------------------------------ */
static inline size_t whole_groups(size_t n) { return (n + GROUP_N - 1) / GROUP_N * GROUP_N; }

/* `filled` of the block's `count` numbers belong to the array, the others are 0. */
static inline void encode_block(int form, int hadamard, unsigned char *out, float *error, const float *x, size_t filled,
                                int stream) {
    const size_t count = whole_groups(filled);
    if (form == TACITI_QUANTISE_SIGNMEAN)
        signmean_block(out, error, x, count, filled, stream);
    else if (form == TACITI_QUANTISE_SIGNMAG2)
        signmag2_block(out, error, x, count, filled, stream);
    else
        scaled_block(form, hadamard, out, error, x, count, stream);
}

static inline int past_caches(const float *out, size_t n) {
    return out != NULL && n >= STREAM_FLOATS && floats_to_line(out, 1) == 0;
}

static inline void quantise_as(int form, int hadamard, const taciti_quantisation *q, unsigned char *out, float *error,
                               const float *x, size_t n) {
    const int stream = past_caches(error, n);
    const size_t step = sizeof(float) + code_bytes_of(form, q->block);
    size_t i = 0;
    for (; i + q->block <= n; i += q->block, out += step)
        encode_block(form, hadamard, out, error != NULL ? error + i : NULL, x + i, q->block, stream);
    if (stream) stores_done();
    if (i == n) return;
    float padded[BLOCK_MAX], failed[BLOCK_MAX];
    memset(padded, 0, whole_groups(n - i) * sizeof *padded);
    memcpy(padded, x + i, (n - i) * sizeof *x);
    encode_block(form, hadamard, out, error != NULL ? failed : NULL, padded, n - i, 0);
    if (error != NULL) memcpy(error + i, failed, (n - i) * sizeof *error);
}

static inline void dequantise_as(int form, int hadamard, int sum, const taciti_quantisation *q, float *x,
                                 const unsigned char *in, size_t n) {
    const int stream = !sum && past_caches(x, n);
    const size_t step = sizeof(float) + code_bytes_of(form, q->block);
    size_t i = 0;
    for (; i + q->block <= n; i += q->block, in += step) decode_block(form, hadamard, sum, x + i, in, q->block, stream);
    if (stream) stores_done();
    if (i == n) return;
    float padded[BLOCK_MAX];
    memset(padded, 0, whole_groups(n - i) * sizeof *padded);
    if (sum) memcpy(padded, x + i, (n - i) * sizeof *x);
    decode_block(form, hadamard, sum, padded, in, whole_groups(n - i), 0);
    memcpy(x + i, padded, (n - i) * sizeof *x);
}

/* One copy of the loops per form. */
#define EACH_FORM(q, call)                                                                                             \
    switch ((q)->form) {                                                                                               \
    case TACITI_QUANTISE_INT8:                                                                                         \
        if ((q)->hadamard)                                                                                             \
            call(TACITI_QUANTISE_INT8, 1);                                                                             \
        else                                                                                                           \
            call(TACITI_QUANTISE_INT8, 0);                                                                             \
        break;                                                                                                         \
    case TACITI_QUANTISE_INT4:                                                                                         \
        if ((q)->hadamard)                                                                                             \
            call(TACITI_QUANTISE_INT4, 1);                                                                             \
        else                                                                                                           \
            call(TACITI_QUANTISE_INT4, 0);                                                                             \
        break;                                                                                                         \
    case TACITI_QUANTISE_E3M0: call(TACITI_QUANTISE_E3M0, 0); break;                                                   \
    case TACITI_QUANTISE_SIGNMAG2: call(TACITI_QUANTISE_SIGNMAG2, 0); break;                                           \
    case TACITI_QUANTISE_SIGNMEAN: call(TACITI_QUANTISE_SIGNMEAN, 0); break;                                           \
    }

static void quantise(const taciti_quantisation *q, void *restrict out, float *restrict error, const float *restrict x,
                     size_t n) {
#define QUANTISE(form, hadamard) quantise_as(form, hadamard, q, out, error, x, n)
    EACH_FORM(q, QUANTISE)
#undef QUANTISE
}

static void dequantise(const taciti_quantisation *q, float *restrict x, const void *restrict in, size_t n) {
#define DEQUANTISE(form, hadamard) dequantise_as(form, hadamard, 0, q, x, in, n)
    EACH_FORM(q, DEQUANTISE)
#undef DEQUANTISE
}

static void dequantise_add(const taciti_quantisation *q, float *restrict acc, const void *restrict in, size_t n) {
#define ADD(form, hadamard) dequantise_as(form, hadamard, 1, q, acc, in, n)
    EACH_FORM(q, ADD)
#undef ADD
}

static void fill_quantise(taciti_kernels *table) {
    table->quantise = quantise;
    table->dequantise = dequantise;
    table->dequantise_add = dequantise_add;
}

#endif
