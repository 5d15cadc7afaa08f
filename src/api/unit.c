/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of jobs whose strategy holds parts: what is called is checked here, and passed on to the strategy.
 */
#include "api/object.h"

/* ---- checks ------------------------------------------------------------------------------------------------------ */

tacit_status taciti_units_check_written(const tacit_job *job, size_t tensor, const char *function) {
    const taciti_tensor *t = &job->layout.tensors[tensor];
    if (job->units == NULL || job->units[t->unit].written) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "%s: tensor %zu (%s) is of unit %zu, for which this step has not called tacit_job_write()",
                       function, tensor, t->name, t->unit);
}

static tacit_status check_unready(const tacit_job *job, size_t unit) {
    for (size_t t = 0; t < job->layout.tensor_count; t++)
        if (job->layout.tensors[t].unit == unit && taciti_driver_is_ready(job->driver, t))
            return taciti_fail(TACIT_E_USAGE, "tacit_job_write: tensor %zu (%s) of unit %zu is ready in this step", t,
                               job->layout.tensors[t].name, unit);
    return TACIT_OK;
}

/* new: also before the job starts. */
static tacit_status check_unit(const tacit_job *job, size_t unit, bool new, const char *function) {
    if (job->units == NULL) return taciti_fail(TACIT_E_USAGE, "%s: the job was opened without by_units", function);
    if (unit >= job->layout.unit_count)
        return taciti_fail(TACIT_E_USAGE, "%s: unit %zu of a layout of %zu", function, unit, job->layout.unit_count);
    if (new && job->phase == TACITI_JOB_NEW) return taciti_job_check(job, TACITI_JOB_NEW, TACITI_JOB_NEW, function);
    return taciti_job_check(job, TACITI_JOB_BETWEEN, TACITI_JOB_COMPUTING, function);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

void taciti_units_end(tacit_job *job) {
    for (size_t u = 0; job->units != NULL && u < job->layout.unit_count; u++) job->units[u].written = false;
}

/* An error on one rank alone would leave the others waiting. */
static tacit_status end_together(const tacit_job *job, tacit_status status) {
    taciti_comm *comm = job->comm->comm;
    if (status != TACIT_OK && taciti_comm_health(comm) == TACIT_OK) taciti_comm_give_up(comm);
    return status;
}

static tacit_status need_unit(tacit_job *job, size_t unit) {
    const taciti_network_hooks *hooks = taciti_driver_hooks(job->driver);
    TACITI_TRY(check_unit(job, unit, true, "tacit_job_need"));
    if (job->phase == TACITI_JOB_NEW && job->units[unit].set)
        return taciti_fail(TACIT_E_USAGE, "tacit_job_need: unit %zu was set before; tacit_job_start() comes next",
                           unit);
    TACITI_TRY(end_together(job, hooks->need(hooks->units, unit)));
    job->units[unit].users++;
    return TACIT_OK;
}

/* All ranks begin with the parameters of rank 0. */
static tacit_status spread_unit(tacit_job *job, size_t unit) {
    const taciti_range r = taciti_layout_unit(&job->layout, unit);
    float *parameters = job->arrays.parameters + r.at;
    job->units[unit].set = true;
    return end_together(job, taciti_comm_broadcast(job->comm->comm, 0, parameters, r.n * sizeof *parameters));
}

static tacit_status release_unit(tacit_job *job, size_t unit) {
    const taciti_network_hooks *hooks = taciti_driver_hooks(job->driver);
    TACITI_TRY(check_unit(job, unit, true, "tacit_job_release"));
    if (job->units[unit].users == 0)
        return taciti_fail(TACIT_E_USAGE, "tacit_job_release: unit %zu is not needed", unit);
    if (job->phase == TACITI_JOB_NEW && job->units[unit].users == 1) TACITI_TRY(spread_unit(job, unit));
    hooks->release(hooks->units, unit);
    job->units[unit].users--;
    return TACIT_OK;
}

static tacit_status write_unit(tacit_job *job, size_t unit) {
    const taciti_network_hooks *hooks = taciti_driver_hooks(job->driver);
    TACITI_TRY(check_unit(job, unit, false, "tacit_job_write"));
    TACITI_TRY(check_unready(job, unit));
    TACITI_TRY(end_together(job, hooks->write(hooks->units, unit)));
    job->units[unit].written = true;
    return TACIT_OK;
}

static tacit_status call_locked(tacit_job *job, size_t unit, tacit_status (*call)(tacit_job *job, size_t unit)) {
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    (void)pthread_mutex_lock(&job->lock);
    const tacit_status status = call(job, unit);
    (void)pthread_mutex_unlock(&job->lock);
    return taciti_api_report(job->comm, status);
}

tacit_status tacit_job_need(tacit_job *job, size_t unit) { return call_locked(job, unit, need_unit); }

tacit_status tacit_job_release(tacit_job *job, size_t unit) { return call_locked(job, unit, release_unit); }

tacit_status tacit_job_write(tacit_job *job, size_t unit) { return call_locked(job, unit, write_unit); }
