/* SPDX-License-Identifier: Apache-2.0
 *
 * The step driver runs training steps: it connects one network, one strategy and one optimizer.
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
 * After settle, the array `gradients` holds the gradient for the optimizer, scaled and clipped (optim.clip), and
 * `parameters` the parameters to update. By strategy:
 *
 *   dp            The gradient is the sum over all ranks. stepped sends nothing.
 *   localsgd      The gradient is this rank's own. stepped averages the parameters at the end of a period.
 *   gossip, awc   The gradient is this rank's own, or the tracker's estimate. The parameters are already mixed. stepped
 *                 sends the updated parameters to the neighbours.
 *   gossip, atc   The gradient is as for awc. The parameters are not mixed yet. stepped mixes the updated parameters.
 *
 * With the same update the parameters are bit-equal to those after taciti_driver_finish().
 *
 * Calls come from one thread at a time, but for taciti_driver_wait(). Calls marked collective are made by all ranks in
 * the same order.
 */
#ifndef TACITI_DRIVER_DRIVER_H
#define TACITI_DRIVER_DRIVER_H

#include "driver/sources.h"
#include "model/network.h"
#include "strategy/strategy.h"

typedef struct taciti_driver taciti_driver;

/* The parts that a driver connects. It borrows them for its whole life. */
typedef struct taciti_driver_setup {
    const taciti_strategy *strategy;
    /* The caller sets communicator, pool, trace, options and own_optimizer; with own_optimizer, steps end with settle
     * and stepped instead of finish. The driver sets the arrays and the optimizer, and, if `layout` is NULL, the
     * network's layout. A layout of the caller's has the same tensors and may have other buckets. */
    taciti_strategy_context context;
    taciti_network network;
    bool sources; /* for taciti_driver_ready_from() and _wait() */

    /* Returns true if this rank is to abandon the step that is being computed; the network calls it. NULL: never. */
    bool (*leave)(void *caller);
    /* Called if the network fails on this rank alone, while other ranks wait for it. NULL: the driver ends the job with
     * taciti_comm_abort(). After the call the step returns the status, and the communicator must not be used. */
    void (*failed)(void *caller, tacit_status status);
    void *caller; /* passed to both */
} taciti_driver_setup;

/* The outcome of a step on this rank, and its times. */
typedef struct taciti_driver_record {
    taciti_step_report report;
    double loss;      /* as the network's step returned it; NaN without such a step */
    bool abandoned;   /* this rank left the step early and made its gradient NaN, so that the update is skipped */
    double compute_s; /* from begin to the end of the backward pass, without waits */
    double wait_s, update_s;     /* of the calling thread: blocked on communication; optimizer and mixing */
    double encode_s, transfer_s; /* of the communication thread since the last step ended */
} taciti_driver_record;

/* Creates optimizer and strategy. Returns E_CONFIG if the strategy does not support own_optimizer. Collective. */
tacit_status taciti_driver_create(const taciti_driver_setup *setup, taciti_driver **out);
void taciti_driver_destroy(taciti_driver *driver); /* waits for transfers under way; NULL is allowed */

/* Call when the parameters are set, before the first step; see taciti_strategy.start(). Collective. */
tacit_status taciti_driver_start(taciti_driver *driver, int64_t step, bool restored);

/* Runs a whole step, for a network that implements step(). lr: learning rate of this step. Collective. */
tacit_status taciti_driver_step(taciti_driver *driver, int64_t step, double lr, taciti_driver_record *out);

/* Marks the beginning of a step's computation. Not collective. */
void taciti_driver_begin(taciti_driver *driver, int64_t step);

/* Calls the network's step(). If the network leaves the step early, the step is abandoned; an error is handled as in
 * taciti_driver_setup.failed. Not collective. */
tacit_status taciti_driver_compute(taciti_driver *driver);

/* Reports that the gradient of this tensor is final. It belongs to the driver until the step is finished or settled.
 * Returns an error if the tensor was reported before in this step. Tensors may be reported in any order, which may
 * differ between ranks. Buckets are sent in the order of the layout, so reporting in that order overlaps best. With a
 * communication thread, does not block. Not collective. */
tacit_status taciti_driver_ready(taciti_driver *driver, size_t tensor);

/* Returns whether the tensor was reported in the step that is being computed. Not collective. */
bool taciti_driver_is_ready(const taciti_driver *driver, size_t tensor);

/* As ready, for a gradient in the caller's memory, which is the driver's until the step is finished or settled; settle
 * leaves the gradient for the update there, too. With setup.sources. */
tacit_status taciti_driver_ready_from(taciti_driver *driver, size_t tensor, const taciti_source *source);

/* taciti_sources_wait() and _close(), with setup.sources, own_optimizer, and a strategy that sums gradients. Any
 * thread. */
tacit_status taciti_driver_wait(taciti_driver *driver, size_t tensor, double seconds);
void taciti_driver_close_waits(taciti_driver *driver);

/* Returns the hooks for a network that requests its parameters unit by unit. Borrowed. */
const taciti_network_hooks *taciti_driver_hooks(const taciti_driver *driver);

/* Reports the remaining tensors as ready, completes the exchange, clips and updates. Collective. */
tacit_status taciti_driver_finish(taciti_driver *driver, double lr, taciti_driver_record *out);

/* finish in two halves around an update by the caller, see above. lr: learning rate of the caller's optimizer, which
 * schedules of a strategy follow. After settle, `parameters` and `gradients` belong to the caller until stepped; a
 * skipped step has no update. Call stepped after every settle: it renews copy16 and completes the step. Collective. */
tacit_status taciti_driver_settle(taciti_driver *driver, double lr, taciti_driver_record *out);
tacit_status taciti_driver_stepped(taciti_driver *driver, taciti_driver_record *out);

/* Between two steps. average: if replicas differ, replaces the parameters by their mean over the ranks and stores this
 * rank's own in `gradients`; *distance receives the consensus distance, NaN if replicas are equal. Does nothing if the
 * parameters are the mean already. revert restores the rank's own parameters bit for bit; call it before the next step.
 * Collective. */
tacit_status taciti_driver_average(taciti_driver *driver, double *distance);
void taciti_driver_revert(taciti_driver *driver);

/* Lists what a checkpoint holds, between two steps: the strategy's entries, and the shared "model" if there are
 * parameters and the strategy does not list them. saving: the shared model also if every rank lists its own. Adds to
 * *out. Not collective. */
void taciti_driver_list_state(taciti_driver *driver, bool saving, taciti_state *out);

/* For checkpoints. Borrowed. */
const taciti_layout *taciti_driver_layout(const taciti_driver *driver);
taciti_optim *taciti_driver_optim(taciti_driver *driver);

/* Sets *out to the index-th range that this rank updates: of strategies that hold parts; else of the whole arrays, the
 * only one. False behind the last. */
bool taciti_driver_part(const taciti_driver *driver, size_t index, taciti_part *out);
void *taciti_driver_strategy(taciti_driver *driver); /* `self` of the strategy's functions */

#endif
