/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: every kernel table that this machine can run, and floats by their bits.
 */
#ifndef TACITI_KERNEL_TEST_SETS_H
#define TACITI_KERNEL_TEST_SETS_H

#include <string.h>

#include "kernel/kernel.h"

static const char *const SETS[] = {"scalar", "avx2", "avx512"};

/* The body runs once for each of them that is available, as k. */
#define FOR_SETS(k)                                                                                                    \
    for (size_t s_ = 0; s_ < 3; s_++)                                                                                  \
        for (const taciti_kernels *k = taciti_kernels_named(SETS[s_]); k != NULL; k = NULL)

static inline float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
