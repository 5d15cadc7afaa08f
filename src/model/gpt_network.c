/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPT as a network: a step is one pass per micro-batch.
 */
#include "base/log.h"
#include "model/gpt.h"

static const taciti_layout *layout_of(const void *self) { return ((const taciti_model_network *)self)->model->layout; }

static taciti_network_arrays arrays_of(void *self) {
    taciti_model *model = ((taciti_model_network *)self)->model;
    return (taciti_network_arrays){.parameters = taciti_model_parameters(model),
                                   .gradients = taciti_model_gradients(model),
                                   .copy16 = taciti_model_copy16(model),
                                   .parameter_pages = model->reserved ? &model->parameters : NULL,
                                   .gradient_pages = model->reserved ? &model->gradients : NULL,
                                   .copy16_pages = model->reserved && model->bf16 ? &model->copy16 : NULL};
}

static tacit_status run_step(void *self, int64_t step, const taciti_network_hooks *hooks, taciti_trace *trace,
                             double *loss) {
    const taciti_model_network *network = self;
    bool last = false;
    *loss = 0;
    for (size_t pass = 0; !last; pass++) {
        taciti_model_batch batch = {.tokens = NULL};
        TACITI_TRY(network->batch(network->context, step, pass, &batch, &last));
        batch.accumulate = pass > 0;
        batch.hooks = *hooks;
        if (!last) batch.hooks.ready = NULL;
        double loss_sum = 0;
        TACITI_TRY(taciti_model_train(network->model, &batch, trace, &loss_sum));
        *loss += loss_sum;
    }
    return TACIT_OK;
}

static void refresh(void *self) { taciti_model_refresh(((taciti_model_network *)self)->model); }

taciti_network taciti_model_as_network(taciti_model_network *model) {
    static const taciti_network_verbs VERBS = {
        .layout = layout_of, .arrays = arrays_of, .step = run_step, .refresh = refresh, .by_units = true};
    return (taciti_network){&VERBS, model};
}
