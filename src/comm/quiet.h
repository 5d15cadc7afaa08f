/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts threads with all signals blocked, so that handlers of the program run on the program's own threads only. The
 * including file must define _GNU_SOURCE first.
 */
#ifndef TACITI_COMM_QUIET_H
#define TACITI_COMM_QUIET_H

#include <pthread.h>
#include <signal.h>

static inline int taciti_thread_start_quiet(pthread_t *out, void *(*run)(void *), void *argument) {
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(out, NULL, run, argument);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

#endif
