/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixes for `tacit bench collectives`, where each round of a topology is a candidate.
 */
#ifndef TACITI_BENCH_COLLECTIVE_MIX_H
#define TACITI_BENCH_COLLECTIVE_MIX_H

#include "exchange/demand.h"
#include "exchange/mix.h"

#include "bench/collective_numbers.h"

typedef struct taciti_collective_mix {
    taciti_comm *comm; /* borrows */
    taciti_topology topology;
    float *expected; /* [period][numbers' period] what this rank must get, up to rounding; owned */
    taciti_placement placement;
    taciti_mix *mix; /* of the current size */
} taciti_collective_mix;

/* Creates what does not depend on the size. Call close also after an error. Not collective. */
tacit_status taciti_collective_mix_open(taciti_comm *comm, const char *topology, const taciti_numbers *numbers,
                                        const taciti_exchange_options *options, taciti_collective_mix *out);
void taciti_collective_mix_close(taciti_collective_mix *mix); /* {0} is fine */

/* Creates mix->mix for arrays of this layout, which is borrowed. Collective. */
tacit_status taciti_collective_mix_resize(taciti_collective_mix *mix, const taciti_layout *layout,
                                          const taciti_exchange_options *options);

/* One round, blocking: x = its buffer of all buckets. Collective. */
tacit_status taciti_collective_mix_run(taciti_collective_mix *mix, const taciti_layout *layout, float *x, int round);

/* Returns whether x[n] is the correct result of a round in which each rank contributed its numbers. */
bool taciti_collective_mix_is_right(const taciti_collective_mix *mix, const taciti_numbers *numbers, int round,
                                    const float *x, size_t n);

/* Bits that the busiest host's link carries in a round, in one direction, in f32. */
double taciti_collective_mix_bits(const taciti_collective_mix *mix, int round, size_t bytes);

#endif
