/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward pass. A layer is
 *
 *     x1 = x0 + dropout(attention(norm1(x0)) Wproj + bproj)
 *     x2 = x1 + dropout(gelu(norm2(x1) Wfc + bfc) Wmlp + bmlp)
 *
 * Row-wise steps that follow each other run block by block, so that a block is read from memory once.
 */
#include "base/log.h"
#include "model/gpt.h"

/* A residual addition (or the embedding) and the norm after it, for the rows of a block. */
struct norm {
    const taciti_gpt_pass *pass;
    const float *before, *bias; /* stream and bias of the residual addition whose branch is in `narrow` */
    size_t layer;
    int site;
    float *stream; /* the rows that are normalised */
    taciti_gpt_norm norm;
};

static void normalize_rows(const struct norm *norm, const taciti_gpt_rows *rows) {
    const taciti_model *model = norm->pass->model;
    const size_t c = model->channels, at = rows->first * c;
    const taciti_gpt_norm *n = &norm->norm;
    model->kernels->layernorm(taciti_gpt_at(n->out.f32, at), taciti_gpt_at16(n->out.b16, at), n->mean + rows->first,
                              n->rstd + rows->first, norm->stream + at, taciti_gpt_parameter(model, n->tensor),
                              taciti_gpt_parameter(model, n->tensor + 1), rows->count, c);
}

static void add_and_normalize(void *context, const taciti_gpt_rows *rows) {
    const struct norm *norm = context;
    const taciti_gpt_pass *pass = norm->pass;
    const size_t c = pass->model->channels, at = rows->first * c;
    pass->model->kernels->residual(
        norm->stream + at, norm->before + at, pass->model->arena.narrow + at, norm->bias, rows->count, c, pass->dropout,
        taciti_gpt_mask_key(pass, rows->sample, norm->layer, norm->site), rows->first % pass->time * c);
    normalize_rows(norm, rows);
}

/* The embedding of a token is a residual addition to zero: dropout(wte[token] + wpe[position]). */
static void embed_and_normalize(void *context, const taciti_gpt_rows *rows) {
    const struct norm *norm = context;
    const taciti_gpt_pass *pass = norm->pass;
    const taciti_model *model = pass->model;
    const size_t c = model->channels;
    const float *wte = taciti_gpt_parameter(model, taciti_gpt_wte_tensor(model));
    const float *wpe = taciti_gpt_parameter(model, taciti_gpt_wpe_tensor(model));
    const uint64_t key = taciti_gpt_mask_key(pass, rows->sample, 0, TACITI_GPT_SITE_EMBEDDING);
    for (size_t row = rows->first; row < rows->first + rows->count; row++) {
        const size_t t = row % pass->time, token = (size_t)pass->batch->tokens[row];
        model->kernels->residual(norm->stream + row * c, model->arena.zeros, wte + token * c, wpe + t * c, 1, c,
                                 pass->dropout, key, t * c);
    }
    normalize_rows(norm, rows);
}

/* Adds the branch in `narrow` to the stream before half layer `half` and normalises the result. */
static void finish_half(taciti_gpt_pass *pass, size_t half) {
    const taciti_model *model = pass->model;
    const bool first = half % 2 == 0;
    const size_t bias = taciti_gpt_layer_tensor(model, half / 2, first ? TACITI_GPT_PROJ_B : TACITI_GPT_MLP_PROJ_B);
    struct norm norm = {.pass = pass,
                        .before = taciti_gpt_residual(model, half),
                        .bias = taciti_gpt_parameter(model, bias),
                        .layer = half / 2,
                        .site = first ? TACITI_GPT_SITE_PROJ : TACITI_GPT_SITE_MLP,
                        .stream = taciti_gpt_residual(model, half + 1),
                        .norm = taciti_gpt_norm_before(model, half + 1)};
    taciti_gpt_each_rows(pass, false, add_and_normalize, &norm);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
}

/* out[tokens][columns] = in[tokens][inner] W[inner][columns] */
static tacit_status multiply_weight(taciti_gpt_pass *pass, taciti_gpt_operand in, size_t layer, int tensor,
                                    float *out) {
    taciti_model *model = pass->model;
    const size_t index = taciti_gpt_layer_tensor(model, layer, tensor);
    const size_t *shape = model->layout->tensors[index].shape;
    const taciti_product product = {.form = TACITI_PRODUCT_NN,
                                    .m = pass->tokens,
                                    .n = shape[1],
                                    .k = shape[0],
                                    .a = taciti_gpt_data(in),
                                    .b = taciti_gpt_weight(model, index),
                                    .c = out};
    const tacit_status status = taciti_matmul_run(model->matmul, &product);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_GEMM);
    return status;
}

static void add_qkv_bias(void *context, const taciti_gpt_rows *rows) {
    const taciti_gpt_layer_job *job = context;
    const taciti_model *model = job->pass->model;
    const size_t c3 = 3 * model->channels;
    const float *bias = taciti_gpt_parameter(model, taciti_gpt_layer_tensor(model, job->index, TACITI_GPT_QKV_B));
    for (size_t row = rows->first; row < rows->first + rows->count; row++)
        model->kernels->add(job->layer->qkv + row * c3, bias, c3);
}

static void apply_gelu(void *context, const taciti_gpt_rows *rows) {
    const taciti_gpt_layer_job *job = context;
    const taciti_model *model = job->pass->model;
    const taciti_gpt_layer *layer = job->layer;
    const size_t c4 = 4 * model->channels, at = rows->first * c4;
    const float *bias = taciti_gpt_parameter(model, taciti_gpt_layer_tensor(model, job->index, TACITI_GPT_FC_B));
    model->kernels->gelu(taciti_gpt_at(layer->gelu.f32, at), taciti_gpt_at16(layer->gelu.b16, at), layer->fc + at, bias,
                         rows->count, c4);
}

static tacit_status forward_layer(taciti_gpt_pass *pass, size_t index) {
    taciti_model *model = pass->model;
    const taciti_gpt_layer *layer = &model->arena.layers[index];
    taciti_gpt_layer_job job = {pass, layer, index};
    TACITI_TRY(multiply_weight(pass, layer->ln1, index, TACITI_GPT_QKV_W, layer->qkv));
    taciti_gpt_each_rows(pass, false, add_qkv_bias, &job);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
    taciti_gpt_attend(pass, index, false);
    TACITI_TRY(multiply_weight(pass, layer->attention, index, TACITI_GPT_PROJ_W, model->arena.narrow));
    finish_half(pass, 2 * index);
    TACITI_TRY(multiply_weight(pass, layer->ln2, index, TACITI_GPT_FC_W, layer->fc));
    taciti_gpt_each_rows(pass, false, apply_gelu, &job);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
    TACITI_TRY(multiply_weight(pass, layer->gelu, index, TACITI_GPT_MLP_PROJ_W, model->arena.narrow));
    TACITI_TRY(taciti_gpt_need(pass, taciti_gpt_norm_before(model, 2 * index + 2).tensor)); /* it ends the pass */
    finish_half(pass, 2 * index + 1);
    taciti_gpt_release(pass, taciti_gpt_layer_tensor(model, index, 0));
    pass->span_ns = taciti_trace_add(pass->trace, TACITI_SPAN_FORWARD, (int)index, pass->span_ns);
    return TACIT_OK;
}

tacit_status taciti_gpt_forward(taciti_gpt_pass *pass) {
    const size_t embedding = taciti_gpt_wte_tensor(pass->model);
    struct norm norm = {
        .pass = pass, .stream = taciti_gpt_residual(pass->model, 0), .norm = taciti_gpt_norm_before(pass->model, 0)};
    TACITI_TRY(taciti_gpt_need(pass, embedding));
    TACITI_TRY(taciti_gpt_need(pass, taciti_gpt_layer_tensor(pass->model, 0, 0)));
    taciti_gpt_each_rows(pass, false, embed_and_normalize, &norm);
    taciti_gpt_release(pass, embedding);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
    for (size_t l = 0; l < pass->model->layers; l++) {
        TACITI_TRY(taciti_gpt_go_on(pass));
        TACITI_TRY(forward_layer(pass, l));
    }
    return taciti_gpt_go_on(pass);
}
