/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

enum { LINE_MAX_BYTES = 2048 };

static taciti_log_sink *g_sink;
static void *g_context;
static taciti_log_level g_lowest = TACITI_LOG_INFO;
static _Thread_local char *g_reason; /* of taciti_log_capture(); NULL: lines go to the sink */

void taciti_log_set_sink(taciti_log_sink *sink, void *context, taciti_log_level lowest) {
    g_sink = sink;
    g_context = context;
    g_lowest = lowest;
}

void taciti_log_capture(char reason[TACITI_REASON_BYTES]) {
    g_reason = reason;
    if (reason != NULL) reason[0] = '\0';
}

TACITI_PRINTF(2, 0) static void emit(taciti_log_level level, const char *format, va_list args) {
    if (g_reason != NULL && level == TACITI_LOG_ERROR)
        (void)vsnprintf(g_reason, TACITI_REASON_BYTES, format, args);
    if (g_reason != NULL || g_sink == NULL || level < g_lowest) return;
    char line[LINE_MAX_BYTES];
    (void)vsnprintf(line, sizeof line, format, args);
    g_sink(g_context, level, line);
}

void taciti_log(taciti_log_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    emit(level, format, args);
    va_end(args);
}

/* ---- lines that wait --------------------------------------------------------------------------------------------- */

enum { HELD_MAX = 8 };

static struct {
    pthread_mutex_t lock;
    taciti_log_mode mode;
    uint64_t digest;
    int count; /* of lines that wait */
    char lines[HELD_MAX][LINE_MAX_BYTES];
} g_held = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void show_held(void) {
    for (int i = 0; i < g_held.count; i++) taciti_log(TACITI_LOG_ERROR, "%s", g_held.lines[i]);
    g_held.count = 0;
}

static void hold(const char *line) {
    if (g_held.count == HELD_MAX) show_held();
    (void)snprintf(g_held.lines[g_held.count++], LINE_MAX_BYTES, "%s", line);
}

/* FNV-1a */
static void add_to_digest(const char *line) {
    uint64_t digest = g_held.digest == 0 ? UINT64_C(0xcbf29ce484222325) : g_held.digest;
    for (; *line != '\0'; line++) digest = (digest ^ (unsigned char)*line) * UINT64_C(0x100000001b3);
    g_held.digest = digest == 0 ? 1 : digest;
}

static void fail_line(tacit_status status, const char *line) {
    (void)pthread_mutex_lock(&g_held.lock);
    const bool compared = g_held.mode != TACITI_LOG_DIRECT && status != TACIT_E_PEER;
    if (compared) add_to_digest(line);
    if (compared && g_held.mode == TACITI_LOG_HOLD)
        hold(line);
    else
        taciti_log(TACITI_LOG_ERROR, "%s", line);
    (void)pthread_mutex_unlock(&g_held.lock);
}

void taciti_log_set_mode(taciti_log_mode mode) {
    taciti_log_settle(true);
    (void)pthread_mutex_lock(&g_held.lock);
    g_held.mode = mode;
    (void)pthread_mutex_unlock(&g_held.lock);
}

uint64_t taciti_log_held(void) {
    (void)pthread_mutex_lock(&g_held.lock);
    const uint64_t digest = g_held.digest;
    (void)pthread_mutex_unlock(&g_held.lock);
    return digest;
}

void taciti_log_settle(bool show) {
    (void)pthread_mutex_lock(&g_held.lock);
    if (show) show_held();
    g_held.count = 0;
    g_held.digest = 0;
    (void)pthread_mutex_unlock(&g_held.lock);
}

tacit_status taciti_fail(tacit_status status, const char *format, ...) {
    char line[LINE_MAX_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    fail_line(status, line);
    return status;
}
