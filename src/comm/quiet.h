/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that take no signals: handlers of the program (stop after this step, save now) run on its own threads only.
 * The including file defines _GNU_SOURCE first.
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
