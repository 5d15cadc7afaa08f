/* SPDX-License-Identifier: Apache-2.0
 *
 * What is exchanged, and when. Four verbs: create, ready, finish, destroy - and the list of what a checkpoint must
 * hold. A strategy is one file and one line in strategy/registry.c.
 */
#ifndef TACITI_STRATEGY_STRATEGY_H
#define TACITI_STRATEGY_STRATEGY_H

#include "exchange/exchange.h"
#include "optim/optim.h"

/* Everything a strategy works on. Borrowed for the strategy's whole life. */
typedef struct taciti_strategy_context {
    taciti_comm *comm;
    const taciti_layout *layout;
    taciti_pool *pool;
    taciti_optim *optim;
    const taciti_optim_options *optim_options;
    const taciti_exchange_options *exchange_options;
    float *parameters;   /* flat */
    float *gradients;    /* flat; sum over the local samples, scaled so that the sum over ranks is the gradient */
    taciti_bf16 *copy16; /* flat bf16 copy of the parameters, or NULL */
    taciti_trace *trace; /* of the training thread */
} taciti_strategy_context;

typedef struct taciti_step_report {
    double grad_norm; /* global, before clipping; NaN or Inf when the step was skipped */
    bool skipped;     /* the step was skipped on every rank: nothing was changed */
    int64_t wait_ns;  /* exposed: blocked on communication after backward had ended */
} taciti_step_report;

typedef struct taciti_strategy {
    const char *name, *help, *source;

    /* Collective. Returns owned. */
    tacit_status (*create)(const taciti_strategy_context *context, void **out);

    /* The gradient of this bucket is final; called by the training thread in ready order during the last micro-batch's
     * backward. Must not block. */
    tacit_status (*ready)(void *self, size_t bucket);

    /* After backward of all micro-batches: waits for what is in flight, decides skip, clips, updates parameters and
     * copy16. Collective. Bit-equal outcome on every rank where the strategy says replicas are equal. */
    tacit_status (*finish)(void *self, double lr, taciti_step_report *out);

    void (*destroy)(void *self);

    /* Bytes a rank sends per step, and seconds of transfer on an idle link of `bytes_per_s` with `latency_s` per
     * message: the planner's formulas. */
    uint64_t (*bytes_per_step)(const void *self);

    /* Bytes that all ranks of this rank's host together send to other hosts per step: what its network card carries,
     * but for headers and heartbeats. */
    uint64_t (*nic_bytes_per_step)(const void *self);

    bool replicas_equal; /* parameters are bit-equal on all ranks after every step */
} taciti_strategy;

const taciti_strategy *const *taciti_strategy_list(void); /* ends with NULL; any thread */
const taciti_strategy *taciti_strategy_find(const char *name);

#endif
