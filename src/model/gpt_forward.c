/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward pass. A layer is
 *
 *     x1 = x0 + dropout(attention(norm1(x0)) Wproj + bproj)
 *     x2 = x1 + dropout(gelu(norm2(x1) Wfc + bfc) Wmlp + bmlp)
 *
 * Row-wise steps that follow each other run block by block, so that a block is read from memory once.
 */
#include "base/clock.h"
#include "base/log.h"
#include "model/gpt.h"

/* A residual addition (or the embedding) and the norm after it, for the rows of a block. */
struct norm {
    const taciti_gpt_pass *pass;
    const float *before, *bias; /* stream and bias of the residual addition whose branch is in `narrow` */
    size_t layer;
    int site;
    float *stream; /* what is normalised */
    const float *weight, *norm_bias;
    float *mean, *rstd;
    taciti_gpt_operand out;
};

static void normalize(const struct norm *norm, const taciti_gpt_rows *rows) {
    const taciti_model *model = norm->pass->model;
    const size_t c = model->channels, at = rows->first * c;
    model->kernels->layernorm(taciti_gpt_at(norm->out.f32, at), taciti_gpt_at16(norm->out.b16, at),
                              norm->mean + rows->first, norm->rstd + rows->first, norm->stream + at, norm->weight,
                              norm->norm_bias, rows->count, c);
}

static void add_and_normalize(void *context, const taciti_gpt_rows *rows) {
    const struct norm *norm = context;
    const taciti_gpt_pass *pass = norm->pass;
    const size_t c = pass->model->channels, at = rows->first * c;
    pass->model->kernels->residual(
        norm->stream + at, norm->before + at, pass->model->arena.narrow + at, norm->bias, rows->count, c, pass->dropout,
        taciti_gpt_mask_key(pass, rows->sample, norm->layer, norm->site), rows->first % pass->time * c);
    normalize(norm, rows);
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
    normalize(norm, rows);
}

/* The norm in front of half layer `half` (2 layers: the last norm). */
static struct norm norm_before(taciti_gpt_pass *pass, size_t half) {
    const taciti_model *model = pass->model;
    const taciti_gpt_arena *arena = &model->arena;
    struct norm norm = {.pass = pass, .stream = taciti_gpt_residual(model, half)};
    size_t tensor;
    if (half == 2 * model->layers) {
        tensor = taciti_gpt_lnf_tensor(model);
        norm.mean = arena->lnf_mean;
        norm.rstd = arena->lnf_rstd;
        norm.out = arena->lnf;
    } else {
        const taciti_gpt_layer *layer = &arena->layers[half / 2];
        const bool first = half % 2 == 0;
        tensor = taciti_gpt_layer_tensor(model, half / 2, first ? TACITI_GPT_LN1_W : TACITI_GPT_LN2_W);
        norm.mean = first ? layer->ln1_mean : layer->ln2_mean;
        norm.rstd = first ? layer->ln1_rstd : layer->ln2_rstd;
        norm.out = first ? layer->ln1 : layer->ln2;
    }
    norm.weight = taciti_gpt_parameter(model, tensor);
    norm.norm_bias = taciti_gpt_parameter(model, tensor + 1);
    return norm;
}

/* Adds the branch in `narrow` to the stream before half layer `half` and normalises the result. */
static void finish_half(taciti_gpt_pass *pass, size_t half) {
    const taciti_model *model = pass->model;
    struct norm norm = norm_before(pass, half + 1);
    norm.before = taciti_gpt_residual(model, half);
    norm.layer = half / 2;
    norm.site = half % 2 == 0 ? TACITI_GPT_SITE_PROJ : TACITI_GPT_SITE_MLP;
    norm.bias = taciti_gpt_parameter(
        model, taciti_gpt_layer_tensor(model, half / 2, half % 2 == 0 ? TACITI_GPT_PROJ_B : TACITI_GPT_MLP_PROJ_B));
    taciti_gpt_each_rows(pass, false, add_and_normalize, &norm);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
}

/* out[tokens][columns] = in[tokens][inner] W[inner][columns] */
static tacit_status multiply(taciti_gpt_pass *pass, taciti_gpt_operand in, size_t layer, int tensor, float *out) {
    taciti_model *model = pass->model;
    const size_t index = taciti_gpt_layer_tensor(model, layer, tensor);
    const size_t *shape = model->layout->tensors[index].shape;
    const tacit_status status = taciti_matmul_run(model->matmul, &(taciti_product){.form = TACITI_PRODUCT_NN,
                                                                                   .m = pass->tokens,
                                                                                   .n = shape[1],
                                                                                   .k = shape[0],
                                                                                   .a = taciti_gpt_data(in),
                                                                                   .lda = shape[0],
                                                                                   .b = taciti_gpt_weight(model, index),
                                                                                   .ldb = shape[1],
                                                                                   .c = out,
                                                                                   .ldc = shape[1]});
    taciti_gpt_clock(pass, TACITI_MODEL_OP_GEMM);
    return status;
}

struct layer_job {
    const taciti_gpt_pass *pass;
    const taciti_gpt_layer *layer;
    size_t index;
};

static void add_qkv_bias(void *context, const taciti_gpt_rows *rows) {
    const struct layer_job *job = context;
    const taciti_model *model = job->pass->model;
    const size_t c3 = 3 * model->channels;
    const float *bias = taciti_gpt_parameter(model, taciti_gpt_layer_tensor(model, job->index, TACITI_GPT_QKV_B));
    model->kernels->bias(job->layer->qkv + rows->first * c3, NULL, bias, rows->count, c3);
}

static void apply_gelu(void *context, const taciti_gpt_rows *rows) {
    const struct layer_job *job = context;
    const taciti_model *model = job->pass->model;
    const taciti_gpt_layer *layer = job->layer;
    const size_t c4 = 4 * model->channels, at = rows->first * c4;
    const float *bias = taciti_gpt_parameter(model, taciti_gpt_layer_tensor(model, job->index, TACITI_GPT_FC_B));
    model->kernels->gelu(taciti_gpt_at(layer->gelu.f32, at), taciti_gpt_at16(layer->gelu.b16, at), layer->fc + at, bias,
                         rows->count, c4);
}

/* Heads of samples, spread over the threads. */
static void attend(void *context, int thread, int threads) {
    const struct layer_job *job = context;
    const taciti_gpt_pass *pass = job->pass;
    const taciti_model *model = pass->model;
    const size_t c = model->channels, time = pass->time, heads = model->heads;
    taciti_attention_shape shape = {time, heads, c / heads, pass->dropout, 0};
    float *work = model->arena.attention + (size_t)thread * model->arena.attention_floats;
    size_t begin, end;
    taciti_pool_part(pass->batch_size * heads, 1, thread, threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const size_t sample = i / heads, head = i % heads, at = sample * time * c;
        shape.key = taciti_gpt_mask_key(pass, sample, job->index, TACITI_GPT_SITE_ATTENTION);
        model->kernels->attention(job->layer->attention.f32 + at, taciti_gpt_at16(job->layer->attention.b16, at),
                                  job->layer->lse + (sample * heads + head) * time, job->layer->qkv + 3 * at, &shape,
                                  head, work);
    }
}

/* A tensor of the unit behind a layer, whose norm ends the layer's pass. */
static size_t unit_after(const taciti_model *model, size_t layer) {
    return layer + 1 < model->layers ? taciti_gpt_layer_tensor(model, layer + 1, 0) : taciti_gpt_lnf_tensor(model);
}

static tacit_status forward_layer(taciti_gpt_pass *pass, size_t index) {
    taciti_model *model = pass->model;
    const taciti_gpt_layer *layer = &model->arena.layers[index];
    struct layer_job job = {pass, layer, index};
    TACITI_TRY(multiply(pass, layer->ln1, index, TACITI_GPT_QKV_W, layer->qkv));
    taciti_gpt_each_rows(pass, false, add_qkv_bias, &job);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
    taciti_pool_run(model->pool, attend, &job);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ATTENTION);
    TACITI_TRY(multiply(pass, layer->attention, index, TACITI_GPT_PROJ_W, model->arena.narrow));
    finish_half(pass, 2 * index);
    TACITI_TRY(multiply(pass, layer->ln2, index, TACITI_GPT_FC_W, layer->fc));
    taciti_gpt_each_rows(pass, false, apply_gelu, &job);
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ELEMENTWISE);
    TACITI_TRY(multiply(pass, layer->gelu, index, TACITI_GPT_MLP_PROJ_W, model->arena.narrow));
    TACITI_TRY(taciti_gpt_need(pass, unit_after(model, index)));
    finish_half(pass, 2 * index + 1);
    taciti_gpt_release(pass, taciti_gpt_layer_tensor(model, index, 0));
    pass->span_ns = taciti_trace_add(pass->trace, TACITI_SPAN_FORWARD, (int)index, pass->span_ns);
    return TACIT_OK;
}

tacit_status taciti_gpt_forward(taciti_gpt_pass *pass) {
    const size_t embedding = taciti_gpt_wte_tensor(pass->model);
    struct norm norm = norm_before(pass, 0);
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
