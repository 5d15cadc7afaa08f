/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of the model: check the arguments, run the passes, return the loss.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "model/gpt.h"

enum { PROMPT_GRAIN = 64 };

void taciti_model_take_op_ns(taciti_model *model, int64_t out[TACITI_MODEL_OPS]) {
    memcpy(out, model->op_ns, sizeof model->op_ns);
    memset(model->op_ns, 0, sizeof model->op_ns);
}

static tacit_status check_size(const taciti_model *model, size_t batch, size_t time) {
    if (batch > model->batch || time > model->time || (batch > 0 && time == 0))
        return taciti_fail(TACIT_E_USAGE, "a batch of %zu x %zu tokens does not fit a model created for %zu x %zu",
                           batch, time, model->batch, model->time);
    return TACIT_OK;
}

static tacit_status check_ids(const taciti_model *model, const char *what, const int32_t *ids, size_t n, bool gaps) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 ? !gaps : (size_t)ids[i] >= model->vocabulary)
            return taciti_fail(TACIT_E_DATA, "%s %d at position %zu is outside the vocabulary of %zu", what,
                               (int)ids[i], i, model->vocabulary);
    return TACIT_OK;
}

/* A target below 0 does not count. */
static tacit_status check_batch(const taciti_model *model, const taciti_model_batch *batch) {
    const size_t n = batch->batch * batch->time;
    TACITI_TRY(check_size(model, batch->batch, batch->time));
    TACITI_TRY(check_ids(model, "token", batch->tokens, n, false));
    return check_ids(model, "target", batch->targets, n, true);
}

static taciti_gpt_pass begin_pass(taciti_model *model, const taciti_model_batch *batch, bool training) {
    return (taciti_gpt_pass){.model = model,
                             .batch = batch,
                             .batch_size = batch->batch,
                             .time = batch->time,
                             .tokens = batch->batch * batch->time,
                             .training = training,
                             .dropout = training ? (float)model->options.dropout : 0,
                             .clock_ns = taciti_now_ns()};
}

tacit_status taciti_model_train(taciti_model *model, const taciti_model_batch *batch, taciti_trace *trace,
                                double *loss_sum) {
    if (!model->training) return taciti_fail(TACIT_E_USAGE, "this model was created without training");
    TACITI_TRY(check_batch(model, batch));
    taciti_gpt_pass pass = begin_pass(model, batch, true);
    pass.trace = trace;
    pass.span_ns = pass.clock_ns;
    TACITI_TRY(taciti_gpt_forward(&pass));
    TACITI_TRY(taciti_gpt_head(&pass));
    TACITI_TRY(taciti_gpt_backward(&pass));
    *loss_sum = pass.loss;
    return TACIT_OK;
}

tacit_status taciti_model_loss(taciti_model *model, const int32_t *tokens, const int32_t *targets, size_t batch,
                               size_t time, const taciti_network_hooks *hooks, double *loss_sum) {
    taciti_model_batch all = {.tokens = tokens, .targets = targets, .batch = batch, .time = time};
    TACITI_TRY(check_batch(model, &all));
    if (hooks != NULL)
        all.hooks = (taciti_network_hooks){.need = hooks->need, .release = hooks->release, .units = hooks->units};
    taciti_gpt_pass pass = begin_pass(model, &all, false);
    TACITI_TRY(taciti_gpt_forward(&pass));
    TACITI_TRY(taciti_gpt_head(&pass));
    taciti_gpt_release(&pass, taciti_gpt_lnf_tensor(model));
    *loss_sum = pass.loss;
    return TACIT_OK;
}

/* Prompts are padded at the end, which a causal model does not see, so that few shapes of products occur. */
tacit_status taciti_model_next_logits(taciti_model *model, const int32_t *tokens, size_t time, float *out) {
    if (time == 0) return taciti_fail(TACIT_E_USAGE, "next_logits needs at least one token");
    TACITI_TRY(check_size(model, 1, time));
    TACITI_TRY(check_ids(model, "token", tokens, time, false));
    const size_t padded =
        taciti_round_up(time, PROMPT_GRAIN) < model->time ? taciti_round_up(time, PROMPT_GRAIN) : model->time;
    memset(model->arena.tokens, 0, padded * sizeof *tokens);
    memcpy(model->arena.tokens, tokens, time * sizeof *tokens);
    const taciti_model_batch all = {.tokens = model->arena.tokens, .batch = 1, .time = padded};
    taciti_gpt_pass pass = begin_pass(model, &all, false);
    TACITI_TRY(taciti_gpt_forward(&pass));
    TACITI_TRY(taciti_gpt_logits(&pass, time - 1, 1));
    memcpy(out, model->arena.logits, model->vocabulary * sizeof *out);
    return TACIT_OK;
}

/* ---- as a network, whose step is one pass per micro-batch -------------------------------------------------------- */

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

static void refresh_copy(void *self) { taciti_model_refresh(((taciti_model_network *)self)->model); }

taciti_network taciti_model_as_network(taciti_model_network *model) {
    static const taciti_network_verbs VERBS = {
        .layout = layout_of, .arrays = arrays_of, .step = run_step, .refresh = refresh_copy, .by_units = true};
    return (taciti_network){&VERBS, model};
}
