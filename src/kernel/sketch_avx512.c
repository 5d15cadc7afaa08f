/* SPDX-License-Identifier: Apache-2.0
 *
 * Homomorphic sketches, for AVX-512 (F, BW, VL, DQ).
 */
#include "kernel/sets.h"

#if TACITI_KERNEL_X86

#define LANES16_AVX512 1
#include "kernel/sketch_loops.h"

void taciti_kernels_fill_sketch_avx512(taciti_kernels *table) { fill_sketch(table); }

#endif
