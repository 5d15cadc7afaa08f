/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic on plain arrays: the only folder, with model/, that touches array elements. One table of function
 * pointers; the scalar set is the definition and fills it first, better sets overwrite entries.
 *
 * Rules of every entry, unless its comment says otherwise:
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

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

typedef uint16_t taciti_bf16; /* upper half of an IEEE binary32; round to nearest even; NaN stays a (quiet) NaN */

/* p <- keep p + share arrived, two roundings to a product and its sum; after an update, if there is one, leaving <-
 * leaving_scale p. An operand whose factor is 0 is left out, so that it may hold anything: keep 0 with share 1 copies,
 * keep 1 with share 0 changes nothing. arrived may be leaving; neither overlaps another array of a call. */
typedef struct taciti_blend {
    const float *arrived; /* NULL: p stays, keep and share are not looked at */
    float keep, share;
    float *leaving; /* NULL: nobody gets a copy */
    float leaving_scale;
    double moved; /* in and out: a call adds the sum of squares of (blended p - p), in double and 16 lanes */
} taciti_blend;

typedef struct taciti_adamw_step {
    float lr, beta1, beta2, eps, weight_decay; /* decoupled decay (Loshchilov & Hutter, arXiv 1711.05101) */
    float correction1, correction2;            /* 1 / (1 - beta^t), computed by the caller in double */
    float grad_scale;                          /* g is multiplied by this first (clipping, averaging) */
    int coupled;                               /* Adam: the decay is part of the gradient (L2) instead */
    taciti_blend *blend;                       /* in the same pass, around the update; NULL: none */
} taciti_adamw_step;

/* Adam(W) whose moments take in the mean gradient of a window of steps (AccumAdam, arXiv 2410.11998). */
typedef struct taciti_accum_step {
    taciti_adamw_step adamw; /* the corrections count windows */
    float share;             /* 1 / steps of a window */
    int window_ends;         /* with this step: m and v take in the mean, which then is 0 */
} taciti_accum_step;

/* States of an accumulating optimizer; none overlaps another array of the call. */
typedef struct taciti_accum_state {
    float *m, *v; /* moments of the windows that have ended */
    float *a;     /* what the steps of this window add to its mean gradient so far */
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

typedef struct taciti_kernels {
    const char *isa; /* "scalar", "avx2", "avx512" */

    /* ---- arrays (array_*.c): bandwidth-bound ------------------------------------------------------------------- */
    void (*add)(float *restrict acc, const float *restrict x, size_t n);                       /* acc += x */
    void (*add_scaled)(float *restrict acc, const float *restrict x, float factor, size_t n);  /* acc += factor * x */
    void (*scale)(float *x, float factor, size_t n);                                           /* x *= factor */
    void (*scaled_copy)(float *restrict out, const float *restrict x, float factor, size_t n); /* past the caches */
    void (*bf16_encode)(taciti_bf16 *restrict out, const float *restrict x, size_t n);
    /* bf16_encode, and error = x - decoded out in the same pass. */
    void (*bf16_encode_error)(taciti_bf16 *restrict out, float *restrict error, const float *restrict x, size_t n);
    void (*bf16_decode)(float *restrict out, const taciti_bf16 *restrict x, size_t n);
    void (*bf16_add)(float *restrict acc, const taciti_bf16 *restrict x, size_t n); /* acc += x */
    double (*sum_squares)(const float *x, size_t n); /* products and 16 lanes in double; Inf/NaN propagate */
    int (*all_finite)(const float *x, size_t n);     /* 1 when no element is Inf or NaN */
    /* A blend without an update. copy may be NULL, else receives bf16(p). */
    void (*blend)(taciti_blend *blend, float *restrict p, taciti_bf16 *restrict copy, size_t n);
    /* One pass over p, g, m, v: two roundings everywhere (no fma), exact division and square root. copy may be NULL,
     * else receives bf16(p). */
    void (*adamw)(const taciti_adamw_step *step, float *restrict p, const float *restrict g, float *restrict m,
                  float *restrict v, taciti_bf16 *restrict copy, size_t n);
    /* The same with the states of a window: p follows the moments as if the window ended with g alone. */
    void (*accum_adamw)(const taciti_accum_step *step, float *restrict p, const float *restrict g,
                        const taciti_accum_state *state, taciti_bf16 *restrict copy, size_t n);
    /* m may be NULL: no momentum. The decay is part of the gradient (L2), as in PyTorch. */
    void (*sgd)(const taciti_sgd_step *step, float *restrict p, const float *restrict g, float *restrict m,
                taciti_bf16 *restrict copy, size_t n);

    /* ---- network (net_*.c): rows of a transformer -------------------------------------------------------------- */
    /* In the entries below `*16` outputs may be NULL; when given, the bf16-rounded value is stored there as well
     * (the operand of the next bf16 matrix product). In some, the f32 output may be NULL too: y, d and dx.
     * Column sums (dweight, dbias) add row by row in ascending order: threads that share rows pass private
     * accumulators and add them up in thread order. Dropout keeps element i of stream key when
     * taciti_rng_u32(key, i) >= p * 2^32, p < 1, and scales it by 1 / (1 - p); i counts modulo 2^32. */

    /* y = (x - mean) * rstd * weight + bias for each of `rows` rows of c; saves mean and rstd of every row. c > 0.
     * (Ba, Kiros, Hinton 1607.06450; eps 1e-5 as in GPT-2) */
    void (*layernorm)(float *restrict y, taciti_bf16 *restrict y16, float *restrict mean, float *restrict rstd,
                      const float *restrict x, const float *restrict weight, const float *restrict bias, size_t rows,
                      size_t c);
    /* dx += gradient through the norm; dweight, dbias += . dy is read once. */
    void (*layernorm_backward)(float *restrict dx, float *restrict dweight, float *restrict dbias,
                               const float *restrict dy, const float *restrict x, const float *restrict mean,
                               const float *restrict rstd, const float *restrict weight, size_t rows, size_t c);
    /* out = x + dropout(a + bias): a is the product without bias; p 0 means no dropout; index = first + i. */
    void (*residual)(float *restrict out, const float *restrict x, const float *restrict a, const float *restrict bias,
                     size_t rows, size_t c, float p, uint64_t key, size_t first);
    /* d = dropout'(dout) (also as bf16), dbias += column sums of d. With p = 0, d may be NULL (dout itself serves). */
    void (*residual_backward)(float *restrict d, taciti_bf16 *restrict d16, float *restrict dbias,
                              const float *restrict dout, size_t rows, size_t c, float p, uint64_t key, size_t first);
    /* y = gelu_tanh(x + bias); x keeps x + bias for backward. (Hendrycks & Gimpel 1606.08415, tanh form) */
    void (*gelu)(float *restrict y, taciti_bf16 *restrict y16, float *restrict x, const float *restrict bias,
                 size_t rows, size_t c);
    /* dx = dy * gelu'(x), in place over dy when dx == dy is passed by the caller (no restrict); dbias += column sums */
    void (*gelu_backward)(float *dx, taciti_bf16 *dx16, float *dbias, const float *dy, const float *x, size_t rows,
                          size_t c);
    /* x += bias on every row; also as bf16. */
    void (*bias)(float *restrict x, taciti_bf16 *restrict x16, const float *restrict bias, size_t rows, size_t c);
    /* dbias += column sums of d; also d as bf16. */
    void (*bias_backward)(float *restrict dbias, taciti_bf16 *restrict d16, const float *restrict d, size_t rows,
                          size_t c);

    /* Fused softmax cross-entropy over rows of logits[rows][stride], of which the first `vocab` count. Returns the sum
     * of the losses (double, nats); when `gradient`, logits are overwritten by (softmax - onehot) * scale (columns
     * beyond vocab by 0), else left as they are. target < 0: row ignored (gradient 0). 0 < vocab <= stride, target <
     * vocab. Sums of 4096 columns in f32, of those in double. A NaN or +Inf among the columns makes the loss NaN. */
    double (*cross_entropy)(float *restrict logits, taciti_bf16 *restrict gradient16, const int32_t *restrict target,
                            size_t rows, size_t vocab, size_t stride, float scale, int gradient);

    /* Causal attention of one head of one sequence; never holds more than a tile of the T x T matrix.
     * qkv: this sequence, biases already added. out[time][channels]: only this head's columns are written.
     * lse[time]: log-sum-exp per row, saved for backward. work: taciti_attention_work_floats() floats, private. */
    void (*attention)(float *restrict out, taciti_bf16 *restrict out16, float *restrict lse, const float *restrict qkv,
                      const taciti_attention_shape *shape, size_t head, float *restrict work);
    /* dqkv: this head's columns of query, key and value are overwritten. */
    void (*attention_backward)(float *restrict dqkv, const float *restrict dout, const float *restrict out,
                               const float *restrict lse, const float *restrict qkv,
                               const taciti_attention_shape *shape, size_t head, float *restrict work);
} taciti_kernels;

/* Floats of private work memory that attention (both directions) needs for this shape. */
size_t taciti_attention_work_floats(const taciti_attention_shape *shape);

/* The best table of this CPU, or the one that TACIT_ISA=scalar|avx2|avx512 forces (an unknown or unavailable name is
 * logged as an error once and the scalar set is used). First call from one thread; afterwards any thread. */
const taciti_kernels *taciti_kernels_get(void);

/* The table of one set by name, or NULL when this CPU or build lacks it: for conformance tests and bench. */
const taciti_kernels *taciti_kernels_named(const char *isa);

#endif
