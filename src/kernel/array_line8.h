/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of 16 floats in 17 bytes: one shared power of two and 16 codes of 8 bits (taciti_line8_bytes() in kernel.h has
 * the format). The loops of every set, over the groups of lines of array_line8_lanes.h.
 */
#ifndef TACITI_KERNEL_ARRAY_LINE8_H
#define TACITI_KERNEL_ARRAY_LINE8_H

#include "kernel/array_line8_lanes.h"

enum { LINE8_GROUP_N = LINE8_GROUP * LINE8_N, LINE8_GROUP_BYTES = LINE8_GROUP * TACITI_LINE8_BYTES };

static void line8_encode(void *restrict out, const float *restrict x, size_t n) {
    int8_t *to = out;
    size_t i = 0;
    for (; i + LINE8_GROUP_N <= n; i += LINE8_GROUP_N, to += LINE8_GROUP_BYTES) line8_put(to, x + i);
    if (i == n) return;
    float last[LINE8_GROUP_N] = {0};
    int8_t bytes[LINE8_GROUP_BYTES];
    memcpy(last, x + i, (n - i) * sizeof *x);
    line8_put(bytes, last);
    memcpy(to, bytes, taciti_line8_bytes(n - i));
}

static void line8_decode(float *restrict out, const void *restrict in, size_t n) {
    const int8_t *from = in;
    size_t i = 0;
    for (; i + LINE8_N <= n; i += LINE8_N, from += TACITI_LINE8_BYTES) line8_get(out + i, from);
    if (i == n) return;
    float last[LINE8_N];
    line8_get(last, from);
    memcpy(out + i, last, (n - i) * sizeof *out);
}

#endif
