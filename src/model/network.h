/* SPDX-License-Identifier: Apache-2.0
 *
 * The network contract: flat arrays with a layout, and a step that computes gradients. The step driver (driver/) knows
 * nothing else of a network. Implemented by the GPT (model/model.h), by the emulated accelerator (model/emulated.h) and
 * by callbacks of a library user (api/).
 *
 * A unit is a group of tensors that a pass uses together (taciti_tensor.unit): the embedding, a block, the head. If a
 * strategy does not keep all parameters in memory, the network requests those of a unit before it reads them and
 * releases them afterwards. Without these hooks all parameters are in memory.
 */
#ifndef TACITI_MODEL_NETWORK_H
#define TACITI_MODEL_NETWORK_H

#include "base/memory.h"
#include "base/trace.h"
#include "kernel/kernel.h"
#include "optim/optim.h"
#include "tensor/layout.h"

/* Flat arrays of the layout, borrowed from the network for its whole life. Padding is always 0. */
typedef struct taciti_network_arrays {
    float *parameters;
    float *gradients;    /* sum over this rank's samples, scaled so that the sum over ranks is the gradient */
    taciti_bf16 *copy16; /* copy of the parameters, or NULL */

    /* Not NULL: the array is this reserved region (base/memory.h), of which the strategy commits and drops parts.
     * NULL: its memory is always there. */
    const taciti_pages *parameter_pages, *gradient_pages, *copy16_pages;
} taciti_network_arrays;

/* Callbacks of a step, on the thread that runs it. Each may be NULL. */
typedef struct taciti_network_hooks {
    /* The gradient of this tensor is final. Once per tensor and step, as early as possible: in layout order if buckets
     * are to leave early. Does not block while a communication thread runs. From this call to the end of the step the
     * gradient must not be touched. */
    void (*ready)(void *context, size_t tensor);

    /* Called from time to time, ideally before every unit. If it returns true, the step ends there with TACIT_PENDING.
     */
    bool (*leave)(void *context);

    /* need: call it before reading parameters of this unit; they are in the array when it returns. It may block; an
     * error ends the step with that status. release: the unit's parameters will not be read until the next need. Calls
     * come in pairs, around every use in the forward pass and in the backward pass of each micro-batch; several units
     * may be needed at a time. A step that ends early releases nothing. */
    tacit_status (*need)(void *units, size_t unit);
    void (*release)(void *units, size_t unit);

    /* Call it in every pass before the first write to gradients of this unit: they are in the array when it returns,
     * as earlier passes of the step have left them. Never for a unit that is ready. May block. */
    tacit_status (*write)(void *units, size_t unit);

    void *context; /* of ready and leave */
    void *units;   /* of need, release and write */
} taciti_network_hooks;

typedef struct taciti_network_verbs {
    /* Sealed; the same on all ranks. Borrowed. */
    const taciti_layout *(*layout)(const void *self);
    taciti_network_arrays (*arrays)(void *self);

    /* Forward and backward of this rank's samples of step `step` (from 0 on). On TACIT_OK `gradients` are complete,
     * every tensor was reported once, and *loss is the sum of the losses of this rank's samples, NaN if there is none.
     * Spans FORWARD, BACKWARD and DATA go to trace. Not collective: an error concerns one rank. NULL: the caller
     * computes gradients between the driver's calls, and calls the hooks of the driver itself. With by_units, all ranks
     * call need, release and ready in the same order in every step, however many samples they have. */
    tacit_status (*step)(void *self, int64_t step, const taciti_network_hooks *hooks, taciti_trace *trace,
                         double *loss);

    /* Called after parameters were changed by something other than a strategy: updates what the network derives from
     * them (copy16). NULL: nothing is derived. */
    void (*refresh)(void *self);

    /* Creates the network's own optimizer, instead of the one that the options name. NULL: that of the options. */
    tacit_status (*optimizer)(void *self, taciti_optim **out);

    bool by_units; /* steps call need, release and write; otherwise all parameters and gradients must be in memory */
} taciti_network_verbs;

typedef struct taciti_network {
    const taciti_network_verbs *verbs;
    void *self;
} taciti_network;

#endif
