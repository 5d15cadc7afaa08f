/* SPDX-License-Identifier: Apache-2.0
 *
 * The model's memory: one function lays it out, for the prediction as well as for the real thing.
 */
#include "base/log.h"
#include "model/gpt.h"

struct carver {
    char *base; /* NULL: count only */
    size_t bytes;
};

static void *carve_block(struct carver *carver, size_t count, size_t size) {
    void *at = carver->base == NULL ? NULL : carver->base + carver->bytes;
    carver->bytes += taciti_round_up(count * size, TACITI_ALIGN_BYTES);
    return at;
}

static float *carve_f32(struct carver *carver, size_t count) { return carve_block(carver, count, sizeof(float)); }

static taciti_bf16 *carve_b16(struct carver *carver, size_t count) {
    return carve_block(carver, count, sizeof(taciti_bf16));
}

static taciti_gpt_operand carve_operand(struct carver *carver, size_t count, bool bf16) {
    return bf16 ? (taciti_gpt_operand){.b16 = carve_b16(carver, count)}
                : (taciti_gpt_operand){.f32 = carve_f32(carver, count)};
}

static taciti_gpt_layer carve_layer(struct carver *carver, const taciti_gpt_shape *shape) {
    const size_t n = shape->batch * shape->time, c = (size_t)shape->options->channels;
    const bool bf16 = shape->options->dtype == TACITI_DTYPE_BF16;
    taciti_gpt_layer layer = {
        .ln1_mean = carve_f32(carver, n),
        .ln1_rstd = carve_f32(carver, n),
        .ln2_mean = carve_f32(carver, n),
        .ln2_rstd = carve_f32(carver, n),
        .ln1 = carve_operand(carver, n * c, bf16),
        .ln2 = carve_operand(carver, n * c, bf16),
        .qkv = carve_f32(carver, n * 3 * c),
        .lse = carve_f32(carver, n * (size_t)shape->options->heads),
        .fc = carve_f32(carver, n * 4 * c),
        .gelu = carve_operand(carver, n * 4 * c, bf16),
    };
    layer.attention = carve_operand(carver, n * c, bf16);
    if (bf16) layer.attention.f32 = carve_f32(carver, n * c);
    return layer;
}

/* The logits of a chunk and the widest arrays of a layer are never in use at the same time. */
static void carve_wide(struct carver *carver, const taciti_gpt_shape *shape, taciti_gpt_arena *a) {
    const size_t wide = shape->batch * shape->time * 4 * (size_t)shape->options->channels;
    const size_t logits = a->head_rows * a->columns;
    const bool bf16 = shape->options->dtype == TACITI_DTYPE_BF16;
    const size_t f32 = shape->training && wide > logits ? wide : logits;
    a->wide.f32 = a->logits = carve_f32(carver, f32);
    if (!bf16 || !shape->training) return;
    a->wide.b16 = a->logits16 = carve_b16(carver, wide > logits ? wide : logits);
}

static void carve_workspace(struct carver *carver, const taciti_gpt_shape *shape, taciti_gpt_arena *a) {
    const taciti_model_options *o = shape->options;
    const size_t c = (size_t)o->channels, n = shape->batch * shape->time, threads = (size_t)shape->threads;
    const bool bf16 = o->dtype == TACITI_DTYPE_BF16;
    carve_wide(carver, shape, a);
    a->narrow = carve_f32(carver, n * c);
    a->attention = carve_f32(carver, threads * a->attention_floats);
    a->zeros = carve_f32(carver, c);
    a->tokens = carve_block(carver, shape->time, sizeof(int32_t));
    a->partial = carve_f32(carver, threads * 4 * c);
    if (!shape->training) return;
    a->stream = carve_f32(carver, n * c);
    if (!bf16 && o->dropout > 0) a->out.f32 = carve_f32(carver, n * c);
    if (bf16) a->out.b16 = carve_b16(carver, n * c);
}

size_t taciti_gpt_carve(const taciti_gpt_shape *shape, void *base, taciti_gpt_arena *arena, size_t *workspace) {
    const taciti_model_options *o = shape->options;
    const size_t layers = (size_t)o->layers, c = (size_t)o->channels, n = shape->batch * shape->time;
    struct carver carver = {.base = base};
    taciti_gpt_arena a = {.layers = arena->layers};
    const taciti_attention_shape attention = {.time = shape->time,
                                              .heads = (size_t)o->heads,
                                              .head_size = c / (size_t)o->heads,
                                              .dropout = (float)o->dropout};
    a.attention_floats = taciti_round_up(taciti_attention_work_floats(&attention), 16);
    a.head_rows = n < TACITI_GPT_HEAD_ROWS ? n : TACITI_GPT_HEAD_ROWS;
    a.columns = taciti_round_up((size_t)o->vocabulary, 64);
    a.residual = carve_f32(&carver, (shape->training ? 2 * layers + 1 : 2) * n * c);
    a.lnf_mean = carve_f32(&carver, n);
    a.lnf_rstd = carve_f32(&carver, n);
    a.lnf = carve_operand(&carver, n * c, o->dtype == TACITI_DTYPE_BF16);
    for (size_t l = 0; l < layers; l++) {
        if (l > 0 && !shape->training) {
            if (a.layers != NULL) a.layers[l] = a.layers[0];
            continue;
        }
        const taciti_gpt_layer layer = carve_layer(&carver, shape);
        if (a.layers != NULL) a.layers[l] = layer;
    }
    const size_t activations = carver.bytes;
    carve_workspace(&carver, shape, &a);
    *workspace = carver.bytes - activations;
    *arena = a;
    return carver.bytes;
}

taciti_model_memory taciti_model_predict(const taciti_model_options *options, const taciti_layout *layout, size_t batch,
                                         size_t time, int threads, bool training) {
    const taciti_gpt_shape shape = {options, batch, time, threads, training};
    taciti_gpt_arena counted = {0};
    taciti_model_memory memory = {.parameters = layout->n * sizeof(float)};
    const size_t all = taciti_gpt_carve(&shape, NULL, &counted, &memory.workspace);
    memory.activations = all - memory.workspace;
    if (training) memory.gradients = layout->n * sizeof(float);
    if (options->dtype == TACITI_DTYPE_BF16) memory.copy16 = layout->n * sizeof(taciti_bf16);
    return memory;
}

static tacit_status create_flat(const taciti_model *model, size_t element_bytes, const char *what, taciti_pages *out) {
    return (model->reserved ? taciti_pages_reserve : taciti_pages_create)(model->layout->n * element_bytes, what, out);
}

static tacit_status allocate_arena(taciti_model *model) {
    const taciti_gpt_shape shape = {&model->options, model->batch, model->time, model->threads, model->training};
    size_t workspace;
    const size_t bytes = taciti_gpt_carve(&shape, NULL, &model->arena, &workspace);
    model->arena.layers = taciti_calloc(model->layers, sizeof *model->arena.layers);
    if (model->arena.layers == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(create_flat(model, sizeof(float), "parameters", &model->parameters));
    if (model->training) TACITI_TRY(create_flat(model, sizeof(float), "gradients", &model->gradients));
    if (model->bf16) TACITI_TRY(create_flat(model, sizeof(taciti_bf16), "bf16 parameters", &model->copy16));
    TACITI_TRY(taciti_pages_create(bytes, "activations", &model->memory));
    (void)taciti_gpt_carve(&shape, model->memory.base, &model->arena, &workspace);
    return taciti_matmul_create(model->pool, model->bf16, &model->matmul);
}

tacit_status taciti_model_create(const taciti_model_options *options, const taciti_layout *layout, taciti_pool *pool,
                                 size_t batch, size_t time, taciti_model_use use, taciti_model **out) {
    if (time < 1 || time > (size_t)options->context)
        return taciti_fail(TACIT_E_CONFIG, "sequences of %zu tokens do not fit a model.context of %lld", time,
                           (long long)options->context);
    taciti_model *model = taciti_calloc(1, sizeof *model);
    if (model == NULL) return TACIT_E_MEMORY;
    *model = (taciti_model){.options = *options,
                            .layout = layout,
                            .pool = pool,
                            .kernels = taciti_kernels_get(),
                            .threads = taciti_pool_threads(pool),
                            .training = use != TACITI_MODEL_INFERENCE,
                            .reserved = use == TACITI_MODEL_TRAINING_PARTS,
                            .bf16 = options->dtype == TACITI_DTYPE_BF16,
                            .layers = (size_t)options->layers,
                            .heads = (size_t)options->heads,
                            .channels = (size_t)options->channels,
                            .vocabulary = (size_t)options->vocabulary,
                            .batch = batch > 0 ? batch : 1,
                            .time = time};
    const tacit_status status = allocate_arena(model);
    if (status == TACIT_OK)
        *out = model;
    else
        taciti_model_destroy(model);
    return status;
}

void taciti_model_destroy(taciti_model *model) {
    if (model == NULL) return;
    taciti_matmul_destroy(model->matmul);
    taciti_free(model->arena.layers);
    taciti_pages_destroy(&model->parameters);
    taciti_pages_destroy(&model->gradients);
    taciti_pages_destroy(&model->copy16);
    taciti_pages_destroy(&model->memory);
    taciti_free(model);
}

float *taciti_model_parameters(taciti_model *model) { return model->parameters.base; }

float *taciti_model_gradients(taciti_model *model) { return model->gradients.base; }

taciti_bf16 *taciti_model_copy16(taciti_model *model) { return model->copy16.base; }
