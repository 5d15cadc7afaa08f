/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/exchange.h"

#include "base/log.h"
#include "base/memory.h"
#include "exchange/allreduce.h"
#include "exchange/bucket_job.h"

#define AT(member) offsetof(taciti_exchange_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("wire", NAME, AT(wire), "f32", .names = taciti_codec_dense_name,
                  .help = "number format in which gradients travel; sums are made in f32"),
    TACITI_OPTION("bucket", BYTES, AT(bucket_bytes), "25MiB", .min = 1024, .max = 17179869184.0, .unit = "bytes",
                  .help = "gradients are exchanged in buckets of this size, as soon as one is complete"),
    TACITI_OPTION(
        "scheme", ENUM, AT(scheme), "auto", .choices = "auto|flat|hosts",
        .help = "hosts: sum inside each host first, so that data crosses its link once; auto: so if ranks share hosts"),
    TACITI_OPTION("lanes", INT, AT(lanes), "0", .max = 1024, .unit = "ranks",
                  .help =
                      "most ranks of a host that talk to other hosts; 0: as many as keep a link at 8 flows or fewer",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("overlap", BOOL, AT(overlap), "true", .help = "exchange while backward still runs"),
};

const taciti_option_table taciti_exchange_option_table = {.section = "exchange",
                                                          .help = "what gradients look like on the wire",
                                                          .options = OPTIONS,
                                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

struct taciti_exchange {
    taciti_comm *comm;           /* borrows */
    const taciti_layout *layout; /* borrows */
    taciti_allreduce reduce;
    taciti_bucket_jobs jobs;
    taciti_bucket_task task;    /* step and setting of what is begun */
    taciti_residual *residuals; /* one per bucket; NULL: encodings leave nothing. Owned, like the next */
    taciti_pages residual_pages;
};

static tacit_status move(void *owner, float *x, size_t n, const taciti_bucket_task *task) {
    taciti_exchange *exchange = owner;
    taciti_residual *residual = exchange->residuals != NULL ? &exchange->residuals[task->bucket] : NULL;
    return taciti_allreduce_run(&exchange->reduce, x, n, task, residual);
}

const taciti_codec *taciti_exchange_wire(const taciti_exchange_options *options) {
    return taciti_codec_find(options->wire.text[0] == '\0' ? "f32" : options->wire.text);
}

taciti_placement taciti_exchange_placement(const taciti_exchange_options *options) {
    return (taciti_placement){.scheme = (taciti_scheme)options->scheme, .lanes = (int)options->lanes};
}

/* What encodings of a bucket leave from step to step; {0}: nothing. */
static taciti_residual residual_of(const taciti_allreduce *reduce, const taciti_bucket *bucket, bool feedback) {
    if (!feedback && reduce->encoding.codec->state_bytes == NULL) return (taciti_residual){0};
    return taciti_allreduce_residual(reduce, bucket->n, feedback);
}

/* Of all buckets together. */
static size_t residual_bytes(const taciti_allreduce *reduce, const taciti_layout *layout, bool feedback) {
    size_t bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const taciti_residual one = residual_of(reduce, &layout->buckets[b], feedback);
        bytes += taciti_residual_bytes(&one);
    }
    return bytes;
}

static tacit_status create_residuals(taciti_exchange *exchange, bool feedback) {
    const taciti_layout *layout = exchange->layout;
    const size_t bytes = residual_bytes(&exchange->reduce, layout, feedback);
    exchange->reduce.halves_only = feedback;
    if (bytes == 0) return TACIT_OK;
    exchange->residuals = taciti_calloc(layout->bucket_count, sizeof *exchange->residuals);
    if (exchange->residuals == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(taciti_pages_create(bytes, "the residuals of the exchange", &exchange->residual_pages));
    char *at = exchange->residual_pages.base;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        exchange->residuals[b] = residual_of(&exchange->reduce, &layout->buckets[b], feedback);
        taciti_residual_open(&exchange->residuals[b], at);
        at += taciti_residual_bytes(&exchange->residuals[b]);
    }
    return TACIT_OK;
}

static tacit_status set_up(taciti_exchange *exchange, const taciti_exchange_options *options,
                           const taciti_encoding *encoding, bool feedback) {
    const size_t segment_bytes = taciti_comm_segment_bytes(exchange->comm);
    TACITI_TRY(taciti_allreduce_create(exchange->comm, encoding, (taciti_members){0},
                                       taciti_exchange_placement(options), segment_bytes, &exchange->reduce));
    TACITI_TRY(create_residuals(exchange, feedback));
    return taciti_bucket_jobs_create(exchange->comm, exchange->layout, move, exchange, &exchange->jobs);
}

tacit_status taciti_exchange_create(taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_exchange_options *options, taciti_exchange **out) {
    return taciti_exchange_create_encoded(comm, layout, options, NULL, false, out);
}

tacit_status taciti_exchange_create_encoded(taciti_comm *comm, const taciti_layout *layout,
                                            const taciti_exchange_options *options, const taciti_encoding *encoding,
                                            bool feedback, taciti_exchange **out) {
    const taciti_encoding wire = {.codec = taciti_exchange_wire(options)};
    taciti_exchange *exchange = taciti_calloc(1, sizeof *exchange);
    tacit_status status = exchange == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        exchange->comm = comm;
        exchange->layout = layout;
        status = set_up(exchange, options, encoding != NULL ? encoding : &wire, feedback);
    }
    status = taciti_comm_agree(comm, status);
    if (status == TACIT_OK)
        *out = exchange;
    else
        taciti_exchange_destroy(exchange);
    return status;
}

void taciti_exchange_destroy(taciti_exchange *exchange) {
    if (exchange == NULL) return;
    taciti_bucket_jobs_destroy(&exchange->jobs);
    taciti_allreduce_destroy(&exchange->reduce);
    taciti_free(exchange->residuals);
    taciti_pages_destroy(&exchange->residual_pages);
    taciti_free(exchange);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
void taciti_exchange_at(taciti_exchange *exchange, int64_t step, taciti_codec_setting setting) {
    exchange->task.step = step;
    exchange->task.setting = setting;
}

static tacit_status begin(taciti_exchange *exchange, float *flat, size_t bucket, taciti_half part, const char *name) {
    taciti_bucket_task task = exchange->task;
    task.bucket = bucket;
    task.part = part;
    return taciti_bucket_begin(&exchange->jobs, flat, &task, name);
}

tacit_status taciti_exchange_begin(taciti_exchange *exchange, float *flat, size_t bucket) {
    return begin(exchange, flat, bucket, TACITI_HALF_BOTH, "all-reduce of bucket");
}

tacit_status taciti_reduce_scatter_begin(taciti_exchange *exchange, float *flat, size_t bucket) {
    return begin(exchange, flat, bucket, TACITI_HALF_REDUCE_SCATTER, "reduce-scatter of bucket");
}

tacit_status taciti_all_gather_begin(taciti_exchange *exchange, float *flat, size_t bucket) {
    return begin(exchange, flat, bucket, TACITI_HALF_ALL_GATHER, "all-gather of bucket");
}

tacit_status taciti_exchange_wait(taciti_exchange *exchange, size_t bucket) {
    return taciti_bucket_wait(&exchange->jobs, bucket);
}

tacit_status taciti_exchange_run(taciti_exchange *exchange, float *flat) {
    return taciti_bucket_run_all(&exchange->jobs, flat, &exchange->task, "all-reduce of bucket");
}

tacit_status taciti_exchange_settle(taciti_exchange *exchange, bool taken) {
    if (!taciti_bucket_is_idle(&exchange->jobs))
        return taciti_fail(TACIT_E_INTERNAL, "step %" PRId64 " is settled before all of its buckets were waited for",
                           exchange->task.step);
    for (size_t b = 0; b < exchange->layout->bucket_count && exchange->residuals != NULL; b++)
        taciti_residual_settle(&exchange->residuals[b], taken);
    exchange->task.step++;
    return TACIT_OK;
}

bool taciti_exchange_owned(const taciti_exchange *exchange, size_t bucket, size_t index, taciti_range *out) {
    const taciti_bucket *b = &exchange->layout->buckets[bucket];
    if (!taciti_allreduce_owned(&exchange->reduce, b->n, index, out)) return false;
    out->at += b->offset;
    return true;
}

float *taciti_exchange_residual(const taciti_exchange *exchange, size_t bucket, taciti_payload_kind kind, size_t *n) {
    *n = 0;
    return exchange->residuals == NULL ? NULL : taciti_residual_array(&exchange->residuals[bucket], kind, n);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */
uint64_t taciti_exchange_bytes_per_step(const taciti_exchange *exchange) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < exchange->layout->bucket_count; b++)
        bytes += taciti_allreduce_bytes(&exchange->reduce, exchange->layout->buckets[b].n);
    return bytes;
}

uint64_t taciti_exchange_nic_bytes_per_step(const taciti_exchange *exchange) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < exchange->layout->bucket_count; b++)
        bytes += taciti_allreduce_nic_bytes(&exchange->reduce, exchange->layout->buckets[b].n,
                                            taciti_allreduce_host(&exchange->reduce));
    return bytes;
}

size_t taciti_exchange_predict_bytes(const taciti_comm *comm, const taciti_layout *layout,
                                     const taciti_exchange_options *options) {
    const taciti_encoding encoding = {.codec = taciti_exchange_wire(options)};
    return taciti_exchange_predict_encoded_bytes(comm, layout, options, &encoding, false);
}

size_t taciti_exchange_predict_encoded_bytes(const taciti_comm *comm, const taciti_layout *layout,
                                             const taciti_exchange_options *options, const taciti_encoding *encoding,
                                             bool feedback) {
    taciti_allreduce reduce;
    if (taciti_allreduce_describe(taciti_comm_hosts(comm), (taciti_members){0}, taciti_comm_rank(comm), encoding,
                                  taciti_exchange_placement(options), taciti_comm_segment_bytes(comm),
                                  &reduce) != TACIT_OK)
        return 0;
    const size_t bytes = taciti_allreduce_workspace_bytes(&reduce) + residual_bytes(&reduce, layout, feedback);
    taciti_allreduce_destroy(&reduce);
    return bytes;
}
