/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays for AVX-512 (F, BW, VL, DQ).
 */
#include "kernel/sets.h"

#if TACITI_KERNEL_X86

#include "kernel/array_fp16.h"
#include "kernel/array_line8.h"
#include "kernel/array_loops.h"

void taciti_kernels_fill_array_avx512(taciti_kernels *table) {
    fill_array_loops(table);
    fill_array_fp16(table);
    fill_array_line8(table);
}

#endif
