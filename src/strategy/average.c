/* SPDX-License-Identifier: Apache-2.0
 *
 * Mean and consensus distance of all replicas: x_mean = 1/N sum x_i, sqrt(1/N sum |x_i - x_mean|^2). With a reference
 * a, which all ranks share, x_mean = a - 1/N sum (a - x_i).
 *
 * Properties (test_average.c): mean and distance are the same bits on every rank and for every number of threads; one
 * rank's mean is its own; equal to a reference means unchanged and a distance of exactly 0; revert is exact.
 *
 * Squares are added up over fixed blocks in double, so that the distance does not depend on how threads share the work.
 */
#include "strategy/average.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

enum { BLOCK_FLOATS = 65536, CHUNK_FLOATS = 1024 };

struct taciti_average {
    taciti_strategy_context context;
    taciti_exchange *exchange;
    double *block_squares;  /* one per BLOCK_FLOATS floats of the layout; owned */
    const float *reference; /* of the call that runs */
    float weight;           /* of this rank's parameters */
    bool aside;             /* the rank's own parameters are in gradients */
    double noisy;           /* 1: second moments have the noise of a rank's share of the batch; 0: of the mean */
};

void taciti_average_destroy(taciti_average *average) {
    if (average == NULL) return;
    taciti_exchange_destroy(average->exchange);
    taciti_free(average->block_squares);
    taciti_free(average);
}

taciti_exchange_options taciti_exact_options(const taciti_exchange_options *options) {
    taciti_exchange_options out = *options;
    out.wire = (taciti_text){"f32"};
    return out;
}

tacit_status taciti_average_create(const taciti_strategy_context *context, taciti_average **out) {
    const taciti_exchange_options options = taciti_exact_options(context->exchange_options);
    taciti_average *average = taciti_calloc(1, sizeof *average);
    double *squares = taciti_calloc(context->layout->n / BLOCK_FLOATS + 1, sizeof *squares);
    taciti_exchange *exchange = NULL;
    const bool short_of_memory = average == NULL || squares == NULL;
    tacit_status status = taciti_comm_agree(context->comm, short_of_memory ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = taciti_exchange_create(context->comm, context->layout, &options, NULL, &exchange);
    if (status != TACIT_OK) {
        taciti_free(squares);
        taciti_free(average);
        return status;
    }
    *average =
        (taciti_average){.context = *context, .exchange = exchange, .block_squares = squares, .weight = 1, .noisy = 1};
    *out = average;
    return TACIT_OK;
}

size_t taciti_average_predict_bytes(const taciti_strategy_context *context) {
    const taciti_exchange_options f32 = taciti_exact_options(context->exchange_options);
    return taciti_exchange_predict_bytes(context->comm, context->layout, &f32, NULL);
}

void taciti_average_weigh(taciti_average *average, double weight) { average->weight = (float)weight; }

/* gradients = x; parameters = weight x, or reference - x. */
static void set_aside(void *context, int thread, int threads) {
    const taciti_average *a = context;
    float *p = a->context.parameters;
    size_t begin = 0, end = 0;
    taciti_pool_part(a->context.layout->n, BLOCK_FLOATS, thread, threads, &begin, &end);
    memcpy(a->context.gradients + begin, p + begin, (end - begin) * sizeof *p);
    if (a->reference != NULL) {
        taciti_blend difference = {.arrived = a->reference + begin, .keep = -1, .share = 1};
        taciti_kernels_get()->blend(&difference, p + begin, NULL, end - begin);
    } else if (a->weight < 1 || a->weight > 1) {
        taciti_kernels_get()->scale(p + begin, a->weight, end - begin);
    }
}

/* |x - y|^2 of a range, chunk by chunk through the cache. */
static double square_distance(const float *x, const float *y, size_t n) {
    float copy[CHUNK_FLOATS];
    taciti_blend take = {.keep = 0, .share = 1};
    for (size_t at = 0; at < n; at += CHUNK_FLOATS) {
        const size_t count = n - at < CHUNK_FLOATS ? n - at : CHUNK_FLOATS;
        memcpy(copy, x + at, count * sizeof *x);
        take.arrived = y + at;
        taciti_kernels_get()->blend(&take, copy, NULL, count);
    }
    return take.moved;
}

/* parameters, a sum over all ranks, become the mean; copy16 and the squares of this rank's distance from it. */
static void take_mean(void *context, int thread, int threads) {
    const taciti_average *a = context;
    const taciti_strategy_context *c = &a->context;
    const float share = 1 / (float)taciti_comm_size(c->comm);
    size_t begin = 0, end = 0;
    taciti_pool_part(c->layout->n, BLOCK_FLOATS, thread, threads, &begin, &end);
    for (size_t at = begin; at < end; at += BLOCK_FLOATS) {
        const size_t n = end - at < BLOCK_FLOATS ? end - at : BLOCK_FLOATS;
        float *p = c->parameters + at;
        taciti_blend mean = {.arrived = c->gradients + at, .keep = share, .share = 0};
        if (a->reference != NULL) mean = (taciti_blend){.arrived = a->reference + at, .keep = -share, .share = 1};
        taciti_kernels_get()->blend(&mean, p, c->copy16 != NULL ? c->copy16 + at : NULL, n);
        a->block_squares[at / BLOCK_FLOATS] = square_distance(c->gradients + at, p, n);
    }
}

tacit_status taciti_average_run(taciti_average *average, const float *reference, double *distance) {
    const taciti_strategy_context *c = &average->context;
    /* The mean over one rank is what it has; a detour over a reference would round it. */
    average->reference = taciti_comm_size(c->comm) > 1 ? reference : NULL;
    taciti_pool_run(c->pool, set_aside, average);
    average->aside = true;
    TACITI_TRY(taciti_exchange_run(average->exchange, c->parameters));
    taciti_pool_run(c->pool, take_mean, average);
    double squares = 0;
    for (size_t block = 0; block * BLOCK_FLOATS < c->layout->n; block++) squares += average->block_squares[block];
    TACITI_TRY(taciti_comm_allreduce_f64(c->comm, &squares, 1, TACITI_OP_SUM));
    *distance = sqrt(squares / taciti_comm_size(c->comm));
    return TACIT_OK;
}

static void bring_back(void *context, int thread, int threads) {
    const taciti_average *a = context;
    const taciti_strategy_context *c = &a->context;
    size_t begin = 0, end = 0;
    taciti_pool_part(c->layout->n, BLOCK_FLOATS, thread, threads, &begin, &end);
    memcpy(c->parameters + begin, c->gradients + begin, (end - begin) * sizeof *c->parameters);
    if (c->copy16 != NULL) taciti_kernels_get()->bf16_encode(c->copy16 + begin, c->parameters + begin, end - begin);
}

void taciti_average_revert(taciti_average *average) {
    taciti_pool_run(average->context.pool, bring_back, average);
    average->aside = false;
}

void taciti_average_list_model(taciti_average *average, taciti_state *out) {
    const taciti_strategy_context *c = &average->context;
    taciti_state_add_array(out, "model", TACITI_STATE_OWN, TACITI_STATE_MEAN, c->layout,
                           average->aside ? c->gradients : c->parameters);
    taciti_state_add_numbers(out, "noisy_moments", TACITI_STATE_OWN, TACITI_STATE_MEAN, &average->noisy, 1)->optional =
        true;
}

double *taciti_average_noisy(taciti_average *average) { return &average->noisy; }

double taciti_own_gradient(const taciti_strategy_context *c, taciti_step_report *report) {
    const double ranks = taciti_comm_size(c->comm);
    double squares = 0;
    for (size_t b = 0; b < c->layout->bucket_count; b++)
        squares +=
            taciti_optim_sum_squares(c->optim, c->gradients, c->layout->buckets[b].offset, c->layout->buckets[b].n);
    *report = (taciti_step_report){.grad_norm = ranks * sqrt(squares), .skipped = !isfinite(squares)};
    return report->skipped ? 1 : ranks * taciti_optim_clip_scale(c->optim_options, report->grad_norm);
}
