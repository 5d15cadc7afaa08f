/* SPDX-License-Identifier: Apache-2.0
 *
 * Output head, softmax and cross-entropy over chunks of rows: the logits of a whole micro-batch (205 MB for GPT-2 at
 * 4 x 256 tokens) never exist. When training, a chunk's gradients are computed while its logits are at hand.
 */
#include <string.h>

#include "base/log.h"
#include "model/gpt.h"

struct chunk {
    taciti_gpt_pass *pass;
    size_t first, rows;
};

/* The rows of the last norm's output as operand. */
static const void *norm_rows(const taciti_model *model, size_t first) {
    const size_t at = first * model->channels;
    return model->bf16 ? (const void *)(model->arena.lnf.b16 + at) : (const void *)(model->arena.lnf.f32 + at);
}

/* logits[rows][columns] = norm[rows][C] head[V][C]^T */
tacit_status taciti_gpt_logits(taciti_gpt_pass *pass, size_t first, size_t rows) {
    taciti_model *model = pass->model;
    const taciti_product product = {.form = TACITI_PRODUCT_NT,
                                    .m = rows,
                                    .n = model->vocabulary,
                                    .k = model->channels,
                                    .a = norm_rows(model, first),
                                    .b = taciti_gpt_weight(model, taciti_gpt_head_tensor(model)),
                                    .c = model->arena.logits,
                                    .ldc = model->arena.columns};
    return taciti_matmul_run(model->matmul, &product);
}

/* Each thread leaves the sum of its losses, as a double, at the start of its part of `partial`. */
static void take_losses(void *context, int thread, int threads) {
    const struct chunk *chunk = context;
    const taciti_gpt_pass *pass = chunk->pass;
    const taciti_model *model = pass->model;
    const size_t columns = model->arena.columns;
    size_t begin, end;
    taciti_pool_part(chunk->rows, 1, thread, threads, &begin, &end);
    const double loss =
        model->kernels->cross_entropy(model->arena.logits + begin * columns,
                                      pass->training ? taciti_gpt_at16(model->arena.logits16, begin * columns) : NULL,
                                      pass->batch->targets + chunk->first + begin, end - begin, model->vocabulary,
                                      columns, pass->batch->scale, pass->training);
    memcpy(taciti_gpt_partial(model, thread), &loss, sizeof loss);
}

/* dhead[V][C] (+)= dlogits[rows][V]^T norm[rows][C];  dnorm[rows][C] = dlogits[rows][V] head[V][C] */
static tacit_status head_gradients(taciti_gpt_pass *pass, size_t first, size_t rows) {
    taciti_model *model = pass->model;
    const taciti_gpt_arena *arena = &model->arena;
    const size_t c = model->channels, tensor = taciti_gpt_head_tensor(model);
    const void *dlogits = model->bf16 ? (const void *)arena->logits16 : (const void *)arena->logits;
    const taciti_product weights = {.form = TACITI_PRODUCT_TN,
                                    .m = model->vocabulary,
                                    .n = c,
                                    .k = rows,
                                    .a = dlogits,
                                    .lda = arena->columns,
                                    .b = norm_rows(model, first),
                                    .c = taciti_gpt_gradient(model, tensor),
                                    .accumulate = pass->batch->accumulate || first > 0};
    const taciti_product norms = {.form = TACITI_PRODUCT_NN,
                                  .m = rows,
                                  .n = c,
                                  .k = model->vocabulary,
                                  .a = dlogits,
                                  .lda = arena->columns,
                                  .b = taciti_gpt_weight(model, tensor),
                                  .c = arena->narrow + first * c};
    TACITI_TRY(taciti_matmul_run(model->matmul, &weights));
    return taciti_matmul_run(model->matmul, &norms);
}

tacit_status taciti_gpt_head(taciti_gpt_pass *pass) {
    taciti_model *model = pass->model;
    const size_t max = model->arena.head_rows, tensor = taciti_gpt_head_tensor(model);
    TACITI_TRY(taciti_gpt_need(pass, tensor));
    if (pass->training) TACITI_TRY(taciti_gpt_write(pass, tensor));
    if (pass->training && pass->tokens == 0) TACITI_TRY(head_gradients(pass, 0, 0));
    for (size_t first = 0; first < pass->tokens; first += max) {
        struct chunk chunk = {pass, first, pass->tokens - first < max ? pass->tokens - first : max};
        TACITI_TRY(taciti_gpt_logits(pass, first, chunk.rows));
        taciti_pool_run(model->pool, take_losses, &chunk);
        for (int t = 0; t < model->threads; t++) {
            double loss;
            memcpy(&loss, taciti_gpt_partial(model, t), sizeof loss);
            pass->loss += loss;
        }
        pass->span_ns = taciti_trace_add(pass->trace, TACITI_SPAN_FORWARD, (int)model->layers, pass->span_ns);
        if (!pass->training) continue;
        TACITI_TRY(head_gradients(pass, first, chunk.rows));
        pass->span_ns = taciti_trace_add(pass->trace, TACITI_SPAN_BACKWARD, (int)model->layers, pass->span_ns);
    }
    taciti_gpt_release(pass, tensor);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_HEAD);
    if (pass->training && !model->options.tied) taciti_gpt_report(pass, 1);
    return TACIT_OK;
}
