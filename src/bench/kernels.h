/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures array kernels against a probe that moves the same bytes without computing. Probe and kernel alternate,
 * because the speed of a machine drifts; the result is the ratio within each round.
 */
#ifndef TACITI_BENCH_KERNELS_H
#define TACITI_BENCH_KERNELS_H

#include <stddef.h>

#include "bench/statistics.h"
#include "tacit/tacit.h"

typedef struct taciti_kernel_rate {
    taciti_statistics bytes_per_s;       /* read + written by the kernel */
    taciti_statistics probe_bytes_per_s; /* of the probe in the same rounds */
    taciti_statistics ratio;             /* kernel / probe, round by round */
} taciti_kernel_rate;

/* Index 0: one thread; 1: all of them. */
typedef struct taciti_kernel_figure {
    const char *name;
    double bytes_per_element; /* read + written */
    taciti_kernel_rate rate[2];
} taciti_kernel_figure;

typedef struct taciti_peak_figure {
    const char *name, *unit;
    taciti_statistics rate[2];
} taciti_peak_figure;

enum {
    TACITI_BENCH_PEAKS = 5,
    TACITI_BENCH_KERNELS = 13,
    TACITI_BENCH_MAX_ROUNDS = 101,
    TACITI_BENCH_BYTES_PER_FLOAT = 22
};

typedef struct taciti_kernel_bench {
    size_t floats; /* per array */
    int rounds, threads;
    taciti_peak_figure peaks[TACITI_BENCH_PEAKS];
    taciti_kernel_figure kernels[TACITI_BENCH_KERNELS];
} taciti_kernel_bench;

/* floats is rounded up to a multiple of 1024; 1 <= rounds <= 101; needs TACITI_BENCH_BYTES_PER_FLOAT of memory. Not
 * collective, main thread. */
tacit_status taciti_kernel_bench_run(size_t floats, int rounds, int threads, taciti_kernel_bench *out);

#endif
