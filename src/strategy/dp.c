/* SPDX-License-Identifier: Apache-2.0
 *
 * dp: data parallel. Every rank holds the whole model, gradients are summed over all ranks bucket by bucket while
 * backward still runs, and every rank makes the same update.
 *
 * Source: S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, arXiv
 * 2006.15704, section 3.2 (bucketing and overlap). Clipping: R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of
 * training recurrent neural networks", arXiv 1211.5063, algorithm 1, with the global norm.
 *
 * Properties (test_strategy.c): parameters are bit-equal on all ranks after every step; overlapped equals blocking; a
 * gradient that is not finite on any rank makes every rank skip the step and change nothing, residuals of error
 * feedback included.
 *
 * The norm is computed from the summed gradients, which are the same bits on every rank, bucket by bucket in order, by
 * a function that depends neither on threads nor on the CPU: so the clipping factor and the decision to skip are the
 * same everywhere without another message.
 */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "strategy/strategy.h"

typedef struct dp {
    taciti_strategy_context context;
    taciti_compression *compression;
    bool *begun;     /* per bucket, this step; owned */
    double *squares; /* per bucket, on one rank: of its sum, as soon as it has left; owned */
} dp;

static void dp_destroy(void *self) {
    dp *d = self;
    if (d == NULL) return;
    taciti_compression_destroy(d->compression);
    taciti_free(d->begun);
    taciti_free(d->squares);
    taciti_free(d);
}

static tacit_status dp_create(const taciti_strategy_context *context, void **out) {
    dp *d = taciti_calloc(1, sizeof *d);
    if (d != NULL) {
        d->context = *context;
        d->begun = taciti_calloc(context->layout->bucket_count, sizeof *d->begun);
        d->squares = taciti_calloc(context->layout->bucket_count, sizeof *d->squares);
    }
    const bool complete = d != NULL && d->begun != NULL && d->squares != NULL;
    tacit_status status = taciti_comm_agree(context->comm, complete ? TACIT_OK : TACIT_E_MEMORY);
    if (status == TACIT_OK) status = taciti_compression_create(context, &d->compression);
    if (status == TACIT_OK)
        *out = d;
    else
        dp_destroy(d);
    return status;
}

static tacit_status dp_start(void *self, int64_t step, bool restored) {
    return taciti_compression_start(((dp *)self)->compression, step, restored);
}

static double sum_squares(const dp *d, size_t bucket) {
    const taciti_bucket *b = &d->context.layout->buckets[bucket];
    return taciti_optim_sum_squares(d->context.optim, d->context.gradients, b->offset, b->n);
}

/* On one rank the sum is there at once, and in the cache. */
static tacit_status begin_bucket(dp *d, size_t bucket) {
    if (d->begun[bucket]) return TACIT_OK;
    d->begun[bucket] = true;
    TACITI_TRY(taciti_compression_begin(d->compression, d->context.gradients, bucket));
    if (taciti_comm_size(d->context.comm) == 1) d->squares[bucket] = sum_squares(d, bucket);
    return TACIT_OK;
}

static tacit_status dp_ready(void *self, size_t bucket) {
    dp *d = self;
    return d->context.exchange_options->overlap ? begin_bucket(d, bucket) : TACIT_OK;
}

static uint64_t sent_bytes(const dp *d) {
    return taciti_exchange_bytes_per_step(taciti_compression_exchange(d->compression));
}

/* Waits for every bucket and adds up the squares of those that have arrived while the rest is still under way. *scale:
 * what the sums are multiplied by. */
static tacit_status collect_sums(dp *d, double lr, taciti_step_report *report, double *scale) {
    const taciti_layout *layout = d->context.layout;
    double squares = 0;
    *report = (taciti_step_report){.wait_ns = 0};
    for (size_t b = 0; b < layout->bucket_count; b++) TACITI_TRY(begin_bucket(d, b));
    for (size_t b = 0; b < layout->bucket_count; b++) {
        const int64_t begin_ns = taciti_now_ns();
        TACITI_TRY(taciti_exchange_wait(taciti_compression_exchange(d->compression), b));
        report->wait_ns += taciti_trace_add(d->context.trace, TACITI_SPAN_WAIT, (int)b, begin_ns) - begin_ns;
        squares += taciti_comm_size(d->context.comm) == 1 ? d->squares[b] : sum_squares(d, b);
        d->begun[b] = false;
    }
    report->grad_norm = sqrt(squares);
    report->skipped = !isfinite(squares);
    *scale = report->skipped ? 1 : taciti_optim_clip_scale(d->context.optim_options, report->grad_norm);
    if (d->context.compression.sums.codec == NULL) report->bytes = (double)sent_bytes(d);
    return taciti_compression_settle(d->compression, !report->skipped, lr, report->grad_norm, report);
}

static tacit_status dp_finish(void *self, double lr, taciti_step_report *out) {
    dp *d = self;
    const taciti_strategy_context *c = &d->context;
    double scale = 1;
    TACITI_TRY(collect_sums(d, lr, out, &scale));
    if (out->skipped) return TACIT_OK;
    const int64_t begin_ns = taciti_now_ns();
    if (taciti_compression_sends_momentum(d->compression))
        taciti_optim_update_by_momentum(c->optim, c->parameters, c->gradients, c->copy16, lr);
    else
        taciti_optim_update(c->optim, c->parameters, c->gradients, c->copy16, lr, scale);
    (void)taciti_trace_add(c->trace, TACITI_SPAN_UPDATE, -1, begin_ns);
    return TACIT_OK;
}

static tacit_status dp_settle(void *self, double lr, taciti_step_report *out) {
    dp *d = self;
    double scale = 1;
    TACITI_TRY(collect_sums(d, lr, out, &scale));
    out->clipped = scale < 1;
    taciti_optim_scale(d->context.optim, d->context.gradients, scale);
    return TACIT_OK;
}

static tacit_status dp_describe(const taciti_strategy_context *context, const void *self,
                                taciti_strategy_figures *out) {
    *out = (taciti_strategy_figures){.own_bytes = taciti_compression_predict_bytes(context), .period = 1};
    if (self == NULL) return TACIT_OK;
    out->sent_bytes = sent_bytes(self);
    return TACIT_OK;
}

static void dp_state(void *self, taciti_state *out) {
    dp *d = self;
    taciti_optim_list_state(d->context.optim, TACITI_STATE_SHARED, out);
    taciti_compression_state(d->compression, out);
}

static bool dp_event(const void *self, char *out, size_t size) {
    return taciti_compression_event(((const dp *)self)->compression, out, size);
}

static tacit_status dp_patterns(const void *options, const taciti_hosts *hosts, taciti_pattern out[TACITI_PATTERNS_MAX],
                                size_t *count) {
    (void)hosts;
    (void)options;
    *out = (taciti_pattern){
        .label = "dense", .order = TACITI_ORDER_DENSE, .every = 1, .compresses = true, .configured = true};
    *count = 1;
    return TACIT_OK;
}

extern const taciti_strategy taciti_strategy_dp;
const taciti_strategy taciti_strategy_dp = {
    .name = "dp",
    .help = "all ranks sum their gradients and make the same update",
    .source = "arXiv 2006.15704",
    .sums_gradients = true,
    .compresses = true,
    .patterns = dp_patterns,
    .describe = dp_describe,
    .create = dp_create,
    .destroy = dp_destroy,
    .start = dp_start,
    .ready = dp_ready,
    .finish = dp_finish,
    .settle = dp_settle,
    .state = dp_state,
    .event = dp_event,
};
