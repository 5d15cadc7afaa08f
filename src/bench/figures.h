/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the figures of a setting from the records of all ranks and steps. Arithmetic only: no clocks, no messages.
 *
 * A step lasts from the end of the step before to its own end. Two times are made of it: the mean over the ranks, whose
 * mean over many steps is the pace of the whole run whatever waits for whom, and the slowest rank's, which with a
 * strategy that meets in every step is the same pace, and with one that does not is longer.
 */
#ifndef TACITI_BENCH_FIGURES_H
#define TACITI_BENCH_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hosts.h"
#include "bench/statistics.h"
#include "tacit/tacit.h"

/* One step on one rank, seconds. */
typedef struct taciti_step_record {
    double step_s;     /* from the end of the step before to the end of this one */
    double compute_s;  /* forward and backward */
    double asked_s;    /* what emulated compute was to take; NaN when compute is real */
    double wait_s;     /* exposed: blocked on communication after backward */
    double transfer_s; /* communication thread busy: encoding, moving, decoding, waiting for others */
    double update_s;   /* optimizer */
} taciti_step_record;

/* One block on one rank. */
typedef struct taciti_block_record {
    double wall_s, cpu_s;   /* of the steps that count: elapsed, and processor time of the process */
    uint64_t payload_bytes; /* that the rank sent in all steps of the block, warm-up too */
    uint64_t away_sent_bytes, away_received_bytes; /* of them: between hosts */
    uint64_t nic_sent_bytes, nic_received_bytes;   /* of the host's interfaces in the same time; by one rank per host */
    uint64_t has_nic;                              /* 1: the two above were measured */
    uint64_t formula_bytes;                        /* per step: the strategy's own prediction */
} taciti_block_record;

/* All records of one setting. The exchange of a strategy repeats after `period` steps, so the samples of all times
 * except those of compute are means over a period. */
typedef struct taciti_cluster_records {
    size_t period;               /* of the caller; divides rounds and warm_up */
    taciti_step_record *steps;   /* [blocks][ranks][rounds]; owned */
    taciti_block_record *blocks; /* [blocks][ranks]; owned */
} taciti_cluster_records;

/* The shape of the arrays above, and which host each rank is on. */
typedef struct taciti_cluster_shape {
    size_t ranks, blocks, rounds, warm_up;
    const taciti_hosts *hosts; /* borrowed */
} taciti_cluster_shape;

/* Allocates the records; the period stays. Returns owned. */
tacit_status taciti_cluster_records_create(const taciti_cluster_shape *shape, taciti_cluster_records *out);
void taciti_cluster_records_destroy(taciti_cluster_records *records);

/* Bytes of one host per step. */
typedef struct taciti_host_bytes {
    bool measured;
    double sent, received;                 /* by the kernel's counters of its interfaces */
    double payload_sent, payload_received; /* by the engine's counters: messages to and from other hosts */
} taciti_host_bytes;

typedef struct taciti_compute_figures {
    double mean_s, cv; /* realised; cv: of a rank's steps, root mean square over the ranks */
    double slowest_s;  /* mean over the steps of the slowest rank's */
    double asked_mean_s, asked_cv, asked_slowest_s; /* what these very steps were to take; NaN when compute is real */
} taciti_compute_figures;

typedef struct taciti_setting_figures {
    size_t period;                               /* steps of a sample of the four below */
    taciti_moments step_s;                       /* mean over the ranks, period by period */
    taciti_moments slowest_s;                    /* slowest rank, period by period */
    taciti_moments wait_s, transfer_s, update_s; /* mean over the ranks, period by period */
    double wait_share;                           /* of the step */
    double overlap;                              /* 1 - exposed wait / transfer; NaN without transfer */
    taciti_compute_figures compute;
    double cpu_cores;     /* processor time of all ranks / elapsed time */
    double payload_bytes; /* sent per rank and step: mean over the ranks ... */
    double payload_min_bytes, payload_max_bytes;
    double formula_bytes;     /* ... and by the strategy's formula, mean over the ranks */
    taciti_host_bytes *hosts; /* [hosts]; owned */
    taciti_moments block_s;   /* mean step of each block */
    taciti_moments ratio;     /* block by block: this setting's mean step / the base's */
    double drift; /* mean step of the later half of the blocks / of the earlier half - 1; NaN for one block */
} taciti_setting_figures;

/* has_thread: communication has a thread of its own; without one nothing overlaps by definition and `overlap` is NaN.
 * Returns owned. */
tacit_status taciti_cluster_figures_of(const taciti_cluster_shape *shape, const taciti_cluster_records *records,
                                       const taciti_cluster_records *base, bool has_thread,
                                       taciti_setting_figures *out);
void taciti_setting_figures_destroy(taciti_setting_figures *figures);

#endif
