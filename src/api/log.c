/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>

#include "api/object.h"
#include "base/log.h"

_Static_assert((int)TACIT_LOG_DEBUG == (int)TACITI_LOG_DEBUG && (int)TACIT_LOG_ERROR == (int)TACITI_LOG_ERROR,
               "the levels of the interface are those of the log");

static struct {
    pthread_mutex_t lock;
    tacit_log_callback *callback;
    void *context;
} g_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void pass_on(void *context, taciti_log_level level, const char *line) {
    (void)context;
    (void)pthread_mutex_lock(&g_log.lock);
    if (g_log.callback != NULL) g_log.callback(g_log.context, (tacit_log_level)level, line);
    (void)pthread_mutex_unlock(&g_log.lock);
}

tacit_status tacit_log_to(tacit_log_callback *callback, void *context, tacit_log_level lowest) {
    if (lowest < TACIT_LOG_DEBUG || lowest > TACIT_LOG_ERROR)
        return taciti_fail(TACIT_E_USAGE, "tacit_log_to: %d is no level", (int)lowest);
    (void)pthread_mutex_lock(&g_log.lock);
    g_log.callback = callback;
    g_log.context = context;
    (void)pthread_mutex_unlock(&g_log.lock);
    taciti_log_set_sink(callback == NULL ? NULL : pass_on, NULL, (taciti_log_level)lowest);
    return TACIT_OK;
}

const char *tacit_error_text(void) { return taciti_error_text(); }

void taciti_api_log_together(const tacit_comm *comm) {
    taciti_log_set_mode(taciti_comm_rank(comm->comm) == 0 ? TACITI_LOG_KEEP : TACITI_LOG_HOLD);
}

void taciti_api_log_alone(void) { taciti_log_set_mode(TACITI_LOG_DIRECT); }

tacit_status taciti_api_report(const tacit_comm *comm, tacit_status status) {
    char text[TACITI_ERROR_BYTES];
    if (status >= 0 || taciti_comm_health(comm->comm) == TACIT_OK) return status;
    taciti_comm_failure_text(comm->comm, text);
    taciti_error_set("%s", text);
    return TACIT_E_PEER;
}
