/* SPDX-License-Identifier: Apache-2.0
 *
 * The only thread pool of a process. Kernels, the optimizer and the slabs of matrix products run on it. After a job its
 * workers spin briefly and then sleep on a futex, so they do not starve ranks and communication threads that share
 * their cores.
 */
#ifndef TACITI_BASE_POOL_H
#define TACITI_BASE_POOL_H

#include "tacit/tacit.h"

typedef struct taciti_pool taciti_pool;

/* Runs once on every thread of the pool. `thread` is 0 .. threads - 1; thread 0 is the caller of taciti_pool_run(). */
typedef void taciti_pool_job(void *context, int thread, int threads);

/* Creates a pool of `threads` >= 1 threads, the caller included. An idle worker spins for spin_us microseconds before
 * it sleeps; pass 0 if ranks share cores. Returns owned. */
tacit_status taciti_pool_create(int threads, int spin_us, taciti_pool **out);
void taciti_pool_destroy(taciti_pool *pool); /* NULL is fine */

int taciti_pool_threads(const taciti_pool *pool);

/* Number of cores in this process's affinity mask, at most what its control group grants, at least 1. Any thread. */
int taciti_usable_cores(void);
/* Digest of that mask: processes of a host that have the same one share these cores. Any thread. */
uint64_t taciti_usable_cores_key(void);

/* Runs the job on all threads and returns when all have finished. One caller at a time; jobs must not nest. */
void taciti_pool_run(taciti_pool *pool, taciti_pool_job *job, void *context);

/* Computes the range [*begin, *end) of n items that `thread` processes. Every boundary but n is a multiple of `grain`.
 */
static inline void taciti_pool_part(size_t n, size_t grain, int thread, int threads, size_t *begin, size_t *end) {
    const size_t units = (n + grain - 1) / grain, t = (size_t)thread, k = (size_t)threads;
    const size_t first = units * t / k * grain, last = units * (t + 1) / k * grain;
    *begin = first < n ? first : n;
    *end = last < n ? last : n;
}

#endif
