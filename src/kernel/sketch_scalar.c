/* SPDX-License-Identifier: Apache-2.0
 *
 * Homomorphic sketches, the definition, for any CPU.
 */
#include "kernel/sets.h"

#include "kernel/sketch_loops.h"

void taciti_kernels_fill_sketch_scalar(taciti_kernels *table) { fill_sketch(table); }
