/* SPDX-License-Identifier: Apache-2.0
 *
 * The randomised Hadamard rotation: y = H D x / sqrt(n) with random signs D. It is orthogonal, and spreads every large
 * element evenly over all n. Plain loops of additions: the same bits on every CPU.
 */
#ifndef TACITI_KERNEL_ROTATION_H
#define TACITI_KERNEL_ROTATION_H

#include <stddef.h>
#include <stdint.h>

/* In place; n is a power of two. The key gives the signs. Any thread. */
void taciti_rotate(float *x, size_t n, uint64_t key);
void taciti_rotate_back(float *x, size_t n, uint64_t key);

#endif
