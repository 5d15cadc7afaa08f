/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/guard.h"

#include "base/futex.h"
#include "base/log.h"
#include "comm/quiet.h"

#define SLICE_NS (100 * TACITI_NS_PER_MS)

static void (*g_end)(int exit_code);

void taciti_guard_install(void (*end)(int exit_code)) { g_end = end; }

bool taciti_guard_installed(void) { return g_end != NULL; }

void taciti_guard_end_process(int exit_code) {
    if (g_end != NULL) g_end(exit_code);
}

static void *watch(void *argument) {
    taciti_guard *guard = argument;
    taciti_log_about(guard->subject);
    int64_t left_ns = (int64_t)(guard->seconds * 1e9);
    while (left_ns > 0) {
        const int64_t begin_ns = taciti_now_ns();
        taciti_futex_wait(&guard->off, 0, SLICE_NS);
        if (atomic_load_explicit(&guard->off, memory_order_acquire) != 0) return NULL;
        const int64_t spent_ns = taciti_now_ns() - begin_ns;
        left_ns -= spent_ns < 2 * SLICE_NS ? spent_ns : SLICE_NS;
    }
    taciti_log_settle(true);
    if (guard->text != NULL) taciti_log(TACITI_LOG_ERROR, "%s", guard->text);
    if (guard->late != NULL) guard->late(guard->context, guard->text);
    taciti_guard_end_process(guard->exit_code);
    return NULL;
}

void taciti_guard_arm(taciti_guard *guard, double seconds, int exit_code, const char *text) {
    guard->seconds = seconds;
    guard->exit_code = exit_code;
    guard->text = text;
    guard->subject = taciti_log_subject();
    atomic_store_explicit(&guard->off, 0, memory_order_release);
    guard->armed = taciti_thread_start_quiet(&guard->thread, watch, guard) == 0;
    if (!guard->armed) taciti_log(TACITI_LOG_WARN, "the system refused a guard thread: a hang would not be noticed");
}

void taciti_guard_disarm(taciti_guard *guard) {
    if (!guard->armed) return;
    atomic_store_explicit(&guard->off, 1, memory_order_release);
    taciti_futex_wake(&guard->off);
    (void)pthread_join(guard->thread, NULL);
    guard->armed = false;
}
