/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/exchange.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "exchange/bucket_job.h"
#include "exchange/route.h"

#define AT(member) offsetof(taciti_exchange_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("wire", NAME, AT(wire), "f32", .names = taciti_codec_dense_name,
                  .help = "number format in which gradients travel; sums are made in f32"),
    TACITI_OPTION("bucket", BYTES, AT(bucket_bytes), "0", .zero = true, .min = 1024, .max = 17179869184.0,
                  .unit = "bytes", .below = "a size has a unit, as 25MiB",
                  .help = "gradients are exchanged in buckets of this size, as soon as one is complete; 0: a tenth of "
                          "the model from 256KiB on, with a codec a quarter from 1MiB on, at most 25MiB",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION(
        "scheme", ENUM, AT(scheme), "auto", .choices = "auto|flat|hosts",
        .help = "hosts: sum inside each host first, so that data crosses its link once; auto: so if ranks share hosts",
        .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("lanes", INT, AT(lanes), "0", .max = 1024, .unit = "ranks", .when = "exchange.scheme!=flat",
                  .help =
                      "most ranks of a host that talk to other hosts; 0: as many as keep a link at 8 flows or fewer",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("overlap", BOOL, AT(overlap), "true", .help = "exchange while backward still runs"),
};

const taciti_option_table taciti_exchange_option_table =
    TACITI_OPTION_TABLE("exchange", "what gradients look like on the wire", OPTIONS);

struct taciti_exchange {
    taciti_comm *comm;           /* borrows */
    const taciti_layout *layout; /* borrows */
    taciti_route dense;          /* of plain buckets and dense steps */
    taciti_route coded;          /* of all others; {0} without compression */
    taciti_route *main;          /* of steps that are not dense */
    bool moved;                  /* residuals lie where another number of ranks left them */
    taciti_store store;          /* what encodings leave from step to step */
    taciti_tally *tallies;       /* [bucket_count][KINDS], owned; NULL without compression */
    bool counting;               /* a bucket of the step has begun */
    taciti_pages workspace;      /* of both routes */
    taciti_bucket_jobs jobs;
    taciti_bucket_task task;          /* what is begun */
    const taciti_bucket_hooks *hooks; /* borrows; NULL: none */
};

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

static tacit_status run_route(taciti_exchange *exchange, float *x, size_t n, const taciti_bucket_task *task,
                              taciti_residual *residual) {
    const bool observed = task->trial.factor > 0 && taciti_phase_sums(task->phase);
    taciti_route *coded = &exchange->coded;
    if (!task->dense) return coded->verbs->run(coded, x, n, task, residual);
    if (observed && coded->verbs->observe != NULL) TACITI_TRY(coded->verbs->observe(coded, x, n, task));
    return exchange->dense.verbs->run(&exchange->dense, x, n, task, NULL);
}

/* Codecs may decode the zeros of gaps to something else. The halves and the residuals clear what they decode and store;
 * the rest is done here. Clearing x before keeps scales and tallies free of what a caller has left in gaps. */
static void clear_gaps(const taciti_exchange *exchange, float *x, size_t n, size_t bucket) {
    taciti_layout_clear_gaps(exchange->layout, bucket, (taciti_range){.n = n}, x);
}

/* Whether something looks at the whole bucket before its first piece leaves. */
static bool needs_whole_bucket(const taciti_exchange *exchange, const taciti_bucket_task *task,
                               const taciti_residual *residual, bool flush) {
    if (flush && !taciti_residual_is_empty(residual)) return true;
    return task->dense ? task->trial.factor > 0 : !exchange->coded.verbs->pieces;
}

/* As run_route(), for a task that may have hooks. */
static tacit_status run_between_hooks(taciti_exchange *exchange, float *x, size_t n, taciti_bucket_task task,
                                      taciti_residual *residual) {
    const bool sums = residual != NULL && taciti_phase_sums(task.phase);
    const bool flush = sums && (task.dense || exchange->moved);
    const bool whole = needs_whole_bucket(exchange, &task, residual, flush);
    taciti_bucket_task inner = task;
    if (whole) inner.hooks = NULL;
    if (whole) taciti_bucket_leaves(&task, (taciti_range){.n = n});
    if (sums) taciti_residual_begin(residual, flush, x, n);
    TACITI_TRY(run_route(exchange, x, n, &inner, residual));
    if (whole) taciti_bucket_arrives(&task, (taciti_range){.n = n});
    return TACIT_OK;
}

static tacit_status move_coded(taciti_exchange *exchange, float *x, size_t n, taciti_bucket_task task) {
    taciti_residual *residual = exchange->store.all != NULL ? &exchange->store.all[task.bucket] : NULL;
    taciti_tally *tally = &exchange->tallies[task.bucket * TACITI_PAYLOAD_KINDS];
    const int64_t begin_ns = taciti_now_ns();
    const bool gathers = !taciti_phase_sums(task.phase);
    clear_gaps(exchange, x, n, task.bucket);
    if (!gathers) memset(tally, 0, TACITI_PAYLOAD_KINDS * sizeof *tally);
    task.tallies = tally;
    task.layout = exchange->layout;
    const tacit_status status = run_between_hooks(exchange, x, n, task, residual);
    clear_gaps(exchange, x, n, task.bucket);
    tally[gathers ? TACITI_PAYLOAD_RESULT : TACITI_PAYLOAD_CONTRIBUTION].run_ns += taciti_now_ns() - begin_ns;
    return status;
}

static tacit_status move_bucket(void *owner, float *x, size_t n, const taciti_bucket_task *task) {
    taciti_exchange *exchange = owner;
    const taciti_bucket_hooks *hooks = exchange->hooks;
    taciti_bucket_task own = *task;
    own.hooks = hooks;
    const tacit_status status = exchange->tallies != NULL
                                    ? move_coded(exchange, x, n, own)
                                    : exchange->dense.verbs->run(&exchange->dense, x, n, &own, NULL);
    if (hooks != NULL && hooks->ended != NULL) hooks->ended(hooks->context, task->bucket, status);
    return status;
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

const taciti_codec *taciti_exchange_wire(const taciti_exchange_options *options) {
    return taciti_codec_find(options->wire.text[0] == '\0' ? "f32" : options->wire.text);
}

taciti_placement taciti_exchange_placement(const taciti_exchange_options *options) {
    return (taciti_placement){
        .scheme = (taciti_scheme)options->scheme, .lanes = (int)options->lanes, .contiguous = options->contiguous};
}

size_t taciti_exchange_bucket(const taciti_exchange_options *options, const taciti_layout *layout, bool coded) {
    return options->bucket_bytes > 0 ? (size_t)options->bucket_bytes : taciti_layout_choose_bucket(layout, coded);
}

tacit_status taciti_exchange_check(const taciti_encoding *encoding) {
    const taciti_feedback *f = &encoding->feedback;
    TACITI_TRY(taciti_route_of(encoding->codec)->check(encoding));
    if (f->stored != TACITI_RESIDUAL_F32 && (!f->errors || f->estimates || f->momentum > 0))
        return taciti_fail(TACIT_E_CONFIG, "only errors are stored in fewer bits than f32: that needs error feedback "
                                           "and allows neither estimates nor momentum correction");
    if (!f->estimates || (!f->errors && f->momentum == 0)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "estimates take the place of error feedback: they allow neither error feedback "
                                       "nor momentum correction");
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* encoding NULL: of dense sums. */
static taciti_route_setup setup_of(const taciti_comm *comm, const taciti_layout *layout,
                                   const taciti_exchange_options *options, const taciti_encoding *encoding) {
    return (taciti_route_setup){.hosts = taciti_comm_hosts(comm),
                                .rank = taciti_comm_rank(comm),
                                .segment_bytes = taciti_comm_segment_bytes(comm),
                                .layout = layout,
                                .placement = taciti_exchange_placement(options),
                                .wire = taciti_exchange_wire(options),
                                .encoding = encoding != NULL ? *encoding : (taciti_encoding){.codec = NULL}};
}

/* encoding NULL: *coded stays {0}. */
static tacit_status describe_routes(const taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_exchange_options *options, const taciti_encoding *encoding,
                                    taciti_route *dense, taciti_route *coded) {
    const taciti_route_setup plain = setup_of(comm, layout, options, NULL);
    const taciti_route_setup setup = setup_of(comm, layout, options, encoding);
    TACITI_TRY(taciti_route_describe(&plain, dense));
    if (encoding == NULL) return TACIT_OK;
    TACITI_TRY(taciti_exchange_check(encoding));
    return taciti_route_describe(&setup, coded);
}

static size_t workspace_bytes(const taciti_route *dense, const taciti_route *coded) {
    const size_t plain = taciti_allreduce_workspace_bytes(&dense->reduce);
    const size_t bytes = coded->verbs != NULL ? taciti_allreduce_workspace_bytes(&coded->reduce) : 0;
    return bytes > plain ? bytes : plain;
}

static tacit_status open_compression(taciti_exchange *exchange) {
    const size_t tallies = exchange->layout->bucket_count * TACITI_PAYLOAD_KINDS;
    exchange->tallies = taciti_calloc(tallies, sizeof *exchange->tallies);
    if (exchange->tallies == NULL) return TACIT_E_MEMORY;
    exchange->main = &exchange->coded;
    TACITI_TRY(exchange->coded.verbs->open(&exchange->coded, exchange->comm, exchange->workspace.base));
    return taciti_route_create_store(&exchange->coded, &exchange->store);
}

/* With compression, buffers hold payloads of the maximum size, of which most pages are never touched. */
static tacit_status set_up(taciti_exchange *exchange, const taciti_exchange_options *options,
                           const taciti_encoding *encoding) {
    taciti_route *dense = &exchange->dense, *coded = &exchange->coded;
    TACITI_TRY(describe_routes(exchange->comm, exchange->layout, options, encoding, dense, coded));
    TACITI_TRY((encoding != NULL ? taciti_pages_create_small : taciti_pages_create)(
        workspace_bytes(dense, coded), "the buffers of the exchange", &exchange->workspace));
    exchange->main = dense;
    TACITI_TRY(dense->verbs->open(dense, exchange->comm, exchange->workspace.base));
    if (encoding != NULL) TACITI_TRY(open_compression(exchange));
    return taciti_bucket_jobs_create(exchange->comm, exchange->layout, move_bucket, exchange, &exchange->jobs);
}

tacit_status taciti_exchange_create(taciti_comm *comm, const taciti_layout *layout,
                                    const taciti_exchange_options *options, const taciti_encoding *encoding,
                                    taciti_exchange **out) {
    taciti_exchange *exchange = taciti_calloc(1, sizeof *exchange);
    tacit_status status = exchange == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        exchange->comm = comm;
        exchange->layout = layout;
        status = set_up(exchange, options, encoding);
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
    taciti_route_close(&exchange->dense);
    taciti_route_close(&exchange->coded);
    taciti_store_destroy(&exchange->store);
    taciti_free(exchange->tallies);
    taciti_pages_destroy(&exchange->workspace);
    taciti_free(exchange);
}

size_t taciti_exchange_predict_bytes(const taciti_comm *comm, const taciti_layout *layout,
                                     const taciti_exchange_options *options, const taciti_encoding *encoding) {
    taciti_route dense = {.verbs = NULL}, coded = {.verbs = NULL};
    size_t bytes = 0;
    if (describe_routes(comm, layout, options, encoding, &dense, &coded) == TACIT_OK) {
        bytes = workspace_bytes(&dense, &coded);
        if (encoding != NULL) bytes += taciti_route_store_bytes(&coded);
        if (encoding != NULL && coded.verbs->memory_bytes != NULL) bytes += coded.verbs->memory_bytes(&coded);
    }
    taciti_route_close(&dense);
    taciti_route_close(&coded);
    return bytes;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */
void taciti_exchange_attend(taciti_exchange *exchange, const taciti_bucket_hooks *hooks) { exchange->hooks = hooks; }

void taciti_exchange_at(taciti_exchange *exchange, int64_t step, const taciti_bucket_task *task) {
    exchange->task = task != NULL ? *task : (taciti_bucket_task){.bucket = 0};
    exchange->task.step = step;
}

/* The first bucket of a step: no other is under way. */
static void begin_counting(taciti_exchange *exchange, taciti_phase phase) {
    const bool first = !exchange->counting;
    exchange->counting = true;
    if (first && !taciti_phase_sums(phase) && exchange->tallies != NULL)
        memset(exchange->tallies, 0, exchange->layout->bucket_count * TACITI_PAYLOAD_KINDS * sizeof *exchange->tallies);
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
    if (exchange->tallies != NULL) {
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
    if (taken && !taciti_route_encodes(exchange->main)) taciti_store_destroy(&exchange->store); /* it is empty now */
    if (exchange->main->verbs->settle != NULL) exchange->main->verbs->settle(exchange->main, taken);
    exchange->moved = exchange->moved && !taken;
    exchange->task.step++;
    exchange->counting = false;
    return TACIT_OK;
}

bool taciti_exchange_owned(const taciti_exchange *exchange, size_t bucket, size_t index, taciti_range *out) {
    const taciti_bucket *b = &exchange->layout->buckets[bucket];
    if (!taciti_allreduce_owned(&exchange->main->reduce, b->n, index, out)) return false;
    out->at += b->offset;
    return true;
}

const taciti_tally *taciti_exchange_tally_of(const taciti_exchange *exchange, size_t bucket) {
    static const taciti_tally NONE[TACITI_PAYLOAD_KINDS] = {{.bytes = 0}};
    return exchange->tallies == NULL ? NONE : &exchange->tallies[bucket * TACITI_PAYLOAD_KINDS];
}

float *taciti_exchange_residual(const taciti_exchange *exchange, taciti_residual_array which) {
    return taciti_store_array(&exchange->store, which);
}

bool taciti_exchange_narrow_residual(taciti_exchange *exchange, taciti_residual_array which, taciti_state_access *out) {
    return taciti_store_narrow(&exchange->store, which, out);
}

void *taciti_exchange_codec_state(const taciti_exchange *exchange, size_t *bytes) {
    *bytes = 0;
    return exchange->main->verbs->state == NULL ? NULL : exchange->main->verbs->state(exchange->main, bytes);
}

void taciti_exchange_restored(taciti_exchange *exchange, bool moved) {
    exchange->moved = moved || !taciti_route_encodes(exchange->main);
    taciti_store_restored(&exchange->store);
    if (exchange->main->verbs->restored != NULL) exchange->main->verbs->restored(exchange->main);
}

taciti_way taciti_exchange_way(const taciti_exchange *exchange) {
    return exchange->main->reduce.gather ? TACITI_WAY_GATHER : TACITI_WAY_SCATTER;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static const taciti_route *route_of(const taciti_exchange *exchange, size_t bucket) {
    return exchange->layout->buckets[bucket].plain ? &exchange->dense : exchange->main;
}

double taciti_exchange_expected_bytes(const taciti_exchange *exchange, const taciti_codec_setting *settings) {
    const taciti_route *route = settings == NULL ? &exchange->dense : exchange->main;
    double bytes = 0;
    for (size_t b = 0; b < exchange->layout->bucket_count && route->verbs->expected_bytes != NULL; b++)
        if (!exchange->layout->buckets[b].plain) bytes += route->verbs->expected_bytes(route, b, settings);
    return bytes;
}

uint64_t taciti_exchange_bytes_per_step(const taciti_exchange *exchange) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < exchange->layout->bucket_count; b++) {
        const taciti_route *route = route_of(exchange, b);
        bytes += route->verbs->bytes(route, b, exchange->task.setting[TACITI_PAYLOAD_CONTRIBUTION]);
    }
    return bytes;
}
