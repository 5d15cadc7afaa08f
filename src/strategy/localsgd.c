/* SPDX-License-Identifier: Apache-2.0
 *
 * localsgd: every rank makes `every` steps of its own, then all replicas are averaged and an outer optimizer moves what
 * they share.
 *
 * Source: S. Stich, "Local SGD converges fast and communicates little", arXiv 1805.09767, algorithm 1 (plain averaging:
 * outer_lr 1, no momentum); A. Douillard et al., "DiLoCo: distributed low-communication training of language models",
 * arXiv 2311.08105, algorithm 1 (outer Nesterov momentum).
 *
 *   x_i (replica of worker i) -> parameters        theta (outer parameters) -> anchor
 *   H (inner steps)           -> every             Delta = 1/N sum (theta - x_i) -> outer gradient
 *   mu (outer momentum)       -> outer_momentum    eta (outer learning rate) -> outer_lr
 *
 *   every step:            x_i <- inner(x_i, own gradient)
 *   every H-th, after it:  Delta = 1/N sum (theta - x_i);  theta <- outer(theta, Delta);  x_i <- theta
 *
 * With eta 1 and mu 0, theta becomes the average of the replicas. Where we deviate: docs/localsgd.md.
 *
 * Differences travel, not parameters: a wire of 16 bits rounds a difference, which is small, and never a parameter. In
 * f32, too: 3 x / 3 rounds, so equal replicas would differ after an average.
 *
 * Properties (test_localsgd.c): replicas are bit-equal after every outer step; one rank with plain averaging is dp on
 * one rank to the bit; every 1 with SGD without momentum is dp; overlapped is blocking to the bit; so is a run that was
 * stopped within a period and goes on; ranks that have made different numbers of steps have no mean.
 */
#include "strategy/localsgd.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "strategy/average.h"
#include "strategy/strategy.h"

enum { BLOCK_FLOATS = 65536 };

#define AT(member) offsetof(taciti_localsgd_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("every", INT, AT(every), "16", .min = 1, .max = 1e9, .unit = "steps",
                  .help = "steps that every rank makes alone before all replicas are averaged"),
    TACITI_OPTION("outer_lr", REAL, AT(outer_lr), "1", .max = 10,
                  .help = "learning rate of the outer step; 1 without momentum: plain averaging; DiLoCo: 0.7"),
    TACITI_OPTION("outer_momentum", REAL, AT(outer_momentum), "0", .max = 0.9999,
                  .help = "momentum of the outer step; DiLoCo: 0.9"),
};

const taciti_option_table taciti_localsgd_option_table =
    TACITI_OPTION_TABLE("localsgd", "steps of every rank's own between averages, and the outer step", OPTIONS);

typedef struct localsgd {
    taciti_strategy_context context;
    taciti_localsgd_options options;
    taciti_compression *compression;
    taciti_average *average;
    taciti_pages anchor;   /* what all replicas started the period from, the same bits on every rank */
    taciti_pages momentum; /* of the outer step; nothing when that has none */
    double *block_squares; /* one per BLOCK_FLOATS floats of a bucket; owned */
    bool alone;            /* one rank, plain averaging: the average is what it has */
    double lr;             /* of this step */
    int64_t step;          /* that comes next */
    int64_t done;          /* steps since the last average */
    double saved_done;     /* the same for a checkpoint, which keeps numbers */
    double coded_bytes;    /* per step, what the last average sent through a codec */
    taciti_bucket bucket;  /* that the threads of the pool work on */
} localsgd;

static float *anchor_of(const localsgd *l) { return l->anchor.base; }
static float *momentum_of(const localsgd *l) { return l->momentum.base; } /* NULL: none */

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void localsgd_destroy(void *self) {
    localsgd *l = self;
    if (l == NULL) return;
    taciti_average_destroy(l->average);
    taciti_compression_destroy(l->compression);
    taciti_pages_destroy(&l->anchor);
    taciti_pages_destroy(&l->momentum);
    taciti_free(l->block_squares);
    taciti_free(l);
}

static tacit_status allocate_outer(localsgd *l) {
    const size_t n = l->context.layout->n, bytes = n * sizeof(float);
    l->block_squares = taciti_calloc(n / BLOCK_FLOATS + 1, sizeof *l->block_squares);
    if (l->block_squares == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(taciti_pages_create(bytes, "outer parameters", &l->anchor));
    return l->options.outer_momentum > 0 ? taciti_pages_create(bytes, "outer momentum", &l->momentum) : TACIT_OK;
}

static bool is_plain(const taciti_localsgd_options *o) { return o->outer_lr == 1 && o->outer_momentum == 0; }

/* Without outer steps every average would be lost. */
static tacit_status localsgd_check(const taciti_strategy_context *context, const taciti_hosts *hosts) {
    (void)hosts;
    if (((const taciti_localsgd_options *)context->options)->outer_lr > 0) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "localsgd.outer_lr is 0: every average would throw away what ranks have learnt; "
                                       "--localsgd.outer_lr 1 is plain averaging, 0.7 DiLoCo's");
}

/* Not collective. */
static tacit_status build_alone(localsgd *l, const taciti_strategy_context *context) {
    const taciti_localsgd_options *options = context->options;
    if (l == NULL) return TACIT_E_MEMORY;
    *l = (localsgd){
        .context = *context, .options = *options, .alone = taciti_comm_size(context->comm) == 1 && is_plain(options)};
    l->context.compression.every = options->every;
    l->context.compression.averages = true;
    return allocate_outer(l);
}

static tacit_status localsgd_create(const taciti_strategy_context *context, void **out) {
    const taciti_localsgd_options *options = context->options;
    localsgd *l = taciti_calloc(1, sizeof *l);
    if (context->total_steps > 0 && options->every > context->total_steps && taciti_comm_rank(context->comm) == 0)
        taciti_log(TACITI_LOG_WARN,
                   "localsgd.every %lld is more than the run's %lld steps: ranks meet at its end alone",
                   (long long)options->every, (long long)context->total_steps);
    tacit_status status = taciti_comm_agree(context->comm, build_alone(l, context));
    if (status == TACIT_OK) status = taciti_compression_create(&l->context, &l->compression);
    if (status == TACIT_OK && l->alone) /* no exchange will ever add residuals of a checkpoint: take none */
        status = taciti_exchange_settle(taciti_compression_exchange(l->compression), true);
    if (status == TACIT_OK) status = taciti_average_create(context, &l->average);
    if (status == TACIT_OK)
        *out = l;
    else
        localsgd_destroy(l);
    return status;
}

static void copy_to_anchor(void *context, int thread, int threads) {
    const localsgd *l = context;
    size_t begin = 0, end = 0;
    taciti_pool_part(l->context.layout->n, BLOCK_FLOATS, thread, threads, &begin, &end);
    memcpy(anchor_of(l) + begin, l->context.parameters + begin, (end - begin) * sizeof(float));
}

/* A run that is not restored joins a period where the steps of the run are in it, so that averages stay where they
 * were. */
static tacit_status localsgd_start(void *self, int64_t step, bool restored) {
    localsgd *l = self;
    l->step = step;
    TACITI_TRY(taciti_compression_start(l->compression, step, restored));
    if (!restored) {
        l->done = step % l->options.every;
        taciti_optim_run(l->context.optim, copy_to_anchor, l);
        return TACIT_OK;
    }
    if (!(l->saved_done >= 0 && l->saved_done < (double)l->options.every))
        return taciti_fail(TACIT_E_CONFIG,
                           "the checkpoint is %g steps into a period and localsgd.every is %lld: go on with the value "
                           "that the run had",
                           l->saved_done, (long long)l->options.every);
    l->done = (int64_t)l->saved_done;
    return TACIT_OK;
}

/* ---- the outer step ---------------------------------------------------------------------------------------------- */

/* gradients, which the inner step has used, = anchor - parameters. */
static void write_differences(void *context, int thread, int threads) {
    const localsgd *l = context;
    const taciti_strategy_context *c = &l->context;
    size_t begin = 0, end = 0;
    taciti_pool_part(l->bucket.n, BLOCK_FLOATS, thread, threads, &begin, &end);
    for (size_t at = begin; at < end; at += BLOCK_FLOATS) {
        const size_t n = end - at < BLOCK_FLOATS ? end - at : BLOCK_FLOATS, place = l->bucket.offset + at;
        taciti_blend difference = {.arrived = anchor_of(l) + place, .keep = -1, .share = 1};
        memcpy(c->gradients + place, c->parameters + place, n * sizeof *c->gradients);
        taciti_kernels_get()->blend(&difference, c->gradients + place, NULL, n);
    }
}

/* gradients hold the sum over ranks: anchor takes its step, parameters follow it. */
static void step_block(const localsgd *l, size_t at, size_t n, double *square_moved) {
    const taciti_strategy_context *c = &l->context;
    const taciti_sgd_step step = {.lr = (float)l->options.outer_lr,
                                  .momentum = (float)l->options.outer_momentum,
                                  .grad_scale = 1 / (float)taciti_comm_size(c->comm),
                                  .nesterov = true};
    float *momentum = momentum_of(l);
    taciti_kernels_get()->sgd(&step, anchor_of(l) + at, c->gradients + at, momentum == NULL ? NULL : momentum + at,
                              NULL, n);
    taciti_blend follow = {.arrived = anchor_of(l) + at, .keep = 0, .share = 1};
    taciti_kernels_get()->blend(&follow, c->parameters + at, c->copy16 == NULL ? NULL : c->copy16 + at, n);
    *square_moved = follow.moved;
}

static void step_blocks(void *context, int thread, int threads) {
    const localsgd *l = context;
    size_t begin = 0, end = 0;
    taciti_pool_part(l->bucket.n, BLOCK_FLOATS, thread, threads, &begin, &end);
    for (size_t at = begin; at < end; at += BLOCK_FLOATS) {
        const size_t n = end - at < BLOCK_FLOATS ? end - at : BLOCK_FLOATS;
        step_block(l, l->bucket.offset + at, n, &l->block_squares[at / BLOCK_FLOATS]);
    }
}

static void depart_bucket(localsgd *l, size_t bucket) {
    l->bucket = l->context.layout->buckets[bucket];
    taciti_optim_run(l->context.optim, write_differences, l);
}

static void arrive_bucket(localsgd *l, size_t bucket, double *square_moved) {
    const int64_t begin_ns = taciti_now_ns();
    l->bucket = l->context.layout->buckets[bucket];
    taciti_optim_run(l->context.optim, step_blocks, l);
    for (size_t block = 0; block * BLOCK_FLOATS < l->bucket.n; block++) *square_moved += l->block_squares[block];
    (void)taciti_trace_add(l->context.trace, TACITI_SPAN_UPDATE, (int)bucket, begin_ns);
}

static void step_inner(localsgd *l, const taciti_bucket *range) {
    const taciti_strategy_context *c = &l->context;
    const int64_t begin_ns = taciti_now_ns();
    taciti_optim_update_range(c->optim, c->parameters, c->gradients, c->copy16, range->offset, range->n, NULL);
    (void)taciti_trace_add(c->trace, TACITI_SPAN_UPDATE, -1, begin_ns);
}

/* The last step of a period. Overlapped, a bucket travels while inner steps of the next ones are made and outer steps
 * of earlier ones. */
static tacit_status step_together(localsgd *l, bool update, taciti_step_report *report) {
    const taciti_strategy_context *c = &l->context;
    taciti_exchange *exchange = taciti_compression_exchange(l->compression);
    const size_t buckets = c->layout->bucket_count;
    const bool overlap = c->exchange_options->overlap, compresses = c->compression.sums.codec != NULL;
    double squares = 0; /* of the sums */
    for (size_t b = 0; b < buckets; b++) {
        if (update) step_inner(l, &c->layout->buckets[b]);
        depart_bucket(l, b);
        if (overlap) TACITI_TRY(taciti_compression_begin(l->compression, c->gradients, b));
    }
    for (size_t b = 0; b < buckets && !overlap; b++)
        TACITI_TRY(taciti_compression_begin(l->compression, c->gradients, b));
    for (size_t b = 0; b < buckets; b++) {
        const taciti_bucket *range = &c->layout->buckets[b];
        const int64_t begin_ns = taciti_now_ns();
        TACITI_TRY(taciti_exchange_wait(exchange, b));
        report->wait_ns += taciti_trace_add(c->trace, TACITI_SPAN_WAIT, (int)b, begin_ns) - begin_ns;
        if (compresses) squares += taciti_optim_sum_squares(c->optim, c->gradients, range->offset, range->n);
        arrive_bucket(l, b, &report->moved);
    }
    if (!isfinite(report->moved))
        return taciti_fail(
            TACIT_E_NUMERICS,
            "strategy localsgd: the average after step %lld is not finite: parameters of a rank, or what "
            "was sent of them, went out of range; go on from a checkpoint with a smaller optim.lr, or "
            "without fp16 on the wire",
            (long long)l->step);
    TACITI_TRY(taciti_compression_settle(l->compression, true, l->lr, sqrt(squares), report));
    if (compresses) report->bytes = l->coded_bytes = report->bytes / (double)l->options.every;
    return TACIT_OK;
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

/* Returns what an average sends, as a mean over the steps of a period. */
static uint64_t sent_bytes(const localsgd *l) {
    const uint64_t steps = (uint64_t)l->options.every;
    if (l->alone) return 0;
    return (taciti_exchange_bytes_per_step(taciti_compression_exchange(l->compression)) + steps / 2) / steps;
}

/* The parameters after the last average, and the outer momentum. */
static size_t own_arrays(const taciti_localsgd_options *options) { return options->outer_momentum > 0 ? 2 : 1; }

static tacit_status localsgd_describe(const taciti_strategy_context *c, const void *self,
                                      taciti_strategy_figures *out) {
    const taciti_localsgd_options *options = c->options;
    *out = (taciti_strategy_figures){.own_bytes = own_arrays(options) * c->layout->n * sizeof(float) +
                                                  taciti_compression_predict_bytes(c) + taciti_average_predict_bytes(c),
                                     .period = (size_t)options->every};
    if (self == NULL) return TACIT_OK;
    out->sent_bytes = sent_bytes(self);
    return TACIT_OK;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* update: the inner step, which has begun, is still to be made. */
static tacit_status end_step(localsgd *l, bool update, taciti_step_report *report) {
    const bool together = ++l->done >= l->options.every, coded = l->context.compression.sums.codec != NULL;
    taciti_compression_at(l->compression, l->step++);
    if (together) l->done = 0;
    if (!coded) report->bytes = (double)sent_bytes(l);
    if (coded && !together) report->bytes = l->coded_bytes; /* an average counts what it sends */
    if (together && !l->alone) return step_together(l, update, report);
    if (update) step_inner(l, &(taciti_bucket){.n = l->context.layout->n});
    if (together) taciti_optim_run(l->context.optim, copy_to_anchor, l);
    return TACIT_OK;
}

static tacit_status localsgd_finish(void *self, double lr, taciti_step_report *out) {
    localsgd *l = self;
    const double scale = taciti_own_gradient(&l->context, out);
    l->lr = lr;
    if (!out->skipped) taciti_optim_begin(l->context.optim, lr, scale);
    return end_step(l, !out->skipped, out);
}

static tacit_status localsgd_settle(void *self, double lr, taciti_step_report *out) {
    localsgd *l = self;
    l->lr = lr;
    taciti_optim_scale(l->context.optim, l->context.gradients, taciti_own_gradient(&l->context, out));
    return TACIT_OK;
}

static tacit_status localsgd_stepped(void *self, taciti_step_report *out) { return end_step(self, false, out); }

/* ---- evaluation and checkpoints ---------------------------------------------------------------------------------- */

static tacit_status localsgd_average(void *self, double *distance) {
    localsgd *l = self;
    TACITI_TRY(taciti_comm_agree_step(l->context.comm, l->step)); /* a rank may have made fewer, and nobody waits */
    return taciti_average_run(l->average, anchor_of(l), distance);
}

static void localsgd_revert(void *self) { taciti_average_revert(((localsgd *)self)->average); }

static void localsgd_state(void *self, taciti_state *out) {
    localsgd *l = self;
    const taciti_layout *layout = l->context.layout;
    l->saved_done = (double)l->done;
    taciti_average_list_model(l->average, out);
    taciti_optim_list_state(l->context.optim, TACITI_STATE_OWN, out);
    taciti_state_add_array(out, "strategy.anchor", TACITI_STATE_OWN, TACITI_STATE_RESET, layout, anchor_of(l));
    if (momentum_of(l) != NULL)
        taciti_state_add_array(out, "strategy.outer_momentum", TACITI_STATE_OWN, TACITI_STATE_RESET, layout,
                               momentum_of(l));
    taciti_compression_state(l->compression, out);
    taciti_state_add_numbers(out, "numbers", TACITI_STATE_OWN, TACITI_STATE_RESET, &l->saved_done, 1);
}

static bool localsgd_event(const void *self, char *out, size_t size) {
    return taciti_compression_event(((const localsgd *)self)->compression, out, size);
}

static tacit_status localsgd_patterns(const void *options, const taciti_hosts *hosts,
                                      taciti_pattern out[TACITI_PATTERNS_MAX], size_t *count) {
    (void)hosts;
    const taciti_localsgd_options *o = options;
    const int every = (int)o->every;
    *out = (taciti_pattern){.order = TACITI_ORDER_ATC,
                            .every = every,
                            .shorten = "localsgd.every",
                            .arrays = own_arrays(o),
                            .compresses = true,
                            .configured = true};
    (void)snprintf(out->label, sizeof out->label, "localsgd every %d", every);
    *count = 1;
    return TACIT_OK;
}

extern const taciti_strategy taciti_strategy_localsgd;
const taciti_strategy taciti_strategy_localsgd = {
    .name = "localsgd",
    .help = "all ranks make steps of their own and average now and then (local SGD, DiLoCo)",
    .source = "arXiv 1805.09767, 2311.08105",
    .options = &taciti_localsgd_option_table,
    .options_size = sizeof(taciti_localsgd_options),
    .label = "every outer_lr outer_momentum",
    .compresses = true,
    .replicas = &(const taciti_replica_verbs){.average = localsgd_average, .revert = localsgd_revert},
    .check = localsgd_check,
    .patterns = localsgd_patterns,
    .describe = localsgd_describe,
    .create = localsgd_create,
    .destroy = localsgd_destroy,
    .start = localsgd_start,
    .finish = localsgd_finish,
    .settle = localsgd_settle,
    .stepped = localsgd_stepped,
    .state = localsgd_state,
    .event = localsgd_event,
};
