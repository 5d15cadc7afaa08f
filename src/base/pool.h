/* SPDX-License-Identifier: Apache-2.0
 *
 * The one thread pool of a process. Compute kernels, the optimizer and our slices of library matrix products all run
 * on it; nothing else in the process owns compute threads. Workers spin for a short while after a job and then sleep
 * on a futex, so that ranks and communication threads which share cores are not starved.
 */
#ifndef TACITI_BASE_POOL_H
#define TACITI_BASE_POOL_H

#include <stddef.h>

#include "tacit/tacit.h"

typedef struct taciti_pool taciti_pool;

/* Runs on every thread of the pool; `thread` is 0 .. threads-1 and 0 is the caller of taciti_pool_run(). */
typedef void taciti_pool_job(void *context, int thread, int threads);

/* threads >= 1. spin_us: how long an idle worker spins before it sleeps (0 when ranks share cores). Returns owned. */
tacit_status taciti_pool_create(int threads, int spin_us, taciti_pool **out);
void taciti_pool_destroy(taciti_pool *pool); /* NULL is fine */

int taciti_pool_threads(const taciti_pool *pool);

/* Cores this process may use by its affinity, at least 1. Any thread. */
int taciti_usable_cores(void);

/* Runs the job on all threads and returns when all have finished. One caller at a time; jobs do not nest. */
void taciti_pool_run(taciti_pool *pool, taciti_pool_job *job, void *context);

/* The part [*begin, *end) of n items that belongs to `thread`, in whole units of `grain` but for the last. */
static inline void taciti_pool_part(size_t n, size_t grain, int thread, int threads, size_t *begin, size_t *end) {
    const size_t units = (n + grain - 1) / grain, t = (size_t)thread, k = (size_t)threads;
    const size_t first = units * t / k * grain, last = units * (t + 1) / k * grain;
    *begin = first < n ? first : n;
    *end = last < n ? last : n;
}

#endif
