/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantisers.
 */
#include "kernel/quantise_loops.h"
#include "kernel/sets.h"

void FILL_OF_SET(quantise)(taciti_kernels *table) {
    table->quantise = quantise;
    table->dequantise = dequantise;
    table->dequantise_add = dequantise_add;
}
