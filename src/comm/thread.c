/* SPDX-License-Identifier: Apache-2.0
 *
 * The communication thread and its queue. It owns the engine, runs jobs one after the other, and beats when there are
 * none. It shares cores with compute, so it sleeps whenever there is nothing to do. While it sleeps, the submitting
 * thread may take the engine for a job that it would only wait for: handing over costs more than a short message.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/futex.h"
#include "base/log.h"
#include "comm/guard.h"
#include "comm/quiet.h"
#include "comm/state.h"

#define IDLE_NS (100 * TACITI_NS_PER_MS)
#define JOIN_NS (5 * TACITI_NS_PER_S)

enum { TIMER_SLACK_NS = 1000 };

/* A part of a job with a flow has no other, and its name says less. */
static void run_job(taciti_comm *comm, taciti_job *job) {
    taciti_witness *witness = atomic_load_explicit(&comm->witness, memory_order_acquire);
    const int tag = comm->data_tag;
    const bool part = tag != TACITI_TAG_DATA;
    if (job->flow > 0 && !part) comm->data_tag = TACITI_TAG_FLOWS + job->flow % TACITI_FLOW_TAGS;
    const int64_t step = atomic_load_explicit(&witness->doing.number, memory_order_acquire);
    comm->trace.step = step > 0 ? step : 0;
    job->begin_ns = taciti_now_ns();
    job->status = taciti_comm_health(comm);
    if (job->status == TACIT_OK) {
        if (!part) taciti_note_write(&witness->job, job->detail, job->name);
        job->status = job->run(comm, job->context);
        if (!part) taciti_note_write(&witness->job, -1, "");
        if (job->status < 0) {
            /* The text of an error belongs to the thread that met it; the one that waits for the job shall have it. */
            (void)pthread_mutex_lock(&comm->failure.lock);
            (void)snprintf(comm->failure.of_job, sizeof comm->failure.of_job, "%s", taciti_error_text());
            (void)pthread_mutex_unlock(&comm->failure.lock);
        }
    }
    comm->data_tag = tag;
    job->end_ns = taciti_now_ns();
    atomic_store_explicit(&job->done, 1, memory_order_release);
}

taciti_watch taciti_watch_begin(const taciti_comm *comm) {
    return (taciti_watch){.last_ns = taciti_now_ns(),
                          .pulse = atomic_load_explicit(&comm->queue.pulse, memory_order_relaxed)};
}

/* Looks again; the limit in seconds when it has been stuck for longer, else 0. */
static double stuck_for(const taciti_comm *comm, taciti_watch *w) {
    const uint32_t pulse = atomic_load_explicit(&comm->queue.pulse, memory_order_relaxed);
    const int64_t now_ns = taciti_now_ns(), gap_ns = now_ns - w->last_ns;
    /* Time during which this process was stopped counts as one slice. */
    w->stuck_ns = pulse != w->pulse ? 0 : w->stuck_ns + (gap_ns < 2 * IDLE_NS ? gap_ns : IDLE_NS);
    w->last_ns = now_ns;
    w->pulse = pulse;
    const double limit_s = atomic_load_explicit(&comm->queue.blocked, memory_order_relaxed) != 0
                               ? comm->options.stall_s
                               : comm->options.timeout_s;
    return (double)w->stuck_ns > limit_s * 1e9 ? limit_s : 0;
}

/* Sleeps until a job is queued, at most IDLE_NS. */
static void wait_for_job(taciti_queue *queue, uint32_t seen) {
    atomic_store(&queue->sleeping, 1);
    if (atomic_load(&queue->tail) == seen) taciti_futex_wait(&queue->tail, seen, IDLE_NS);
    atomic_store(&queue->sleeping, 0);
}

/* False: the submitting thread has the engine. It does not call this thread when it returns it, so with a job in the
 * queue the wait is for the engine. */
static bool take_engine(taciti_comm *comm, uint32_t tail) {
    struct timespec until;
    if (pthread_mutex_trylock(&comm->ownership) == 0) return true;
    if (tail == atomic_load_explicit(&comm->queue.head, memory_order_relaxed)) {
        wait_for_job(&comm->queue, tail);
        return false;
    }
    (void)clock_gettime(CLOCK_REALTIME, &until);
    const int64_t until_ns = until.tv_nsec + IDLE_NS;
    until.tv_sec += until_ns / TACITI_NS_PER_S;
    until.tv_nsec = until_ns % TACITI_NS_PER_S;
    return pthread_mutex_timedlock(&comm->ownership, &until) == 0;
}

/* Takes the oldest job out of the queue; NULL: there is none. */
static taciti_job *take_job(taciti_queue *queue) {
    const uint32_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    if (head == atomic_load_explicit(&queue->tail, memory_order_acquire)) return NULL;
    (void)pthread_mutex_lock(&queue->lock);
    taciti_job *job = queue->first;
    queue->first = job->next;
    (void)pthread_mutex_unlock(&queue->lock);
    atomic_store_explicit(&queue->head, head + 1, memory_order_release);
    return job;
}

/* One look at the engine and the queue. False: there was nothing to do. */
static bool serve_once(taciti_comm *comm) {
    taciti_queue *queue = &comm->queue;
    /* After a failure the tick only obeys aborts; the failure itself is kept in comm->health. */
    (void)taciti_detector_tick(comm, taciti_now_ns());
    if (atomic_load_explicit(&comm->borrowed, memory_order_acquire) != 0) return false; /* lent: taciti_comm_ask() */
    taciti_job *job = take_job(queue);
    if (job == NULL) return false;
    run_job(comm, job);
    taciti_futex_wake(&job->done);
    return true;
}

/* The submitting thread works by itself and hangs inside the engine, so nobody but this thread can end the process or
 * say what has happened. */
static void end_if_stuck(taciti_comm *comm, taciti_watch *w) {
    const double limit_s = stuck_for(comm, w);
    if (limit_s == 0 || taciti_comm_health(comm) != TACIT_OK) return;
    (void)taciti_comm_break(comm, taciti_fail(TACIT_E_PEER, "rank %d: %s has not returned for %.1f s",
                                              comm->engine.rank, comm->engine.library, limit_s));
    taciti_guard_end_process(tacit_status_exit_code(TACIT_E_PEER));
}

static void *serve_jobs(void *argument) {
    taciti_comm *comm = argument;
    taciti_queue *queue = &comm->queue;
    taciti_watch borrower = taciti_watch_begin(comm);
    taciti_log_about(comm);
    (void)prctl(PR_SET_NAME, "tacit comm");
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    taciti_thread_short_turns(); /* what has arrived must not wait until compute has had its turn */
    for (;;) {
        const uint32_t tail = atomic_load_explicit(&queue->tail, memory_order_acquire);
        if (!take_engine(comm, tail)) {
            end_if_stuck(comm, &borrower);
            continue;
        }
        const bool worked = serve_once(comm);
        (void)pthread_mutex_unlock(&comm->ownership);
        borrower = taciti_watch_begin(comm);
        if (worked) continue;
        if (atomic_load_explicit(&comm->stop, memory_order_acquire) != 0) break;
        wait_for_job(queue, tail);
    }
    atomic_store_explicit(&comm->ended, 1, memory_order_release);
    taciti_futex_wake(&comm->ended);
    return NULL;
}

tacit_status taciti_comm_thread_start(taciti_comm *comm) {
    comm->threaded = true;
    (void)pthread_mutex_init(&comm->ownership, NULL); /* a plain mutex: cannot fail on Linux */
    (void)pthread_mutex_init(&comm->queue.lock, NULL);
    const int error = taciti_thread_start_quiet(&comm->thread, serve_jobs, comm);
    if (error == 0) return TACIT_OK;
    comm->threaded = false;
    return taciti_fail(TACIT_E_MEMORY, "the system refused the communication thread: %s", strerror(error));
}

/* Time during which this process was stopped counts as one slice, as in stuck_for(). */
bool taciti_comm_thread_stop(taciti_comm *comm) {
    if (!comm->threaded) return true;
    atomic_store_explicit(&comm->stop, 1, memory_order_release);
    taciti_futex_wake(&comm->queue.tail);
    int64_t waited_ns = 0, last_ns = taciti_now_ns();
    while (atomic_load_explicit(&comm->ended, memory_order_acquire) == 0) {
        if (waited_ns >= JOIN_NS) return false;
        taciti_futex_wait(&comm->ended, 0, IDLE_NS);
        const int64_t now_ns = taciti_now_ns();
        waited_ns += now_ns - last_ns < IDLE_NS ? now_ns - last_ns : IDLE_NS;
        last_ns = now_ns;
    }
    (void)pthread_join(comm->thread, NULL);
    comm->threaded = false;
    return true;
}

bool taciti_comm_owns(const taciti_comm *comm) {
    if (!comm->threaded || pthread_equal(pthread_self(), comm->thread) != 0) return true;
    return atomic_load_explicit(&comm->borrowed, memory_order_acquire) != 0 &&
           pthread_equal(pthread_self(), comm->borrower) != 0;
}

bool taciti_comm_has_thread(const taciti_comm *comm) { return comm->threaded; }

static void queue_job(taciti_queue *queue, taciti_job *job) {
    (void)pthread_mutex_lock(&queue->lock);
    job->next = NULL;
    if (queue->first == NULL)
        queue->first = job;
    else
        queue->last->next = job;
    queue->last = job;
    (void)atomic_fetch_add(&queue->tail, 1);
    (void)pthread_mutex_unlock(&queue->lock);
}

void taciti_job_submit(taciti_comm *comm, taciti_job *job) {
    taciti_queue *queue = &comm->queue;
    atomic_store_explicit(&job->done, 0, memory_order_relaxed);
    if (taciti_comm_owns(comm)) { /* there is no thread, or this is a part of the job that runs */
        (void)taciti_detector_tick(comm, taciti_now_ns());
        run_job(comm, job);
        return;
    }
    job->status = taciti_comm_health(comm);
    if (job->status != TACIT_OK) { /* jobs whose waits were given up may lie in the queue, and be gone */
        job->begin_ns = job->end_ns = taciti_now_ns();
        atomic_store_explicit(&job->done, 1, memory_order_release);
        return;
    }
    queue_job(queue, job);
    if (atomic_load(&queue->sleeping) != 0) taciti_futex_wake(&queue->tail);
}

/* Takes the engine from an idle communication thread. */
static bool borrow_engine(taciti_comm *comm) {
    taciti_queue *queue = &comm->queue;
    if (!comm->threaded || pthread_mutex_trylock(&comm->ownership) != 0) return false;
    const uint32_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    if (tail == atomic_load_explicit(&queue->head, memory_order_acquire)) {
        comm->borrower = pthread_self();
        atomic_store_explicit(&comm->borrowed, 1, memory_order_release);
        return true;
    }
    (void)pthread_mutex_unlock(&comm->ownership); /* jobs before this one */
    return false;
}

tacit_status taciti_job_run(taciti_comm *comm, taciti_job *job) {
    if (!borrow_engine(comm)) {
        taciti_job_submit(comm, job);
        return taciti_job_wait(comm, job);
    }
    (void)taciti_detector_tick(comm, taciti_now_ns());
    run_job(comm, job);
    atomic_store_explicit(&comm->borrowed, 0, memory_order_release);
    (void)pthread_mutex_unlock(&comm->ownership);
    return job->status;
}

bool taciti_job_done(const taciti_job *job) { return atomic_load_explicit(&job->done, memory_order_acquire) != 0; }

/* The communication thread shows no sign of life: it hangs inside the engine. Its peers will notice this process's
 * silence; this process must not wait for them. */
static tacit_status give_up(taciti_comm *comm, const taciti_job *job, double limit_s) {
    char number[24] = "";
    if (taciti_comm_health(comm) != TACIT_OK) return TACIT_E_PEER;
    if (job->detail >= 0) (void)snprintf(number, sizeof number, " %d", job->detail);
    return taciti_comm_break(comm, taciti_fail(TACIT_E_PEER, "rank %d: %s has not returned for %.1f s in %s%s",
                                               comm->engine.rank, comm->engine.library, limit_s, job->name, number));
}

tacit_status taciti_watch_look(taciti_comm *comm, taciti_watch *watch) {
    static const taciti_job EXCHANGE = {.name = "an exchange", .detail = -1};
    const double limit_s = comm->threaded ? stuck_for(comm, watch) : 0;
    return limit_s > 0 ? give_up(comm, &EXCHANGE, limit_s) : taciti_comm_health(comm);
}

tacit_status taciti_job_wait(taciti_comm *comm, taciti_job *job) {
    return taciti_job_wait_for(comm, job, (double)INFINITY);
}

tacit_status taciti_job_wait_for(taciti_comm *comm, taciti_job *job, double seconds) {
    const int64_t begin_ns = taciti_now_ns();
    taciti_watch owner = taciti_watch_begin(comm);
    while (!taciti_job_done(job)) {
        const double left_ns = seconds * 1e9 - (double)(taciti_now_ns() - begin_ns);
        if (left_ns <= 0) return TACIT_PENDING;
        taciti_futex_wait(&job->done, 0, left_ns < (double)IDLE_NS ? (int64_t)left_ns : IDLE_NS);
        const double limit_s = stuck_for(comm, &owner);
        if (limit_s > 0) return give_up(comm, job, limit_s);
        (void)taciti_comm_ask(comm, begin_ns); /* the job ends when communication does */
    }
    if (job->status >= 0) return job->status;
    (void)pthread_mutex_lock(&comm->failure.lock);
    taciti_error_set("%s", taciti_comm_health(comm) == TACIT_OK ? comm->failure.of_job : comm->failure.text);
    (void)pthread_mutex_unlock(&comm->failure.lock);
    return job->status;
}
