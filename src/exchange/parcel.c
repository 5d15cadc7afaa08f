/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/parcel.h"

#include "base/log.h"
#include "base/memory.h"

static tacit_status run_parcel(taciti_comm *comm, void *context) {
    const taciti_parcel *p = context;
    taciti_trace *trace = taciti_comm_trace(comm);
    const tacit_status status = p->move(p->owner, p->x, p->n, p->number);
    (void)taciti_trace_add(trace, TACITI_SPAN_TRANSFER, p->job.detail, p->job.begin_ns);
    return status;
}

tacit_status taciti_parcels_create(taciti_comm *comm, const taciti_layout *layout, taciti_parcel_move *move,
                                   void *owner, const char *name, taciti_parcels *out) {
    taciti_parcels parcels = {.comm = comm, .layout = layout};
    parcels.all = taciti_calloc(layout->bucket_count, sizeof *parcels.all);
    if (parcels.all == NULL) return TACIT_E_MEMORY;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        taciti_parcel *p = &parcels.all[b];
        *p = (taciti_parcel){.move = move, .owner = owner, .n = layout->buckets[b].n};
        p->job = (taciti_job){.run = run_parcel, .context = p, .name = name, .detail = (int)b};
    }
    *out = parcels;
    return TACIT_OK;
}

void taciti_parcels_destroy(taciti_parcels *parcels) {
    taciti_free(parcels->all);
    *parcels = (taciti_parcels){0};
}

static tacit_status refuse_if_under_way(const taciti_parcels *parcels, size_t bucket) {
    if (!parcels->all[bucket].under_way) return TACIT_OK;
    return taciti_fail(TACIT_E_INTERNAL, "bucket %zu is already being exchanged", bucket);
}

static tacit_status lay_out(taciti_parcels *parcels, float *flat, size_t bucket, int64_t number) {
    taciti_parcel *p = &parcels->all[bucket];
    TACITI_TRY(refuse_if_under_way(parcels, bucket));
    p->skipped = false;
    p->x = flat + parcels->layout->buckets[bucket].offset;
    p->number = number;
    return TACIT_OK;
}

tacit_status taciti_parcels_send(taciti_parcels *parcels, float *flat, size_t bucket, int64_t number) {
    TACITI_TRY(lay_out(parcels, flat, bucket, number));
    TACITI_TRY(taciti_job_submit(parcels->comm, &parcels->all[bucket].job));
    parcels->all[bucket].under_way = true;
    return TACIT_OK;
}

tacit_status taciti_parcels_skip(taciti_parcels *parcels, size_t bucket) {
    TACITI_TRY(refuse_if_under_way(parcels, bucket));
    parcels->all[bucket].under_way = parcels->all[bucket].skipped = true;
    return TACIT_OK;
}

tacit_status taciti_parcels_wait(taciti_parcels *parcels, size_t bucket) {
    taciti_parcel *p = &parcels->all[bucket];
    if (!p->under_way) return taciti_fail(TACIT_E_INTERNAL, "bucket %zu is not being exchanged", bucket);
    const tacit_status status = p->skipped ? TACIT_OK : taciti_job_wait(parcels->comm, &p->job);
    p->under_way = false;
    return status;
}

tacit_status taciti_parcels_run(taciti_parcels *parcels, float *flat, int64_t number) {
    const size_t buckets = parcels->layout->bucket_count;
    if (buckets == 1) {
        TACITI_TRY(lay_out(parcels, flat, 0, number));
        return taciti_job_run(parcels->comm, &parcels->all[0].job);
    }
    for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_parcels_send(parcels, flat, b, number));
    for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_parcels_wait(parcels, b));
    return TACIT_OK;
}
