/* SPDX-License-Identifier: Apache-2.0
 *
 * One job of the communication thread per bucket of a flat array, with begin and wait. Every exchange of buckets uses
 * it.
 */
#ifndef TACITI_EXCHANGE_BUCKET_JOB_H
#define TACITI_EXCHANGE_BUCKET_JOB_H

#include "exchange/payload.h"
#include "tensor/layout.h"

/* Moves one bucket. Called on the communication thread, if there is one. */
typedef tacit_status taciti_bucket_move(void *owner, float *x, size_t n, const taciti_bucket_task *task);

typedef struct taciti_bucket_job {
    taciti_bucket_move *move;
    void *owner; /* borrows */
    float *x;
    size_t n;
    taciti_bucket_task task;
    bool under_way, skipped;
    taciti_job job;
} taciti_bucket_job;

typedef struct taciti_bucket_jobs {
    taciti_comm *comm;           /* borrows */
    const taciti_layout *layout; /* borrows */
    taciti_bucket_job *all;      /* one per bucket; owned */
} taciti_bucket_jobs;

/* Not collective. */
tacit_status taciti_bucket_jobs_create(taciti_comm *comm, const taciti_layout *layout, taciti_bucket_move *move,
                                       void *owner, taciti_bucket_jobs *out);
/* Waits for buckets that are under way; call it before releasing what they use. {0} is allowed. */
void taciti_bucket_jobs_destroy(taciti_bucket_jobs *jobs);

/* Starts bucket task->bucket of the flat array; it must not be under way. name: of the job, for error messages, such as
 * "all-reduce of bucket"; borrowed. Submitting thread. With a communication thread, does not block; without one, the
 * bucket has been moved on return. */
tacit_status taciti_bucket_begin(taciti_bucket_jobs *jobs, float *flat, const taciti_bucket_task *task,
                                 const char *name);
/* Like begin, for a bucket that needs no exchange: it counts as under way until the wait. */
tacit_status taciti_bucket_skip(taciti_bucket_jobs *jobs, size_t bucket);
/* Blocks until the bucket has been moved. Submitting thread. */
tacit_status taciti_bucket_wait(taciti_bucket_jobs *jobs, size_t bucket);
bool taciti_bucket_is_idle(const taciti_bucket_jobs *jobs); /* none is under way */
/* Moves all buckets and waits. A single bucket runs on the calling thread if the communication thread is idle. */
tacit_status taciti_bucket_run_all(taciti_bucket_jobs *jobs, float *flat, const taciti_bucket_task *task,
                                   const char *name);

#endif
