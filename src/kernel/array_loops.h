/* SPDX-License-Identifier: Apache-2.0
 *
 * The array kernels as plain loops over the definition of one element. They are compiled once per instruction set, with
 * its flags: the compiler vectorises the same roundings, so the sets agree bit for bit by construction.
 */
#ifndef TACITI_KERNEL_ARRAY_LOOPS_H
#define TACITI_KERNEL_ARRAY_LOOPS_H

#include "kernel/array_element.h"
#include "kernel/array_stream.h"

/* Elements that are converted in the first cache before they leave it. */
enum { BLOCK = 256 };

/* From these sizes on, results leave past the caches: the 12 MiB that a cast of this size reads and writes are not
 * still cached when somebody reads them, nor is the copy beside the 28 bytes per element (1.75 MiB) of an update. Plain
 * stores would first read every line that they overwrite. */
enum { STREAM_CAST_FLOATS = 2 << 20, STREAM_UPDATE_FLOATS = 1 << 16 };

static void add(float *restrict acc, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += x[i];
}

static void add_scaled(float *restrict acc, const float *restrict x, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += factor * x[i];
}

static void scale(float *x, float factor, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] *= factor;
}

static void keep_equal(float *restrict acc, const float *restrict x, const float *restrict y, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] = x[i] == y[i] ? acc[i] : 0;
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
    for (size_t i = 0; i < n; i++) out[i] = float_of_bf16(x[i]);
}

static void bf16_encode_error(taciti_bf16 *restrict out, float *restrict error, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        out[i] = bf16_of(x[i]);
        error[i] = x[i] - float_of_bf16(out[i]);
    }
}

static void bf16_add(float *restrict acc, const taciti_bf16 *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++) acc[i] += float_of_bf16(x[i]);
}

static inline double add_products(const float *a, const float *b, size_t n) {
    double lanes[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lanes[l] += (double)a[i + l] * (double)b[i + l];
    for (size_t l = 0; i + l < n; l++) lanes[l] += (double)a[i + l] * (double)b[i + l];
    return fold_lanes(lanes);
}

static double dot(const float *a, const float *b, size_t n) { return add_products(a, b, n); }

/* A copy of its own, which converts every float once. */
static double sum_squares(const float *x, size_t n) { return add_products(x, x, n); }

static int all_finite(const float *x, size_t n) {
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) bad |= (bits_of(x[i]) & 0x7f800000u) == 0x7f800000u;
    return bad == 0;
}

/* ---- updates -------------------------------------------------------------------------------------------------
 * Blocks go through the first cache: what arrived is blended in, the update made, copies leave. */

/* One call's way through its blocks. A copy beside a blend is as large as the update of which this call is a part. */
typedef struct block_pass {
    taciti_blend *blend; /* or NULL */
    taciti_bf16 *copy;   /* or NULL */
    int stream;          /* the copy leaves past the caches */
    double lanes[LANES];
} block_pass;

static inline block_pass pass_begin(taciti_blend *blend, taciti_bf16 *copy, size_t n) {
    return (block_pass){.blend = blend, .copy = copy, .stream = blend != NULL || n >= STREAM_UPDATE_FLOATS};
}

/* Where the block that begins at i ends: the first one is short, so that the copies of all others begin on a line. It
 * has whole lanes: unless arrays begin amid of them, which costs the copy its way past the caches. */
static inline size_t block_end(const block_pass *pass, size_t i, size_t n) {
    const size_t line = i == 0 ? floats_to_line(pass->copy, sizeof *pass->copy) : 0;
    const size_t end = i + (line > 0 && line % LANES == 0 ? line : BLOCK);
    return end < n ? end : n;
}

/* Blends one element and adds the square of its change to its lane. `follows`, a constant: there is an integral. */
static inline void blend_into(int form, int follows, const taciti_blend *b, float *p, float arrived, float *integral,
                              double *lane) {
    const float before = *p, blended = blend_element(form, b->keep, b->share, before, arrived);
    const double change = (double)blended - (double)before;
    *lane += change * change;
    if (follows) *integral = b->leak * *integral + b->gain * (blended - before);
    *p = follows ? blended + *integral : blended;
}

static inline void blend_as(int form, int follows, const taciti_blend *blend, double *lanes, float *restrict p,
                            const float *restrict arrived, float *restrict integral, size_t n) {
    const taciti_blend b = *blend;
    double sums[LANES];
    size_t i = 0;
    for (size_t l = 0; l < LANES; l++) sums[l] = lanes[l];
    for (; i + LANES <= n; i += LANES)
        for (size_t l = 0; l < LANES; l++)
            blend_into(form, follows, &b, &p[i + l], arrived[i + l], follows ? &integral[i + l] : NULL, &sums[l]);
    for (size_t l = 0; i + l < n; l++)
        blend_into(form, follows, &b, &p[i + l], arrived[i + l], follows ? &integral[i + l] : NULL, &sums[l]);
    for (size_t l = 0; l < LANES; l++) lanes[l] = sums[l];
}

/* `form` is a constant. */
static inline void blend_block(int form, const taciti_blend *b, double *lanes, float *p, size_t begin, size_t n) {
    if (b->integral == NULL)
        blend_as(form, 0, b, lanes, p + begin, b->arrived + begin, NULL, n);
    else
        blend_as(form, 1, b, lanes, p + begin, b->arrived + begin, b->integral + begin, n);
}

/* Blends block [begin, end) before its update: begin is a multiple of the lanes. */
static inline void block_arrives(block_pass *pass, float *p, size_t begin, size_t end) {
    const taciti_blend *b = pass->blend;
    if (b == NULL || b->arrived == NULL) return;
    const int form = b->share == 0 ? BLEND_KEPT : b->keep == 0 ? BLEND_ARRIVED : BLEND_BOTH;
    switch (form) {
    case BLEND_KEPT: blend_block(BLEND_KEPT, b, pass->lanes, p, begin, end - begin); break;
    case BLEND_ARRIVED: blend_block(BLEND_ARRIVED, b, pass->lanes, p, begin, end - begin); break;
    default: blend_block(BLEND_BOTH, b, pass->lanes, p, begin, end - begin); break;
    }
}

/* Sends a block. Memory where nothing has arrived is not in the caches. */
static inline void send_block(const taciti_blend *b, const float *p, size_t begin, size_t n) {
    _Alignas(LINE_BYTES) float staged[BLOCK];
    float *out = b->leaving + begin;
    if (b->leaving == b->arrived || n < BLOCK || floats_to_line(out, 1) > 0) {
        scaled_copy_plain(out, p + begin, b->leaving_scale, n);
        return;
    }
    scaled_copy_plain(staged, p + begin, b->leaving_scale, BLOCK);
    store_past_caches(out, staged, sizeof staged);
}

static inline void copy_block(const block_pass *pass, const float *p, size_t begin, size_t n) {
    _Alignas(LINE_BYTES) taciti_bf16 staged[BLOCK];
    taciti_bf16 *out = pass->copy + begin;
    if (!pass->stream || n < BLOCK || floats_to_line(out, 1) > 0) {
        encode_plain(out, p + begin, n);
        return;
    }
    encode_plain(staged, p + begin, BLOCK);
    store_past_caches(out, staged, sizeof staged);
}

/* Copies and sends a block after its update. */
static inline void block_leaves(const block_pass *pass, const float *p, size_t begin, size_t end) {
    if (pass->copy != NULL) copy_block(pass, p, begin, end - begin);
    if (pass->blend != NULL && pass->blend->leaving != NULL) send_block(pass->blend, p, begin, end - begin);
}

static inline void pass_end(const block_pass *pass) {
    if (pass->blend != NULL && pass->blend->arrived != NULL) pass->blend->moved += fold_lanes(pass->lanes);
    stores_done();
}

static void blend_alone(taciti_blend *blend, float *restrict p, taciti_bf16 *restrict copy, size_t n) {
    block_pass pass = pass_begin(blend, copy, n);
    for (size_t i = 0, end; i < n; i = end) {
        end = block_end(&pass, i, n);
        block_arrives(&pass, p, i, end);
        block_leaves(&pass, p, i, end);
    }
    pass_end(&pass);
}

static inline void adamw_block(const taciti_adamw_step *s, int coupled, const float *share, float *restrict p,
                               const float *restrict g, float *restrict m, float *restrict v, size_t n) {
    if (share == NULL)
        for (size_t i = 0; i < n; i++) p[i] = adamw_element(s, coupled, 1, p[i], g[i], &m[i], &v[i]);
    else
        for (size_t i = 0; i < n; i++) p[i] = adamw_element(s, coupled, share[i], p[i], g[i], &m[i], &v[i]);
}

/* Returns the shares from float `begin` on. */
static inline const float *share_at(const taciti_adamw_step *s, size_t begin) {
    return s->share == NULL ? NULL : s->share + begin;
}

static void adamw(const taciti_adamw_step *step, float *restrict p, const float *restrict g, float *restrict m,
                  float *restrict v, taciti_bf16 *restrict copy, size_t n) {
    const taciti_adamw_step s = *step;
    block_pass pass = pass_begin(s.blend, copy, n);
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = block_end(&pass, begin, n);
        block_arrives(&pass, p, begin, end);
        const float *share = share_at(&s, begin);
        if (s.coupled)
            adamw_block(&s, 1, share, p + begin, g + begin, m + begin, v + begin, end - begin);
        else
            adamw_block(&s, 0, share, p + begin, g + begin, m + begin, v + begin, end - begin);
        block_leaves(&pass, p, begin, end);
    }
    pass_end(&pass);
}

static inline void accum_block(const taciti_accum_step *s, int coupled, int ends, const float *share, float *restrict p,
                               const float *restrict g, float *restrict m, float *restrict v, float *restrict a,
                               size_t n) {
    if (share == NULL)
        for (size_t i = 0; i < n; i++) p[i] = accum_element(s, coupled, ends, 1, p[i], g[i], &m[i], &v[i], &a[i]);
    else
        for (size_t i = 0; i < n; i++)
            p[i] = accum_element(s, coupled, ends, share[i], p[i], g[i], &m[i], &v[i], &a[i]);
}

static void accum_adamw(const taciti_accum_step *step, float *restrict p, const float *restrict g,
                        const taciti_accum_state *state, taciti_bf16 *restrict copy, size_t n) {
    const taciti_accum_step s = *step;
    block_pass pass = pass_begin(s.adamw.blend, copy, n);
    for (size_t i = 0, end; i < n; i = end) {
        const float *share = share_at(&s.adamw, i);
        float *m = state->m + i, *v = state->v + i, *a = state->a + i;
        end = block_end(&pass, i, n);
        block_arrives(&pass, p, i, end);
        if (s.adamw.coupled && s.window_ends)
            accum_block(&s, 1, 1, share, p + i, g + i, m, v, a, end - i);
        else if (s.adamw.coupled)
            accum_block(&s, 1, 0, share, p + i, g + i, m, v, a, end - i);
        else if (s.window_ends)
            accum_block(&s, 0, 1, share, p + i, g + i, m, v, a, end - i);
        else
            accum_block(&s, 0, 0, share, p + i, g + i, m, v, a, end - i);
        block_leaves(&pass, p, i, end);
    }
    pass_end(&pass);
}

static void sgd(const taciti_sgd_step *step, float *restrict p, const float *restrict g, float *restrict m,
                taciti_bf16 *restrict copy, size_t n) {
    const taciti_sgd_step s = *step;
    block_pass pass = pass_begin(s.blend, copy, n);
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = block_end(&pass, begin, n);
        block_arrives(&pass, p, begin, end);
        if (m != NULL)
            for (size_t i = begin; i < end; i++) p[i] = sgd_element(&s, p[i], g[i], &m[i]);
        else
            for (size_t i = begin; i < end; i++) p[i] = sgd_plain_element(&s, p[i], g[i]);
        block_leaves(&pass, p, begin, end);
    }
    pass_end(&pass);
}

#endif
