/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/clock.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MIN_NS TACITI_NS_PER_MS
#define LOOK_MAX_NS (100 * TACITI_NS_PER_MS)

static int64_t read_clock(clockid_t id) {
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (int64_t)t.tv_sec * TACITI_NS_PER_S + (int64_t)t.tv_nsec;
}

int64_t taciti_now_ns(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t taciti_thread_ns(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

int64_t taciti_process_ns(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }

int64_t taciti_wall_ns(void) { return read_clock(CLOCK_REALTIME); }

static struct timespec timespec_of(int64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / TACITI_NS_PER_S), .tv_nsec = (long)(ns % TACITI_NS_PER_S)};
}

void taciti_sleep_ns(int64_t ns) {
    if (ns <= 0) return;
    struct timespec t = timespec_of(ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR) {
    }
}

bool taciti_sleep_between_looks(int64_t end_ns, int64_t *nap_ns) {
    if (taciti_now_ns() >= end_ns) return false;
    *nap_ns = *nap_ns == 0 ? LOOK_MIN_NS : 2 * *nap_ns < LOOK_MAX_NS ? 2 * *nap_ns : LOOK_MAX_NS;
    taciti_sleep_ns(*nap_ns);
    return true;
}

/* The slack is the thread's (50 us unless somebody changed it): it is put back. */
void taciti_sleep_until_ns(int64_t deadline_ns) {
    if (deadline_ns <= taciti_now_ns()) return;
    const struct timespec t = timespec_of(deadline_ns);
    const int slack_ns = prctl(PR_GET_TIMERSLACK);
    (void)prctl(PR_SET_TIMERSLACK, 1ul);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
    if (slack_ns > 0) (void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns);
}

/* The first version of the kernel's struct sched_attr, which the C library does not declare. */
typedef struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
} scheduling;

/* 0.1 ms is the shortest that the kernel grants. Whatever is refused leaves things as they were. */
void taciti_thread_short_turns(void) {
    scheduling attributes = {0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
    if (attributes.policy != SCHED_OTHER) return;
    attributes.size = sizeof attributes;
    attributes.runtime_ns = 100000;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}
