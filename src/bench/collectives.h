/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures collectives: those of this library and of the MPI library in turns (A B C A B C ...) on the same arrays in
 * one launch, because the speed of machine and network drifts. Every sample begins after a barrier and lasts until the
 * slowest rank has finished; its result is checked.
 */
#ifndef TACITI_BENCH_COLLECTIVES_H
#define TACITI_BENCH_COLLECTIVES_H

#include "bench/collective_calls.h"
#include "bench/statistics.h"

enum { TACITI_COLLECTIVE_MAX_SIZES = 32, TACITI_COLLECTIVE_MAX_ROUNDS = 1001 };

typedef struct taciti_collective_options {
    taciti_operation what;
    size_t bytes[TACITI_COLLECTIVE_MAX_SIZES]; /* of the array of each rank; multiples of 4 */
    int size_count;
    char by[TACITI_COLLECTIVE_MAX_CALLERS][TACITI_COLLECTIVE_NAME_BYTES];
    int by_count; /* 0: all available */
    int rounds;
    taciti_exchange_options exchange; /* of the all-reduce of this library */
} taciti_collective_options;

/* One caller at one size. */
typedef struct taciti_collective_figure {
    taciti_statistics seconds; /* of one call */
    double *samples;           /* [rounds] seconds in the order of the rounds; owned */
    int calls;                 /* consecutive calls per sample */
    double bus_bps;            /* bus bits / median */
    double ratio;              /* median of the fastest caller / this median: 1 is the fastest */
} taciti_collective_figure;

typedef struct taciti_collective_bench {
    char who[TACITI_COLLECTIVE_MAX_CALLERS][TACITI_COLLECTIVE_NAME_BYTES];
    int who_count, size_count, rounds;
    int ranks, hosts;
    int receiver; /* of a send */
    taciti_collective_figure figures[TACITI_COLLECTIVE_MAX_SIZES][TACITI_COLLECTIVE_MAX_CALLERS];
} taciti_collective_bench;

/* Returns the n of the bus formula: the number of hosts if there are several, else of ranks. */
int taciti_collective_sides(const taciti_collective_bench *bench);

/* The minimum of bits that each host's link (or rank) carries per direction, and its formula as a text, "2 (n-1)/n"
 * times the bits of the array. */
double taciti_collective_bus_bits(const taciti_collective_bench *bench, taciti_operation what, size_t bytes);
const char *taciti_collective_bus_text(taciti_operation what);

/* Runs the measurement on two or more ranks. Logs progress if it takes long. *out may be uninitialised; call close also
 * after an error. Collective, main thread. */
tacit_status taciti_collective_bench_run(taciti_comm *comm, const taciti_collective_options *options,
                                         taciti_collective_bench *out);
void taciti_collective_bench_close(taciti_collective_bench *bench);

#endif
