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
};

static tacit_status move(void *owner, float *x, size_t n, int64_t number) {
    taciti_exchange *exchange = owner;
    (void)number;
    return taciti_allreduce_run(&exchange->reduce, x, n, NULL);
}

const taciti_codec *taciti_exchange_wire(const taciti_exchange_options *options) {
    return taciti_codec_find(options->wire.text[0] == '\0' ? "f32" : options->wire.text);
}

taciti_placement taciti_exchange_placement(const taciti_exchange_options *options) {
    return (taciti_placement){.scheme = (taciti_scheme)options->scheme, .lanes = (int)options->lanes};
}

static tacit_status set_up(taciti_exchange *exchange, const taciti_exchange_options *options) {
    const size_t segment_bytes = taciti_comm_segment_bytes(exchange->comm);
    TACITI_TRY(taciti_allreduce_create(exchange->comm, taciti_exchange_wire(options), (taciti_members){0},
                                       taciti_exchange_placement(options), segment_bytes, &exchange->reduce));
    return taciti_bucket_jobs_create(exchange->comm, exchange->layout, move, exchange, "all-reduce of bucket",
                                     &exchange->jobs);
}

tacit_status taciti_exchange_create(taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_exchange_options *options, taciti_exchange **out) {
    taciti_exchange *exchange = taciti_calloc(1, sizeof *exchange);
    tacit_status status = exchange == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        exchange->comm = comm;
        exchange->layout = layout;
        status = set_up(exchange, options);
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
    taciti_bucket_jobs_destroy(&exchange->jobs);
    taciti_free(exchange);
}

tacit_status taciti_exchange_begin(taciti_exchange *exchange, float *flat, size_t bucket) {
    return taciti_bucket_begin(&exchange->jobs, flat, bucket, 0);
}

tacit_status taciti_exchange_wait(taciti_exchange *exchange, size_t bucket) {
    return taciti_bucket_wait(&exchange->jobs, bucket);
}

tacit_status taciti_exchange_run(taciti_exchange *exchange, float *flat) {
    return taciti_bucket_run_all(&exchange->jobs, flat, 0);
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
        bytes += taciti_allreduce_nic_bytes(&exchange->reduce, exchange->layout->buckets[b].n,
                                            taciti_allreduce_machine(&exchange->reduce));
    return bytes;
}

size_t taciti_exchange_predict_bytes(const taciti_comm *comm, const taciti_exchange_options *options) {
    return taciti_allreduce_memory_bytes(comm, taciti_exchange_wire(options), taciti_exchange_placement(options),
                                         taciti_comm_segment_bytes(comm));
}
