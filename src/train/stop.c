/* SPDX-License-Identifier: Apache-2.0 */
#include "train/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"

/* A launcher may deliver one Ctrl-C twice; a user who presses it again after this time means it. */
#define SECOND_INTERRUPT_NS TACITI_NS_PER_S

static _Atomic int g_signal;
static bool g_saves;

void taciti_stop_block(void) {
    static const int stopping[] = {SIGTERM, SIGINT, SIGUSR1, 0};
    taciti_signals_block(stopping);
}

/* Launchers send SIGTERM to the ranks that are left when one has failed, which they may not know yet. */
static const char *foretell_end(int signal_number) {
    if (!g_saves) return "ends without a checkpoint";
    return signal_number == SIGTERM ? "saves and ends, unless a rank has failed" : "saves and ends";
}

static void note(int signal_number) {
    static int64_t interrupted_ns;
    const int64_t now = taciti_now_ns();
    if (atomic_exchange_explicit(&g_signal, signal_number, memory_order_acq_rel) == 0)
        taciti_log(TACITI_LOG_INFO, "told to stop by %s: the run %s",
                   signal_number == SIGTERM  ? "SIGTERM"
                   : signal_number == SIGINT ? "SIGINT"
                                             : "SIGUSR1",
                   foretell_end(signal_number));
    if (signal_number != SIGINT) return;
    if (interrupted_ns != 0 && now - interrupted_ns > SECOND_INTERRUPT_NS) taciti_signals_die(SIGINT);
    if (interrupted_ns == 0) interrupted_ns = now;
}

tacit_status taciti_stop_listen(bool saves) {
    g_saves = saves;
    return taciti_signals_listen(note);
}

int taciti_stop_signal(void) { return atomic_load_explicit(&g_signal, memory_order_acquire); }
