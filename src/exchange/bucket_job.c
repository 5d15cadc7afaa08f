/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/bucket_job.h"

#include "base/log.h"
#include "base/memory.h"

static tacit_status run_bucket(taciti_comm *comm, void *context) {
    const taciti_bucket_job *p = context;
    taciti_trace *trace = taciti_comm_trace(comm);
    const tacit_status status = p->move(p->owner, p->x, p->n, &p->task);
    (void)taciti_trace_add(trace, TACITI_SPAN_TRANSFER, p->job.detail, p->job.begin_ns);
    return status;
}

tacit_status taciti_bucket_jobs_create(taciti_comm *comm, const taciti_layout *layout, taciti_bucket_move *move,
                                       void *owner, taciti_bucket_jobs *out) {
    taciti_bucket_jobs jobs = {.comm = comm, .layout = layout};
    jobs.all = taciti_calloc(layout->bucket_count, sizeof *jobs.all);
    if (jobs.all == NULL) return TACIT_E_MEMORY;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        taciti_bucket_job *p = &jobs.all[b];
        *p = (taciti_bucket_job){.move = move, .owner = owner, .n = layout->buckets[b].n};
        p->job = (taciti_job){.run = run_bucket, .context = p, .detail = (int)b};
    }
    *out = jobs;
    return TACIT_OK;
}

/* Errors were logged where they were seen. */
void taciti_bucket_jobs_destroy(taciti_bucket_jobs *jobs) {
    for (size_t b = 0; jobs->all != NULL && b < jobs->layout->bucket_count; b++)
        if (jobs->all[b].under_way) (void)taciti_bucket_wait(jobs, b);
    taciti_free(jobs->all);
    *jobs = (taciti_bucket_jobs){0};
}

static tacit_status refuse_if_under_way(const taciti_bucket_jobs *jobs, size_t bucket) {
    if (!jobs->all[bucket].under_way) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "bucket %zu is already being exchanged", bucket);
}

static tacit_status lay_out(taciti_bucket_jobs *jobs, float *flat, const taciti_bucket_task *task, const char *name) {
    taciti_bucket_job *p = &jobs->all[task->bucket];
    TACITI_TRY(refuse_if_under_way(jobs, task->bucket));
    p->skipped = false;
    p->x = flat + jobs->layout->buckets[task->bucket].offset;
    p->task = *task;
    p->job.name = name;
    return TACIT_OK;
}

tacit_status taciti_bucket_begin(taciti_bucket_jobs *jobs, float *flat, const taciti_bucket_task *task,
                                 const char *name) {
    TACITI_TRY(lay_out(jobs, flat, task, name));
    taciti_job_submit(jobs->comm, &jobs->all[task->bucket].job);
    jobs->all[task->bucket].under_way = true;
    return TACIT_OK;
}

tacit_status taciti_bucket_skip(taciti_bucket_jobs *jobs, size_t bucket) {
    TACITI_TRY(refuse_if_under_way(jobs, bucket));
    jobs->all[bucket].under_way = jobs->all[bucket].skipped = true;
    return TACIT_OK;
}

tacit_status taciti_bucket_wait(taciti_bucket_jobs *jobs, size_t bucket) {
    taciti_bucket_job *p = &jobs->all[bucket];
    if (!p->under_way) return taciti_fail(TACIT_E_INTERNAL, "bucket %zu is not being exchanged", bucket);
    const tacit_status status = p->skipped ? TACIT_OK : taciti_job_wait(jobs->comm, &p->job);
    p->under_way = false;
    return status;
}

bool taciti_bucket_is_idle(const taciti_bucket_jobs *jobs) {
    for (size_t b = 0; b < jobs->layout->bucket_count; b++)
        if (jobs->all[b].under_way) return false;
    return true;
}

tacit_status taciti_bucket_run_all(taciti_bucket_jobs *jobs, float *flat, const taciti_bucket_task *task,
                                   const char *name) {
    const size_t buckets = jobs->layout->bucket_count;
    taciti_bucket_task one = *task;
    one.bucket = 0;
    if (buckets == 1) {
        TACITI_TRY(lay_out(jobs, flat, &one, name));
        return taciti_job_run(jobs->comm, &jobs->all[0].job);
    }
    for (; one.bucket < buckets; one.bucket++) TACITI_TRY(taciti_bucket_begin(jobs, flat, &one, name));
    for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_bucket_wait(jobs, b));
    return TACIT_OK;
}
