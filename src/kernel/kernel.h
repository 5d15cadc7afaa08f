/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic on plain arrays. Only kernel/ and model/ access array elements. The kernels are a table of function
 * pointers: the scalar set defines the results and fills the table, faster sets then replace entries.
 *
 * Rules for every entry, unless its comment says otherwise:
 *  - single-threaded, no allocation, no failure; any thread; callers split work with taciti_pool_part();
 *  - arrays may have any alignment (64 bytes is faster), n may be 0; `restrict` as declared;
 *  - the result is byte-identical on every instruction set. Reductions add into 16 lanes (element i into lane i % 16)
 *    and fold them as ((l0+l8)+(l4+l12))+((l2+l10)+(l6+l14)) + the same of the odd lanes; multiply-add is either one
 *    fma on every set or two roundings on every set, as stated. The one exception: where several operands of one
 *    operation are NaN, the result is NaN on every set but its payload bits are not specified;
 *  - matrix-product-like entries (attention) may differ by ulps between sets.
 */
#ifndef TACITI_KERNEL_KERNEL_H
#define TACITI_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "tacit/tacit.h"

typedef uint16_t taciti_bf16; /* upper half of an IEEE binary32; round to nearest even; NaN stays a (quiet) NaN */
typedef uint16_t taciti_fp16; /* an IEEE binary16; round to nearest even; NaN stays a (quiet) NaN */

/* 16 floats in 17 bytes: s, then 16 codes q in two's complement, of the values q 2^(s - 127). s is the smallest one,
 * 1 .. 248, with which no magnitude is above 127 2^(s - 127); q is rounded to nearest, ties to even, and limited to
 * +-127, which matters from 127 2^121 on. So a number changes by 1/127 of the largest magnitude of its line at most, or
 * by 2^-127; and what was decoded is encoded to the same bytes. A line of zeros is 17 zero bytes, as is memory that was
 * never written to. A line with a number that is not finite has s = 255 and becomes NaN. */
enum { TACITI_LINE8_N = 16, TACITI_LINE8_BYTES = 17 };
static inline size_t taciti_line8_bytes(size_t n) {
    return (n / TACITI_LINE8_N + (n % TACITI_LINE8_N != 0)) * TACITI_LINE8_BYTES;
}

/* p <- keep p + share arrived, with separate roundings of product and sum; then the update, if there is one; then
 * leaving <- leaving_scale p. An operand with factor 0 is not read and may hold anything: keep 0 with share 1 copies,
 * keep 1 with share 0 changes nothing. arrived and leaving may be the same array; neither may overlap another array of
 * a call. With an integral, integral <- leak integral + gain (blended p - p) first, and p becomes blended p + integral,
 * each product and sum rounded. */
typedef struct taciti_blend {
    const float *arrived; /* NULL: p is not blended; keep and share are ignored */
    float keep, share;
    float *integral; /* of what blends have moved; NULL: none */
    float leak, gain;
    float *leaving; /* NULL: no copy is written */
    float leaving_scale;
    double moved; /* each call adds the sum of squares of (blended p - p), in double and 16 lanes */
} taciti_blend;

typedef struct taciti_adamw_step {
    float lr, beta1, beta2, eps, weight_decay; /* decoupled decay (Loshchilov & Hutter, arXiv 1711.05101) */
    float correction1, correction2;            /* 1 / (1 - beta^t), computed by the caller in double */
    float grad_scale;                          /* g is multiplied by this first (clipping, averaging) */
    int coupled;                               /* Adam: the decay is part of the gradient (L2) instead */
    taciti_blend *blend;                       /* in the same pass, around the update; NULL: none */
    const float *share;                        /* of v that counts, per element; NULL: all of it */
} taciti_adamw_step;

/* Adam(W) whose moments are updated with the mean gradient of a window of steps (AccumAdam, arXiv 2410.11998). */
typedef struct taciti_accum_step {
    taciti_adamw_step adamw; /* the corrections count windows */
    float share;             /* 1 / steps of a window */
    int window_ends;         /* this step ends the window: m and v take in the mean, which is then set to 0 */
} taciti_accum_step;

/* States of an accumulating optimizer; none overlaps another array of the call. */
typedef struct taciti_accum_state {
    float *m, *v; /* moments of the windows that have ended */
    float *a;     /* mean gradient of the window, accumulated so far */
} taciti_accum_state;

typedef struct taciti_sgd_step {
    float lr, momentum, weight_decay, grad_scale;
    int nesterov;
    taciti_blend *blend; /* as above */
} taciti_sgd_step;

/* Shape of causal self-attention for one sequence. qkv is [time][3 * channels] (query, key, value side by side). */
typedef struct taciti_attention_shape {
    size_t time, heads, head_size; /* channels = heads * head_size */
    float dropout;                 /* on the attention weights; 0: none */
    uint64_t key;                  /* of the dropout mask; element index (head * time + t) * time + s */
} taciti_attention_shape;

/* One pass that selects the large elements of an array. Magnitudes compare by their bits, bits(x) & 0x7fffffff: in the
 * order of |x|, with Inf and NaN above every number. The pass may overwrite n elements of both arrays. */
enum { TACITI_MAGNITUDE_BINS = 2048 };
#define TACITI_MAGNITUDE_MASK UINT32_C(0x7fffffff)
#define TACITI_MAGNITUDE_INF UINT32_C(0x7f800000)
typedef struct taciti_select {
    uint32_t threshold; /* magnitudes from here on are selected */
    uint32_t half;      /* magnitudes from here on are counted in `near`; if `measure` */
    int measure;        /* `near` and `squares` are wanted */
    uint32_t *indices;  /* of the selected elements, ascending */
    float *values;      /* those elements */
    float *error;       /* [n]: receives x with 0 where elements were selected; NULL: not wanted */
    size_t count, near; /* results: selected elements; magnitudes >= half */
    double squares;     /* result: sum_squares of x */
} taciti_select;

/* The line of 16 elements that stands for the index-th group of `stride` lines: samples at a fixed distance would keep
 * to a few columns of a matrix. */
static inline size_t taciti_sampled_line(size_t index, size_t stride) {
    return index * stride + (size_t)(((uint64_t)taciti_mix32((uint32_t)index) * (stride & 0xffffffffu)) >> 32);
}
/* How quantisers store floats. Blocks of `block` numbers, the last one may be shorter; within a block groups of 32,
 * the last one filled up with zeros. A block is 4 bytes of levels and the codes of its groups, little endian:
 *
 *            levels                        codes of a group
 *   int8     f32 s = max|x| / 127          32 bytes q, value q s
 *   int4     f32 s = max|x| / 7            16 bytes: element i in the lower half of byte i, 16 + i in the upper; q s
 *   signmag2 two bf16, lower and higher    u32 of sign bits, u32 of bits that say which level
 *   signmean f32 mean|x|                   u32 of sign bits
 *
 * q is rounded to nearest, ties to even, and symmetric: -127 .. 127, -7 .. 7. With hadamard (int4) groups are
 * multiplied by the 32 x 32 Hadamard matrix before, s is max / (32 levels), and the values by it again. The levels of
 * signmag2 are those of Lloyd (IEEE Trans. Information Theory 28(2), 1982) after 3 rounds from mean|x|. -0.0 has a
 * sign. The levels of a block are NaN if a number of it is not finite, or a sum of 32 of them (Hadamard) or of all
 * (means) overflows. A block whose max|x| is not above 2^-120 becomes zeros in int8 and int4. */
typedef enum taciti_quantised_form {
    TACITI_QUANTISE_INT8,
    TACITI_QUANTISE_INT4,
    TACITI_QUANTISE_SIGNMAG2,
    TACITI_QUANTISE_SIGNMEAN,
} taciti_quantised_form;

enum { TACITI_QUANTISE_GROUP = 32, TACITI_QUANTISE_BLOCK_MAX = 4096 };

typedef struct taciti_quantisation {
    taciti_quantised_form form;
    int hadamard; /* int4 alone */
    size_t block; /* multiple of 32, up to TACITI_QUANTISE_BLOCK_MAX */
} taciti_quantisation;

/* Homomorphic sketches (codec/homomorphic.h). A line is 16 consecutive elements of an array. It is added to three rows
 * of 16 counters, element i to counter i. */
enum { TACITI_SKETCH_LINE = 16, TACITI_SKETCH_COUNT_MAX = 255, TACITI_SKETCH_BLOCK = 128 };
typedef struct taciti_sketch_line {
    uint32_t at;     /* line of the array */
    uint32_t row[3]; /* different */
} taciti_sketch_line;

/* The lines of one zone of an array. Words of the index, 4 lines each, go to zones by turns. */
typedef struct taciti_sketch_zone {
    uint64_t key;       /* of the hash */
    uint32_t row, rows; /* first row, number of rows >= 3 */
    uint32_t zone, zones;
} taciti_sketch_zone;

/* Peeling. `lines` and `pending` have `count` entries; sweeps drop those of which nothing is pending. */
typedef struct taciti_sketch_peeling {
    taciti_sketch_line *lines;
    uint16_t *pending; /* bit i: element i of the line is not decoded yet */
    size_t count;
    float *counters; /* of all rows */
    uint8_t *counts; /* how many pending elements each counter holds */
    float *x;        /* receives decoded elements; others are not written */
} taciti_sketch_peeling;

/* Squared norms of the numbers that are encoded and of those that they decode to. */
typedef struct taciti_squares {
    double in, out;
} taciti_squares;

typedef struct taciti_kernels {
    const char *isa; /* "scalar", "avx2", "avx512" */

    /* ---- arrays (array.c): bandwidth-bound --------------------------------------------------------------------- */
    void (*add)(float *restrict acc, const float *restrict x, size_t n);                       /* acc += x */
    void (*add_scaled)(float *restrict acc, const float *restrict x, float factor, size_t n);  /* acc += factor * x */
    void (*scale)(float *x, float factor, size_t n);                                           /* x *= factor */
    void (*scaled_copy)(float *restrict out, const float *restrict x, float factor, size_t n); /* past the caches */
    void (*keep_equal)(float *restrict acc, const float *restrict x, const float *restrict y, size_t n); /* x == y ? acc
                                                                                                            : 0 */
    void (*bf16_encode)(taciti_bf16 *restrict out, const float *restrict x, size_t n);
    /* bf16_encode, and error = x - decoded out in the same pass. */
    void (*bf16_encode_error)(taciti_bf16 *restrict out, float *restrict error, const float *restrict x, size_t n);
    void (*bf16_decode)(float *restrict out, const taciti_bf16 *restrict x, size_t n);
    void (*bf16_add)(float *restrict acc, const taciti_bf16 *restrict x, size_t n);    /* acc += x */
    void (*fp16_encode)(taciti_fp16 *restrict out, const float *restrict x, size_t n); /* 65520 and more: Inf */
    /* fp16_encode, and error = x - decoded out in the same pass. */
    void (*fp16_encode_error)(taciti_fp16 *restrict out, float *restrict error, const float *restrict x, size_t n);
    void (*fp16_decode)(float *restrict out, const taciti_fp16 *restrict x, size_t n);
    void (*fp16_add)(float *restrict acc, const taciti_fp16 *restrict x, size_t n); /* acc += x */
    /* taciti_line8_bytes(n); zeros take the place of what a short last line lacks. */
    void (*line8_encode)(void *restrict out, const float *restrict x, size_t n);
    void (*line8_decode)(float *restrict out, const void *restrict in, size_t n); /* every content is legal */
    double (*sum_squares)(const float *x, size_t n);         /* products and 16 lanes in double; Inf/NaN propagate */
    double (*dot)(const float *a, const float *b, size_t n); /* likewise; a and b may be the same array */
    int (*all_finite)(const float *x, size_t n);             /* 1 when no element is Inf or NaN */
    /* A blend without an update. copy, if not NULL, receives bf16(p). */
    void (*blend)(taciti_blend *blend, float *restrict p, taciti_bf16 *restrict copy, size_t n);
    /* One pass over p, g, m, v: two roundings everywhere (no fma), exact division and square root. copy, if not NULL,
     * receives bf16(p). */
    void (*adamw)(const taciti_adamw_step *step, float *restrict p, const float *restrict g, float *restrict m,
                  float *restrict v, taciti_bf16 *restrict copy, size_t n);
    /* The same with a window: p is updated as if the window ended with this step and g were its mean gradient. */
    void (*accum_adamw)(const taciti_accum_step *step, float *restrict p, const float *restrict g,
                        const taciti_accum_state *state, taciti_bf16 *restrict copy, size_t n);
    /* m may be NULL: no momentum. The decay is part of the gradient (L2), as in PyTorch. */
    void (*sgd)(const taciti_sgd_step *step, float *restrict p, const float *restrict g, float *restrict m,
                taciti_bf16 *restrict copy, size_t n);

    /* ---- selection (select_*.c): n < 2^32 ---------------------------------------------------------------------- */
    /* counts[2048] += how many of x have (magnitude >> shift) % 2048 equal to the index; shift 20: exponent and 3 bits.
     */
    void (*histogram)(uint64_t *counts, const float *x, size_t n, unsigned shift);
    size_t (*count_above)(const float *x, size_t n, uint32_t threshold); /* magnitudes >= threshold */
    void (*select_above)(taciti_select *select, const float *x, size_t n);
    /* Keeps, in place, those of n selected elements that are above the threshold and the first `ties` equal to it; the
     * others go back to error[index] unless error is NULL. Returns how many are left. */
    size_t (*select_among)(uint32_t *restrict indices, float *restrict values, float *restrict error, size_t n,
                           uint32_t threshold, size_t ties);
    /* out = the elements with low <= magnitude < high, in order; out may be x, and all of out[n] may be overwritten.
     * Returns their number. */
    size_t (*select_band)(float *out, const float *x, size_t n, uint32_t low, uint32_t high);
    void (*gather)(float *restrict out, const float *restrict x, const uint32_t *restrict indices, size_t k);
    void (*scatter)(float *restrict x, const uint32_t *restrict indices, const float *restrict values, size_t k);
    void (*scatter_add)(float *restrict x, const uint32_t *restrict indices, const float *restrict values, size_t k);
    /* ---- quantisers (quantise.c): see taciti_quantisation ------------------------------------------------------ */
    /* In the same pass error, if not NULL, receives x - decoded out, and sums, if not NULL, the squares: `in` is
     * sum_squares(x). `out` adds up, in double, the squares of each whole block's codes times that of its scale: its
     * values before they are rounded to floats, so within 2^-22; then sum_squares of what a short last block decodes
     * to.
     */
    void (*quantise)(const taciti_quantisation *q, void *restrict out, float *restrict error, const float *restrict x,
                     size_t n, taciti_squares *sums);
    /* x = decoded in; every content is legal. */
    void (*dequantise)(const taciti_quantisation *q, float *restrict x, const void *restrict in, size_t n);
    void (*dequantise_add)(const taciti_quantisation *q, float *restrict acc, const void *restrict in, size_t n);

    /* ---- homomorphic sketches (sketch.c) ----------------------------------------------------------------------- */
    /* Bit i % 64 of word i / 64 becomes x[i] != 0 (NaN counts, -0 does not); bits behind n become 0. */
    void (*sketch_index)(uint64_t *restrict words, const float *restrict x, size_t n);
    /* lines[i] = line first + i of the zone; its rows are drawn by the hash. */
    void (*sketch_lines)(taciti_sketch_line *lines, const taciti_sketch_zone *zone, uint32_t first, size_t count);
    /* counters += lines of x, which must be whole, in order. */
    void (*sketch_add)(float *restrict counters, const taciti_sketch_line *lines, size_t count,
                       const float *restrict x);
    /* pending = bits of the lines in the index; counts += those bits, up to TACITI_SKETCH_COUNT_MAX. */
    void (*sketch_count)(uint8_t *restrict counts, uint16_t *restrict pending, const taciti_sketch_line *lines,
                         size_t count, const uint64_t *restrict words);
    /* One pass over all lines. Blocks of TACITI_SKETCH_BLOCK lines, in order: first finds the pending elements that are
     * alone in a counter, then decodes them - from the first such row - and removes them from their rows, line by line.
     * Returns how many lines had such elements. */
    size_t (*sketch_sweep)(taciti_sketch_peeling *peel);
    /* The largest magnitude among n counters whose count is 0 (counts NULL: among all), as bits. */
    uint32_t (*sketch_largest)(const float *counters, const uint8_t *counts, size_t n);
    /* out = the indexed elements, in order; room for TACITI_SKETCH_LINE more is overwritten. */
    void (*sketch_pack)(float *restrict out, const uint64_t *restrict words, const float *restrict x, size_t n);
    /* The indexed elements of x = values; others are not written. */
    void (*sketch_unpack)(float *restrict x, const uint64_t *restrict words, const float *restrict values, size_t n);

    /* ---- network (net.c): rows of a transformer ---------------------------------------------------------------- */
    /* An output named `*16`, if not NULL, receives the bf16-rounded result, the operand of the next bf16 matrix
     * product. The f32 outputs y, d and dx may then be NULL. Column sums (dweight, dbias) are added row by row in
     * ascending order; threads that share rows pass private accumulators and add them in thread order. Dropout keeps
     * element i of stream key when taciti_rng_u32(key, i) >= p * 2^32, p < 1, and scales it by 1 / (1 - p); i counts
     * modulo 2^32. */

    /* y = (x - mean) * rstd * weight + bias for each of `rows` rows of c; saves mean and rstd of every row. c > 0.
     * (Ba, Kiros, Hinton 1607.06450; eps 1e-5 as in GPT-2) */
    void (*layernorm)(float *restrict y, taciti_bf16 *restrict y16, float *restrict mean, float *restrict rstd,
                      const float *restrict x, const float *restrict weight, const float *restrict bias, size_t rows,
                      size_t c);
    /* dx += gradient of the input; dweight, dbias += gradients of the parameters. dy is read once. */
    void (*layernorm_backward)(float *restrict dx, float *restrict dweight, float *restrict dbias,
                               const float *restrict dy, const float *restrict x, const float *restrict mean,
                               const float *restrict rstd, const float *restrict weight, size_t rows, size_t c);
    /* out = x + dropout(a + bias). a is the product without bias. p = 0: no dropout. The mask index of element i is
     * first + i. */
    void (*residual)(float *restrict out, const float *restrict x, const float *restrict a, const float *restrict bias,
                     size_t rows, size_t c, float p, uint64_t key, size_t first);
    /* d = dropout'(dout), dbias += column sums of d. With p = 0, d may be NULL: it would equal dout. */
    void (*residual_backward)(float *restrict d, taciti_bf16 *restrict d16, float *restrict dbias,
                              const float *restrict dout, size_t rows, size_t c, float p, uint64_t key, size_t first);
    /* y = gelu_tanh(x + bias); x keeps x + bias for backward. (Hendrycks & Gimpel 1606.08415, tanh form) */
    void (*gelu)(float *restrict y, taciti_bf16 *restrict y16, float *restrict x, const float *restrict bias,
                 size_t rows, size_t c);
    /* dx = dy * gelu'(x); dbias += column sums of dx. dx may equal dy. */
    void (*gelu_backward)(float *dx, taciti_bf16 *dx16, float *dbias, const float *dy, const float *x, size_t rows,
                          size_t c);
    /* dbias += column sums of d; also d as bf16. */
    void (*bias_backward)(float *restrict dbias, taciti_bf16 *restrict d16, const float *restrict d, size_t rows,
                          size_t c);

    /* Fused softmax cross-entropy over rows of logits[rows][stride], of which the first `vocab` count. Returns the sum
     * of the losses (double, nats); when `gradient`, logits are overwritten by (softmax - onehot) * scale (columns
     * beyond vocab by 0), else left as they are. target < 0: row ignored (gradient 0). 0 < vocab <= stride, target <
     * vocab. Sums of 4096 columns in f32, of those in double. A NaN or +Inf among the columns makes the loss NaN. */
    double (*cross_entropy)(float *restrict logits, taciti_bf16 *restrict gradient16, const int32_t *restrict target,
                            size_t rows, size_t vocab, size_t stride, float scale, int gradient);

    /* Causal attention of one head of one sequence; stores at most one tile of the T x T matrix. qkv: this sequence,
     * biases already added. out[time][channels]: only this head's columns are written. lse[time]: log-sum-exp per row,
     * saved for backward. work: taciti_attention_work_floats() floats, private. */
    void (*attention)(float *restrict out, taciti_bf16 *restrict out16, float *restrict lse, const float *restrict qkv,
                      const taciti_attention_shape *shape, size_t head, float *restrict work);
    /* dqkv: this head's columns of query, key and value are overwritten. */
    void (*attention_backward)(float *restrict dqkv, const float *restrict dout, const float *restrict out,
                               const float *restrict lse, const float *restrict qkv,
                               const taciti_attention_shape *shape, size_t head, float *restrict work);
} taciti_kernels;

/* Floats of private work memory that attention (both directions) needs for this shape. */
size_t taciti_attention_work_floats(const taciti_attention_shape *shape);

/* Returns the fastest table for this CPU, or the one that TACIT_ISA=scalar|avx2|avx512 selects. An unknown or
 * unavailable name, which taciti_kernels_check() refuses, selects the scalar set. The first call must come from a
 * single thread; later calls from any thread. */
const taciti_kernels *taciti_kernels_get(void);

/* Returns E_CONFIG if TACIT_ISA names no set of this CPU and build. Program and library begin with it. Any thread. */
tacit_status taciti_kernels_check(void);

/* Returns the table of one set by name, or NULL if this CPU or build lacks it. For conformance tests and benchmarks. */
const taciti_kernels *taciti_kernels_named(const char *isa);

/* Makes taciti_kernels_get() return that set from now on; NULL: the one of the start. Returns false, and changes
 * nothing, if this CPU or build lacks it. For benchmarks; no other thread may use kernels meanwhile. */
bool taciti_kernels_switch(const char *isa);

/* The name of the index-th set, narrowest first; NULL behind the last. This CPU may lack it. */
const char *taciti_kernels_isa(size_t index);

#endif
