/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/exchange.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "exchange/allreduce.h"
#include "exchange/bucket_job.h"
#include "exchange/linear.h"
#include "exchange/sketch_reduce.h"
#include "exchange/store.h"
#include "kernel/kernel.h"

#define AT(member) offsetof(taciti_exchange_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("wire", NAME, AT(wire), "f32", .names = taciti_codec_dense_name,
                  .help = "number format in which gradients travel; sums are made in f32"),
    TACITI_OPTION("bucket", BYTES, AT(bucket_bytes), "25MiB", .min = 1024, .max = 17179869184.0, .unit = "bytes",
                  .help = "gradients are exchanged in buckets of this size, as soon as one is complete"),
    TACITI_OPTION(
        "scheme", ENUM, AT(scheme), "auto", .choices = "auto|flat|hosts",
        .help = "hosts: sum inside each host first, so that data crosses its link once; auto: so if ranks share hosts"),
    TACITI_OPTION("lanes", INT, AT(lanes), "0", .max = 1024, .unit = "ranks", .when = "exchange.scheme!=flat",
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
    taciti_allreduce dense;      /* with exchange.wire */
    taciti_allreduce coded;      /* with the codec; its buffers are those of `dense` */
    taciti_linear_reduce linear; /* instead of `coded`, with a codec of class LINEAR */
    bool is_linear;
    taciti_sketch_reduce sketches; /* in front of `coded`, with a codec that sketches */
    bool is_sketched;
    bool compresses;
    bool moved;                     /* residuals lie where another number of ranks left them */
    taciti_store store;             /* what encodings leave from step to step */
    taciti_exchange_tally *tallies; /* [bucket_count]; NULL without compression. Owned, like the next */
    uint64_t *histogram;            /* [TACITI_MAGNITUDE_BINS]; part of the block of `tallies` */
    bool counting;                  /* a bucket of the step has begun */
    taciti_pages workspace;
    taciti_bucket_jobs jobs;
    taciti_bucket_task task; /* what is begun */
};

/* Every rank's whole bucket is one encoding. */
static tacit_status move_linear(taciti_exchange *exchange, float *x, size_t n, const taciti_bucket_task *task,
                                taciti_residual *residual) {
    const taciti_residual_place all = {.kind = TACITI_PAYLOAD_CONTRIBUTION, .n = n};
    taciti_payload_tally *tally = &task->tallies[TACITI_PAYLOAD_CONTRIBUTION];
    taciti_codec_call unused = {.options = NULL};
    float *error = residual != NULL ? taciti_residual_enter(residual, &all, x, &unused) : NULL;
    tally->bytes += taciti_linear_bytes(&exchange->linear, task->bucket, task->setting[TACITI_PAYLOAD_CONTRIBUTION]);
    TACITI_TRY(taciti_linear_run(&exchange->linear, x, n, task, error, &tally->codec));
    if (error != NULL) taciti_residual_keep(residual, all.kind, all.at, all.n);
    return TACIT_OK;
}

static tacit_status move_by(taciti_exchange *exchange, float *x, size_t n, const taciti_bucket_task *task,
                            taciti_residual *residual) {
    const bool observed = (task->trial.factor > 0 || task->histogram != NULL) && taciti_phase_sums(task->phase);
    if (task->dense && observed && !exchange->is_linear)
        TACITI_TRY(taciti_allreduce_observe(&exchange->coded, x, n, task));
    if (task->dense) return taciti_allreduce_run(&exchange->dense, x, n, task, NULL);
    if (exchange->is_linear && task->phase == TACITI_PHASE_ALL_REDUCE)
        return move_linear(exchange, x, n, task, residual);
    if (exchange->is_sketched) return taciti_sketch_reduce_run(&exchange->sketches, x, n, task, residual);
    if (!exchange->is_linear) return taciti_allreduce_run(&exchange->coded, x, n, task, residual);
    return taciti_fail(TACIT_E_INTERNAL, "bucket %zu: an all-reduce with a codec of class LINEAR has no halves",
                       task->bucket);
}

/* Codecs may decode the zeros of gaps to something else. The halves and the residuals clear what they decode and store;
 * the rest is done here. Clearing x before keeps scales and tallies free of what a caller has left in gaps. */
static void clear_gaps(const taciti_exchange *exchange, float *x, size_t n, size_t bucket) {
    taciti_layout_clear_gaps(exchange->layout, bucket, (taciti_range){.n = n}, x);
}

static tacit_status move_coded(taciti_exchange *exchange, float *x, size_t n, taciti_bucket_task task) {
    taciti_residual *residual = exchange->store.all != NULL ? &exchange->store.all[task.bucket] : NULL;
    taciti_exchange_tally *tally = &exchange->tallies[task.bucket];
    const int64_t begin_ns = taciti_now_ns();
    const bool gathers = !taciti_phase_sums(task.phase);
    clear_gaps(exchange, x, n, task.bucket);
    if (!gathers) {
        *tally = (taciti_exchange_tally){.run_ns = {0}};
        if (residual != NULL) taciti_residual_begin(residual, task.dense || exchange->moved, x, n);
    }
    task.tallies = tally->kinds;
    task.layout = exchange->layout;
    const tacit_status status = move_by(exchange, x, n, &task, residual);
    clear_gaps(exchange, x, n, task.bucket);
    tally->run_ns[gathers ? TACITI_PAYLOAD_RESULT : TACITI_PAYLOAD_CONTRIBUTION] += taciti_now_ns() - begin_ns;
    return status;
}

static tacit_status move(void *owner, float *x, size_t n, const taciti_bucket_task *task) {
    taciti_exchange *exchange = owner;
    if (exchange->compresses) return move_coded(exchange, x, n, *task);
    return taciti_allreduce_run(&exchange->dense, x, n, task, NULL);
}

const taciti_codec *taciti_exchange_wire(const taciti_exchange_options *options) {
    return taciti_codec_find(options->wire.text[0] == '\0' ? "f32" : options->wire.text);
}

taciti_placement taciti_exchange_placement(const taciti_exchange_options *options) {
    return (taciti_placement){
        .scheme = (taciti_scheme)options->scheme, .lanes = (int)options->lanes, .contiguous = options->contiguous};
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
/* What describes an exchange as this rank sees it; the all-reduces must not move once their buffers are open. */
typedef struct plan {
    const taciti_comm *comm;
    const taciti_layout *layout;
    const taciti_exchange_options *options;
    const taciti_encoding *encoding; /* NULL: none */
} plan;

static tacit_status describe(const plan *p, const taciti_encoding *encoding, bool gather, taciti_allreduce *out) {
    taciti_placement placement = taciti_exchange_placement(p->options);
    placement.gather = gather;
    return taciti_allreduce_describe(taciti_comm_hosts(p->comm), (taciti_members){0}, taciti_comm_rank(p->comm),
                                     encoding, placement, taciti_comm_segment_bytes(p->comm), out);
}

static double expected_bytes(const taciti_allreduce *reduce, const taciti_layout *layout,
                             const taciti_codec_setting *settings) {
    double bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++)
        if (!layout->buckets[b].plain) bytes += taciti_allreduce_expected_bytes(reduce, layout->buckets[b].n, settings);
    return bytes;
}

/* Bytes of rank 0, a lane: all ranks must choose alike. */
static tacit_status choose_gather(const plan *p, bool *out) {
    const taciti_encoding *encoding = p->encoding;
    const taciti_codec_setting settings[TACITI_PAYLOAD_KINDS] = {encoding->expected, encoding->expected};
    double bytes[2];
    *out = encoding->way == TACITI_WAY_GATHER;
    if (encoding->way != TACITI_WAY_AUTO || encoding->codec->sketches || encoding->codec->votes) return TACIT_OK;
    for (int gather = 0; gather < 2; gather++) {
        taciti_allreduce reduce;
        taciti_placement placement = taciti_exchange_placement(p->options);
        placement.gather = gather;
        TACITI_TRY(taciti_allreduce_describe(taciti_comm_hosts(p->comm), (taciti_members){0}, 0, encoding, placement,
                                             taciti_comm_segment_bytes(p->comm), &reduce));
        reduce.halves_only = true;
        bytes[gather] = expected_bytes(&reduce, p->layout, settings);
        *out = reduce.arrangement.hosts == 2;
        taciti_allreduce_destroy(&reduce);
    }
    *out = *out || bytes[1] < bytes[0];
    return TACIT_OK;
}

tacit_status taciti_exchange_check(const taciti_encoding *c) {
    const taciti_feedback *f = &c->feedback;
    if (c->codec->aggregation == TACITI_CODEC_LINEAR && (f->estimates || f->momentum > 0))
        return taciti_fail(
            TACIT_E_CONFIG,
            "codec %s sends combinations of elements: it allows neither estimates nor momentum correction",
            c->codec->name);
    if (c->codec->sketches && (f->estimates || c->way == TACITI_WAY_GATHER))
        return taciti_fail(TACIT_E_CONFIG,
                           "codec %s sends sketches to the owners of sums: it allows neither estimates nor "
                           "compress.collective gather",
                           c->codec->name);
    if (c->codec->votes && c->way == TACITI_WAY_GATHER)
        return taciti_fail(TACIT_E_CONFIG,
                           "codec %s is a vote that the owner of a sum counts: leave compress.collective gather out",
                           c->codec->name);
    if (f->stored != TACITI_RESIDUAL_F32 && (!f->errors || f->estimates || f->momentum > 0))
        return taciti_fail(TACIT_E_CONFIG, "only errors are stored in fewer bits than f32: that needs error feedback "
                                           "and allows neither estimates nor momentum correction");
    const taciti_sketch_options *sketch = c->codec->sketches ? c->options : NULL;
    if (sketch != NULL && sketch->compat && sketch->ring != TACITI_RING_F32)
        return taciti_fail(TACIT_E_CONFIG, "%s.compat: the released code has floats only; leave out %s.ring",
                           c->codec->name, c->codec->name);
    if (!f->estimates || (!f->errors && f->momentum == 0)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "estimates take the place of error feedback: they allow neither error feedback "
                                       "nor momentum correction");
}

static bool is_linear(const plan *p) {
    return p->encoding != NULL && p->encoding->codec->aggregation == TACITI_CODEC_LINEAR;
}

/* `coded` stays {0} if there is no compression, or a linear one. */
static tacit_status describe_both(const plan *p, taciti_allreduce *dense, taciti_allreduce *coded) {
    const taciti_encoding wire = {.codec = taciti_exchange_wire(p->options)};
    TACITI_TRY(describe(p, &wire, false, dense));
    if (p->encoding == NULL) return TACIT_OK;
    bool gather = false;
    TACITI_TRY(taciti_exchange_check(p->encoding));
    if (is_linear(p)) return TACIT_OK;
    TACITI_TRY(choose_gather(p, &gather));
    TACITI_TRY(describe(p, p->encoding, gather, coded));
    coded->halves_only = true; /* tallies and residuals are theirs */
    return TACIT_OK;
}

static size_t workspace_bytes(const taciti_allreduce *dense, const taciti_allreduce *coded, bool compresses) {
    const size_t plain = taciti_allreduce_workspace_bytes(dense);
    const size_t bytes = compresses ? taciti_allreduce_workspace_bytes(coded) : 0;
    return bytes > plain ? bytes : plain;
}

static tacit_status open_compression(taciti_exchange *exchange, const plan *p, const taciti_encoding *encoding) {
    const taciti_feedback feedback = encoding->feedback;
    const size_t buckets = exchange->layout->bucket_count;
    exchange->tallies =
        taciti_calloc(buckets * sizeof *exchange->tallies + TACITI_MAGNITUDE_BINS * sizeof *exchange->histogram, 1);
    if (exchange->tallies == NULL) return TACIT_E_MEMORY;
    exchange->histogram = (uint64_t *)(void *)(exchange->tallies + buckets);
    exchange->is_linear = is_linear(p);
    if (exchange->is_linear) {
        TACITI_TRY(taciti_linear_create(exchange->comm, exchange->layout, encoding, taciti_exchange_wire(p->options),
                                        taciti_exchange_placement(p->options), &exchange->linear));
        return taciti_comm_size(exchange->comm) == 1
                   ? TACIT_OK
                   : taciti_store_create(NULL, exchange->layout, feedback, &exchange->store);
    }
    TACITI_TRY(taciti_allreduce_open(&exchange->coded, exchange->comm, exchange->workspace.base));
    exchange->is_sketched = encoding->codec->sketches;
    if (exchange->is_sketched)
        TACITI_TRY(taciti_sketch_reduce_create(&exchange->coded, exchange->layout, &exchange->sketches));
    return taciti_store_create(&exchange->coded, exchange->layout, feedback, &exchange->store);
}

/* Buffers hold payloads of the maximum size, of which most pages are never touched. */
static tacit_status set_up(taciti_exchange *exchange, const plan *p) {
    exchange->compresses = p->encoding != NULL;
    TACITI_TRY(describe_both(p, &exchange->dense, &exchange->coded));
    TACITI_TRY((exchange->compresses ? taciti_pages_create_small : taciti_pages_create)(
        workspace_bytes(&exchange->dense, &exchange->coded, exchange->compresses && !is_linear(p)),
        "the buffers of the exchange", &exchange->workspace));
    TACITI_TRY(taciti_allreduce_open(&exchange->dense, exchange->comm, exchange->workspace.base));
    if (p->encoding != NULL) TACITI_TRY(open_compression(exchange, p, p->encoding));
    return taciti_bucket_jobs_create(exchange->comm, exchange->layout, move, exchange, &exchange->jobs);
}

tacit_status taciti_exchange_create(taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_exchange_options *options, const taciti_encoding *encoding,
                                    taciti_exchange **out) {
    const plan p = {comm, layout, options, encoding};
    taciti_exchange *exchange = taciti_calloc(1, sizeof *exchange);
    tacit_status status = exchange == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        exchange->comm = comm;
        exchange->layout = layout;
        status = set_up(exchange, &p);
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
    taciti_allreduce_destroy(&exchange->dense);
    taciti_allreduce_destroy(&exchange->coded);
    if (exchange->is_linear) taciti_linear_destroy(&exchange->linear);
    taciti_sketch_reduce_destroy(&exchange->sketches);
    taciti_store_destroy(&exchange->store);
    taciti_free(exchange->tallies);
    taciti_pages_destroy(&exchange->workspace);
    taciti_free(exchange);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
void taciti_exchange_at(taciti_exchange *exchange, int64_t step, const taciti_exchange_setting *setting) {
    exchange->task = (taciti_bucket_task){.step = step};
    if (setting == NULL) return;
    exchange->task.setting[TACITI_PAYLOAD_CONTRIBUTION] = setting->contribution;
    exchange->task.setting[TACITI_PAYLOAD_RESULT] = setting->result;
    exchange->task.dense = setting->dense;
    exchange->task.trial = setting->trial;
    exchange->task.histogram = setting->observe ? exchange->histogram : NULL;
}

/* The first bucket of a step: no other is under way. */
static void begin_counting(taciti_exchange *exchange, taciti_phase phase) {
    const bool first = !exchange->counting;
    exchange->counting = true;
    if (first && exchange->task.histogram != NULL)
        memset(exchange->histogram, 0, TACITI_MAGNITUDE_BINS * sizeof *exchange->histogram);
    if (first && !taciti_phase_sums(phase) && exchange->tallies != NULL)
        memset(exchange->tallies, 0, exchange->layout->bucket_count * sizeof *exchange->tallies);
}

tacit_status taciti_exchange_begin_phase(taciti_exchange *exchange, float *flat, size_t bucket, taciti_phase phase) {
    static const char *const NAMES[] = {[TACITI_PHASE_ALL_REDUCE] = "all-reduce of bucket",
                                        [TACITI_PHASE_REDUCE_SCATTER] = "reduce-scatter of bucket",
                                        [TACITI_PHASE_ALL_GATHER] = "all-gather of bucket",
                                        [TACITI_PHASE_REDUCE_TO_LANES] = "all-reduce between hosts of bucket",
                                        [TACITI_PHASE_GATHER_TO_LANES] = "all-gather between hosts of bucket",
                                        [TACITI_PHASE_GATHER_IN_HOST] = "all-gather inside hosts of bucket"};
    taciti_bucket_task task = exchange->task;
    task.bucket = bucket;
    task.phase = phase;
    if (exchange->layout->buckets[bucket].plain) {
        task.dense = true;
        task.trial = (taciti_codec_setting){0};
        task.histogram = NULL;
    }
    begin_counting(exchange, phase);
    return taciti_bucket_begin(&exchange->jobs, flat, &task, NAMES[phase]);
}

tacit_status taciti_exchange_begin(taciti_exchange *exchange, float *flat, size_t bucket) {
    return taciti_exchange_begin_phase(exchange, flat, bucket, TACITI_PHASE_ALL_REDUCE);
}

tacit_status taciti_exchange_wait(taciti_exchange *exchange, size_t bucket) {
    return taciti_bucket_wait(&exchange->jobs, bucket);
}

tacit_status taciti_exchange_run(taciti_exchange *exchange, float *flat) {
    const size_t buckets = exchange->layout->bucket_count;
    if (exchange->compresses) {
        for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_exchange_begin(exchange, flat, b));
        for (size_t b = 0; b < buckets; b++) TACITI_TRY(taciti_exchange_wait(exchange, b));
        return TACIT_OK;
    }
    begin_counting(exchange, TACITI_PHASE_ALL_REDUCE);
    return taciti_bucket_run_all(&exchange->jobs, flat, &exchange->task, "all-reduce of bucket");
}

tacit_status taciti_exchange_settle(taciti_exchange *exchange, bool taken) {
    if (!taciti_bucket_is_idle(&exchange->jobs))
        return taciti_fail(TACIT_E_INTERNAL, "step %" PRId64 " is settled before all of its buckets were waited for",
                           exchange->task.step);
    taciti_store_settle(&exchange->store, taken);
    if (exchange->is_linear) taciti_linear_settle(&exchange->linear, taken);
    if (exchange->is_sketched) taciti_sketch_reduce_settle(&exchange->sketches, taken);
    exchange->moved = exchange->moved && !taken;
    exchange->task.step++;
    exchange->counting = false;
    return TACIT_OK;
}

/* The all-reduce of steps that are not dense; with a linear codec, which has none of its own, the dense one. */
static const taciti_allreduce *main_of(const taciti_exchange *exchange) {
    return exchange->compresses && !exchange->is_linear ? &exchange->coded : &exchange->dense;
}

bool taciti_exchange_owned(const taciti_exchange *exchange, size_t bucket, size_t index, taciti_range *out) {
    const taciti_bucket *b = &exchange->layout->buckets[bucket];
    if (!taciti_allreduce_owned(main_of(exchange), b->n, index, out)) return false;
    out->at += b->offset;
    return true;
}

const taciti_exchange_tally *taciti_exchange_tally_of(const taciti_exchange *exchange, size_t bucket) {
    static const taciti_exchange_tally NONE = {.run_ns = {0}};
    return exchange->tallies == NULL ? &NONE : &exchange->tallies[bucket];
}

const uint64_t *taciti_exchange_histogram(const taciti_exchange *exchange) { return exchange->histogram; }

float *taciti_exchange_residual(const taciti_exchange *exchange, taciti_residual_array which) {
    size_t bytes = 0;
    return taciti_store_array(&exchange->store, which, &bytes);
}

bool taciti_exchange_narrow_residual(taciti_exchange *exchange, taciti_residual_array which, taciti_state_access *out) {
    return taciti_store_narrow(&exchange->store, which, out);
}

void *taciti_exchange_codec_state(const taciti_exchange *exchange, size_t *bytes) {
    if (exchange->is_linear) return taciti_linear_states(&exchange->linear, bytes);
    if (exchange->is_sketched) return taciti_sketch_reduce_state(&exchange->sketches, bytes);
    return taciti_store_array(&exchange->store, TACITI_RESIDUAL_STATE, bytes);
}

void taciti_exchange_restored(taciti_exchange *exchange, bool moved) {
    exchange->moved = moved;
    taciti_store_restored(&exchange->store);
    if (exchange->is_sketched) taciti_sketch_reduce_restored(&exchange->sketches);
}

taciti_way taciti_exchange_way(const taciti_exchange *exchange) {
    return exchange->compresses && exchange->coded.gather ? TACITI_WAY_GATHER : TACITI_WAY_SCATTER;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */
static uint64_t bucket_bytes(const taciti_exchange *exchange, size_t bucket, taciti_codec_setting setting) {
    const size_t n = exchange->layout->buckets[bucket].n;
    if (exchange->layout->buckets[bucket].plain) return taciti_allreduce_bytes(&exchange->dense, n);
    if (exchange->is_linear) return taciti_linear_bytes(&exchange->linear, bucket, setting);
    if (exchange->is_sketched) return taciti_sketch_reduce_bytes(&exchange->coded, n);
    return taciti_allreduce_bytes(main_of(exchange), n);
}

static uint64_t bucket_nic_bytes(const taciti_exchange *exchange, size_t bucket, taciti_codec_setting setting,
                                 int host) {
    const size_t n = exchange->layout->buckets[bucket].n;
    if (exchange->layout->buckets[bucket].plain) return taciti_allreduce_nic_bytes(&exchange->dense, n, host);
    if (exchange->is_linear) return taciti_linear_nic_bytes(&exchange->linear, bucket, setting, host);
    if (exchange->is_sketched) return taciti_sketch_reduce_nic_bytes(&exchange->coded, n, host);
    return taciti_allreduce_nic_bytes(main_of(exchange), n, host);
}

double taciti_exchange_expected_bytes(const taciti_exchange *exchange, const taciti_codec_setting *settings) {
    const taciti_layout *layout = exchange->layout;
    double bytes = 0;
    if (settings == NULL || !exchange->is_linear)
        return expected_bytes(settings == NULL ? &exchange->dense : &exchange->coded, layout, settings);
    for (size_t b = 0; b < layout->bucket_count; b++)
        if (!layout->buckets[b].plain)
            bytes += (double)taciti_linear_bytes(&exchange->linear, b, settings[TACITI_PAYLOAD_CONTRIBUTION]);
    return bytes;
}

uint64_t taciti_exchange_bytes_per_step(const taciti_exchange *exchange) {
    const taciti_codec_setting setting = exchange->task.setting[TACITI_PAYLOAD_CONTRIBUTION];
    uint64_t bytes = 0;
    for (size_t b = 0; b < exchange->layout->bucket_count; b++) bytes += bucket_bytes(exchange, b, setting);
    return bytes;
}

uint64_t taciti_exchange_nic_bytes_per_step(const taciti_exchange *exchange) {
    const taciti_codec_setting setting = exchange->task.setting[TACITI_PAYLOAD_CONTRIBUTION];
    const int host = taciti_allreduce_host(&exchange->dense);
    uint64_t bytes = 0;
    for (size_t b = 0; b < exchange->layout->bucket_count; b++) bytes += bucket_nic_bytes(exchange, b, setting, host);
    return bytes;
}

size_t taciti_exchange_predict_bytes(const taciti_comm *comm, const taciti_layout *layout,
                                     const taciti_exchange_options *options, const taciti_encoding *encoding) {
    const plan p = {comm, layout, options, encoding};
    taciti_allreduce dense = {0}, coded = {0};
    size_t bytes = 0;
    if (describe_both(&p, &dense, &coded) == TACIT_OK) {
        bytes = workspace_bytes(&dense, &coded, encoding != NULL && !is_linear(&p));
        const bool stores = encoding != NULL && taciti_comm_size(comm) > 1;
        if (stores) bytes += taciti_store_predict_bytes(is_linear(&p) ? NULL : &coded, layout, encoding->feedback);
        if (stores && encoding->codec->sketches) bytes += taciti_sketch_reduce_predict_bytes(&coded, layout);
        if (is_linear(&p))
            bytes += taciti_linear_predict_bytes(comm, layout, encoding, taciti_exchange_wire(options),
                                                 taciti_exchange_placement(options));
    }
    taciti_allreduce_destroy(&dense);
    taciti_allreduce_destroy(&coded);
    return bytes;
}
