/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiling of the attention kernels; net.c computes the size of their work memory from the same constants.
 */
#ifndef TACITI_KERNEL_NET_TILE_H
#define TACITI_KERNEL_NET_TILE_H

#include <math.h>

#include "kernel/kernel.h"

enum {
    TILE = 64,  /* keys per tile of transposed keys, and queries per tile in backward */
    STRIP = 32, /* queries per strip in forward, divides TILE: 32 rows of 1024 keys are 128 KB */
    GROUP = 4   /* rows that share one causal limit */
};

typedef struct attention_tiles {
    size_t time, size; /* as in the shape */
    size_t width;      /* size rounded up to 16: row of a packed operand */
    size_t padded_time;
    float scale; /* 1 / sqrt(size) */
} attention_tiles;

static inline attention_tiles attention_tiles_of(const taciti_attention_shape *shape) {
    return (attention_tiles){.time = shape->time,
                             .size = shape->head_size,
                             .width = (shape->head_size + 15) / 16 * 16,
                             .padded_time = (shape->time + TILE - 1) / TILE * TILE,
                             .scale = 1.0f / sqrtf((float)shape->head_size)};
}

#endif
