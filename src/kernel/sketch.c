/* SPDX-License-Identifier: Apache-2.0
 *
 * Homomorphic sketches.
 */
#include "kernel/sets.h"
#include "kernel/sketch_loops.h"

void FILL_OF_SET(sketch)(taciti_kernels *table) {
    table->sketch_index = sketch_index;
    table->sketch_lines = sketch_lines;
    table->sketch_add = sketch_add;
    table->sketch_count = sketch_count;
    table->sketch_sweep = sketch_sweep;
    table->sketch_largest = sketch_largest;
    table->sketch_pack = sketch_pack;
    table->sketch_unpack = sketch_unpack;
}
