/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

enum { LINE_MAX_BYTES = 2048 };

static taciti_log_sink *g_sink;
static void *g_context;
static taciti_log_level g_lowest = TACITI_LOG_INFO;

void taciti_log_set_sink(taciti_log_sink *sink, void *context, taciti_log_level lowest) {
    g_sink = sink;
    g_context = context;
    g_lowest = lowest;
}

TACITI_PRINTF(2, 0) static void emit(taciti_log_level level, const char *format, va_list args) {
    if (g_sink == NULL || level < g_lowest) return;
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

tacit_status taciti_fail(tacit_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    emit(TACITI_LOG_ERROR, format, args);
    va_end(args);
    return status;
}
