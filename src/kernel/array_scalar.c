/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays, the definition, for any CPU.
 */
#include "kernel/sets.h"

#include "kernel/array_fp16.h"
#include "kernel/array_line8.h"
#include "kernel/array_loops.h"

void taciti_kernels_fill_array_scalar(taciti_kernels *table) {
    fill_array_loops(table);
    fill_array_fp16(table);
    fill_array_line8(table);
}
