/* SPDX-License-Identifier: Apache-2.0 */
#include "train/stop.h"

#include <signal.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"

/* A launcher may deliver one Ctrl-C twice; a user who presses it again after this time means it. */
#define SECOND_INTERRUPT_NS TACITI_NS_PER_S

static _Atomic int g_signal;

void taciti_stop_block(void) {
    static const int stopping[] = {SIGTERM, SIGINT, SIGUSR1, 0};
    taciti_signals_block(stopping);
}

static void note(int signal_number) {
    static int64_t interrupted_ns;
    const int64_t now = taciti_now_ns();
    if (atomic_exchange_explicit(&g_signal, signal_number, memory_order_acq_rel) == 0)
        taciti_log(TACITI_LOG_INFO, "told to stop by %s: the run saves and ends",
                   signal_number == SIGTERM  ? "SIGTERM"
                   : signal_number == SIGINT ? "SIGINT"
                                             : "SIGUSR1");
    if (signal_number != SIGINT) return;
    if (interrupted_ns != 0 && now - interrupted_ns > SECOND_INTERRUPT_NS) taciti_signals_die(SIGINT);
    if (interrupted_ns == 0) interrupted_ns = now;
}

tacit_status taciti_stop_listen(void) { return taciti_signals_listen(note); }

int taciti_stop_signal(void) { return atomic_load_explicit(&g_signal, memory_order_acquire); }
