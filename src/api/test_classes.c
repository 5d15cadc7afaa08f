/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of a program in the C interface: the classes of calls run at the same time (thread sanitizer), and every wait
 * ends.
 */
#define _XOPEN_SOURCE 700
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <math.h>
#include <pthread.h>

#include "api/test_jobs.h"
#include "base/clock.h"

/* ---- classes of calls -------------------------------------------------------------------------------------------- */

/* Each class has a thread: one makes tensors ready, one waits for each and reads its sum, one ends the steps. */
typedef struct classes {
    tacit_job *job;
    int rank, ranks, steps;
    float *sources[TENSORS];
    _Atomic int64_t ready; /* tensors that were made ready, over all steps */
    pthread_barrier_t step;
} classes;

static float integer_at(int rank, int64_t step, size_t i) {
    return (float)((rank + 1) * (step + 1) + (int64_t)(i % 7));
}

static void *make_ready(void *context) {
    classes *c = context;
    for (int64_t s = 0; s < c->steps; s++) {
        for (int t = TENSORS; t-- > 0;) {
            for (size_t i = 0; i < count_of(t); i++) c->sources[t][i] = integer_at(c->rank, s, i);
            OK(tacit_job_ready_from(c->job, (size_t)t, c->sources[t], TACIT_F32, 1));
            atomic_fetch_add(&c->ready, 1);
        }
        (void)pthread_barrier_wait(&c->step); /* all are ready */
        (void)pthread_barrier_wait(&c->step); /* the step has ended */
    }
    return NULL;
}

static void *await_sums(void *context) {
    classes *c = context;
    for (int64_t s = 0; s < c->steps; s++) {
        for (int t = TENSORS; t-- > 0;) {
            while (atomic_load(&c->ready) < s * TENSORS + TENSORS - t) taciti_sleep_ns(TACITI_NS_PER_MS / 10);
            while (tacit_job_wait(c->job, (size_t)t, 0.001) == TACIT_PENDING) continue;
            OK(tacit_job_wait(c->job, (size_t)t, (double)INFINITY));
            for (size_t i = 0; i < count_of(t); i++) {
                float sum = 0;
                for (int r = 0; r < c->ranks; r++) sum += integer_at(r, s, i);
                CHECK(memcmp(&sum, &c->sources[t][i], sizeof sum) == 0);
            }
        }
        (void)pthread_barrier_wait(&c->step);
        (void)pthread_barrier_wait(&c->step);
    }
    return NULL;
}

static void end_steps(classes *c) {
    for (int64_t s = 0; s < c->steps; s++) {
        tacit_step step = {.size = sizeof step};
        tacit_counters counters = {.size = sizeof counters};
        OK(tacit_job_set_lr(c->job, (double)s));
        OK(tacit_job_counters(c->job, &counters));
        (void)pthread_barrier_wait(&c->step);
        OK(tacit_job_settle(c->job, &step));
        CHECK(step.number == s + 1 && step.lr >= (double)s && step.lr <= (double)s && counters.steps == s);
        OK(tacit_job_stepped(c->job));
        (void)pthread_barrier_wait(&c->step);
    }
}

static const test_job SUMS = {{"strategy=dp", "optim.clip=0"}, false, true};

static void run_classes(taciti_comm *comm, void *context) {
    tacit_comm seat;
    pthread_t ready, wait;
    classes c = {.job = open_job(seat_of(comm, &seat), &SUMS),
                 .rank = taciti_comm_rank(comm),
                 .ranks = taciti_comm_size(comm),
                 .steps = *(const int *)context};
    for (int t = 0; t < TENSORS; t++) c.sources[t] = taciti_calloc(count_of(t), sizeof(float));
    (void)pthread_barrier_init(&c.step, NULL, 3);
    OK(tacit_job_start(c.job));
    CHECK(pthread_create(&ready, NULL, make_ready, &c) == 0);
    CHECK(pthread_create(&wait, NULL, await_sums, &c) == 0);
    end_steps(&c);
    CHECK(pthread_join(ready, NULL) == 0 && pthread_join(wait, NULL) == 0);
    OK(tacit_job_close(c.job));
    taciti_handle_close(&seat.handle);
    (void)pthread_barrier_destroy(&c.step);
    for (int t = 0; t < TENSORS; t++) taciti_free(c.sources[t]);
}

static void classes_of_calls_run_at_the_same_time(void **state) {
    int steps = 20;
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int thread = 0; thread < 2; thread++) {
            const taciti_comm_options options = test_comm_options(thread == 1);
            test_world_run(ranks, &options, run_classes, &steps);
        }
}

/* ---- waits and refusals ------------------------------------------------------------------------------------------ */

typedef struct meeting {
    pthread_barrier_t barrier; /* of the two ranks */
    _Atomic int ended;
} meeting;

static void ready_all(tacit_job *job) {
    for (size_t t = 0; t < TENSORS; t++) OK(tacit_job_ready_from(job, t, NULL, TACIT_F32, 1));
}

/* Rank 1 comes later: meanwhile nothing has arrived at rank 0, and no wait takes longer than it may. */
static void wait_for_a_late_rank(taciti_comm *comm, void *context) {
    meeting *m = context;
    tacit_comm seat;
    tacit_job *job = open_job(seat_of(comm, &seat), &SUMS);
    OK(tacit_job_start(job));
    if (taciti_comm_rank(comm) == 0) {
        ready_all(job);
        const int64_t begin_ns = taciti_now_ns();
        for (size_t t = 0; t < TENSORS; t++) CHECK(tacit_job_wait(job, t, 0) == TACIT_PENDING);
        CHECK(tacit_job_wait(job, 2, 0.05) == TACIT_PENDING);
        CHECK(taciti_now_ns() - begin_ns >= 50 * TACITI_NS_PER_MS);
    }
    (void)pthread_barrier_wait(&m->barrier);
    if (taciti_comm_rank(comm) == 1) ready_all(job);
    for (size_t t = TENSORS; t-- > 0;) OK(tacit_job_wait(job, t, (double)INFINITY));
    OK(tacit_job_settle(job, NULL));
    OK(tacit_job_stepped(job));
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

/* Two ranks. */
static void meet(test_rank *rank, const taciti_comm_options *options) {
    meeting m = {.ended = 0};
    (void)pthread_barrier_init(&m.barrier, NULL, 2);
    test_world_run(2, options, rank, &m);
    (void)pthread_barrier_destroy(&m.barrier);
}

static void a_wait_has_a_limit(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    meet(wait_for_a_late_rank, &options);
}

static void *settle_alone(void *context) {
    OK(tacit_job_settle(context, NULL));
    OK(tacit_job_stepped(context));
    return NULL;
}

/* While one thread ends a step, or is in any other function that may not meet another one, ready is refused. */
static void call_ready_meanwhile(taciti_comm *comm, void *context) {
    meeting *m = context;
    tacit_comm seat;
    pthread_t other;
    tacit_job *job = open_job(seat_of(comm, &seat), &SUMS);
    OK(tacit_job_start(job));
    if (taciti_comm_rank(comm) == 0) {
        ready_all(job);
        CHECK(pthread_create(&other, NULL, settle_alone, job) == 0);
        while (tacit_job_ready(job, 0) != TACIT_E_USAGE ||
               strstr(tacit_error_text(), "while another thread is in a function of it") == NULL)
            taciti_sleep_ns(TACITI_NS_PER_MS);
        REFUSED(tacit_job_settle(job, NULL), TACIT_E_USAGE, "while another thread");
        REFUSED(tacit_job_average(job, NULL), TACIT_E_USAGE, "while another thread");
        (void)pthread_barrier_wait(&m->barrier);
        CHECK(pthread_join(other, NULL) == 0);
    } else {
        (void)pthread_barrier_wait(&m->barrier);
        ready_all(job);
        (void)settle_alone(job);
    }
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

static void a_step_that_ends_refuses_others(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    meet(call_ready_meanwhile, &options);
}

typedef struct waiter {
    tacit_job *job;
    _Atomic int *ended;
    size_t tensor;
} waiter;

static void *wait_until_closed(void *context) {
    const waiter *w = context;
    REFUSED(tacit_job_wait(w->job, w->tensor, (double)INFINITY), TACIT_E_USAGE,
            "was closed before the sum of tensor 4 (in)");
    atomic_store(w->ended, 1);
    REFUSED(tacit_job_wait(w->job, w->tensor, (double)INFINITY), TACIT_E_USAGE, "closed before");
    return NULL;
}

/* The bucket of tensor 4 never leaves, for another one is not ready. */
static void close_meanwhile(taciti_comm *comm, void *context) {
    meeting *m = context;
    tacit_comm seat;
    pthread_t other;
    tacit_job *job = open_job(seat_of(comm, &seat), &SUMS);
    waiter w = {job, &m->ended, 4};
    OK(tacit_job_start(job));
    OK(tacit_job_ready_from(job, 4, NULL, TACIT_F32, 1));
    CHECK(pthread_create(&other, NULL, wait_until_closed, &w) == 0);
    taciti_sleep_ns(20 * TACITI_NS_PER_MS);
    CHECK(atomic_load(&m->ended) == 0);
    OK(tacit_job_close(job));
    CHECK(pthread_join(other, NULL) == 0);
    taciti_handle_close(&seat.handle);
}

static void a_closed_job_ends_its_waits(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    meeting m = {.ended = 0};
    (void)state;
    test_world_run(1, &options, close_meanwhile, &m);
    assert_int_equal(m.ended, 1);
}

/* Waits for that long again and again. */
static tacit_status wait_in_slices(tacit_job *job, size_t tensor, double seconds) {
    tacit_status status = TACIT_PENDING;
    for (int i = 0; i < 100 && status == TACIT_PENDING; i++) status = tacit_job_wait(job, tensor, seconds);
    return status;
}

/* Nobody else makes the tensor ready, or ends the step: comm.stall later the wait says so. */
static void wait_for_oneself(taciti_comm *comm, void *context) {
    test_job blocking = SUMS;
    tacit_comm seat;
    (void)context;
    tacit_job *job = open_job(seat_of(comm, &seat), &SUMS);
    OK(tacit_job_start(job));
    OK(tacit_job_ready_from(job, 4, NULL, TACIT_F32, 1));
    OK(tacit_job_ready_from(job, 0, NULL, TACIT_F32, 1));
    REFUSED(tacit_job_wait(job, 4, (double)INFINITY), TACIT_E_USAGE, "for tensor 1 (head.bias), which is not ready");
    CHECK(tacit_job_wait(job, 0, 0.05) == TACIT_PENDING);
    REFUSED(wait_in_slices(job, 0, 0.05), TACIT_E_USAGE, "for tensor 1 (head.bias), which is not ready");
    OK(tacit_job_close(job));
    blocking.settings[2] = "exchange.overlap=false";
    job = open_job(&seat, &blocking);
    OK(tacit_job_start(job));
    ready_all(job);
    REFUSED(tacit_job_wait(job, 4, (double)INFINITY), TACIT_E_USAGE, "nothing leaves before tacit_job_settle()");
    OK(tacit_job_settle(job, NULL));
    OK(tacit_job_wait(job, 4, (double)INFINITY));
    OK(tacit_job_close(job));
    job = open_job(&seat, &(test_job){{"strategy=shard"}, true, false});
    OK(tacit_job_start(job));
    ready_all(job);
    REFUSED(tacit_job_wait(job, 4, (double)INFINITY), TACIT_E_CONFIG, "this job has strategy shard");
    OK(tacit_job_close(job));
    taciti_handle_close(&seat.handle);
}

static void a_wait_for_oneself_ends(void **state) {
    taciti_comm_options options = test_comm_options(true);
    (void)state;
    options.stall_s = 0.3;
    test_world_run(1, &options, wait_for_oneself, NULL);
}

/* Rank 1 gives up, and nothing of rank 0 has left yet: neither a wait that asks without waiting nor one without a limit
 * goes on for ever. */
static void fail_before(taciti_comm *comm, void *context) {
    meeting *m = context;
    tacit_comm seat;
    tacit_status status = TACIT_PENDING;
    tacit_job *job = open_job(seat_of(comm, &seat), &SUMS);
    OK(tacit_job_start(job));
    if (taciti_comm_rank(comm) == 0) OK(tacit_job_ready_from(job, 4, NULL, TACIT_F32, 1));
    (void)pthread_barrier_wait(&m->barrier);
    if (taciti_comm_rank(comm) == 1) {
        taciti_error_set("rank 1 has had enough");
        taciti_comm_give_up(comm);
    } else {
        CHECK(tacit_job_wait(job, 4, (double)INFINITY) == TACIT_E_PEER);
        while (status == TACIT_PENDING) status = tacit_job_wait(job, 4, 0);
        CHECK(status == TACIT_E_PEER);
    }
    CHECK(tacit_job_close(job) == TACIT_E_PEER);
    taciti_handle_close(&seat.handle);
}

/* Rank 1 gives up instead of making its tensors ready. */
static void fail_meanwhile(taciti_comm *comm, void *context) {
    meeting *m = context;
    tacit_comm seat;
    tacit_job *job = open_job(seat_of(comm, &seat), &SUMS);
    OK(tacit_job_start(job));
    if (taciti_comm_rank(comm) == 0) {
        ready_all(job);
        CHECK(tacit_job_wait(job, 0, 0) == TACIT_PENDING);
    }
    (void)pthread_barrier_wait(&m->barrier);
    if (taciti_comm_rank(comm) == 1) {
        taciti_error_set("rank 1 has had enough");
        taciti_comm_give_up(comm);
    } else {
        CHECK(tacit_job_wait(job, 0, (double)INFINITY) == TACIT_E_PEER);
        CHECK(tacit_job_settle(job, NULL) == TACIT_E_PEER);
    }
    CHECK(tacit_job_close(job) == TACIT_E_PEER);
    taciti_handle_close(&seat.handle);
}

static void a_failed_peer_ends_waits(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    meet(fail_before, &options);
    meet(fail_meanwhile, &options);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_of_calls_run_at_the_same_time),
        cmocka_unit_test(a_wait_has_a_limit),
        cmocka_unit_test(a_step_that_ends_refuses_others),
        cmocka_unit_test(a_closed_job_ends_its_waits),
        cmocka_unit_test(a_wait_for_oneself_ends),
        cmocka_unit_test(a_failed_peer_ends_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
