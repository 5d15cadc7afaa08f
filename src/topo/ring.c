/* SPDX-License-Identifier: Apache-2.0
 *
 * Rings. Decay per mix of N ranks: one-peer cos(2 pi / N), static (1 + 2 cos(2 pi / N)) / 3.
 */
#include "topo/family.h"

/* Even: the two halves of the ring's edges in turns (arXiv 2410.11998). Odd: the start walks around the ring, one step
 * per round, so that everybody is left over once in N rounds and no edge of the ring is missing. Two rounds would do
 * for a connected graph, but it would be a path, on which agreement takes eight times as long (measured: 7.3 at 21
 * ranks, 7.8 at 101). */
tacit_status taciti_family_one_peer_ring(const taciti_topo_request *request, taciti_draft *draft) {
    const int n = request->ranks, period = n <= 2 ? 1 : n % 2 == 0 ? 2 : n;
    for (int start = 0; start < period; start++) {
        /* pairs (start, start + 1), (start + 2, start + 3), ... around the ring; of an odd number start - 1 is left
         * over */
        for (int i = 0; i + 1 < n; i += 2) taciti_draft_pair(draft, (start + i) % n, (start + i + 1) % n);
        taciti_draft_close(draft);
    }
    return TACIT_OK;
}

/* One third from either neighbour; two ranks take their mean. */
tacit_status taciti_family_ring(const taciti_topo_request *request, taciti_draft *draft) {
    const int n = request->ranks;
    for (int i = 0; i < n && n > 1; i++) {
        taciti_draft_edge(draft, i, (i + 1) % n, n == 2 ? 1.0 / 2 : 1.0 / 3);
        if (n > 2) taciti_draft_edge(draft, i, (i + n - 1) % n, 1.0 / 3);
    }
    taciti_draft_close(draft);
    return TACIT_OK;
}
