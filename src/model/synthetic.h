/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic gradients: heavy-tailed noise, generated at the speed of a copy. Each block of elements is copied from a
 * small pool of normal numbers; its position in the pool and its magnitude are functions of (key, block).
 */
#ifndef TACITI_MODEL_SYNTHETIC_H
#define TACITI_MODEL_SYNTHETIC_H

#include "tacit/tacit.h"

/* Elements of a block. */
enum { TACITI_SYNTHETIC_BLOCK = 8192 };

typedef struct taciti_synthetic taciti_synthetic;

tacit_status taciti_synthetic_create(int64_t seed, taciti_synthetic **out);
void taciti_synthetic_destroy(taciti_synthetic *synthetic);

/* Returns a standard normal number, element `index` of stream `key`. Pure. */
double taciti_synthetic_normal(uint64_t key, uint64_t index);

/* Writes elements [begin, end) of the gradient identified by `key` to out[begin, end). begin must be a multiple of the
 * block size. */
void taciti_synthetic_write(const taciti_synthetic *synthetic, uint64_t key, float magnitude, size_t begin, size_t end,
                            float *out);

#endif
