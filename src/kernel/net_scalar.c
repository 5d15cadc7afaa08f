/* SPDX-License-Identifier: Apache-2.0
 *
 * The network kernels on plain arrays: the definition.
 */
#include "kernel/sets.h"

#include "kernel/net_fill.h"

void taciti_kernels_fill_net_scalar(taciti_kernels *table) { fill_net(table); }
