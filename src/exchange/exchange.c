/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/exchange.h"

#include "base/log.h"
#include "base/memory.h"
#include "exchange/allreduce.h"

#define OPTION(name, kind, member, value, high, choices_, unit_, text)                                                 \
    {                                                                                                                  \
        .key = (name), .type = TACITI_OPTION_##kind, .offset = offsetof(taciti_exchange_options, member),              \
        .fallback = (value), .least = (high) > 0 ? 1024 : 0, .most = (high), .choices = (choices_), .unit = (unit_),   \
        .help = (text)                                                                                                 \
    }

#define WIRES "f32|bf16"
#define SCHEMES "auto|flat|hosts"
static const char *const WIRE_NAMES[] = {"f32", "bf16"};

static const taciti_option OPTIONS[] = {
    OPTION("wire", ENUM, wire, "f32", 0, WIRES, "", "number format in which gradients travel; sums are made in f32"),
    OPTION("bucket", BYTES, bucket_bytes, "25MiB", 17179869184.0, NULL, "bytes",
           "gradients are exchanged in buckets of this size, as soon as one is complete"),
    OPTION("scheme", ENUM, scheme, "auto", 0, SCHEMES, "",
           "hosts: sum inside each host first, so that data crosses its link once; auto: so if ranks share hosts"),
    {.key = "lanes",
     .type = TACITI_OPTION_INT,
     .offset = offsetof(taciti_exchange_options, lanes),
     .fallback = "0",
     .most = 1024,
     .unit = "ranks",
     .help = "most ranks of a host that talk to other hosts; 0: as many as keep a link at 8 flows or fewer",
     .flags = TACITI_OPTION_EXPERT},
    OPTION("overlap", BOOL, overlap, "true", 0, NULL, "", "exchange while backward still runs"),
};

const taciti_option_table taciti_exchange_option_table = {.section = "exchange",
                                                          .help = "what gradients look like on the wire",
                                                          .options = OPTIONS,
                                                          .count = sizeof OPTIONS / sizeof *OPTIONS};

/* One bucket's all-reduce. */
typedef struct parcel {
    taciti_exchange *exchange;
    float *x;
    size_t n;
    bool under_way;
    taciti_job job;
} parcel;

struct taciti_exchange {
    taciti_comm *comm;           /* borrows */
    const taciti_layout *layout; /* borrows */
    taciti_allreduce reduce;
    parcel *parcels; /* one per bucket; owned */
};

static tacit_status run_parcel(taciti_comm *comm, void *context) {
    const parcel *p = context;
    taciti_trace *trace = taciti_comm_trace(comm);
    const tacit_status status = taciti_allreduce_run(&p->exchange->reduce, p->x, p->n);
    (void)taciti_trace_add(trace, TACITI_SPAN_TRANSFER, p->job.detail, p->job.begin_ns);
    return status;
}

static taciti_placement placement_of(const taciti_exchange_options *options) {
    return (taciti_placement){.scheme = (taciti_scheme)options->scheme, .lanes = (int)options->lanes};
}

static tacit_status set_up(taciti_exchange *exchange, const taciti_codec *codec, taciti_placement wish) {
    const size_t segment_bytes = taciti_comm_segment_bytes(exchange->comm);
    TACITI_TRY(taciti_allreduce_create(exchange->comm, codec, wish, segment_bytes, &exchange->reduce));
    exchange->parcels = taciti_calloc(exchange->layout->bucket_count, sizeof *exchange->parcels);
    if (exchange->parcels == NULL) return TACIT_E_MEMORY;
    for (size_t b = 0; b < exchange->layout->bucket_count; b++) {
        parcel *p = &exchange->parcels[b];
        p->exchange = exchange;
        p->n = exchange->layout->buckets[b].n;
        p->job = (taciti_job){.run = run_parcel, .context = p, .name = "all-reduce of bucket", .detail = (int)b};
    }
    return TACIT_OK;
}

tacit_status taciti_exchange_create(taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_exchange_options *options, taciti_exchange **out) {
    const taciti_codec *codec = taciti_codec_find(WIRE_NAMES[options->wire]);
    taciti_exchange *exchange = taciti_calloc(1, sizeof *exchange);
    tacit_status status = exchange == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        exchange->comm = comm;
        exchange->layout = layout;
        status = set_up(exchange, codec, placement_of(options));
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
    taciti_allreduce_destroy(&exchange->reduce);
    taciti_free(exchange->parcels);
    taciti_free(exchange);
}

static tacit_status lay_out(taciti_exchange *exchange, float *flat, size_t bucket) {
    parcel *p = &exchange->parcels[bucket];
    if (p->under_way) return taciti_fail(TACIT_E_INTERNAL, "bucket %zu is already being exchanged", bucket);
    p->x = flat + exchange->layout->buckets[bucket].offset;
    p->under_way = true;
    return TACIT_OK;
}

tacit_status taciti_exchange_begin(taciti_exchange *exchange, float *flat, size_t bucket) {
    TACITI_TRY(lay_out(exchange, flat, bucket));
    return taciti_job_submit(exchange->comm, &exchange->parcels[bucket].job);
}

tacit_status taciti_exchange_wait(taciti_exchange *exchange, size_t bucket) {
    parcel *p = &exchange->parcels[bucket];
    if (!p->under_way) return taciti_fail(TACIT_E_INTERNAL, "bucket %zu is not being exchanged", bucket);
    const tacit_status status = taciti_job_wait(exchange->comm, &p->job);
    p->under_way = false;
    return status;
}

tacit_status taciti_exchange_run(taciti_exchange *exchange, float *flat) {
    const size_t buckets = exchange->layout->bucket_count;
    if (buckets == 1) {
        TACITI_TRY(lay_out(exchange, flat, 0));
        const tacit_status status = taciti_job_run(exchange->comm, &exchange->parcels[0].job);
        exchange->parcels[0].under_way = false;
        return status;
    }
    for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_exchange_begin(exchange, flat, b));
    for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_exchange_wait(exchange, b));
    return TACIT_OK;
}

uint64_t taciti_exchange_bytes_per_step(const taciti_exchange *exchange) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < exchange->layout->bucket_count; b++)
        bytes += taciti_allreduce_bytes(&exchange->reduce, exchange->layout->buckets[b].n);
    return bytes;
}

uint64_t taciti_exchange_nic_bytes_per_step(const taciti_exchange *exchange) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < exchange->layout->bucket_count; b++)
        bytes += taciti_allreduce_nic_bytes(&exchange->reduce, exchange->layout->buckets[b].n);
    return bytes;
}

size_t taciti_exchange_predict_bytes(const taciti_comm *comm, const taciti_exchange_options *options) {
    return taciti_allreduce_memory_bytes(comm, taciti_codec_find(WIRE_NAMES[options->wire]), placement_of(options),
                                         taciti_comm_segment_bytes(comm));
}
