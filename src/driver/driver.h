/* SPDX-License-Identifier: Apache-2.0
 *
 * The step driver: one network, one strategy, one optimizer, and what happens between them in a step.
 *
 *   a network with a step          taciti_driver_step(driver, step, lr, &record)
 *
 *   gradients from elsewhere       taciti_driver_begin(driver, step)
 *                                  ... compute; taciti_driver_ready(driver, tensor) as gradients become final ...
 *                                  taciti_driver_finish(driver, lr, &record)
 *
 *   an optimizer of the caller's   taciti_driver_begin(driver, step)
 *                                  ... compute, ready ...
 *                                  taciti_driver_settle(driver, lr, &record)
 *                                  ... unless record.report.skipped: parameters <- update(parameters, gradients) ...
 *                                  taciti_driver_stepped(driver, &record)
 *
 * What settle leaves in the network's arrays: `gradients` is what the optimizer shall follow, scaled and clipped
 * (optim.clip) as ours would use it; `parameters` are those to update. By strategy:
 *
 *   dp            The gradient is summed over all ranks. stepped has nothing left to do.
 *   localsgd      The gradient is this rank's own. stepped takes the mean when localsgd.every steps are over.
 *   gossip, awc   The gradient is this rank's own, or the tracker's estimate; parameters are already mixed. stepped
 *                 hands the updated ones to the neighbours.
 *   gossip, atc   The gradient likewise; parameters are not yet mixed. stepped mixes the updated ones.
 *
 * With the same update the parameters are the same, bit for bit, as after taciti_driver_finish().
 *
 * All calls come from one thread, the one that submits jobs to the communicator. Calls marked collective are made by
 * all ranks in the same order.
 */
#ifndef TACITI_DRIVER_DRIVER_H
#define TACITI_DRIVER_DRIVER_H

#include "model/network.h"
#include "strategy/strategy.h"

typedef struct taciti_driver taciti_driver;

/* Everything a driver works with; borrowed for its whole life. */
typedef struct taciti_driver_setup {
    const taciti_strategy *strategy;
    /* Communicator, pool, trace, the options, and whether the optimizer is the caller's own: then steps are settled and
     * stepped, not finished. The driver fills in arrays and optimizer, and the network's layout unless there is one
     * with the same tensors in other buckets. */
    taciti_strategy_context context;
    taciti_network network;

    /* This rank is to leave the step that is being computed, as soon as it can: asked by the network. NULL: never. */
    bool (*leave)(void *caller);
    /* The network failed on this rank alone, while others wait for it. NULL: the whole job ends (taciti_comm_abort()).
     * When it returns, the step returns the status and the communicator is of no use any more. */
    void (*failed)(void *caller, tacit_status status);
    void *caller; /* of both */
} taciti_driver_setup;

/* What a step did and how long that took, on this rank. */
typedef struct taciti_driver_record {
    taciti_step_report report;
    double loss;             /* as the network's step returned it; NaN without */
    bool abandoned;          /* left in the middle: the gradient was made NaN, so that every rank skips the update */
    double compute_s;        /* from begin to the end of the backward pass */
    double wait_s, update_s; /* of the calling thread: blocked on messages; in the optimizer and in blends */
    double encode_s, transfer_s;         /* of the communication thread since the last step ended */
    uint64_t bytes_sent, bytes_received; /* payload since the step began */
} taciti_driver_record;

/* Makes optimizer and strategy. Refuses an own optimizer where the strategy cannot do with one. Collective. */
tacit_status taciti_driver_create(const taciti_driver_setup *setup, taciti_driver **out);
void taciti_driver_destroy(taciti_driver *driver); /* waits for what is under way; NULL is fine */

/* The parameters are there, as taciti_strategy.start() says. Before the first step. Collective. */
tacit_status taciti_driver_start(taciti_driver *driver, int64_t step, bool restored);

/* A whole step of a network that has one; lr: of this step. Collective. */
tacit_status taciti_driver_step(taciti_driver *driver, int64_t step, double lr, taciti_driver_record *out);

/* The same in pieces. begin: the step's computation begins; not collective. */
void taciti_driver_begin(taciti_driver *driver, int64_t step);

/* The network's step, and what it comes to: a step that is left is abandoned, an error ends the job. Not collective. */
tacit_status taciti_driver_compute(taciti_driver *driver);

/* The gradient of this tensor is final; it belongs to the driver until the step is finished or settled. Refuses a
 * tensor that was reported before in this step. Never blocks. Tensors may come in any order, and in another one on each
 * rank; buckets leave in the order of the layout, so that is the order that hides most. Not collective. */
tacit_status taciti_driver_ready(taciti_driver *driver, size_t tensor);

/* Hooks for a network that asks for its parameters unit by unit. Borrowed. */
const taciti_network_hooks *taciti_driver_hooks(const taciti_driver *driver);

/* The gradients of all tensors that were not reported are final, too. Exchange, clipping, update. Collective. */
tacit_status taciti_driver_finish(taciti_driver *driver, double lr, taciti_driver_record *out);

/* finish in two halves around an update of the caller's, see above. lr is that of the caller's optimizer: schedules of
 * a strategy follow it. After settle `parameters` and `gradients` are the caller's; a step that is skipped has no
 * update. stepped follows every settle: it renews copy16 and hands the result on. Both collective. */
tacit_status taciti_driver_settle(taciti_driver *driver, double lr, taciti_driver_record *out);
tacit_status taciti_driver_stepped(taciti_driver *driver, taciti_driver_record *out);

/* Between two steps: where replicas differ, the parameters become their mean, this rank's own are put aside in
 * `gradients`; *distance: consensus distance, NaN where replicas are equal. Nothing happens when they are the mean
 * already. revert brings the own parameters back bit for bit; no step before that. Collective. */
tacit_status taciti_driver_average(taciti_driver *driver, double *distance);
void taciti_driver_revert(taciti_driver *driver);

/* For checkpoints. Borrowed. */
taciti_optim *taciti_driver_optim(taciti_driver *driver);
void *taciti_driver_strategy(taciti_driver *driver); /* what the strategy's verbs take as self */

#endif
