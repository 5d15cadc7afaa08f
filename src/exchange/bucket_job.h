/* SPDX-License-Identifier: Apache-2.0
 *
 * One job of the communication thread per bucket of a flat array, with begin and wait. Every exchange of buckets uses
 * it.
 */
#ifndef TACITI_EXCHANGE_BUCKET_JOB_H
#define TACITI_EXCHANGE_BUCKET_JOB_H

#include "comm/comm.h"
#include "tensor/layout.h"

/* Moves one bucket, on the communication thread. number: as given to taciti_bucket_begin(). */
typedef tacit_status taciti_bucket_move(void *owner, float *x, size_t n, int64_t number);

typedef struct taciti_bucket_job {
    taciti_bucket_move *move;
    void *owner; /* borrows */
    float *x;
    size_t n;
    int64_t number;
    bool under_way, skipped;
    taciti_job job;
} taciti_bucket_job;

typedef struct taciti_bucket_jobs {
    taciti_comm *comm;           /* borrows */
    const taciti_layout *layout; /* borrows */
    taciti_bucket_job *all;      /* one per bucket; owned */
} taciti_bucket_jobs;

/* name: of the jobs, for error messages: "all-reduce of bucket". Not collective. */
tacit_status taciti_bucket_jobs_create(taciti_comm *comm, const taciti_layout *layout, taciti_bucket_move *move,
                                       void *owner, const char *name, taciti_bucket_jobs *out);
void taciti_bucket_jobs_destroy(taciti_bucket_jobs *jobs); /* {0} is fine */

/* Starts one bucket of the flat array; it must not be under way. Owner thread, never blocks. */
tacit_status taciti_bucket_begin(taciti_bucket_jobs *jobs, float *flat, size_t bucket, int64_t number);
/* The same where nothing is to be done: the bucket is under way until it is waited for. */
tacit_status taciti_bucket_skip(taciti_bucket_jobs *jobs, size_t bucket);
/* Blocks until the bucket has been moved. Owner thread. */
tacit_status taciti_bucket_wait(taciti_bucket_jobs *jobs, size_t bucket);
/* All buckets, blocking; a single one runs on the calling thread when the communication thread is idle. */
tacit_status taciti_bucket_run_all(taciti_bucket_jobs *jobs, float *flat, int64_t number);

#endif
