/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "api/object.h"
#include "base/log.h"

static tacit_status check_tensor(const tacit_job *job, size_t tensor) {
    if (tensor >= job->layout.tensor_count)
        return taciti_fail(TACIT_E_USAGE, "tacit_job_ready: tensor %zu of a layout of %zu", tensor,
                           job->layout.tensor_count);
    if (job->phase == TACITI_JOB_BETWEEN || !job->ready[tensor]) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "tacit_job_ready: tensor %zu (%s) was ready before in this step; with several micro-batches "
                       "report it in the last one only",
                       tensor, job->layout.tensors[tensor].name);
}

tacit_status tacit_job_ready(tacit_job *job, size_t tensor) {
    const bool all = tensor == TACIT_ALL_TENSORS;
    TACITI_TRY(taciti_job_check_either(job, TACITI_JOB_BETWEEN, TACITI_JOB_COMPUTING, "tacit_job_ready"));
    if (!all) TACITI_TRY(check_tensor(job, tensor));
    if (job->phase == TACITI_JOB_BETWEEN) {
        memset(job->ready, 0, job->layout.tensor_count * sizeof *job->ready);
        job->missing = job->layout.tensor_count;
        job->phase = TACITI_JOB_COMPUTING;
        taciti_driver_begin(job->driver, job->step);
    }
    const size_t end = all ? job->layout.tensor_count : tensor + 1;
    tacit_status status = TACIT_OK;
    for (size_t t = all ? 0 : tensor; t < end && status == TACIT_OK; t++) {
        if (job->ready[t]) continue;
        job->ready[t] = true;
        job->missing--;
        status = taciti_driver_ready(job->driver, t);
    }
    return taciti_api_report(job->comm, status);
}

/* Returns E_USAGE unless the step can end by this function. */
static tacit_status check_complete(const tacit_job *job, bool own_optimizer, const char *function) {
    TACITI_TRY(taciti_job_check(job, TACITI_JOB_COMPUTING, function));
    if (job->own_optimizer != own_optimizer)
        return taciti_fail(TACIT_E_USAGE, "%s: the job was opened with%s own_optimizer; %s", function,
                           own_optimizer ? "out" : "",
                           own_optimizer ? "a step ends with tacit_job_finish()"
                                         : "a step ends with tacit_job_settle() and tacit_job_stepped()");
    if (job->missing == 0) return TACIT_OK;
    size_t first = 0;
    while (job->ready[first]) first++;
    return taciti_fail(TACIT_E_USAGE, "%s: %zu of %zu tensors are not ready, the first is %zu (%s)", function,
                       job->missing, job->layout.tensor_count, first, job->layout.tensors[first].name);
}

static void count_step(tacit_job *job, const taciti_driver_record *record) {
    job->step++;
    job->skipped += record->report.skipped ? 1 : 0;
    job->wait_s += (double)record->report.wait_ns * 1e-9;
    job->phase = TACITI_JOB_BETWEEN;
}

/* Ends a step with the update, or, with an optimizer of the caller's, up to it. */
static tacit_status end_step(tacit_job *job, bool own_optimizer, const char *function, tacit_step *out) {
    taciti_driver_record record;
    TACITI_TRY(check_complete(job, own_optimizer, function));
    const double lr = taciti_optim_lr(&job->optim, job->step, job->total_steps);
    const tacit_status status =
        own_optimizer ? taciti_driver_settle(job->driver, lr, &record) : taciti_driver_finish(job->driver, lr, &record);
    if (status != TACIT_OK) return taciti_api_report(job->comm, status);
    const tacit_step step = {.number = job->step + 1,
                             .skipped = record.report.skipped,
                             .norm = record.report.grad_norm,
                             .lr = lr,
                             .wait_s = (double)record.report.wait_ns * 1e-9};
    if (own_optimizer)
        job->phase = TACITI_JOB_SETTLED;
    else
        count_step(job, &record);
    if (out != NULL) *out = step;
    return TACIT_OK;
}

tacit_status tacit_job_finish(tacit_job *job, tacit_step *step) {
    return end_step(job, false, "tacit_job_finish", step);
}

tacit_status tacit_job_settle(tacit_job *job, tacit_step *step) {
    return end_step(job, true, "tacit_job_settle", step);
}

tacit_status tacit_job_stepped(tacit_job *job) {
    taciti_driver_record record;
    TACITI_TRY(taciti_job_check(job, TACITI_JOB_SETTLED, "tacit_job_stepped"));
    const tacit_status status = taciti_driver_stepped(job->driver, &record);
    if (status != TACIT_OK) return taciti_api_report(job->comm, status);
    count_step(job, &record);
    return TACIT_OK;
}

/* ---- the mean ---------------------------------------------------------------------------------------------------- */

tacit_status tacit_job_average(tacit_job *job, double *distance) {
    double apart = 0;
    TACITI_TRY(taciti_job_check(job, TACITI_JOB_BETWEEN, "tacit_job_average"));
    const tacit_status status = taciti_driver_average(job->driver, &apart);
    if (status != TACIT_OK) return taciti_api_report(job->comm, status);
    job->phase = TACITI_JOB_AVERAGED;
    if (distance != NULL) *distance = job->strategy->replicas == NULL ? 0 : apart;
    return TACIT_OK;
}

tacit_status tacit_job_revert(tacit_job *job) {
    TACITI_TRY(taciti_job_check(job, TACITI_JOB_AVERAGED, "tacit_job_revert"));
    taciti_driver_revert(job->driver);
    job->phase = TACITI_JOB_BETWEEN;
    return TACIT_OK;
}

tacit_status tacit_job_counters(const tacit_job *job, tacit_counters *out) {
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    TACITI_TRY(taciti_argument_check(out, "out"));
    tacit_counters counters;
    TACITI_TRY(taciti_struct_read(out, "tacit_counters", sizeof counters, &counters));
    const taciti_comm_counters c = taciti_comm_count(job->comm->comm);
    counters = (tacit_counters){.steps = job->step,
                                .skipped = job->skipped,
                                .wait_s = job->wait_s,
                                .bytes_sent = c.bytes_sent,
                                .bytes_received = c.bytes_received,
                                .messages_sent = c.messages_sent,
                                .messages_received = c.messages_received,
                                .away_sent = c.away_bytes_sent,
                                .away_received = c.away_bytes_received};
    taciti_struct_write(&counters, sizeof counters, out);
    return TACIT_OK;
}
