/* SPDX-License-Identifier: Apache-2.0
 *
 * Internal to the planner: the compute times that all methods of a plan see, drawn once.
 */
#ifndef TACITI_PLAN_DRAWS_H
#define TACITI_PLAN_DRAWS_H

#include <stddef.h>
#include <stdint.h>

/* {0} is empty. One thread at a time. */
typedef struct taciti_draws {
    int64_t seed;
    double cv;
    int ranks;
    double *list;         /* [steps][ranks], the first ones; owned */
    size_t steps;         /* kept */
    size_t drawn, events; /* work so far: draws, and buckets that ranks handed over in simulations */
} taciti_draws;

void taciti_draws_destroy(taciti_draws *draws);

/* Writes the random factors of a step's compute times, taciti_compute_deviation(), to out[ranks]. The first steps are
 * kept for the next method, up to 32 MiB. */
void taciti_draws_of(taciti_draws *draws, int64_t seed, double cv, int ranks, size_t step, double *out);

#endif
