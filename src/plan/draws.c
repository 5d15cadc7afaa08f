/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/draws.h"

#include <string.h>

#include "base/memory.h"
#include "model/emulated.h"

enum { KEPT_MAX = 1 << 22 };

void taciti_draws_destroy(taciti_draws *draws) {
    taciti_free(draws->list);
    *draws = (taciti_draws){0};
}

void taciti_draws_of(taciti_draws *draws, int64_t seed, double cv, int ranks, size_t step, double *out) {
    const size_t bytes = (size_t)ranks * sizeof *out;
    if (draws->seed != seed || draws->cv != cv || draws->ranks != ranks) {
        taciti_free(draws->list); /* others replace those that were kept */
        *draws = (taciti_draws){.seed = seed, .cv = cv, .ranks = ranks, .drawn = draws->drawn, .events = draws->events};
    }
    if (step < draws->steps) {
        memcpy(out, draws->list + step * (size_t)ranks, bytes);
        return;
    }
    for (int i = 0; i < ranks; i++) out[i] = taciti_compute_deviation(seed, cv, i, (int64_t)step);
    draws->drawn += (size_t)ranks;
    if (step != draws->steps || (step + 1) * (size_t)ranks > KEPT_MAX) return;
    double *list = taciti_with_room(draws->list, step, bytes);
    if (list == NULL) return;
    draws->list = list;
    memcpy(list + draws->steps++ * (size_t)ranks, out, bytes);
}
