/* SPDX-License-Identifier: Apache-2.0
 *
 * The mean of replicas that differ, for evaluation and for the final model: implements average() and revert() of
 * strategies. It is exchanged in f32 whatever the strategy's wire is, so the mean does not depend on the wire.
 */
#ifndef TACITI_STRATEGY_AVERAGE_H
#define TACITI_STRATEGY_AVERAGE_H

#include "strategy/strategy.h"

typedef struct taciti_average taciti_average;

/* The same options with f32 on the wire. */
taciti_exchange_options taciti_exact_options(const taciti_exchange_options *options);

/* Creates a separate exchange among all ranks; nothing is allocated later. Copies *context and borrows what it points
 * to. Collective. */
tacit_status taciti_average_create(const taciti_strategy_context *context, taciti_average **out);
void taciti_average_destroy(taciti_average *average); /* NULL is fine */

/* Replaces the context's parameters and copy16 by the mean over all ranks and stores this rank's own parameters in
 * gradients. *distance receives sqrt(1/N sum over ranks |x_i - mean|^2), the same bits on every rank, or NaN if a
 * parameter is not finite.
 *
 * reference: a flat array that is equal on all ranks and close to the parameters, or NULL. With a reference,
 * differences from it are summed, so parameters equal to it do not change by a bit; without, equal parameters may
 * change by the rounding of a sum. Collective, training thread, between two steps. */
tacit_status taciti_average_run(taciti_average *average, const float *reference, double *distance);

/* Sets the weight of this rank's parameters in the sum over ranks, initially 1. For push-sum, whose weights sum to the
 * number of ranks. Not with a reference. */
void taciti_average_weigh(taciti_average *average, double weight);

/* Restores the rank's own parameters bit for bit, and copy16. gradients must be unchanged since taciti_average_run().
 */
void taciti_average_revert(taciti_average *average);

/* Lists the rank's own parameters as "model"; between run and revert these are in gradients. And the number below. */
void taciti_average_list_model(taciti_average *average, taciti_state *out);

/* 1, from create on: the optimizer's second moments have the noise of a rank's share of the batch. 0: only that of the
 * mean gradient, for strategies whose replicas were equal so far. Another strategy finds it in a checkpoint. */
double *taciti_average_noisy(taciti_average *average);

/* For steps of a rank's own. Begins the report with the norm of this rank's gradient, which decides whether the update
 * is skipped. Returns what the gradients are multiplied by: they are scaled so that their sum over ranks is the
 * gradient of the batch, so N of them are this rank's own; then they are clipped. On one rank the same bits as dp. */
double taciti_own_gradient(const taciti_strategy_context *context, taciti_step_report *report);

/* Bytes of workspace that create() will allocate, for the memory prediction. */
size_t taciti_average_predict_bytes(const taciti_strategy_context *context);

#endif
