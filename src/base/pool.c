/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/pool.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/control_group.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/memory.h"

enum { SPINS_PER_CLOCK = 64 };
#define SLEEP_NS (3600 * TACITI_NS_PER_S) /* and then again */

struct taciti_pool {
    int threads;
    int64_t spin_ns;
    taciti_pool_job *job;
    void *context;
    bool stop;
    _Alignas(64) _Atomic uint32_t round;   /* counts jobs; workers wait for it to change */
    _Alignas(64) _Atomic uint32_t running; /* workers that have not finished this round */
    struct worker {
        taciti_pool *pool;
        pthread_t handle;
        int thread;
    } * workers; /* threads - 1 of them */
    int started;
};

/* Returns when *word != old: spins for spin_ns, then sleeps. */
static void await_change(_Atomic uint32_t *word, uint32_t old, int64_t spin_ns) {
    const int64_t until = spin_ns > 0 ? taciti_now_ns() + spin_ns : 0;
    while (spin_ns > 0 && taciti_now_ns() < until) {
        for (int i = 0; i < SPINS_PER_CLOCK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != old) return;
            taciti_relax_core();
        }
    }
    while (atomic_load_explicit(word, memory_order_acquire) == old) taciti_futex_wait(word, old, SLEEP_NS);
}

static void *run_worker(void *argument) {
    struct worker *self = argument;
    taciti_pool *pool = self->pool;
    for (uint32_t round = 0;; round++) {
        await_change(&pool->round, round, pool->spin_ns);
        if (pool->stop) return NULL;
        pool->job(pool->context, self->thread, pool->threads);
        if (atomic_fetch_sub_explicit(&pool->running, 1, memory_order_acq_rel) == 1) taciti_futex_wake(&pool->running);
    }
}

tacit_status taciti_pool_create(int threads, int spin_us, taciti_pool **out) {
    if (threads < 1) return taciti_fail(TACIT_E_USAGE, "a thread pool needs at least one thread, not %d", threads);
    taciti_pool *pool = taciti_calloc(1, sizeof *pool);
    if (pool == NULL) return TACIT_E_MEMORY;
    pool->threads = threads;
    pool->spin_ns = (int64_t)spin_us * 1000;
    pool->workers = taciti_calloc((size_t)threads, sizeof *pool->workers);
    if (pool->workers == NULL) {
        taciti_free(pool);
        return TACIT_E_MEMORY;
    }
    for (int i = 1; i < threads; i++) {
        struct worker *w = &pool->workers[i - 1];
        *w = (struct worker){.pool = pool, .thread = i};
        if (pthread_create(&w->handle, NULL, run_worker, w) != 0) {
            taciti_pool_destroy(pool);
            return taciti_fail(TACIT_E_MEMORY, "the system refused thread %d of %d", i + 1, threads);
        }
        pool->started = i;
    }
    *out = pool;
    return TACIT_OK;
}

void taciti_pool_destroy(taciti_pool *pool) {
    if (pool == NULL) return;
    pool->stop = true;
    atomic_fetch_add_explicit(&pool->round, 1, memory_order_release);
    taciti_futex_wake(&pool->round);
    for (int i = 0; i < pool->started; i++) (void)pthread_join(pool->workers[i].handle, NULL);
    taciti_free(pool->workers);
    taciti_free(pool);
}

int taciti_pool_threads(const taciti_pool *pool) { return pool->threads; }

int taciti_usable_cores(void) {
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    int cores = online > 0 ? (int)online : 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) cores = CPU_COUNT(&set);
    return (int)ceil(fmin(cores, taciti_group_cores(TACITI_GROUPS)));
}

uint64_t taciti_usable_cores_key(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? XXH3_64bits(&set, sizeof set) : 0;
}

void taciti_pool_run(taciti_pool *pool, taciti_pool_job *job, void *context) {
    if (pool->threads == 1) {
        job(context, 0, 1);
        return;
    }
    pool->job = job;
    pool->context = context;
    atomic_store_explicit(&pool->running, (uint32_t)pool->threads - 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->round, 1, memory_order_release);
    taciti_futex_wake(&pool->round);
    job(context, 0, pool->threads);
    for (uint32_t left; (left = atomic_load_explicit(&pool->running, memory_order_acquire)) != 0;)
        await_change(&pool->running, left, pool->spin_ns);
}
