/* SPDX-License-Identifier: Apache-2.0
 *
 * Sleeping on a word of memory. The including file defines _GNU_SOURCE first.
 */
#ifndef TACITI_COMM_FUTEX_H
#define TACITI_COMM_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* Sleeps until woken, while *word == old, at most timeout_ns. May return early for no reason. */
static inline void taciti_futex_wait(_Atomic uint32_t *word, uint32_t old, int64_t timeout_ns) {
    const struct timespec t = {.tv_sec = (time_t)(timeout_ns / TACITI_NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % TACITI_NS_PER_S)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, &t, NULL, 0);
}

/* Only the address is used: the word may already be gone. */
static inline void taciti_futex_wake(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

#endif
