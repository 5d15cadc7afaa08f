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

#define TACITI_KERNEL_SET(set)                                                                                         \
    void taciti_kernels_fill_array_##set(taciti_kernels *table);                                                       \
    void taciti_kernels_fill_net_##set(taciti_kernels *table);                                                         \
    void taciti_kernels_fill_select_##set(taciti_kernels *table);                                                      \
    void taciti_kernels_fill_quantise_##set(taciti_kernels *table);                                                    \
    void taciti_kernels_fill_sketch_##set(taciti_kernels *table);

TACITI_KERNEL_SET(scalar)
#if TACITI_KERNEL_X86
TACITI_KERNEL_SET(avx2)
TACITI_KERNEL_SET(avx512)
#endif

#endif
