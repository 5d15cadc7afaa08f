/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/log.h"

/* A launcher may deliver one Ctrl-C twice; a user who presses it again after this time means it. */
#define SECOND_INTERRUPT_NS TACITI_NS_PER_S

static _Atomic int g_signal;
static sigset_t g_before; /* the mask of taciti_stop_block()'s caller */

static sigset_t stop_set(void) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGUSR1);
    return set;
}

void taciti_stop_block(void) {
    const sigset_t set = stop_set();
    (void)pthread_sigmask(SIG_BLOCK, &set, &g_before);
}

static void restore_mask(void) { (void)pthread_sigmask(SIG_SETMASK, &g_before, NULL); }

/* Ctrl-C twice: ends the process as it ends any other. */
static void die_of_interrupt(void) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)signal(SIGINT, SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)raise(SIGINT);
}

static void note(int signal_number) {
    static int64_t interrupted_ns;
    const int64_t now = taciti_now_ns();
    atomic_store_explicit(&g_signal, signal_number, memory_order_release);
    if (signal_number != SIGINT) return;
    if (interrupted_ns != 0 && now - interrupted_ns > SECOND_INTERRUPT_NS) die_of_interrupt();
    if (interrupted_ns == 0) interrupted_ns = now;
}

static void *listen_for_signals(void *argument) {
    (void)argument;
    const sigset_t set = stop_set();
    (void)prctl(PR_SET_NAME, "tacit signals");
    for (;;) {
        const int got = sigwaitinfo(&set, NULL);
        if (got > 0) note(got);
    }
    return NULL;
}

tacit_status taciti_stop_listen(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    (void)pthread_atfork(NULL, NULL, restore_mask);
    (void)pthread_attr_init(&attributes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const int error = pthread_create(&thread, &attributes, listen_for_signals, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (error == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_MEMORY, "the system refused the thread that takes signals: %s", strerror(error));
}

int taciti_stop_signal(void) { return atomic_load_explicit(&g_signal, memory_order_acquire); }
