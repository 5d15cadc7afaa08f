/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <errno.h>
#include <time.h>

static int64_t read_clock(clockid_t id) {
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (int64_t)t.tv_sec * TACITI_NS_PER_S + (int64_t)t.tv_nsec;
}

int64_t taciti_now_ns(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t taciti_thread_ns(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

int64_t taciti_wall_ns(void) { return read_clock(CLOCK_REALTIME); }

void taciti_sleep_ns(int64_t ns) {
    if (ns <= 0) return;
    struct timespec t = {.tv_sec = (time_t)(ns / TACITI_NS_PER_S), .tv_nsec = (long)(ns % TACITI_NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR) {
    }
}
