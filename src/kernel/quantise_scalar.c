/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantisers, the definition, for any CPU.
 */
#include "kernel/sets.h"

#include "kernel/quantise_loops.h"

void taciti_kernels_fill_quantise_scalar(taciti_kernels *table) { fill_quantise(table); }
