/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "cli/interruption.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

enum { SIGNALED = 128 };

typedef struct listener {
    void (*speak)(void *context);
    void *context;
    sigset_t signals;
} listener;

static listener g_listener; /* signals are the process's: there is one */

static void *listen_for_signals(void *context) {
    const listener *me = context;
    const struct timespec moment = {.tv_nsec = 500000000}; /* a launcher that ends passes on what it has read by then */
    int signal_number = 0;
    while (sigwait(&me->signals, &signal_number) != 0) {
    }
    me->speak(me->context);
    (void)fflush(stdout);
    (void)nanosleep(&moment, NULL);
    _exit(SIGNALED + signal_number);
}

tacit_status taciti_on_interruption(void (*speak)(void *context), void *context) {
    pthread_t thread;
    g_listener = (listener){.speak = speak, .context = context};
    (void)sigemptyset(&g_listener.signals);
    (void)sigaddset(&g_listener.signals, SIGINT);
    (void)sigaddset(&g_listener.signals, SIGTERM);
    if (pthread_sigmask(SIG_BLOCK, &g_listener.signals, NULL) != 0 ||
        pthread_create(&thread, NULL, listen_for_signals, &g_listener) != 0)
        return taciti_fail(TACIT_E_MEMORY, "no thread could be started: end other programs or raise `ulimit -u`");
    (void)pthread_detach(thread);
    return TACIT_OK;
}
