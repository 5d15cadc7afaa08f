/* SPDX-License-Identifier: Apache-2.0
 *
 * One function per kernel family and instruction set, which writes its entries into a table. The scalar function writes
 * every entry of its family; a faster set replaces the entries that it improves.
 */
#ifndef TACITI_KERNEL_SETS_H
#define TACITI_KERNEL_SETS_H

#include "kernel/kernel.h"

#if defined(__x86_64__)
#define TACITI_KERNEL_X86 1
#else
#define TACITI_KERNEL_X86 0
#endif

void taciti_kernels_fill_array_scalar(taciti_kernels *table);
void taciti_kernels_fill_net_scalar(taciti_kernels *table);
void taciti_kernels_fill_select_scalar(taciti_kernels *table);
void taciti_kernels_fill_quantise_scalar(taciti_kernels *table);
void taciti_kernels_fill_sketch_scalar(taciti_kernels *table);
#if TACITI_KERNEL_X86
void taciti_kernels_fill_array_avx2(taciti_kernels *table);
void taciti_kernels_fill_net_avx2(taciti_kernels *table);
void taciti_kernels_fill_select_avx2(taciti_kernels *table);
void taciti_kernels_fill_quantise_avx2(taciti_kernels *table);
void taciti_kernels_fill_sketch_avx2(taciti_kernels *table);
void taciti_kernels_fill_array_avx512(taciti_kernels *table);
void taciti_kernels_fill_net_avx512(taciti_kernels *table);
void taciti_kernels_fill_select_avx512(taciti_kernels *table);
void taciti_kernels_fill_quantise_avx512(taciti_kernels *table);
void taciti_kernels_fill_sketch_avx512(taciti_kernels *table);
#endif

#endif
