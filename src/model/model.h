/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2 (Radford et al. 2019): pre-norm transformer, learned positions, GELU (tanh form), dropout, output head tied to
 * the token embedding or separate, any size. Forward and backward on f32 master weights; in bf16 mode matrix products
 * take bf16 operands and accumulate in f32. The model does not know about other ranks.
 *
 * Parameter names, shapes and (transposed "Conv1D") layouts are those of Hugging Face's GPT2LMHeadModel without the
 * "transformer." prefix: wte.weight [V][C], wpe.weight [T][C], h.L.ln_1.weight, h.L.attn.c_attn.weight [C][3C], ...,
 * ln_f.weight, and lm_head.weight [V][C] when not tied.
 */
#ifndef TACITI_MODEL_MODEL_H
#define TACITI_MODEL_MODEL_H

#include "base/option.h"
#include "base/pool.h"
#include "base/trace.h"
#include "kernel/kernel.h"
#include "model/network.h"
#include "tensor/layout.h"

enum { TACITI_DTYPE_F32, TACITI_DTYPE_BF16 };
#define TACITI_DTYPE_CHOICES "f32|bf16" /* in their order */

typedef struct taciti_model_options {
    taciti_text preset; /* model.preset: "" or one of taciti_model_presets(); explicit keys override it */
    int64_t layers;     /* model.layers ... 0: from the preset */
    int64_t heads;
    int64_t channels;
    int64_t vocabulary; /* 0: from the data (256 for bytes) */
    int64_t context;    /* model.context: maximum of positions */
    double dropout;     /* model.dropout */
    bool tied;          /* model.tied: head shares wte (default true) */
    int dtype;          /* model.dtype: "f32|bf16" */
} taciti_model_options;
extern const taciti_option_table taciti_model_option_table; /* section "model" */

/* Preset names, NULL-terminated: "nano" (tests), "byte-2m", "byte-10m", "gpt2-30m" (6 layers, C 384, V 50257), ... */
const char *const *taciti_model_presets(void);

/* The index-th size: layers, heads, channels, vocabulary, context. *key receives its option, "layers". */
enum { TACITI_MODEL_SIZES = 5 };
int64_t taciti_model_size(const taciti_model_options *options, size_t index, const char **key);

/* Fills zeros from the preset, checks the whole (heads divides channels, ...). E_CONFIG names the key. */
tacit_status taciti_model_resolve(taciti_model_options *options);

/* Appends all parameters in ready order and seals with bucket_bytes. Needs resolved options. */
tacit_status taciti_model_layout(const taciti_model_options *options, size_t bucket_bytes, taciti_layout *out);

/* Predicted bytes, before anything is allocated. */
typedef struct taciti_model_memory {
    size_t parameters, gradients, copy16, activations, workspace;
} taciti_model_memory;
taciti_model_memory taciti_model_predict(const taciti_model_options *options, const taciti_layout *layout, size_t batch,
                                         size_t time, int threads, bool training);

typedef struct taciti_model taciti_model;

/* TRAINING_PARTS is for ranks that hold parts: parameters, gradients and bf16 copy have addresses but no memory; the
 * network's arrays name their pages (network.h). */
typedef enum taciti_model_use {
    TACITI_MODEL_INFERENCE,
    TACITI_MODEL_TRAINING,
    TACITI_MODEL_TRAINING_PARTS
} taciti_model_use;

/* Allocates parameters, (when training) gradients, the bf16 copy and activations for batches of up to `batch`
 * sequences of `time` tokens. Borrows layout, which taciti_model_layout() made of these options, and pool. Not
 * collective. */
tacit_status taciti_model_create(const taciti_model_options *options, const taciti_layout *layout, taciti_pool *pool,
                                 size_t batch, size_t time, taciti_model_use use, taciti_model **out);
void taciti_model_destroy(taciti_model *model);

float *taciti_model_parameters(taciti_model *model);   /* flat; after writing to it call taciti_model_refresh() */
float *taciti_model_gradients(taciti_model *model);    /* flat */
taciti_bf16 *taciti_model_copy16(taciti_model *model); /* flat, or NULL in f32 */

/* Sets GPT-2's initial values: normal(0, 0.02), residual projections scaled by 1/sqrt(2 layers). A function of (seed,
 * tensor name, element). */
void taciti_model_init(taciti_model *model, uint64_t seed);

/* The same for the parameters of one unit; the bf16 copy is left alone. */
void taciti_model_init_unit(taciti_model *model, size_t unit, uint64_t seed);

/* Updates the bf16 copy after the caller has changed the parameters. */
void taciti_model_refresh(taciti_model *model);

/* Forward and backward of one micro-batch: tokens and targets [batch][time]; a target < 0 is ignored. The gradients of
 * sum(loss) * scale are added to the gradients if `accumulate`, else they replace them. *loss_sum receives the sum of
 * the losses in nats. batch may be 0: the same pass without samples, with the same calls of hooks. dropout_key: the
 * caller folds (seed, step); sample i of the batch uses (dropout_key, first_sample + i), so masks do not depend on the
 * distribution of samples over ranks. hooks: see network.h. `ready` is called in layout order; units are the head (last
 * norm, and the output matrix unless tied), every block, and the embeddings. `leave` is called before every layer; if
 * it ends the pass, gradients not yet reported as ready are undefined. */
typedef struct taciti_model_batch {
    const int32_t *tokens, *targets;
    size_t batch, time;
    float scale;
    bool accumulate;
    uint64_t dropout_key;
    uint64_t first_sample;
    taciti_network_hooks hooks;
} taciti_model_batch;
tacit_status taciti_model_train(taciti_model *model, const taciti_model_batch *batch, taciti_trace *trace,
                                double *loss_sum);

/* The model as a network. A step has one pass per micro-batch that `batch` supplies. `ready` is called during the last
 * pass. */
typedef struct taciti_model_network {
    taciti_model *model; /* borrows */
    /* Fills in micro-batch `pass` (from 0 on) of a step, except hooks and accumulate; its arrays are borrowed until the
     * next call. Sets *last if no other follows. A step has at least one micro-batch, which may be empty. */
    tacit_status (*batch)(void *context, int64_t step, size_t pass, taciti_model_batch *out, bool *last);
    void *context;
} taciti_model_network;

/* Borrows what it is given. */
taciti_network taciti_model_as_network(taciti_model_network *model);

/* Forward only, without dropout: *loss_sum receives the sum of losses over targets >= 0. hooks: need and release are
 * called, also if batch is 0; may be NULL. */
tacit_status taciti_model_loss(taciti_model *model, const int32_t *tokens, const int32_t *targets, size_t batch,
                               size_t time, const taciti_network_hooks *hooks, double *loss_sum);

/* Computes the logits after one sequence of `time` tokens; out has `vocabulary` floats. For sampling. */
tacit_status taciti_model_next_logits(taciti_model *model, const int32_t *tokens, size_t time, float *out);

/* Time of passes by class of operation, in nanoseconds since the last call. */
typedef enum taciti_model_op {
    TACITI_MODEL_OP_GEMM, /* matrix products of the layers */
    TACITI_MODEL_OP_HEAD, /* logits, loss and their gradients */
    TACITI_MODEL_OP_ATTENTION,
    TACITI_MODEL_OP_ELEMENTWISE, /* embedding, norms, biases, GELU, residuals */
    TACITI_MODEL_OPS
} taciti_model_op;
void taciti_model_take_op_ns(taciti_model *model, int64_t out[TACITI_MODEL_OPS]);

/* Floating-point operations of one training step per token: 6 N + 12 layers * channels * time (attention in full),
 * N without position embeddings and, when not tied, without wte. */
double taciti_model_flops_per_token(const taciti_model_options *options, size_t time);

#endif
