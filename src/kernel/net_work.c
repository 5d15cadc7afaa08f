/* SPDX-License-Identifier: Apache-2.0
 *
 * Private memory of attention.
 */
#include "kernel/net_tile.h"

/* The larger of what the two directions lay out: see attention() and backward_work_of(). */
size_t taciti_attention_work_floats(const taciti_attention_shape *shape) {
    const attention_tiles g = attention_tiles_of(shape);
    const size_t forward = g.padded_time * g.size + 2 * g.time * g.width + STRIP * g.padded_time + STRIP;
    const size_t backward =
        2 * g.padded_time * g.size + 4 * g.time * g.width + 2 * TILE * g.width + 2 * TILE * TILE + g.time;
    return forward > backward ? forward : backward;
}
