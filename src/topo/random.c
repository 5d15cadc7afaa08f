/* SPDX-License-Identifier: Apache-2.0
 *
 * Random matchings: in every round all ranks are shuffled (Fisher and Yates, numbers of base/rng.h) and meet in pairs;
 * an odd one is left over.
 */
#include "base/rng.h"
#include "topo/family.h"

enum { PERIOD = 32 };

tacit_status taciti_family_random(const taciti_topo_request *request, taciti_draft *draft) {
    const int n = request->ranks;
    const uint64_t key = taciti_rng_key(request->seed, 't');
    int *order = draft->places;
    for (int r = 0; r < PERIOD; r++) {
        const uint64_t round_key = taciti_rng_key(key, (uint64_t)r);
        for (int i = 0; i < n; i++) order[i] = i;
        for (int i = n - 1; i > 0; i--) {
            const int k = (int)taciti_rng_below(round_key, (uint64_t)i, (uint64_t)i + 1), held = order[i];
            order[i] = order[k];
            order[k] = held;
        }
        for (int i = 0; i + 1 < n; i += 2) taciti_draft_pair(draft, order[i], order[i + 1]);
        taciti_draft_close(draft);
    }
    return TACIT_OK;
}
