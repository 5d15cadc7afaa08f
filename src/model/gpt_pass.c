/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions for every pass: rows split over threads, keys of dropout masks, operation times, reports of ready tensors.
 */
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/gpt.h"

enum { BLOCK_ROWS = 16 };

float *taciti_gpt_residual(const taciti_model *model, size_t i) {
    const size_t place = model->training ? i : i % 2;
    return model->arena.residual + place * model->batch * model->time * model->channels;
}

taciti_gpt_norm taciti_gpt_norm_before(const taciti_model *model, size_t half) {
    const taciti_gpt_arena *a = &model->arena;
    if (half == 2 * model->layers)
        return (taciti_gpt_norm){taciti_gpt_lnf_tensor(model), a->lnf_mean, a->lnf_rstd, a->lnf};
    const taciti_gpt_layer *l = &a->layers[half / 2];
    const bool first = half % 2 == 0;
    const size_t tensor = taciti_gpt_layer_tensor(model, half / 2, first ? TACITI_GPT_LN1_W : TACITI_GPT_LN2_W);
    return first ? (taciti_gpt_norm){tensor, l->ln1_mean, l->ln1_rstd, l->ln1}
                 : (taciti_gpt_norm){tensor, l->ln2_mean, l->ln2_rstd, l->ln2};
}

uint64_t taciti_gpt_mask_key(const taciti_gpt_pass *pass, size_t sample, size_t layer, int site) {
    const uint64_t key = taciti_rng_key(pass->batch->dropout_key, pass->batch->first_sample + sample);
    return taciti_rng_key(key, layer * 4 + (uint64_t)site);
}

struct rows_context {
    const taciti_gpt_pass *pass;
    taciti_gpt_rows_job *job;
    void *context;
    bool sums;
};

float *taciti_gpt_partial(const taciti_model *model, int thread) {
    return model->arena.partial + (size_t)thread * 4 * model->channels;
}

static void run_rows(void *context, int thread, int threads) {
    const struct rows_context *rc = context;
    const size_t time = rc->pass->time;
    size_t row, end;
    if (rc->sums) memset(taciti_gpt_partial(rc->pass->model, thread), 0, 4 * rc->pass->model->channels * sizeof(float));
    taciti_pool_part(rc->pass->tokens, BLOCK_ROWS, thread, threads, &row, &end);
    while (row < end) {
        const size_t sample = row / time, sample_end = (sample + 1) * time;
        size_t last = row + BLOCK_ROWS < end ? row + BLOCK_ROWS : end;
        if (last > sample_end) last = sample_end;
        rc->job(rc->context, &(taciti_gpt_rows){thread, sample, row, last - row});
        row = last;
    }
}

void taciti_gpt_each_rows(const taciti_gpt_pass *pass, bool sums, taciti_gpt_rows_job *job, void *context) {
    taciti_pool_run(pass->model->pool, run_rows, &(struct rows_context){pass, job, context, sums});
}

struct attention_job {
    const taciti_gpt_pass *pass;
    size_t layer;
    bool backward;
};

/* Heads of samples, spread over the threads. */
static void attend_heads(void *context, int thread, int threads) {
    const struct attention_job *job = context;
    const taciti_gpt_pass *pass = job->pass;
    const taciti_model *model = pass->model;
    const taciti_gpt_arena *arena = &model->arena;
    const taciti_gpt_layer *layer = &arena->layers[job->layer];
    const size_t c = model->channels, time = pass->time, heads = model->heads;
    taciti_attention_shape shape = {time, heads, c / heads, pass->dropout, 0};
    float *work = arena->attention + (size_t)thread * arena->attention_floats;
    size_t begin, end;
    taciti_pool_part(pass->batch_size * heads, 1, thread, threads, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const size_t sample = i / heads, head = i % heads, at = sample * time * c;
        float *out = layer->attention.f32 + at, *lse = layer->lse + (sample * heads + head) * time;
        shape.key = taciti_gpt_mask_key(pass, sample, job->layer, TACITI_GPT_SITE_ATTENTION);
        if (job->backward)
            model->kernels->attention_backward(arena->wide.f32 + 3 * at, arena->narrow + at, out, lse,
                                               layer->qkv + 3 * at, &shape, head, work);
        else
            model->kernels->attention(out, taciti_gpt_at16(layer->attention.b16, at), lse, layer->qkv + 3 * at, &shape,
                                      head, work);
    }
}

void taciti_gpt_attend(taciti_gpt_pass *pass, size_t layer, bool backward) {
    taciti_pool_run(pass->model->pool, attend_heads, &(struct attention_job){pass, layer, backward});
    taciti_gpt_clock(pass, TACITI_MODEL_OP_ATTENTION);
}

void taciti_gpt_clock(taciti_gpt_pass *pass, taciti_model_op op) {
    const int64_t now = taciti_now_ns();
    pass->model->op_ns[op] += now - pass->clock_ns;
    pass->clock_ns = now;
}

void taciti_gpt_report(taciti_gpt_pass *pass, size_t count) {
    const taciti_network_hooks *hooks = &pass->batch->hooks;
    for (size_t i = 0; i < count; i++, pass->ready++)
        if (hooks->ready != NULL) hooks->ready(hooks->context, pass->ready);
}

tacit_status taciti_gpt_go_on(const taciti_gpt_pass *pass) {
    const taciti_network_hooks *hooks = &pass->batch->hooks;
    return hooks->leave != NULL && hooks->leave(hooks->context) ? TACIT_PENDING : TACIT_OK;
}

tacit_status taciti_gpt_need(const taciti_gpt_pass *pass, size_t tensor) {
    const taciti_network_hooks *hooks = &pass->batch->hooks;
    return hooks->need == NULL ? TACIT_OK : hooks->need(hooks->units, pass->model->layout->tensors[tensor].unit);
}

void taciti_gpt_release(const taciti_gpt_pass *pass, size_t tensor) {
    const taciti_network_hooks *hooks = &pass->batch->hooks;
    if (hooks->release != NULL) hooks->release(hooks->units, pass->model->layout->tensors[tensor].unit);
}

tacit_status taciti_gpt_write(const taciti_gpt_pass *pass, size_t tensor) {
    const taciti_network_hooks *hooks = &pass->batch->hooks;
    return hooks->write == NULL ? TACIT_OK : hooks->write(hooks->units, pass->model->layout->tensors[tensor].unit);
}
