/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { LINE_MAX_BYTES = TACITI_ERROR_BYTES };

static struct {
    pthread_mutex_t lock;
    taciti_log_route all;     /* of lines without a route of their own */
    taciti_log_route *routes; /* of subjects */
} g_log = {.lock = PTHREAD_MUTEX_INITIALIZER, .all.lowest = TACITI_LOG_INFO};

static _Thread_local char t_error[LINE_MAX_BYTES]; /* text of the last error */
static _Thread_local char *t_reason;               /* of taciti_log_capture(); NULL: lines go to the sink */
static _Thread_local const void *t_subject;

void taciti_log_set_sink(taciti_log_sink *sink, void *context, taciti_log_level lowest) {
    (void)pthread_mutex_lock(&g_log.lock);
    g_log.all = (taciti_log_route){.sink = sink, .context = context, .lowest = lowest};
    (void)pthread_mutex_unlock(&g_log.lock);
}

void taciti_log_set_route(taciti_log_route *route, const taciti_log_route *value) {
    (void)pthread_mutex_lock(&g_log.lock);
    taciti_log_route **at = &g_log.routes;
    while (*at != NULL && *at != route) at = &(*at)->next;
    if (*at != NULL) *at = route->next;
    *route = value == NULL ? (taciti_log_route){.sink = NULL} : *value;
    if (value != NULL) {
        route->next = g_log.routes;
        g_log.routes = route;
    }
    (void)pthread_mutex_unlock(&g_log.lock);
}

void taciti_log_about(const void *subject) { t_subject = subject; }

const void *taciti_log_subject(void) { return t_subject; }

/* Passes the line to the sink of the thread's subject. */
static void pass_line(taciti_log_level level, const char *line) {
    (void)pthread_mutex_lock(&g_log.lock);
    const taciti_log_route *route = t_subject == NULL ? NULL : g_log.routes;
    while (route != NULL && route->subject != t_subject) route = route->next;
    if (route == NULL) route = &g_log.all;
    if (route->sink != NULL && level >= route->lowest) route->sink(route->context, level, line);
    (void)pthread_mutex_unlock(&g_log.lock);
}

void taciti_log_capture(char reason[TACITI_REASON_BYTES]) {
    t_reason = reason;
    if (reason != NULL) reason[0] = '\0';
}

void taciti_log_list(taciti_log_level level, const char *format, va_list args) {
    if (t_reason != NULL) {
        if (level == TACITI_LOG_ERROR) (void)vsnprintf(t_reason, TACITI_REASON_BYTES, format, args);
        return;
    }
    char line[LINE_MAX_BYTES];
    (void)vsnprintf(line, sizeof line, format, args);
    pass_line(level, line);
}

void taciti_log(taciti_log_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    taciti_log_list(level, format, args);
    va_end(args);
}

/* ---- lines that wait --------------------------------------------------------------------------------------------- */

enum { HELD_MAX = 8 };

static struct {
    pthread_mutex_t lock;
    taciti_log_mode mode;
    uint64_t digest;
    int count; /* of lines that wait */
    struct {
        const void *subject;
        char text[LINE_MAX_BYTES];
    } lines[HELD_MAX];
} g_held = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void show_held(void) {
    const void *mine = t_subject;
    for (int i = 0; i < g_held.count; i++) {
        t_subject = g_held.lines[i].subject;
        taciti_log(TACITI_LOG_ERROR, "%s", g_held.lines[i].text);
    }
    t_subject = mine;
    g_held.count = 0;
}

static void fail_line(tacit_status status, const char *line) {
    (void)pthread_mutex_lock(&g_held.lock);
    const bool compared = t_reason == NULL && g_held.mode != TACITI_LOG_DIRECT && status != TACIT_E_PEER;
    if (compared) g_held.digest = XXH3_64bits_withSeed(line, strlen(line), g_held.digest) | 1; /* 0: no line yet */
    if (compared && g_held.mode == TACITI_LOG_HOLD) {
        if (g_held.count == HELD_MAX) show_held();
        g_held.lines[g_held.count].subject = t_subject;
        (void)snprintf(g_held.lines[g_held.count++].text, LINE_MAX_BYTES, "%s", line);
    } else {
        taciti_log(TACITI_LOG_ERROR, "%s", line);
    }
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

/* The arguments may hold the text that is replaced. */
TACITI_PRINTF(1, 0) static void set_error(const char *format, va_list args) {
    char line[LINE_MAX_BYTES];
    (void)vsnprintf(line, sizeof line, format, args);
    memcpy(t_error, line, sizeof line);
}

tacit_status taciti_fail(tacit_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    set_error(format, args);
    va_end(args);
    fail_line(status, t_error);
    return status;
}

/* ---- the text of the last error ---------------------------------------------------------------------------------- */

const char *taciti_error_text(void) { return t_error; }

void taciti_error_set(const char *format, ...) {
    va_list args;
    va_start(args, format);
    set_error(format, args);
    va_end(args);
}
