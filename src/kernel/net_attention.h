/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention of one head in tiles over sixteen lanes (after FlashAttention, Dao et al. arXiv 2205.14135 and
 * 2307.08691): scores never leave private memory, backward recomputes them from the saved log-sum-exp.
 *
 *   forward   S = q k'      P = softmax(S)   out = drop(P) v          q is scaled by 1 / sqrt(head size) when packed
 *   backward  dP = dout v'  dS = P * (drop(dP) - delta)               delta_t = sum_j dout_tj out_tj
 *             dv = drop(P)' dout   dk = dS' q   dq = dS k
 *
 * Forward keeps a strip of rows with all their keys instead of rescaling running sums: one exact softmax per row, and
 * the strip of 32 rows stays in the second-level cache up to thousands of keys. Every product is one micro-kernel,
 * since its left operand is read element by element with any two strides. Included by net.c only.
 */
#ifndef TACITI_KERNEL_NET_ATTENTION_H
#define TACITI_KERNEL_NET_ATTENTION_H

#include "base/number.h"
#include "kernel/net_loss.h"
#include "kernel/net_tile.h"

/* Accumulators of the micro-kernel: rows x vectors of sixteen, as many as the registers hold. */
#if defined(LANES16_AVX512)
enum { BLOCK_ROWS = 4, BLOCK_VECTORS = 4 };
#else
enum { BLOCK_ROWS = 4, BLOCK_VECTORS = 1 };
#endif

/* c[r][0..16 vectors) (+)= sum over i < depth of a[r][i] b[i][...]; element [r][i] of a is at[r * row + i * step]. */
typedef struct product {
    struct {
        const float *at;
        size_t row, step;
    } a;
    struct {
        const float *at;
        size_t row;
    } b;
    struct {
        float *at;
        size_t row;
    } c;
} product;

#define UNROLL _Pragma("GCC unroll 8")

static inline __attribute__((always_inline)) void multiply_block(const product *p, size_t depth, int add,
                                                                 const size_t rows, const size_t vectors) {
    floats16 sum[BLOCK_ROWS][BLOCK_VECTORS];
    const float *a = p->a.at, *b = p->b.at;
    const size_t a_row = p->a.row, a_step = p->a.step, b_row = p->b.row;
    UNROLL for (size_t r = 0; r < rows; r++) UNROLL for (size_t v = 0; v < vectors; v++) sum[r][v] =
        add ? load(p->c.at + r * p->c.row + 16 * v, 16) : splat(0.0f);
    for (size_t i = 0; i < depth; i++, a += a_step, b += b_row) {
        floats16 right[BLOCK_VECTORS];
        UNROLL for (size_t v = 0; v < vectors; v++) right[v] = load(b + 16 * v, 16);
        UNROLL for (size_t r = 0; r < rows; r++) {
            const floats16 left = splat(a[r * a_row]);
            UNROLL for (size_t v = 0; v < vectors; v++) sum[r][v] = fma16(left, right[v], sum[r][v]);
        }
    }
    UNROLL for (size_t r = 0; r < rows; r++) UNROLL for (size_t v = 0; v < vectors; v++)
        store(p->c.at + r * p->c.row + 16 * v, sum[r][v], 16);
}

static inline __attribute__((always_inline)) void multiply_panel(product p, size_t rows, size_t depth, int add,
                                                                 const size_t vectors) {
    for (; rows >= BLOCK_ROWS; rows -= BLOCK_ROWS) {
        multiply_block(&p, depth, add, BLOCK_ROWS, vectors);
        p.a.at += BLOCK_ROWS * p.a.row;
        p.c.at += BLOCK_ROWS * p.c.row;
    }
    for (; rows > 0; rows--) {
        multiply_block(&p, depth, add, 1, vectors);
        p.a.at += p.a.row;
        p.c.at += p.c.row;
    }
}

static void multiply(product p, size_t rows, size_t columns, size_t depth, int add) {
    size_t vectors = (columns + 15) / 16;
    while (vectors > 0) {
        const size_t now = vectors < BLOCK_VECTORS ? vectors : BLOCK_VECTORS;
        if (now == BLOCK_VECTORS) multiply_panel(p, rows, depth, add, BLOCK_VECTORS);
#if defined(LANES16_AVX512)
        else if (now == 3)
            multiply_panel(p, rows, depth, add, 3);
        else if (now == 2)
            multiply_panel(p, rows, depth, add, 2);
        else
            multiply_panel(p, rows, depth, add, 1);
#endif
        p.b.at += 16 * now;
        p.c.at += 16 * now;
        vectors -= now;
    }
}

/* out[t][width] = in[t][size] * factor, columns from size to width zero; in has rows of `stride`. */
static void pack_rows(float *out, size_t width, const float *in, size_t stride, const attention_tiles *g,
                      float factor) {
    for (size_t t = 0; t < g->time; t++)
        EACH_16(j, k, g->size, {
            const floats16 v = mul16(load(in + t * stride + j, k), splat(factor));
            store(out + t * width + j, first_or(v, k, splat(0.0f)), 16);
        });
}

/* out[tile][j][s] = in[64 tile + s][j]: tiles of 64 rows, transposed; rows beyond time are zero. */
static void pack_columns(float *out, const float *in, size_t stride, const attention_tiles *g) {
    const size_t whole_time = g->time / 8 * 8, whole_size = g->size / 8 * 8;
    for (size_t t = 0; t < g->padded_time; t++) {
        float *to = out + t / TILE * TILE * g->size + t % TILE;
        const int whole = t < whole_time;
        if (whole && t % 8 == 0)
            for (size_t j = 0; j < whole_size; j += 8) transpose8(to + j * TILE, TILE, in + t * stride + j, stride);
        for (size_t j = whole ? whole_size : 0; j < g->size; j++)
            to[j * TILE] = t < g->time ? in[t * stride + j] : 0.0f;
    }
}

/* Row t of the strip: scores become e^(S - max), dropped where the mask says, zero beyond t up to the next multiple of
 * 16. Returns the sum before dropout and leaves the log-sum-exp. */
static float softmax_row(float *s, size_t t, const taciti_attention_shape *shape, size_t head, float *lse) {
    const size_t last = t / 16 * 16, n = last + 16; /* whole vectors: what is masked becomes e^-inf */
    store(s + last, first_or(load(s + last, 16), t + 1 - last, splat(-INFINITY)), 16);
    const float largest = row_max(s, n), sum = exponentials(s, largest, n, 1);
    const uint32_t threshold = dropout_threshold(shape->dropout);
    const uint32_t first = (uint32_t)((head * shape->time + t) * shape->time);
    for (size_t j = 0; threshold > 0 && j < n; j += 16)
        store(s + j, keep_from(random16(shape->key, first + (uint32_t)j), threshold, load(s + j, 16)), 16);
    *lse = (float)((double)largest + log((double)sum));
    return sum;
}

static void attention(float *restrict out, taciti_bf16 *restrict out16, float *restrict lse, const float *restrict qkv,
                      const taciti_attention_shape *shape, size_t head, float *restrict work) {
    const attention_tiles g = attention_tiles_of(shape);
    const size_t channels = shape->heads * g.size, stride = 3 * channels, width = g.width;
    float *kt = work, *v = kt + g.padded_time * g.size, *q = v + g.time * width, *strip = q + g.time * width;
    float *sum = strip + STRIP * g.padded_time;
    qkv += head * g.size;
    pack_rows(q, width, qkv, stride, &g, g.scale);
    pack_columns(kt, qkv + channels, stride, &g);
    pack_rows(v, width, qkv + 2 * channels, stride, &g, 1.0f);
    for (size_t i = 0; i < g.time; i += STRIP) {
        const size_t rows = taciti_min(STRIP, g.time - i), keys = i + rows;
        for (size_t j = 0; j < keys; j += TILE)
            for (size_t r = 0; r < rows; r += GROUP) {
                const size_t group = taciti_min(GROUP, rows - r), columns = taciti_min(TILE, i + r + group - j);
                multiply((product){.a = {q + (i + r) * width, width, 1},
                                   .b = {kt + j * g.size, TILE},
                                   .c = {strip + r * g.padded_time + j, g.padded_time}},
                         group, columns, g.size, 0);
            }
        for (size_t r = 0; r < rows; r++)
            sum[r] = softmax_row(strip + r * g.padded_time, i + r, shape, head, &lse[i + r]);
        for (size_t j = 0; j < keys; j += TILE)
            for (size_t r = 0; r < rows; r += GROUP) {
                const size_t group = taciti_min(GROUP, rows - r), depth = taciti_min(TILE, i + r + group - j);
                multiply((product){.a = {strip + r * g.padded_time + j, g.padded_time, 1},
                                   .b = {v + j * width, width},
                                   .c = {q + (i + r) * width, width}},
                         group, width, depth, j > 0);
            }
        for (size_t r = 0; r < rows; r++) {
            const float factor = 1.0f / ((1.0f - shape->dropout) * sum[r]);
            const size_t at = (i + r) * channels + head * g.size;
            EACH_16(j, k, g.size,
                    store_both(out, out16, at + j, mul16(load(q + (i + r) * width + j, k), splat(factor)), k););
        }
    }
}

/* A pair of tiles in backward: queries from i, keys from j. */
typedef struct tile_pair {
    size_t i, j, queries, keys;
} tile_pair;

/* Packed operands and results of backward in private memory. */
typedef struct backward_work {
    float *kt, *vt, *k, *q, *dout, *dq, *dk, *dv, *delta, *s, *ds;
} backward_work;

static backward_work backward_work_of(const attention_tiles *g, float *work) {
    backward_work w;
    w.kt = work;
    w.vt = w.kt + g->padded_time * g->size;
    w.k = w.vt + g->padded_time * g->size;
    w.q = w.k + g->time * g->width;
    w.dout = w.q + g->time * g->width;
    w.dq = w.dout + g->time * g->width;
    w.dk = w.dq + g->time * g->width;
    w.dv = w.dk + TILE * g->width;
    w.s = w.dv + TILE * g->width;
    w.ds = w.s + TILE * TILE;
    w.delta = w.ds + TILE * TILE;
    return w;
}

/* Row t of a tile: s becomes drop(P), ds (dP on entry) becomes dS, for `columns` of which the first `valid` count. */
static inline void backward_row(float *s, float *ds, const float *softmax, const taciti_attention_shape *shape,
                                uint32_t index, size_t valid, size_t columns) {
    const uint32_t threshold = dropout_threshold(shape->dropout);
    const floats16 lse = splat(softmax[0]), delta = splat(softmax[1]), kept = splat(1.0f / (1.0f - shape->dropout));
    for (size_t j = 0; j < columns; j += 16) {
        const size_t k = j < valid ? taciti_min(16, valid - j) : 0;
        const floats16 p = first_or(exp16(sub16(load(s + j, 16), lse)), k, splat(0.0f));
        floats16 dropped = p, dp = load(ds + j, 16);
        if (threshold > 0) {
            const words16 word = random16(shape->key, index + (uint32_t)j);
            dropped = keep_from(word, threshold, mul16(p, kept));
            dp = keep_from(word, threshold, mul16(dp, kept));
        }
        store(s + j, dropped, 16);
        store(ds + j, first_or(mul16(p, sub16(dp, delta)), k, splat(0.0f)), 16);
    }
}

static void backward_scores(const backward_work *w, const attention_tiles *g, const taciti_attention_shape *shape,
                            size_t head, const tile_pair *at, const float *lse) {
    for (size_t r = 0; r < at->queries; r += GROUP) {
        const size_t group = taciti_min(GROUP, at->queries - r), t = at->i + r;
        const size_t columns = at->i == at->j ? r + group : at->keys;
        multiply((product){.a = {w->q + t * g->width, g->width, 1},
                           .b = {w->kt + at->j * g->size, TILE},
                           .c = {w->s + r * TILE, TILE}},
                 group, columns, g->size, 0);
        multiply((product){.a = {w->dout + t * g->width, g->width, 1},
                           .b = {w->vt + at->j * g->size, TILE},
                           .c = {w->ds + r * TILE, TILE}},
                 group, columns, g->size, 0);
        for (size_t u = r; u < r + group; u++) {
            const float softmax[2] = {lse[at->i + u], w->delta[at->i + u]};
            const size_t index = (head * g->time + at->i + u) * g->time + at->j;
            backward_row(w->s + u * TILE, w->ds + u * TILE, softmax, shape, (uint32_t)index,
                         taciti_min(at->keys, at->i + u + 1 - at->j), columns);
        }
    }
}

/* dv += drop(P)' dout, dk += dS' q, dq += dS k of this pair. On the diagonal, a group of keys starts with the queries
 * of the same group, and queries end with their own group of keys. */
static void backward_products(const backward_work *w, const attention_tiles *g, const tile_pair *at) {
    const int diagonal = at->i == at->j;
    const size_t step = diagonal ? GROUP : TILE, width = g->width;
    for (size_t r = 0; r < at->keys; r += step) {
        const size_t group = taciti_min(step, at->keys - r), skip = diagonal ? r : 0, depth = at->queries - skip;
        const size_t row = at->i + skip;
        multiply((product){.a = {w->s + skip * TILE + r, 1, TILE},
                           .b = {w->dout + row * width, width},
                           .c = {w->dv + r * width, width}},
                 group, width, depth, !diagonal);
        multiply((product){.a = {w->ds + skip * TILE + r, 1, TILE},
                           .b = {w->q + row * width, width},
                           .c = {w->dk + r * width, width}},
                 group, width, depth, !diagonal);
    }
    for (size_t r = 0; r < at->queries; r += step) {
        const size_t group = taciti_min(step, at->queries - r);
        multiply((product){.a = {w->ds + r * TILE, TILE, 1},
                           .b = {w->k + at->j * width, width},
                           .c = {w->dq + (at->i + r) * width, width}},
                 group, width, diagonal ? r + group : at->keys, at->j > 0);
    }
}

static void unpack_rows(float *out, size_t stride, const float *in, size_t width, size_t size, size_t rows,
                        float factor) {
    for (size_t t = 0; t < rows; t++)
        EACH_16(j, k, size, store(out + t * stride + j, mul16(load(in + t * width + j, k), splat(factor)), k););
}

static void attention_backward(float *restrict dqkv, const float *restrict dout, const float *restrict out,
                               const float *restrict lse, const float *restrict qkv,
                               const taciti_attention_shape *shape, size_t head, float *restrict work) {
    const attention_tiles g = attention_tiles_of(shape);
    const backward_work w = backward_work_of(&g, work);
    const size_t channels = shape->heads * g.size, stride = 3 * channels, column = head * g.size;
    pack_rows(w.q, g.width, qkv + column, stride, &g, g.scale);
    pack_rows(w.k, g.width, qkv + channels + column, stride, &g, 1.0f);
    pack_columns(w.kt, qkv + channels + column, stride, &g);
    pack_columns(w.vt, qkv + 2 * channels + column, stride, &g);
    pack_rows(w.dout, g.width, dout + column, channels, &g, 1.0f);
    for (size_t t = 0; t < g.time; t++) {
        floats16 dot = splat(0.0f);
        EACH_16(j, k, g.size,
                dot = fma16(load(w.dout + t * g.width + j, k), load(out + t * channels + column + j, k), dot););
        w.delta[t] = fold_sum(dot);
    }
    for (size_t j = 0; j < g.time; j += TILE) {
        const size_t keys = taciti_min(TILE, g.time - j);
        for (size_t i = j; i < g.time; i += TILE) {
            const tile_pair at = {.i = i, .j = j, .queries = taciti_min(TILE, g.time - i), .keys = keys};
            backward_scores(&w, &g, shape, head, &at, lse);
            backward_products(&w, &g, &at);
        }
        float *to = dqkv + j * stride + column;
        unpack_rows(to + channels, stride, w.dk, g.width, g.size, keys, 1.0f);
        unpack_rows(to + 2 * channels, stride, w.dv, g.width, g.size, keys, 1.0f);
    }
    unpack_rows(dqkv + column, stride, w.dq, g.width, g.size, g.time, g.scale);
}

#endif
