/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of the GPT model: what its source files share. Shapes in comments use B batch, T time, C channels, H heads,
 * V vocabulary, L layers, N = B T tokens of a micro-batch.
 */
#ifndef TACITI_MODEL_GPT_H
#define TACITI_MODEL_GPT_H

#include "base/memory.h"
#include "model/matmul.h"
#include "model/model.h"

/* Rows of logits that exist at a time. Larger: fewer passes over the head's gradient; smaller: less memory. */
enum { TACITI_GPT_HEAD_ROWS = 384 };

/* Tensors of one layer in the order in which their gradients become final. */
enum {
    TACITI_GPT_MLP_PROJ_W,
    TACITI_GPT_MLP_PROJ_B,
    TACITI_GPT_FC_W,
    TACITI_GPT_FC_B,
    TACITI_GPT_LN2_W,
    TACITI_GPT_LN2_B,
    TACITI_GPT_PROJ_W,
    TACITI_GPT_PROJ_B,
    TACITI_GPT_QKV_W,
    TACITI_GPT_QKV_B,
    TACITI_GPT_LN1_W,
    TACITI_GPT_LN1_B,
    TACITI_GPT_LAYER_TENSORS
};

/* Where a dropout mask belongs: part of its key, so the numbers are part of a run's identity. */
enum { TACITI_GPT_SITE_EMBEDDING, TACITI_GPT_SITE_ATTENTION, TACITI_GPT_SITE_PROJ, TACITI_GPT_SITE_MLP };

/* Operand of a matrix product: f32 in an f32 model, b16 in a bf16 model; the other is NULL unless said otherwise. */
typedef struct taciti_gpt_operand {
    float *f32;
    taciti_bf16 *b16;
} taciti_gpt_operand;

/* The parts of a layer's forward pass that its backward pass needs. */
typedef struct taciti_gpt_layer {
    float *ln1_mean, *ln1_rstd, *ln2_mean, *ln2_rstd; /* [N] */
    taciti_gpt_operand ln1, ln2;                      /* [N][C] */
    float *qkv;                                       /* [N][3C] */
    float *lse;                                       /* [B][H][T] */
    taciti_gpt_operand attention;                     /* [N][C]; f32 is there in both modes */
    float *fc;                                        /* [N][4C], with bias, before GELU */
    taciti_gpt_operand gelu;                          /* [N][4C] */
} taciti_gpt_layer;

/* All memory of a pass. Without training, all layers share one layer's storage and two residuals take turns. */
typedef struct taciti_gpt_arena {
    taciti_gpt_layer *layers; /* [L]; a small block of its own */
    float *residual;          /* [2 L + 1][N][C] (2 when not training): the stream before each half layer */
    float *lnf_mean, *lnf_rstd;
    taciti_gpt_operand lnf; /* [N][C] */

    /* Workspace: shared by all layers. */
    float *stream;           /* [N][C] gradient of the residual stream */
    taciti_gpt_operand out;  /* [N][C] gradient of a projection's output; no f32 without dropout */
    float *narrow;           /* [N][C] */
    taciti_gpt_operand wide; /* [N][4C]; f32 is there in both modes when training */
    float *logits;           /* [rows][columns]; takes the place of `wide`, which is idle then */
    taciti_bf16 *logits16;
    float *partial;   /* [threads][4C] bias and norm gradients of each thread */
    float *attention; /* [threads][attention_floats] */
    float *zeros;     /* [C] */
    int32_t *tokens;  /* [T] padded prompt of next_logits */
    size_t head_rows, columns, attention_floats;
} taciti_gpt_arena;

struct taciti_model {
    taciti_model_options options;
    const taciti_layout *layout; /* borrows */
    taciti_pool *pool;           /* borrows */
    const taciti_kernels *kernels;
    taciti_matmul *matmul;
    int threads;
    bool training, bf16;
    size_t layers, heads, channels, vocabulary; /* from options */
    size_t batch, time;                         /* maxima */
    taciti_pages parameters, gradients, copy16, memory;
    bool reserved; /* the first three; TACITI_MODEL_TRAINING_PARTS */
    taciti_gpt_arena arena;
    int64_t op_ns[TACITI_MODEL_OPS];
};

/* One call of train, loss or next_logits. */
typedef struct taciti_gpt_pass {
    taciti_model *model;
    const taciti_model_batch *batch;
    size_t batch_size, time, tokens; /* tokens = batch_size * time */
    bool training;
    float dropout;       /* 0 when not training */
    taciti_trace *trace; /* may be NULL */
    size_t ready;        /* tensors reported so far */
    int64_t clock_ns;    /* when the running operation began */
    int64_t span_ns;     /* when the running span began */
    double loss;
} taciti_gpt_pass;

/* gpt_memory.c: lays the arena out from `base` (NULL: only counts). Returns bytes; workspace part in *workspace. */
typedef struct taciti_gpt_shape {
    const taciti_model_options *options;
    size_t batch, time;
    int threads;
    bool training;
} taciti_gpt_shape;
size_t taciti_gpt_carve(const taciti_gpt_shape *shape, void *base, taciti_gpt_arena *arena, size_t *workspace);

/* Index of a tensor in the layout. Layer tensors: TACITI_GPT_*. */
size_t taciti_gpt_layer_tensor(const taciti_model *model, size_t layer, int tensor);
size_t taciti_gpt_lnf_tensor(const taciti_model *model); /* the bias follows */
size_t taciti_gpt_wpe_tensor(const taciti_model *model);
size_t taciti_gpt_wte_tensor(const taciti_model *model);
size_t taciti_gpt_head_tensor(const taciti_model *model); /* wte when tied */

float *taciti_gpt_parameter(const taciti_model *model, size_t tensor);
float *taciti_gpt_gradient(const taciti_model *model, size_t tensor);
/* The tensor as an operand of a product: f32 parameters or their bf16 copy. */
const void *taciti_gpt_weight(const taciti_model *model, size_t tensor);

/* The operand's array of the model's type. */
static inline const void *taciti_gpt_data(taciti_gpt_operand operand) {
    return operand.b16 != NULL ? (const void *)operand.b16 : (const void *)operand.f32;
}
/* NULL stays NULL. */
static inline float *taciti_gpt_at(float *x, size_t i) { return x == NULL ? NULL : x + i; }
static inline taciti_bf16 *taciti_gpt_at16(taciti_bf16 *x, size_t i) { return x == NULL ? NULL : x + i; }

/* The norm in front of half layer `half` of 2 L (half = 2 L: the last norm). */
typedef struct taciti_gpt_norm {
    size_t tensor; /* its weight; the bias follows */
    float *mean, *rstd;
    taciti_gpt_operand out;
} taciti_gpt_norm;
taciti_gpt_norm taciti_gpt_norm_before(const taciti_model *model, size_t half);

/* The residual stream before half layer i of 2 L (i = 2 L: after the last). */
float *taciti_gpt_residual(const taciti_model *model, size_t i);

/* Key of the dropout mask of one site of one sample of this pass. */
uint64_t taciti_gpt_mask_key(const taciti_gpt_pass *pass, size_t sample, size_t layer, int site);

/* Splits the pass's rows over the threads in blocks that stay in cache and never cross a sample. `rows` gets the
 * thread, the sample, and rows [first, first + count) of the micro-batch. sums: the job adds to its thread's part of
 * `partial`, which is cleared first. */
typedef struct taciti_gpt_rows {
    int thread;
    size_t sample, first, count;
} taciti_gpt_rows;
typedef void taciti_gpt_rows_job(void *context, const taciti_gpt_rows *rows);
void taciti_gpt_each_rows(const taciti_gpt_pass *pass, bool sums, taciti_gpt_rows_job *job, void *context);

/* A job over the rows of one layer. */
typedef struct taciti_gpt_layer_job {
    const taciti_gpt_pass *pass;
    const taciti_gpt_layer *layer;
    size_t index;
} taciti_gpt_layer_job;

/* A thread's part of `partial`, [4C]. */
float *taciti_gpt_partial(const taciti_model *model, int thread);

/* Adds the time since the last call to the operation class. */
void taciti_gpt_clock(taciti_gpt_pass *pass, taciti_model_op op);

/* gpt_forward.c: embedding and all layers, to the output of the last norm. */
tacit_status taciti_gpt_forward(taciti_gpt_pass *pass);

/* gpt_pass.c: attention of one layer, forwards from `qkv`, or backwards from `narrow` to `wide`. */
void taciti_gpt_attend(taciti_gpt_pass *pass, size_t layer, bool backward);
/* gpt_head.c: logits, loss and, when training, the head's gradients and the gradient of the last norm's output (in
 * `narrow`). */
tacit_status taciti_gpt_head(taciti_gpt_pass *pass);
/* The logits of `rows` rows from `first` into arena.logits. */
tacit_status taciti_gpt_logits(taciti_gpt_pass *pass, size_t first, size_t rows);
/* gpt_backward.c: from `narrow` to all other gradients; reports tensors. */
tacit_status taciti_gpt_backward(taciti_gpt_pass *pass);
/* Around every use of parameters: those of the unit that has this tensor. */
tacit_status taciti_gpt_need(const taciti_gpt_pass *pass, size_t tensor);
void taciti_gpt_release(const taciti_gpt_pass *pass, size_t tensor);

/* Before gradients of that unit are written. */
tacit_status taciti_gpt_write(const taciti_gpt_pass *pass, size_t tensor);
/* Reports the next `count` tensors as ready. */
void taciti_gpt_report(taciti_gpt_pass *pass, size_t count);
/* TACIT_PENDING when the caller wants the pass to end here. */
tacit_status taciti_gpt_go_on(const taciti_gpt_pass *pass);

#endif
