/* SPDX-License-Identifier: Apache-2.0 */
#include <float.h>
#include <math.h>

#include "api/object.h"

/* ---- ready ------------------------------------------------------------------------------------------------------- */

static tacit_status check_tensor(const tacit_job *job, size_t tensor, const char *function) {
    if (tensor >= job->layout.tensor_count)
        return taciti_fail(TACIT_E_USAGE, "%s: tensor %zu of a layout of %zu", function, tensor,
                           job->layout.tensor_count);
    if (!taciti_driver_is_ready(job->driver, tensor)) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE,
                       "%s: tensor %zu (%s) was ready before in this step; with several micro-batches report it in the "
                       "last one only",
                       function, tensor, job->layout.tensors[tensor].name);
}

static void begin_step(tacit_job *job) {
    job->phase = TACITI_JOB_COMPUTING;
    taciti_driver_begin(job->driver, job->step);
}

/* Gradients that are reported in one call, and the function of the call. sources NULL: they lie in the flat array. */
typedef struct reported {
    const char *function;
    size_t count;
    const size_t *tensors;
    void *const *sources;
    tacit_type type;
    double scale;
} reported;

static tacit_status mark_rest(tacit_job *job, const char *function) {
    tacit_status status = TACIT_OK;
    for (size_t t = 0; t < job->layout.tensor_count; t++) TACITI_TRY(taciti_units_check_written(job, t, function));
    if (job->phase == TACITI_JOB_BETWEEN) begin_step(job);
    for (size_t t = 0; t < job->layout.tensor_count && status == TACIT_OK; t++)
        if (!taciti_driver_is_ready(job->driver, t)) status = taciti_driver_ready(job->driver, t);
    return status;
}

static tacit_status check_place(const tacit_job *job, size_t tensor, const reported *list, const void *source) {
    const size_t bytes = taciti_element_bytes(list->type);
    if ((uintptr_t)source % bytes == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "%s: tensor %zu (%s): a source begins at a multiple of its element, %zu bytes",
                       list->function, tensor, job->layout.tensors[tensor].name, bytes);
}

static tacit_status mark_reported(tacit_job *job, size_t which, const reported *list) {
    const size_t tensor = list->tensors[which];
    TACITI_TRY(check_tensor(job, tensor, list->function));
    if (list->sources != NULL) TACITI_TRY(check_place(job, tensor, list, list->sources[which]));
    TACITI_TRY(taciti_units_check_written(job, tensor, list->function));
    if (job->phase == TACITI_JOB_BETWEEN) begin_step(job);
    if (list->sources == NULL) return taciti_driver_ready(job->driver, tensor);
    const taciti_source from = {list->sources[which], list->type, (float)list->scale};
    return taciti_driver_ready_from(job->driver, tensor, &from);
}

/* With the lock. */
static tacit_status mark_ready(tacit_job *job, const reported *list) {
    TACITI_TRY(taciti_job_check(job, TACITI_JOB_BETWEEN, TACITI_JOB_COMPUTING, list->function));
    const bool in_flat = list->sources == NULL && list->count > 0;
    if (in_flat && list->tensors[0] == TACIT_ALL_TENSORS) return mark_rest(job, list->function);
    for (size_t i = 0; i < list->count; i++) TACITI_TRY(mark_reported(job, i, list));
    return TACIT_OK;
}

static tacit_status report_ready(tacit_job *job, const reported *list) {
    TACITI_TRY(taciti_handle_hold(job, TACITI_HANDLE_JOB));
    (void)pthread_mutex_lock(&job->lock);
    tacit_status status = mark_ready(job, list);
    (void)pthread_mutex_unlock(&job->lock);
    status = taciti_api_report(job->comm, status);
    taciti_handle_release(job);
    return status;
}

static tacit_status check_sources(const reported *list) {
    if (list->count > 0 && (list->tensors == NULL || list->sources == NULL))
        return taciti_fail(TACIT_E_USAGE, "%s: %s is NULL", list->function,
                           list->tensors == NULL ? "tensors" : "sources");
    if (list->type < TACIT_F32 || list->type > TACIT_F16)
        return taciti_fail(TACIT_E_USAGE, "%s: %d is no tacit_type", list->function, (int)list->type);
    if (!(fabs(list->scale) <= (double)FLT_MAX))
        return taciti_fail(TACIT_E_USAGE, "%s: the scale %g is no finite f32", list->function, list->scale);
    return TACIT_OK;
}

static tacit_status report_sources(tacit_job *job, const reported *list) {
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    TACITI_TRY(check_sources(list));
    return report_ready(job, list);
}

tacit_status tacit_job_ready(tacit_job *job, size_t tensor) {
    return report_ready(job, &(reported){.function = "tacit_job_ready", .count = 1, .tensors = &tensor});
}

tacit_status tacit_job_ready_from(tacit_job *job, size_t tensor, void *source, tacit_type type, double scale) {
    return report_sources(job, &(reported){"tacit_job_ready_from", 1, &tensor, &source, type, scale});
}

tacit_status tacit_job_ready_list(tacit_job *job, size_t count, const size_t *tensors, void *const *sources,
                                  tacit_type type, double scale) {
    return report_sources(job, &(reported){"tacit_job_ready_list", count, tensors, sources, type, scale});
}

/* ---- wait -------------------------------------------------------------------------------------------------------- */

static tacit_status wait_for(tacit_job *job, size_t tensor, double seconds) {
    if (tensor >= job->layout.tensor_count)
        return taciti_fail(TACIT_E_USAGE, "tacit_job_wait: tensor %zu of a layout of %zu", tensor,
                           job->layout.tensor_count);
    if (!(seconds >= 0))
        return taciti_fail(TACIT_E_USAGE, "tacit_job_wait: %g seconds; 0 or more is possible", seconds);
    const bool sums_all = job->strategy->sums_gradients && job->strategy->units == NULL;
    if (!job->own_optimizer || !sums_all)
        return taciti_fail(TACIT_E_CONFIG,
                           "tacit_job_wait: sums of single tensors arrive under dp with own_optimizer or "
                           "gradients_only; this job has strategy %s%s",
                           job->strategy->name, job->own_optimizer ? "" : " and the optimizer of the library");
    return taciti_driver_wait(job->driver, tensor, seconds);
}

tacit_status tacit_job_wait(tacit_job *job, size_t tensor, double seconds) {
    TACITI_TRY(taciti_handle_hold(job, TACITI_HANDLE_JOB));
    const tacit_status status = taciti_api_report(job->comm, wait_for(job, tensor, seconds));
    taciti_handle_release(job);
    return status;
}

/* ---- the end of a step ------------------------------------------------------------------------------------------- */

/* Returns E_USAGE unless the step can end by this function. */
static tacit_status check_complete(const tacit_job *job, bool own_optimizer, const char *function) {
    if (job->own_optimizer != own_optimizer)
        return taciti_fail(TACIT_E_USAGE, "%s: the job was opened with%s own_optimizer; %s", function,
                           own_optimizer ? "out" : "",
                           own_optimizer ? "a step ends with tacit_job_finish()"
                                         : "a step ends with tacit_job_settle() and tacit_job_stepped()");
    TACITI_TRY(taciti_units_check_released(job, function));
    size_t missing = 0, first = 0;
    for (size_t t = job->layout.tensor_count; t-- > 0;) {
        if (taciti_driver_is_ready(job->driver, t)) continue;
        missing++;
        first = t;
    }
    if (missing == 0) return TACIT_OK;
    return taciti_fail(TACIT_E_USAGE, "%s: %zu of %zu tensors are not ready, the first is %zu (%s)", function, missing,
                       job->layout.tensor_count, first, job->layout.tensors[first].name);
}

static void count_step(tacit_job *job, const taciti_driver_record *record) {
    job->step++;
    job->skipped += record->report.skipped ? 1 : 0;
    job->wait_s += (double)record->report.wait_ns * 1e-9;
    job->last = record->report;
    taciti_units_end(job);
}

static double lr_of(const tacit_job *job) {
    return isnan(job->lr) ? taciti_optim_lr(&job->settings.optim, job->step, job->total_steps) : job->lr;
}

/* Ends a step with the update, or, with an optimizer of the caller's, up to it. */
static tacit_status end_step(tacit_job *job, bool own_optimizer, const char *function, tacit_step *out) {
    taciti_driver_record record;
    tacit_step step;
    if (out != NULL) TACITI_TRY(taciti_struct_read(out, "tacit_step", sizeof step, &step));
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_COMPUTING, TACITI_JOB_COMPUTING, function));
    const double lr = lr_of(job);
    tacit_status status = check_complete(job, own_optimizer, function);
    if (status == TACIT_OK)
        status = (own_optimizer ? taciti_driver_settle : taciti_driver_finish)(job->driver, lr, &record);
    if (status != TACIT_OK) return taciti_job_leave(job, job->before, status);
    step = (tacit_step){.number = job->step + 1,
                        .skipped = record.report.skipped,
                        .norm = record.report.grad_norm,
                        .lr = lr,
                        .wait_s = (double)record.report.wait_ns * 1e-9,
                        .factor = record.report.factor,
                        .gain = record.report.gain,
                        .kept = record.report.kept};
    if (out != NULL) taciti_struct_write(&step, sizeof step, out);
    if (!own_optimizer) count_step(job, &record);
    return taciti_job_leave(job, own_optimizer ? TACITI_JOB_SETTLED : TACITI_JOB_BETWEEN, TACIT_OK);
}

tacit_status tacit_job_finish(tacit_job *job, tacit_step *step) {
    return end_step(job, false, "tacit_job_finish", step);
}

tacit_status tacit_job_settle(tacit_job *job, tacit_step *step) {
    return end_step(job, true, "tacit_job_settle", step);
}

tacit_status tacit_job_stepped(tacit_job *job) {
    taciti_driver_record record;
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_SETTLED, TACITI_JOB_SETTLED, "tacit_job_stepped"));
    const tacit_status status = taciti_driver_stepped(job->driver, &record);
    if (status == TACIT_OK) count_step(job, &record);
    return taciti_job_leave(job, TACITI_JOB_BETWEEN, status);
}

bool tacit_job_part(const tacit_job *job, size_t index, tacit_part *part) {
    taciti_part found;
    tacit_part out;
    if (taciti_handle_check(job, TACITI_HANDLE_JOB) != TACIT_OK || taciti_argument_check(part, "part") != TACIT_OK ||
        taciti_struct_read(part, "tacit_part", sizeof out, &out) != TACIT_OK ||
        !taciti_driver_part(job->driver, index, &found))
        return false;
    out = (tacit_part){.offset = found.floats.at,
                       .floats = found.floats.n,
                       .parameters = found.parameters,
                       .gradients = found.gradients};
    taciti_struct_write(&out, sizeof out, part);
    return true;
}

tacit_status tacit_job_set_lr(tacit_job *job, double lr) {
    TACITI_TRY(taciti_handle_check(job, TACITI_HANDLE_JOB));
    if (!isnan(lr) && !(lr >= 0 && lr <= DBL_MAX))
        return taciti_fail(TACIT_E_USAGE, "tacit_job_set_lr: %g; 0 or more, or NaN for the schedule", lr);
    job->lr = lr;
    return TACIT_OK;
}

/* ---- the mean ---------------------------------------------------------------------------------------------------- */

static tacit_status average_replicas(const tacit_job *job, double *distance) {
    taciti_comm *comm = job->comm->comm;
    if (job->strategy->replicas == NULL) return TACIT_OK;
    taciti_comm_announce(comm, job->step, "average of replicas");
    TACITI_TRY(taciti_comm_agree_step(comm, job->step));
    return taciti_driver_average(job->driver, distance);
}

tacit_status tacit_job_average(tacit_job *job, double *distance) {
    double apart = 0;
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_BETWEEN, TACITI_JOB_BETWEEN, "tacit_job_average"));
    const tacit_status status = average_replicas(job, &apart);
    if (status == TACIT_OK && distance != NULL) *distance = apart;
    return taciti_job_leave(job, TACITI_JOB_AVERAGED, status);
}

tacit_status tacit_job_revert(tacit_job *job) {
    TACITI_TRY(taciti_job_enter(job, TACITI_JOB_AVERAGED, TACITI_JOB_AVERAGED, "tacit_job_revert"));
    taciti_driver_revert(job->driver);
    return taciti_job_leave(job, TACITI_JOB_BETWEEN, TACIT_OK);
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
                                .away_received = c.away_bytes_received,
                                .factor = job->last.factor,
                                .gain = job->last.gain,
                                .kept = job->last.kept};
    taciti_struct_write(&counters, sizeof counters, out);
    return TACIT_OK;
}
