/* SPDX-License-Identifier: Apache-2.0
 *
 * Synthetic gradients: heavy-tailed noise at the speed of a copy. A block of elements is a piece of a small pool of
 * normal numbers, from a place and with a magnitude that are functions of (key, block).
 */
#ifndef TACITI_MODEL_SYNTHETIC_H
#define TACITI_MODEL_SYNTHETIC_H

#include <stddef.h>
#include <stdint.h>

#include "tacit/tacit.h"

/* Elements of a block. */
enum { TACITI_SYNTHETIC_BLOCK = 8192 };

typedef struct taciti_synthetic taciti_synthetic;

tacit_status taciti_synthetic_create(int64_t seed, taciti_synthetic **out);
void taciti_synthetic_destroy(taciti_synthetic *synthetic);

/* Standard normal; element `index` of stream `key`. Pure. */
double taciti_synthetic_normal(uint64_t key, uint64_t index);

/* Writes elements [begin, end) of the gradient that `key` names to out[begin, end). begin is a multiple of the block.
 */
void taciti_synthetic_write(const taciti_synthetic *synthetic, uint64_t key, float magnitude, size_t begin, size_t end,
                            float *out);

#endif
