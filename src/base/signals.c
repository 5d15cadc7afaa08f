/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base/signals.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

/* Signals are the process's: there is one set. */
static sigset_t g_taken, g_before;
static void (*g_hear)(int number);

void taciti_signals_block(const int *numbers) {
    (void)sigemptyset(&g_taken);
    for (; *numbers != 0; numbers++) (void)sigaddset(&g_taken, *numbers);
    (void)pthread_sigmask(SIG_BLOCK, &g_taken, &g_before);
}

static void restore_mask(void) { (void)pthread_sigmask(SIG_SETMASK, &g_before, NULL); }

static void *listen_for_signals(void *argument) {
    (void)argument;
    for (;;) {
        const int got = sigwaitinfo(&g_taken, NULL);
        if (got > 0) g_hear(got);
    }
    return NULL;
}

tacit_status taciti_signals_listen(void (*hear)(int number)) {
    pthread_t thread;
    g_hear = hear;
    (void)pthread_atfork(NULL, NULL, restore_mask);
    const int error = pthread_create(&thread, NULL, listen_for_signals, NULL);
    if (error != 0)
        return taciti_fail(
            TACIT_E_MEMORY,
            "the system refused the thread that takes signals: %s; end other programs or raise `ulimit -u`",
            strerror(error));
    (void)pthread_setname_np(thread, "tacit signals");
    (void)pthread_detach(thread);
    return TACIT_OK;
}

void taciti_signals_die(int number) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, number);
    (void)signal(number, SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    (void)raise(number);
}

/* ---- a program that answers before it ends ---------------------------------------------------------------------- */

enum { SIGNALED = 128 };

static void (*g_speak)(void *context);
static void *g_context;

static void answer_and_exit(int signal_number) {
    const struct timespec moment = {.tv_nsec = 500000000}; /* a launcher that ends passes on what it has read by then */
    g_speak(g_context);
    (void)fflush(stdout);
    (void)nanosleep(&moment, NULL);
    _exit(SIGNALED + signal_number);
}

tacit_status taciti_on_interruption(void (*speak)(void *context), void *context) {
    static const int interrupting[] = {SIGINT, SIGTERM, 0};
    g_speak = speak;
    g_context = context;
    taciti_signals_block(interrupting);
    return taciti_signals_listen(answer_and_exit);
}
