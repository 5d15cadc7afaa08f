/* SPDX-License-Identifier: Apache-2.0 */
#include "api/object.h"
#include "base/interrupt.h"

static tacit_status check_level(tacit_log_level lowest, const char *function) {
    if (lowest >= TACIT_LOG_DEBUG && lowest <= TACIT_LOG_ERROR) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "%s: %d is no level", function, (int)lowest);
}

tacit_status tacit_log_to(tacit_log_callback *callback, void *context, tacit_log_level lowest) {
    taciti_log_about(NULL);
    TACITI_TRY(check_level(lowest, "tacit_log_to"));
    taciti_log_set_sink(callback, context, lowest);
    return TACIT_OK;
}

tacit_status tacit_comm_log_to(tacit_comm *comm, tacit_log_callback *callback, void *context, tacit_log_level lowest) {
    TACITI_TRY(taciti_handle_check(comm, TACITI_HANDLE_COMM));
    TACITI_TRY(check_level(lowest, "tacit_comm_log_to"));
    const taciti_log_route route = {.subject = comm->comm, .sink = callback, .context = context, .lowest = lowest};
    taciti_log_set_route(&comm->log, callback == NULL ? NULL : &route);
    return TACIT_OK;
}

tacit_status tacit_on_wait(tacit_wait_callback *callback, void *context) {
    taciti_interrupt_by(callback, context);
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
