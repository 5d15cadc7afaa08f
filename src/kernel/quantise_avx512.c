/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantisers, for AVX-512 (F, BW, VL, DQ).
 */
#include "kernel/sets.h"

#if TACITI_KERNEL_X86

#define LANES16_AVX512 1
#include "kernel/quantise_loops.h"

void taciti_kernels_fill_quantise_avx512(taciti_kernels *table) { fill_quantise(table); }

#endif
