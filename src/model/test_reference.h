/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of the GPT in double precision, written as plainly as possible: what the tests differentiate numerically.
 */
#ifndef TACITI_MODEL_REFERENCE_H
#define TACITI_MODEL_REFERENCE_H

#include "model/model.h"

/* Sum of losses in nats of one micro-batch for the parameters `flat` (layout order, double). dropout: masks as in
 * training with batch->dropout_key and first_sample. */
double reference_loss(const taciti_model_options *options, const taciti_layout *layout, const double *flat,
                      const taciti_model_batch *batch, bool dropout);

#endif
