/* SPDX-License-Identifier: Apache-2.0
 *
 * Time per step of one or several settings on the ranks of a job, in interleaved blocks:
 *
 *   base B C   B C base   C base B   ...
 *
 * Neighbours in time are compared with each other, and the order rotates, so that the drift of a machine favours
 * nobody. Block b of every setting takes the same steps, with the same jitter.
 */
#ifndef TACITI_CLI_CLUSTER_BENCH_H
#define TACITI_CLI_CLUSTER_BENCH_H

#include "cli/bench_settings.h"
#include "cli/cluster_figures.h"

enum { TACITI_CLUSTER_MOST_BLOCKS = 1000, TACITI_CLUSTER_MOST_ROUNDS = 100000 };

/* When the length of a block is chosen here: as many steps as make the whole last about a minute, within bounds. */
enum { TACITI_CLUSTER_AUTO_SECONDS = 60, TACITI_CLUSTER_AUTO_LEAST = 3, TACITI_CLUSTER_AUTO_MOST = 20 };

/* One block has ended, or, with done 0, the length of the blocks was chosen. */
typedef struct taciti_cluster_progress {
    size_t done, total; /* blocks */
    const char *label;  /* of the setting */
    double step_s;      /* mean of the block, rank 0 */
    double elapsed_s, left_s;
} taciti_cluster_progress;

typedef struct taciti_cluster_options {
    const taciti_bench_settings *settings; /* borrows */
    size_t blocks;                         /* per setting */
    size_t rounds, warm_up;                /* steps per block that count, and before them; rounds 0: chosen here */
    bool keep_warm_up;                     /* even when long steps would make it 1 */
    size_t batch, time;                    /* per rank, when compute is real */
    int threads;                           /* the same; 0: cores of the machine / ranks on it */
    void (*progress)(void *context, const taciti_cluster_progress *progress); /* rank 0 */
    void *context;
} taciti_cluster_options;

enum { TACITI_HOST_BYTES = 64 };

typedef struct taciti_cluster_bench {
    size_t ranks, hosts;
    char library[128];                     /* that moved the bytes: "Open MPI v4.1.4" */
    char (*host_names)[TACITI_HOST_BYTES]; /* [hosts]; owned */
    size_t *host_ranks;                    /* [hosts]: ranks on each; owned */
    char interfaces[96];                   /* of rank 0's host; "" when there is one host or nothing to measure */
    int threads;
    size_t rounds, warm_up; /* as given or chosen */
    size_t parameters;
    size_t predicted_bytes;       /* memory of a rank, before it was allocated */
    size_t resident_bytes;        /* most that a rank held */
    double forward_s, backward_s; /* of the base's profile; 0 when compute is real */
    char profile[64], profile_source[256];
    double expected_largest;         /* of as many standard normals as there are ranks */
    taciti_setting_figures *figures; /* [settings]; owned */
    size_t *buckets;                 /* [settings]; owned */
    size_t setting_count;
} taciti_cluster_bench;

/* Refuses ranks that differ and what does not fit the machine's memory before anything large is allocated. Every rank
 * gets the same figures. Returns owned. Collective, main thread. */
tacit_status taciti_cluster_bench_run(taciti_comm *comm, const taciti_cluster_options *options,
                                      taciti_cluster_bench *out);
void taciti_cluster_bench_destroy(taciti_cluster_bench *bench);

#endif
