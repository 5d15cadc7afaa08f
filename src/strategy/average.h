/* SPDX-License-Identifier: Apache-2.0
 *
 * The mean of replicas that differ, for evaluation and for the final model: average() and revert() of strategies.
 *
 * Numbers travel as f32 whatever the strategy's wire is: the mean of a run must not depend on how it was sent.
 */
#ifndef TACITI_STRATEGY_AVERAGE_H
#define TACITI_STRATEGY_AVERAGE_H

#include "strategy/strategy.h"

typedef struct taciti_average taciti_average;

/* An exchange among all ranks of its own; nothing is allocated later. Keeps a copy of *context and borrows what that
 * points to. Collective. */
tacit_status taciti_average_create(const taciti_strategy_context *context, taciti_average **out);
void taciti_average_destroy(taciti_average *average); /* NULL is fine */

/* The context's parameters (and copy16) become the mean over all ranks, this rank's own are put aside in gradients.
 * *distance is sqrt(1/N sum over ranks |x_i - mean|^2), the same bits on every rank, NaN when a parameter is not
 * finite.
 *
 * reference: a flat array that is the same on all ranks and near the parameters, or NULL. With one, differences from it
 * are added up, so that parameters that equal it stay as they are to the bit; without one equal parameters may move by
 * the rounding of a sum. Collective, training thread, between two steps. */
tacit_status taciti_average_run(taciti_average *average, const float *reference, double *distance);

/* From now on this rank's parameters count so many times in the sum over ranks: push-sum, whose weights add up to the
 * number of ranks. 1 at first. Not with a reference. */
void taciti_average_weigh(taciti_average *average, double weight);

/* The rank's own parameters are back bit for bit; copy16 follows. gradients must be as taciti_average_run() left it. */
void taciti_average_revert(taciti_average *average);

/* Lists the rank's own parameters as "model": between run and revert those in gradients. */
void taciti_average_list_model(const taciti_average *average, taciti_state *out);

/* Bytes of workspace before it exists, for the memory prediction. */
size_t taciti_average_predict_bytes(const taciti_comm *comm, const taciti_exchange_options *options);

#endif
