/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantisers of whole arrays, written once over their blocks (quantise_block.h) and compiled once per instruction
 * set. Forms and layout: kernel.h.
 */
#ifndef TACITI_KERNEL_QUANTISE_LOOPS_H
#define TACITI_KERNEL_QUANTISE_LOOPS_H

#include "kernel/quantise_block.h"

INLINE size_t whole_groups(size_t n) { return (n + GROUP_N - 1) / GROUP_N * GROUP_N; }

/* `filled` of the block's numbers belong to the array, those that fill the last group are 0. */
INLINE void encode_block(int form, int hadamard, encoding *e, unsigned char *out, float *error, const float *x,
                         size_t filled) {
    const size_t count = whole_groups(filled);
    if (form == TACITI_QUANTISE_SIGNMEAN)
        signmean_block(e, out, error, x, count, filled);
    else if (form == TACITI_QUANTISE_SIGNMAG2)
        signmag2_block(e, out, error, x, count, filled);
    else
        scaled_block(form, hadamard, e, out, error, x, count);
}

/* Returns the squares of the n numbers of a short block: the zeros that fill its last group may not decode to 0. */
INLINE double rest_squares(int form, int hadamard, const unsigned char *in, size_t n) {
    float decoded[BLOCK_MAX];
    const size_t count = whole_groups(n);
    doubles16 sum = no_doubles();
    decode_block(form, hadamard, 0, decoded, in, count);
    if (n < count) memset(decoded + n, 0, (count - n) * sizeof *decoded);
    for (size_t i = 0; i < count; i += GROUP_N) sum = add_group_squares(sum, decoded + i);
    return fold_doubles(sum);
}

INLINE taciti_squares encode_rest(int form, int hadamard, const encoding *e, unsigned char *out, float *error,
                                  const float *x, size_t n) {
    float padded[BLOCK_MAX], failed[BLOCK_MAX];
    encoding rest = {.in = e->in};
    memset(padded, 0, whole_groups(n) * sizeof *padded);
    memcpy(padded, x, n * sizeof *x);
    encode_block(form, hadamard, &rest, out, error != NULL ? failed : NULL, padded, n);
    if (error != NULL) memcpy(error, failed, n * sizeof *error);
    return (taciti_squares){.in = fold_doubles(rest.in), .out = e->out + rest_squares(form, hadamard, out, n)};
}

INLINE taciti_squares quantise_as(int form, int hadamard, const taciti_quantisation *q, unsigned char *out,
                                  float *error, const float *x, size_t n) {
    encoding e = {.in = no_doubles()};
    const size_t step = sizeof(float) + code_bytes_of(form, q->block);
    size_t i = 0;
    for (; i + q->block <= n; i += q->block, out += step)
        encode_block(form, hadamard, &e, out, error != NULL ? error + i : NULL, x + i, q->block);
    if (i < n) return encode_rest(form, hadamard, &e, out, error != NULL ? error + i : NULL, x + i, n - i);
    return (taciti_squares){.in = fold_doubles(e.in), .out = e.out};
}

INLINE void dequantise_as(int form, int hadamard, int sum, const taciti_quantisation *q, float *x,
                          const unsigned char *in, size_t n) {
    const size_t step = sizeof(float) + code_bytes_of(form, q->block);
    size_t i = 0;
    for (; i + q->block <= n; i += q->block, in += step) decode_block(form, hadamard, sum, x + i, in, q->block);
    if (i == n) return;
    float padded[BLOCK_MAX];
    memset(padded, 0, whole_groups(n - i) * sizeof *padded);
    if (sum) memcpy(padded, x + i, (n - i) * sizeof *x);
    decode_block(form, hadamard, sum, padded, in, whole_groups(n - i));
    memcpy(x + i, padded, (n - i) * sizeof *x);
}

/* One copy of the loops per form. */
#define EACH_FORM(q, call)                                                                                             \
    switch ((q)->form) {                                                                                               \
    case TACITI_QUANTISE_INT8: call(TACITI_QUANTISE_INT8, 0); break;                                                   \
    case TACITI_QUANTISE_INT4:                                                                                         \
        if ((q)->hadamard)                                                                                             \
            call(TACITI_QUANTISE_INT4, 1);                                                                             \
        else                                                                                                           \
            call(TACITI_QUANTISE_INT4, 0);                                                                             \
        break;                                                                                                         \
    case TACITI_QUANTISE_SIGNMAG2: call(TACITI_QUANTISE_SIGNMAG2, 0); break;                                           \
    case TACITI_QUANTISE_SIGNMEAN: call(TACITI_QUANTISE_SIGNMEAN, 0); break;                                           \
    }

static void quantise(const taciti_quantisation *q, void *restrict out, float *restrict error, const float *restrict x,
                     size_t n, taciti_squares *sums) {
    taciti_squares s = {0};
#define QUANTISE(form, hadamard) s = quantise_as(form, hadamard, q, out, error, x, n)
    EACH_FORM(q, QUANTISE)
#undef QUANTISE
    if (sums != NULL) *sums = s;
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

#endif
