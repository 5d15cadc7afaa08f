/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantisers, for AVX2.
 */
#include "kernel/sets.h"

#if TACITI_KERNEL_X86

#define LANES16_AVX2 1
#include "kernel/quantise_loops.h"

void taciti_kernels_fill_quantise_avx2(taciti_kernels *table) { fill_quantise(table); }

#endif
