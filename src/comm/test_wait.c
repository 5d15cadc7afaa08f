/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits: how often they read the clock, and those that are expected to be long, how often they ask the engine; the
 * program may end them. And the queue of jobs.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first */
#include <cmocka.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/state.h"
#include "comm/test_engine.h"

#define LATE_NS (2 * TACITI_NS_PER_MS)
#define NAP_MIN_NS INT64_C(50000) /* a quarter of the shortest wait that counts as long */

enum { MESSAGES = 40, STALL_LOOK_TURNS = 64 };

static tacit_status (*g_test)(void *self, taciti_engine_request *request, bool *done);
static const taciti_engine_request *g_awaited;
static int64_t g_tests;
static _Thread_local int64_t t_reads;

/* In the place of the system's, for all of this program. */
int clock_gettime(clockid_t clock, struct timespec *out) {
    t_reads++;
    return (int)syscall(SYS_clock_gettime, clock, out);
}

static tacit_status count_tests(void *self, taciti_engine_request *request, bool *done) {
    if (request == g_awaited) g_tests++;
    return g_test(self, request, done);
}

static tacit_status send_late(taciti_comm *comm, void *context) {
    (void)context;
    for (int64_t i = 0; i < MESSAGES; i++) {
        taciti_sleep_ns(LATE_NS);
        TACITI_TRY(taciti_comm_send(comm, 1, &i, sizeof i));
    }
    return TACIT_OK;
}

/* Counts the waits that begin when waits are known to be long. */
static tacit_status receive_late(taciti_comm *comm, void *context) {
    int *count = context;
    for (int64_t i = 0, received = 0; i < MESSAGES; i++) {
        taciti_engine_request request;
        const bool is_long = comm->wait_ns > LATE_NS / 2;
        const int64_t begin_ns = taciti_now_ns();
        TACITI_TRY(taciti_comm_irecv(comm, 0, &received, sizeof received, &request));
        g_awaited = &request;
        g_tests = t_reads = 0;
        TACITI_TRY(taciti_comm_await(comm, &request));
        CHECK(received == i);
        CHECK(g_tests > 0 && t_reads <= g_tests + g_tests / STALL_LOOK_TURNS);
        if (is_long) CHECK(g_tests <= 1 + (taciti_now_ns() - begin_ns) / NAP_MIN_NS);
        *count += is_long;
    }
    return TACIT_OK;
}

static void wait_for_late_messages(taciti_comm *comm, void *context) {
    const bool receives = taciti_comm_rank(comm) == 1;
    taciti_job job = {.run = receives ? receive_late : send_late, .context = context, .name = "test", .detail = -1};
    if (receives) {
        comm->engine.wait = NULL; /* how long to sleep is left to the wait */
        g_test = comm->engine.test;
        comm->engine.test = count_tests;
    }
    taciti_job_submit(comm, &job);
    CHECK(taciti_job_wait(comm, &job) == TACIT_OK);
}

static void waits_read_the_clock_once_per_test_and_sleep_if_they_are_long(void **state) {
    (void)state;
    int count = 0;
    if (test_over_tcp()) skip(); /* that engine reads the clock, too */
    const taciti_comm_options options = test_comm_options(false);
    test_ranks_per_host(1);
    test_world_run(2, &options, wait_for_late_messages, &count);
    test_ranks_per_host(0);
    assert_true(count > 0);
}

/* ---- waits that the program ends --------------------------------------------------------------------------------- */

typedef struct program {
    taciti_comm *comm;
    int asks;
} program;

/* Meanwhile the communication thread beats, also where this thread has borrowed the engine. */
static tacit_status answer_twice(void *context) {
    program *p = context;
    const uint32_t pulse = atomic_load(&p->comm->queue.pulse);
    while (atomic_load(&p->comm->queue.pulse) == pulse) taciti_sleep_ns(TACITI_NS_PER_MS);
    return ++p->asks == 1 ? TACIT_OK : TACIT_E_USAGE;
}

static tacit_status receive_nothing(taciti_comm *comm, void *context) {
    char byte;
    (void)context;
    return taciti_comm_receive(comm, 1, &byte, sizeof byte);
}

static void end_wait(taciti_comm *comm, void *context) {
    taciti_job job = {.run = receive_nothing, .name = "test", .detail = -1};
    program mine = {.comm = comm};
    char text[TACITI_ERROR_BYTES];
    if (taciti_comm_rank(comm) == 0) {
        taciti_interrupt_by(answer_twice, &mine);
        if (*(const bool *)context) taciti_job_submit(comm, &job);
        const tacit_status status = *(const bool *)context ? taciti_job_wait(comm, &job) : taciti_job_run(comm, &job);
        taciti_interrupt_by(NULL, NULL);
        CHECK(status == TACIT_E_PEER && mine.asks == 2);
        CHECK(strstr(taciti_error_text(), "this rank has ended a wait") != NULL);
    }
    while (taciti_comm_health(comm) == TACIT_OK) taciti_sleep_ns(TACITI_NS_PER_MS);
    taciti_comm_failure_text(comm, text);
    CHECK(taciti_comm_rank(comm) == 0 || strstr(text, "rank 0") != NULL);
}

static void the_program_ends_waits(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool queued = i == 1;
        test_world_run(2, &options, end_wait, &queued);
    }
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

static _Atomic int g_full;

static tacit_status hold_queue(taciti_comm *comm, void *context) {
    (void)context;
    while (atomic_load(&g_full) < taciti_comm_size(comm)) taciti_sleep_ns(TACITI_NS_PER_MS);
    return TACIT_OK;
}

typedef struct call {
    taciti_job job;
    int number, *calls;
} call;

static tacit_status count_call(taciti_comm *comm, void *context) {
    const call *c = context;
    (void)comm;
    CHECK(++*c->calls == c->number);
    return TACIT_OK;
}

static void fill_queue(taciti_comm *comm, void *context) {
    enum { JOBS = 20000 };
    int calls = 0;
    call *all = taciti_calloc(JOBS, sizeof *all);
    (void)context;
    for (int i = 0; i < JOBS; i++) {
        all[i] = (call){{.run = i > 0 ? count_call : hold_queue, .context = &all[i], .name = "test"}, i, &calls};
        taciti_job_submit(comm, &all[i].job);
    }
    (void)atomic_fetch_add(&g_full, 1);
    for (int i = 0; i < JOBS; i++) CHECK(taciti_job_wait(comm, &all[i].job) == TACIT_OK);
    CHECK(calls == JOBS - 1);
    taciti_free(all);
}

static void any_number_of_jobs_runs_in_order(void **state) {
    const taciti_comm_options options = test_comm_options(true);
    (void)state;
    atomic_store(&g_full, 0);
    test_world_run(2, &options, fill_queue, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_read_the_clock_once_per_test_and_sleep_if_they_are_long),
        cmocka_unit_test(the_program_ends_waits),
        cmocka_unit_test(any_number_of_jobs_runs_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
