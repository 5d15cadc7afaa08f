/* SPDX-License-Identifier: Apache-2.0
 *
 * Time per step of one or several settings on the ranks of a job, in interleaved blocks:
 *
 *   base B C   B C base   C base B   ...
 *
 * Blocks that are close in time are compared, and the order rotates, so that drift of the machine does not favour a
 * setting. Block b of every setting takes the same steps with the same jitter.
 */
#ifndef TACITI_BENCH_COMPARISON_H
#define TACITI_BENCH_COMPARISON_H

#include "bench/figures.h"
#include "bench/length.h"
#include "bench/settings.h"

enum { TACITI_CLUSTER_MAX_BLOCKS = 1000, TACITI_CLUSTER_MAX_ROUNDS = 100000 };

/* Progress after a block. */
typedef struct taciti_cluster_progress {
    size_t done, total; /* blocks */
    const char *label;  /* of the setting */
    double step_s;      /* mean of the block, rank 0 */
    double elapsed_s, left_s;
} taciti_cluster_progress;

/* A running comparison. */
typedef struct taciti_cluster_run taciti_cluster_run;

typedef struct taciti_cluster_options {
    const taciti_bench_settings *settings; /* borrows */
    taciti_bench_length length;            /* rounds 0: chosen from the time of a step */
    size_t batch, time;                    /* per rank, when compute is real */
    int threads;                           /* the same; 0: cores of the machine / ranks on it */
    void (*progress)(void *context, const taciti_cluster_progress *progress); /* rank 0 */
    /* Rank 0: taciti_cluster_run_figures() may be called for `run` until this is called with NULL. */
    void (*running)(void *context, const taciti_cluster_run *run);
    void *context;
} taciti_cluster_options;

enum { TACITI_HOST_BYTES = 64 };

typedef struct taciti_cluster_bench {
    size_t ranks, hosts;
    char library[128];                     /* of the engine: "Open MPI v4.1.4" */
    char (*host_names)[TACITI_HOST_BYTES]; /* [hosts]; owned */
    size_t *host_ranks;                    /* [hosts]: ranks on each; owned */
    char interfaces[96];                   /* of rank 0's host; "" when there is one host or nothing to measure */
    int threads;
    size_t blocks, rounds, warm_up; /* as measured */
    bool interrupted;               /* ended before all blocks were measured */
    size_t parameters;
    size_t predicted_bytes;       /* memory of a rank, before it was allocated */
    size_t resident_bytes;        /* maximum over ranks */
    double forward_s, backward_s; /* of the base's profile; 0 when compute is real */
    char profile[64], profile_source[256];
    taciti_setting_figures *figures; /* [settings]; owned */
    size_t *buckets;                 /* [settings]; owned */
    size_t setting_count;
} taciti_cluster_bench;

/* Runs the comparison. Before large allocations, returns an error if the ranks' settings differ or the memory is too
 * small. Every rank gets the same figures. Returns owned. Collective, main thread. */
tacit_status taciti_cluster_bench_run(taciti_comm *comm, const taciti_cluster_options *options,
                                      taciti_cluster_bench *out);
/* Computes the figures of the complete blocks: the same number of each setting, or, until each setting has a block,
 * only of the settings that have one. Returns E_DATA, without logging, before the first block. Returns owned. Any
 * thread, not collective. */
tacit_status taciti_cluster_run_figures(const taciti_cluster_run *run, taciti_cluster_bench *out);
void taciti_cluster_bench_destroy(taciti_cluster_bench *bench);

#endif
