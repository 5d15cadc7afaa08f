/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures collectives: ours and the MPI library's own in turns (A B C A B C ...) on the same arrays in one launch. A
 * network and a machine drift, and only neighbours can be compared. Every sample begins behind a barrier, lasts as long
 * as its slowest rank, and its result is checked.
 */
#ifndef TACITI_BENCH_COLLECTIVES_H
#define TACITI_BENCH_COLLECTIVES_H

#include "bench/collective_calls.h"
#include "bench/statistics.h"

enum { TACITI_COLLECTIVE_MAX_SIZES = 32, TACITI_COLLECTIVE_MAX_ROUNDS = 1001 };

typedef struct taciti_collective_options {
    taciti_operation what;
    const char *topology;                      /* of a mix; borrows */
    size_t bytes[TACITI_COLLECTIVE_MAX_SIZES]; /* of the array of each rank; multiples of 4 */
    int size_count;
    char by[TACITI_COLLECTIVE_MAX_CALLERS][TACITI_COLLECTIVE_NAME_BYTES];
    int by_count; /* 0: all there are */
    int rounds;
    taciti_exchange_options exchange; /* how our all-reduce is done */
} taciti_collective_options;

/* One caller at one size. */
typedef struct taciti_collective_figure {
    taciti_statistics seconds; /* of one call */
    double *samples;           /* [rounds] seconds in the order of the rounds; owned */
    int calls;                 /* per sample, one after the other */
    double bus_bps;            /* bus bits / median */
    double ratio;              /* median of the fastest caller / this median: 1 is the fastest */
} taciti_collective_figure;

typedef struct taciti_collective_bench {
    char who[TACITI_COLLECTIVE_MAX_CALLERS][TACITI_COLLECTIVE_NAME_BYTES];
    int who_count, size_count, rounds;
    int ranks, hosts;
    int receiver; /* of a send */
    taciti_statistics hand_over_s;
    taciti_collective_figure figures[TACITI_COLLECTIVE_MAX_SIZES][TACITI_COLLECTIVE_MAX_CALLERS];
} taciti_collective_bench;

/* Sides that share the work of the bus formula: hosts when there are several, else ranks. */
int taciti_collective_sides(const taciti_collective_bench *bench);

/* Bits that cross each side's line at least, in each direction, and that formula as text, without the bits of the
 * array: "2 (n-1)/n". A mix has another formula for each candidate: what the busiest host's link carries. */
double taciti_collective_bus_bits(const taciti_collective_bench *bench, taciti_operation what, size_t bytes);
const char *taciti_collective_bus_text(taciti_operation what);

/* Collective; main thread; at least two ranks. Progress goes to the log when it takes long. Close also after
 * failure; *out may be uninitialised before. */
tacit_status taciti_collective_bench_run(taciti_comm *comm, const taciti_collective_options *options,
                                         taciti_collective_bench *out);
void taciti_collective_bench_close(taciti_collective_bench *bench);

#endif
