/* SPDX-License-Identifier: Apache-2.0
 *
 * One function per kernel family and instruction set, which writes its entries into a table. The scalar function writes
 * every entry of its family; a faster set replaces the entries that it improves. CMakeLists.txt compiles the file of a
 * family once per set, with the set's flags and its name as TACITI_SET.
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

/* The name of a family's function in a file that is compiled for TACITI_SET. */
#define FILL_OF_SET(family) FILL_OF(family, TACITI_SET)
#define FILL_OF(family, set) FILL_NAME(family, set)
#define FILL_NAME(family, set) taciti_kernels_fill_##family##_##set

#endif
