/* SPDX-License-Identifier: Apache-2.0
 *
 * The network kernels for AVX2 and FMA.
 */
#include "kernel/sets.h"

#if TACITI_KERNEL_X86

#define LANES16_AVX2
#include "kernel/net_fill.h"

void taciti_kernels_fill_net_avx2(taciti_kernels *table) { fill_net(table); }

#endif
