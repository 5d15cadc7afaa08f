/* SPDX-License-Identifier: Apache-2.0
 *
 * The definition of every element-wise array kernel: what happens to one element, and in which order it is rounded.
 * The scalar set loops over these; wider sets use them for their tails, and compute the same roundings in between.
 */
#ifndef TACITI_KERNEL_ARRAY_ELEMENT_H
#define TACITI_KERNEL_ARRAY_ELEMENT_H

#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

enum { LANES = 16 };

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Round to nearest even by integer arithmetic (denormals are kept, overflow becomes Inf as IEEE asks); a NaN keeps its
 * upper payload and becomes quiet. */
static inline taciti_bf16 bf16_of(float x) {
    const uint32_t bits = bits_of(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40u;
    return (taciti_bf16)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

static inline float float_of_bf16(taciti_bf16 x) { return float_of((uint32_t)x << 16); }

/* An operand with factor 0 must not matter, not even its sign: three forms. `form` is a constant wherever
 * this is inlined. */
enum { BLEND_BOTH, BLEND_KEPT, BLEND_ARRIVED };
static inline float blend_element(int form, float keep, float share, float p, float arrived) {
    if (form == BLEND_KEPT) return keep * p;
    if (form == BLEND_ARRIVED) return share * arrived;
    return keep * p + share * arrived;
}

/* Loshchilov & Hutter 1711.05101, algorithm 2 with schedule multiplier 1 and decay scaled by the learning rate: without
 * `coupled` (AdamW) p -= lr * (mhat / (sqrt(vhat) + eps) + decay * p); with it (Adam with L2) decay * p is added to the
 * gradient. `coupled` is a constant wherever these are inlined. */
static inline float adam_gradient(const taciti_adamw_step *s, int coupled, float p, float g) {
    const float scaled = g * s->grad_scale;
    return coupled ? scaled + s->weight_decay * p : scaled;
}

static inline float first_moment(const taciti_adamw_step *s, float m, float gradient) {
    return s->beta1 * m + (1.0f - s->beta1) * gradient;
}

static inline float second_moment(const taciti_adamw_step *s, float v, float gradient) {
    return s->beta2 * v + ((1.0f - s->beta2) * gradient) * gradient;
}

static inline float adam_moved(const taciti_adamw_step *s, int coupled, float p, float first, float second) {
    const float direction = (first * s->correction1) / (sqrtf(second * s->correction2) + s->eps);
    return p - s->lr * (coupled ? direction : direction + s->weight_decay * p);
}

/* Returns the new p. share: of v that counts; 1 changes no bit. */
static inline float adamw_element(const taciti_adamw_step *s, int coupled, float share, float p, float g, float *m,
                                  float *v) {
    const float gradient = adam_gradient(s, coupled, p, g);
    *m = first_moment(s, *m, gradient);
    *v = second_moment(s, *v, gradient);
    return adam_moved(s, coupled, p, *m, *v * share);
}

/* Wang et al. 2410.11998 (AccumAdam), with the moments stored as they are, not times beta: a += g / s; p follows the
 * moments that this step's gradient alone would give; at the window's end they take in a instead. `coupled` and `ends`
 * are constants wherever this is inlined. Returns the new p. */
static inline float accum_element(const taciti_accum_step *step, int coupled, int ends, float share, float p, float g,
                                  float *m, float *v, float *a) {
    const taciti_adamw_step *s = &step->adamw;
    const float gradient = adam_gradient(s, coupled, p, g);
    const float mean = *a + step->share * gradient;
    const float second = second_moment(s, *v, gradient) * share;
    const float moved = adam_moved(s, coupled, p, first_moment(s, *m, gradient), second);
    if (ends) {
        *m = first_moment(s, *m, mean);
        *v = second_moment(s, *v, mean);
    }
    *a = ends ? 0.0f : mean;
    return moved;
}

/* Momentum and Nesterov as in Sutskever et al. (ICML 2013) in the form of PyTorch's SGD; the decay is part of the
 * gradient (L2). Returns the new p. */
static inline float sgd_element(const taciti_sgd_step *s, float p, float g, float *m) {
    const float gradient = g * s->grad_scale + s->weight_decay * p;
    const float velocity = s->momentum * *m + gradient;
    *m = velocity;
    const float direction = s->nesterov ? gradient + s->momentum * velocity : velocity;
    return p - s->lr * direction;
}

static inline float sgd_plain_element(const taciti_sgd_step *s, float p, float g) {
    return p - s->lr * (g * s->grad_scale + s->weight_decay * p);
}

/* The fold of the header: even lanes, then odd lanes. */
static inline double fold_lanes(const double *l) {
    return (((l[0] + l[8]) + (l[4] + l[12])) + ((l[2] + l[10]) + (l[6] + l[14]))) +
           (((l[1] + l[9]) + (l[5] + l[13])) + ((l[3] + l[11]) + (l[7] + l[15])));
}

static inline uint32_t bits_of_magnitude(float x) { return bits_of(x) & TACITI_MAGNITUDE_MASK; }

/* Selects among elements [begin, n), behind the `count` selected and `near` ones and the squares of those before. */
static inline void select_rest(taciti_select *s, const float *x, size_t begin, size_t n, size_t count, size_t near,
                               double *lanes) {
    for (size_t i = begin; i < n; i++) {
        const float v = x[i];
        const int keep = bits_of_magnitude(v) >= s->threshold;
        near += bits_of_magnitude(v) >= s->half;
        s->values[count] = v;
        s->indices[count] = (uint32_t)i;
        count += (size_t)keep;
        if (s->error != NULL) s->error[i] = keep ? 0 : v;
    }
    s->count = count;
    s->near = s->measure ? near : 0;
    s->squares = 0;
    if (!s->measure) return;
    for (size_t i = begin; i < n; i++) lanes[i % LANES] += (double)x[i] * (double)x[i];
    s->squares = fold_lanes(lanes);
}

/* Moves selected element i to place `count` of the kept ones, or back to the error. Returns the number of kept ones. */
static inline size_t select_again(uint32_t *indices, float *values, float *error, size_t i, size_t count,
                                  uint32_t threshold, size_t *ties) {
    const uint32_t m = bits_of_magnitude(values[i]), index = indices[i];
    const float v = values[i];
    const int tied = m == threshold && *ties > 0, keep = m > threshold || tied;
    *ties -= (size_t)tied;
    if (!keep && error != NULL) error[index] = v;
    values[count] = v;
    indices[count] = index;
    return count + (size_t)keep;
}

/* For a pass that writes an array which no cache near the core holds: a store that finds its line does not wait. */
enum { PREFETCHED_ELEMENTS = 512 };
static inline void prefetch_for_store(const float *at) { __builtin_prefetch(at + PREFETCHED_ELEMENTS, 1); }

#endif
