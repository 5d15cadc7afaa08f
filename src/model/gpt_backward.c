/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward pass. `stream` holds the gradient of the residual stream and grows by every branch on the way down; `out`
 * is its copy under a branch's dropout mask. Sums over rows (biases, norms) are collected per thread in `partial` and
 * added up in the order of threads.
 */
#include <string.h>

#include "base/log.h"
#include "model/gpt.h"

/* Parts of a thread's `partial`, in units of C: a norm's weight and bias, and a projection's bias. */
enum { PARTIAL_NORM_W, PARTIAL_NORM_B, PARTIAL_BIAS };

/* gradient (+)= the sum over threads of n floats at `part` */
static void add_partial(const taciti_gpt_pass *pass, size_t tensor, size_t part) {
    const taciti_model *model = pass->model;
    const size_t n = model->layout->tensors[tensor].n;
    float *gradient = taciti_gpt_gradient(model, tensor);
    if (!pass->batch->accumulate) memset(gradient, 0, n * sizeof *gradient);
    for (int t = 0; t < model->threads; t++)
        model->kernels->add(gradient, taciti_gpt_partial(model, t) + part * model->channels, n);
}

/* The backward pass through a norm, and through the dropout and bias of the branch that ended in front of it. */
struct norm {
    const taciti_gpt_pass *pass;
    const float *x;
    taciti_gpt_norm norm;
    bool branch; /* whether a branch ends there (not at the embedding) */
    bool top;    /* the last norm: the stream's gradient starts at zero */
    size_t layer;
    int site;
};

static void mask_branch(const struct norm *norm, const taciti_gpt_rows *rows, float *bias) {
    const taciti_gpt_pass *pass = norm->pass;
    const taciti_model *model = pass->model;
    const taciti_gpt_arena *arena = &model->arena;
    const size_t c = model->channels, at = rows->first * c;
    model->kernels->residual_backward(taciti_gpt_at(pass->dropout > 0 ? arena->out.f32 : NULL, at),
                                      taciti_gpt_at16(arena->out.b16, at), bias, arena->stream + at, rows->count, c,
                                      pass->dropout, taciti_gpt_mask_key(pass, rows->sample, norm->layer, norm->site),
                                      rows->first % pass->time * c);
}

static void norm_rows(void *context, const taciti_gpt_rows *rows) {
    const struct norm *norm = context;
    const taciti_model *model = norm->pass->model;
    const size_t c = model->channels, at = rows->first * c;
    float *partial = taciti_gpt_partial(model, rows->thread);
    float *stream = model->arena.stream + at;
    if (norm->top) memset(stream, 0, rows->count * c * sizeof *stream);
    model->kernels->layernorm_backward(stream, partial + PARTIAL_NORM_W * c, partial + PARTIAL_NORM_B * c,
                                       model->arena.narrow + at, norm->x + at, norm->norm.mean + rows->first,
                                       norm->norm.rstd + rows->first, taciti_gpt_parameter(model, norm->norm.tensor),
                                       rows->count, c);
    if (norm->branch) mask_branch(norm, rows, partial + PARTIAL_BIAS * c);
}

/* Through the norm in front of half layer `half` (2 layers: the last norm), then into the branch below it. */
static tacit_status norm_backward(taciti_gpt_pass *pass, size_t half) {
    taciti_model *model = pass->model;
    struct norm norm = {.pass = pass,
                        .x = taciti_gpt_residual(model, half),
                        .norm = taciti_gpt_norm_before(model, half),
                        .branch = half > 0,
                        .top = half == 2 * model->layers};
    const size_t tensor = norm.norm.tensor;
    if (half > 0) {
        norm.layer = (half - 1) / 2;
        norm.site = half % 2 == 0 ? TACITI_GPT_SITE_MLP : TACITI_GPT_SITE_PROJ;
    }
    TACITI_TRY(taciti_gpt_write(pass, tensor));
    if (half > 0) TACITI_TRY(taciti_gpt_write(pass, taciti_gpt_layer_tensor(model, norm.layer, 0)));
    taciti_gpt_each_rows(pass, true, norm_rows, &norm);
    add_partial(pass, tensor, PARTIAL_NORM_W);
    add_partial(pass, tensor + 1, PARTIAL_NORM_B);
    if (half > 0)
        add_partial(
            pass, taciti_gpt_layer_tensor(model, norm.layer, half % 2 == 0 ? TACITI_GPT_MLP_PROJ_B : TACITI_GPT_PROJ_B),
            PARTIAL_BIAS);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
    taciti_gpt_report(pass, 2);
    return TACIT_OK;
}

/* out = in W was the forward product: dW (+)= in^T dout, din = dout W^T. */
static tacit_status multiply_backward(taciti_gpt_pass *pass, size_t tensor, taciti_gpt_operand in, const void *dout,
                                      float *din) {
    taciti_model *model = pass->model;
    const size_t inner = model->layout->tensors[tensor].shape[0], columns = model->layout->tensors[tensor].shape[1];
    const taciti_product weights = {.form = TACITI_PRODUCT_TN,
                                    .m = inner,
                                    .n = columns,
                                    .k = pass->tokens,
                                    .a = taciti_gpt_data(in),
                                    .b = dout,
                                    .c = taciti_gpt_gradient(model, tensor),
                                    .accumulate = pass->batch->accumulate};
    const taciti_product inputs = {.form = TACITI_PRODUCT_NT,
                                   .m = pass->tokens,
                                   .n = inner,
                                   .k = columns,
                                   .a = dout,
                                   .b = taciti_gpt_weight(model, tensor),
                                   .c = din};
    TACITI_TRY(taciti_matmul_run(model->matmul, &weights));
    taciti_gpt_clock(pass, TACITI_MODEL_OP_GEMM);
    taciti_gpt_report(pass, 2); /* the bias was finished before */
    TACITI_TRY(taciti_matmul_run(model->matmul, &inputs));
    taciti_gpt_clock(pass, TACITI_MODEL_OP_GEMM);
    return TACIT_OK;
}

static void gelu_rows(void *context, const taciti_gpt_rows *rows) {
    const taciti_gpt_layer_job *job = context;
    const taciti_model *model = job->pass->model;
    const size_t c4 = 4 * model->channels, at = rows->first * c4;
    float *d = model->arena.wide.f32 + at;
    model->kernels->gelu_backward(model->bf16 ? NULL : d, taciti_gpt_at16(model->arena.wide.b16, at),
                                  taciti_gpt_partial(model, rows->thread), d, job->layer->fc + at, rows->count, c4);
}

static void qkv_bias_rows(void *context, const taciti_gpt_rows *rows) {
    const taciti_gpt_layer_job *job = context;
    const taciti_model *model = job->pass->model;
    const size_t c3 = 3 * model->channels, at = rows->first * c3;
    model->kernels->bias_backward(taciti_gpt_partial(model, rows->thread), taciti_gpt_at16(model->arena.wide.b16, at),
                                  model->arena.wide.f32 + at, rows->count, c3);
}

/* dout of a projection: masked copy, or the stream's gradient itself. */
static const void *branch_gradient(const taciti_gpt_pass *pass) {
    const taciti_gpt_arena *arena = &pass->model->arena;
    if (arena->out.b16 != NULL) return arena->out.b16;
    return pass->dropout > 0 ? arena->out.f32 : arena->stream;
}

static void row_sums(taciti_gpt_pass *pass, taciti_gpt_rows_job *rows_job, taciti_gpt_layer_job *job, size_t tensor) {
    taciti_gpt_each_rows(pass, true, rows_job, job);
    add_partial(pass, tensor, 0);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
}

static tacit_status backward_layer(taciti_gpt_pass *pass, size_t index) {
    taciti_model *model = pass->model;
    const taciti_gpt_arena *arena = &model->arena;
    const taciti_gpt_layer *layer = &arena->layers[index];
    taciti_gpt_layer_job job = {pass, layer, index};
    const size_t first = taciti_gpt_layer_tensor(model, index, 0);
    TACITI_TRY(
        multiply_backward(pass, first + TACITI_GPT_MLP_PROJ_W, layer->gelu, branch_gradient(pass), arena->wide.f32));
    row_sums(pass, gelu_rows, &job, first + TACITI_GPT_FC_B);
    TACITI_TRY(
        multiply_backward(pass, first + TACITI_GPT_FC_W, layer->ln2, taciti_gpt_data(arena->wide), arena->narrow));
    TACITI_TRY(norm_backward(pass, 2 * index + 1));
    TACITI_TRY(
        multiply_backward(pass, first + TACITI_GPT_PROJ_W, layer->attention, branch_gradient(pass), arena->narrow));
    taciti_gpt_attend(pass, index, true);
    row_sums(pass, qkv_bias_rows, &job, first + TACITI_GPT_QKV_B);
    TACITI_TRY(
        multiply_backward(pass, first + TACITI_GPT_QKV_W, layer->ln1, taciti_gpt_data(arena->wide), arena->narrow));
    TACITI_TRY(norm_backward(pass, 2 * index));
    pass->span_ns = taciti_trace_add(pass->trace, TACITI_SPAN_BACKWARD, (int)index, pass->span_ns);
    return TACIT_OK;
}

/* Threads own columns, so several rows of the batch may add to one row of the embeddings, in the same order for any
 * number of threads. */
static void embedding_columns(void *context, int thread, int threads) {
    const taciti_gpt_pass *pass = context;
    const taciti_model *model = pass->model;
    const size_t c = model->channels;
    float *wte = taciti_gpt_gradient(model, taciti_gpt_wte_tensor(model));
    float *wpe = taciti_gpt_gradient(model, taciti_gpt_wpe_tensor(model));
    float *masked = model->arena.narrow;
    size_t begin, end;
    taciti_pool_part(c, 16, thread, threads, &begin, &end);
    if (begin == end) return;
    for (size_t row = 0; row < pass->tokens; row++) {
        const size_t t = row % pass->time, token = (size_t)pass->batch->tokens[row], at = row * c + begin;
        const uint64_t key = taciti_gpt_mask_key(pass, row / pass->time, 0, TACITI_GPT_SITE_EMBEDDING);
        const float *d = model->arena.stream + at;
        model->kernels->residual_backward(pass->dropout > 0 ? masked + at : NULL, NULL, wpe + t * c + begin, d, 1,
                                          end - begin, pass->dropout, key, t * c + begin);
        model->kernels->add(wte + token * c + begin, pass->dropout > 0 ? masked + at : d, end - begin);
    }
}

struct zero {
    const taciti_model *model;
    size_t tensor;
};

static void zero_part(void *context, int thread, int threads) {
    const struct zero *zero = context;
    size_t begin, end;
    taciti_pool_part(zero->model->layout->tensors[zero->tensor].n, 1024, thread, threads, &begin, &end);
    memset(taciti_gpt_gradient(zero->model, zero->tensor) + begin, 0, (end - begin) * sizeof(float));
}

static tacit_status embedding_backward(taciti_gpt_pass *pass) {
    taciti_model *model = pass->model;
    TACITI_TRY(taciti_gpt_write(pass, taciti_gpt_wte_tensor(model)));
    if (!pass->batch->accumulate) {
        taciti_pool_run(model->pool, zero_part, &(struct zero){model, taciti_gpt_wpe_tensor(model)});
        /* When tied, the head has written it already. */
        if (!model->options.tied)
            taciti_pool_run(model->pool, zero_part, &(struct zero){model, taciti_gpt_wte_tensor(model)});
    }
    taciti_pool_run(model->pool, embedding_columns, pass);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
    taciti_gpt_report(pass, 2);
    pass->span_ns = taciti_trace_add(pass->trace, TACITI_SPAN_BACKWARD, -1, pass->span_ns);
    return TACIT_OK;
}

tacit_status taciti_gpt_backward(taciti_gpt_pass *pass) {
    TACITI_TRY(norm_backward(pass, 2 * pass->model->layers));
    taciti_gpt_release(pass, taciti_gpt_lnf_tensor(pass->model)); /* the forward pass has needed it */
    for (size_t l = pass->model->layers; l-- > 0;) {
        const size_t tensor = taciti_gpt_layer_tensor(pass->model, l, 0);
        TACITI_TRY(taciti_gpt_go_on(pass));
        TACITI_TRY(taciti_gpt_need(pass, tensor));
        TACITI_TRY(backward_layer(pass, l));
        taciti_gpt_release(pass, tensor);
    }
    return embedding_backward(pass);
}
