/* SPDX-License-Identifier: Apache-2.0
 *
 * The array kernels as plain loops over the definition of one element, and the function that enters them into a table.
 * Every instruction set's file includes this and is compiled with its own flags: the compiler vectorises the same
 * roundings, so the sets agree bit for bit by construction. What a set does better by hand it overwrites afterwards.
 */
#ifndef TACITI_KERNEL_ARRAY_LOOPS_H
#define TACITI_KERNEL_ARRAY_LOOPS_H

#include "kernel/array_element.h"
#include "kernel/array_stream.h"

/* Elements that are converted in the first cache before they leave it. */
enum { BLOCK = 256 };

/* From these sizes on, results leave past the caches: what a cast of so many floats reads and writes (12 MiB) is not
 * still cached when somebody reads it, nor is the copy beside the 28 bytes per element (1.75 MiB) of an update. Plain
 * stores would first read every line that they overwrite. */
enum { STREAM_CAST_FLOATS = 2 << 20, STREAM_UPDATE_FLOATS = 1 << 16 };

static void add(float *restrict acc, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += x[i];
}

static void scale(float *x, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static void scaled_copy_plain(float *restrict out, const float *restrict x, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = factor * x[i];
}

static void scaled_copy(float *restrict out, const float *restrict x, float factor, size_t n) {
    _Alignas(LINE_BYTES) float staged[BLOCK];
    const size_t line = floats_to_line(out, sizeof *out);
    size_t i = line < n ? line : n;
    scaled_copy_plain(out, x, factor, i);
    for (; i + BLOCK <= n; i += BLOCK) {
        scaled_copy_plain(staged, x + i, factor, BLOCK);
        store_past_caches(out + i, staged, sizeof staged);
    }
    stores_done();
    scaled_copy_plain(out + i, x + i, factor, n - i);
}

static void encode_plain(taciti_bf16 *restrict out, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = bf16_of(x[i]);
}

static void decode_plain(float *restrict out, const taciti_bf16 *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = float_of_bf16(x[i]);
}

static void bf16_encode(taciti_bf16 *restrict out, const float *restrict x, size_t n) {
    size_t i = 0;
    if (n >= STREAM_CAST_FLOATS) {
        _Alignas(LINE_BYTES) taciti_bf16 staged[BLOCK];
        i = floats_to_line(out, sizeof *out);
        encode_plain(out, x, i);
        for (; i + BLOCK <= n; i += BLOCK) {
            encode_plain(staged, x + i, BLOCK);
            store_past_caches(out + i, staged, sizeof staged);
        }
        stores_done();
    }
    encode_plain(out + i, x + i, n - i);
}

static void bf16_decode(float *restrict out, const taciti_bf16 *restrict x, size_t n) {
    size_t i = 0;
    if (n >= STREAM_CAST_FLOATS) {
        _Alignas(LINE_BYTES) float staged[BLOCK];
        i = floats_to_line(out, sizeof *out);
        decode_plain(out, x, i);
        for (; i + BLOCK <= n; i += BLOCK) {
            decode_plain(staged, x + i, BLOCK);
            store_past_caches(out + i, staged, sizeof staged);
        }
        stores_done();
    }
    decode_plain(out + i, x + i, n - i);
}

static void bf16_add(float *restrict acc, const taciti_bf16 *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += float_of_bf16(x[i]);
}

static double sum_squares(const float *x, size_t n) {
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += (double)x[i + l] * (double)x[i + l];
    for (size_t l = 0; i + l < n; l++) lanes[l] += (double)x[i + l] * (double)x[i + l];
    return fold_lanes(lanes);
}

static inline double blend_as(int form, float *restrict p, const float *restrict arrived, float keep, float share,
                              size_t n) {
    double lanes[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES) {
        const size_t count = n - i < LANES ? n - i : LANES;
        float old[LANES] = {0}, new[LANES] = {0};
        for (size_t l = 0; l < count; l++) old[l] = p[i + l];
        for (size_t l = 0; l < count; l++) new[l] = blend_element(form, keep, share, old[l], arrived[i + l]);
        for (size_t l = 0; l < count; l++) p[i + l] = new[l];
        for (size_t l = 0; l < LANES; l++) {
            const double change = (double)new[l] - (double)old[l];
            lanes[l] += change * change;
        }
    }
    return fold_lanes(lanes);
}

static double blend(float *restrict p, const float *restrict arrived, float keep, float share, size_t n) {
    if (share == 0) return blend_as(BLEND_KEPT, p, arrived, keep, share, n);
    if (keep == 0) return blend_as(BLEND_ARRIVED, p, arrived, keep, share, n);
    return blend_as(BLEND_BOTH, p, arrived, keep, share, n);
}

static int all_finite(const float *x, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (bits_of(x[i]) & 0x7f800000u) == 0x7f800000u;
    return bad == 0;
}

/* Stores bf16(p) of a block that has just been updated and is still in the first cache. */
static void copy_block(taciti_bf16 *restrict copy, const float *restrict p, size_t n, int stream) {
    _Alignas(LINE_BYTES) taciti_bf16 staged[BLOCK];
    if (copy == NULL) return;
    if (!stream || n < BLOCK) {
        encode_plain(copy, p, n);
        return;
    }
    encode_plain(staged, p, BLOCK);
    store_past_caches(copy, staged, sizeof staged);
}

/* Where the block that begins at i ends: the first one is short, so that the copies of all others begin on a line. */
static size_t block_end(const taciti_bf16 *copy, size_t i, size_t n) {
    const size_t end = i == 0 ? floats_to_line(copy, sizeof *copy) : i + BLOCK;
    return end == 0 ? (n < BLOCK ? n : BLOCK) : end < n ? end : n;
}

static void adamw(const taciti_adamw_step *step, float *restrict p, const float *restrict g, float *restrict m,
                  float *restrict v, taciti_bf16 *restrict copy, size_t n) {
    const taciti_adamw_step s = *step;
    const int stream = n >= STREAM_UPDATE_FLOATS;
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = block_end(copy, begin, n);
        if (s.coupled)
            for (size_t i = begin; i < end; i++) p[i] = adamw_element(&s, 1, p[i], g[i], &m[i], &v[i]);
        else
            for (size_t i = begin; i < end; i++) p[i] = adamw_element(&s, 0, p[i], g[i], &m[i], &v[i]);
        copy_block(copy == NULL ? NULL : copy + begin, p + begin, end - begin, stream);
    }
    stores_done();
}

static inline void accum_range(const taciti_accum_step *s, int coupled, int ends, float *restrict p,
                               const float *restrict g, float *restrict m, float *restrict v, float *restrict a,
                               size_t n) {
    for (size_t i = 0; i < n; i++) p[i] = accum_element(s, coupled, ends, p[i], g[i], &m[i], &v[i], &a[i]);
}

static void accum_adamw(const taciti_accum_step *step, float *restrict p, const float *restrict g,
                        const taciti_accum_state *state, taciti_bf16 *restrict copy, size_t n) {
    const taciti_accum_step s = *step;
    const int stream = n >= STREAM_UPDATE_FLOATS;
    for (size_t i = 0, end; i < n; i = end) {
        float *m = state->m + i, *v = state->v + i, *a = state->a + i;
        end = block_end(copy, i, n);
        if (s.adamw.coupled && s.window_ends)
            accum_range(&s, 1, 1, p + i, g + i, m, v, a, end - i);
        else if (s.adamw.coupled)
            accum_range(&s, 1, 0, p + i, g + i, m, v, a, end - i);
        else if (s.window_ends)
            accum_range(&s, 0, 1, p + i, g + i, m, v, a, end - i);
        else
            accum_range(&s, 0, 0, p + i, g + i, m, v, a, end - i);
        copy_block(copy == NULL ? NULL : copy + i, p + i, end - i, stream);
    }
    stores_done();
}

static void sgd(const taciti_sgd_step *step, float *restrict p, const float *restrict g, float *restrict m,
                taciti_bf16 *restrict copy, size_t n) {
    const taciti_sgd_step s = *step;
    const int stream = n >= STREAM_UPDATE_FLOATS;
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = block_end(copy, begin, n);
        if (m != NULL)
            for (size_t i = begin; i < end; i++) p[i] = sgd_element(&s, p[i], g[i], &m[i]);
        else
            for (size_t i = begin; i < end; i++) p[i] = sgd_plain_element(&s, p[i], g[i]);
        copy_block(copy == NULL ? NULL : copy + begin, p + begin, end - begin, stream);
    }
    stores_done();
}

static void fill_array_loops(taciti_kernels *table) {
    table->add = add;
    table->scale = scale;
    table->scaled_copy = scaled_copy;
    table->bf16_encode = bf16_encode;
    table->bf16_decode = bf16_decode;
    table->bf16_add = bf16_add;
    table->sum_squares = sum_squares;
    table->all_finite = all_finite;
    table->blend = blend;
    table->adamw = adamw;
    table->accum_adamw = accum_adamw;
    table->sgd = sgd;
}

#endif
