/* SPDX-License-Identifier: Apache-2.0
 *
 * The smaller and the larger of two numbers.
 */
#ifndef TACITI_BASE_NUMBER_H
#define TACITI_BASE_NUMBER_H

#include <stddef.h>

static inline size_t taciti_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t taciti_max(size_t a, size_t b) { return a > b ? a : b; }

/* Returns b if one of them is NaN. */
static inline double taciti_max_real(double a, double b) { return a > b ? a : b; }

#endif
