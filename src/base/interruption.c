/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/interruption.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/signals.h"

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
