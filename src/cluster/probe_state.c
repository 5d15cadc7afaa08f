/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/probe_state.h"

#include "base/clock.h"
#include "base/log.h"

tacit_status taciti_probe_left(taciti_probe *probe, double share, double *out_s) {
    const double spent_s = (double)(taciti_now_ns() - probe->begin_ns) / 1e9;
    *out_s = share * probe->options->seconds - spent_s;
    return taciti_comm_broadcast(probe->comm, 0, out_s, sizeof *out_s);
}

void taciti_probe_say(const taciti_probe *probe, const char *what) {
    const double spent_s = (double)(taciti_now_ns() - probe->begin_ns) / 1e9;
    taciti_log(TACITI_LOG_INFO, "%s (%.0f of %.0f s)", what, spent_s, probe->options->seconds);
}

tacit_status taciti_probe_job(taciti_probe *probe, taciti_job *job) {
    taciti_job_submit(probe->comm, job);
    return taciti_job_wait(probe->comm, job);
}
