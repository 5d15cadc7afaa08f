/* SPDX-License-Identifier: Apache-2.0
 *
 * Futexes: sleep until a word of memory changes; and what a thread does that looks at one again and again. The
 * including file must define _GNU_SOURCE first.
 */
#ifndef TACITI_BASE_FUTEX_H
#define TACITI_BASE_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* Sleeps while *word == old, until woken, for at most timeout_ns. Spurious wake-ups are possible. */
static inline void taciti_futex_wait(_Atomic uint32_t *word, uint32_t old, int64_t timeout_ns) {
    const struct timespec t = {.tv_sec = (time_t)(timeout_ns / TACITI_NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % TACITI_NS_PER_S)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, old, &t, NULL, 0);
}

/* Wakes all sleepers. Uses only the address: the memory may already be freed. */
static inline void taciti_futex_wake(_Atomic uint32_t *word) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Between two looks at a word: another thread of this core may go first. */
static inline void taciti_relax_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
