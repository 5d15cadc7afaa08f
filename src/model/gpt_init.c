/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2's initial values (Radford et al. 2019, section 2.3): weights normal(0, 0.02), projections into the residual
 * stream normal(0, 0.02 / sqrt(2 layers)), biases 0, norms 1. Normals come from the Box-Muller transform of a
 * counter-based generator, with series of our own (base/series.h), so that ranks agree on every bit.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/series.h"
#include "base/text.h"
#include "model/gpt.h"

struct normals {
    float *out;
    size_t n;
    double deviation;
    uint64_t key;
};

/* Elements 2 i and 2 i + 1 share the i-th pair of uniforms. */
static void fill_part(void *context, int thread, int threads) {
    const struct normals *f = context;
    size_t begin, end;
    taciti_pool_part(f->n, 16, thread, threads, &begin, &end);
    for (size_t i = begin; i < end; i += 2) {
        const double radius = f->deviation * sqrt(-2 * taciti_series_log(1 - taciti_rng_unit(f->key, i)));
        double cosine, sine;
        taciti_series_circle(taciti_rng_unit(f->key, i + 1), &cosine, &sine);
        f->out[i] = (float)(radius * cosine);
        if (i + 1 < end) f->out[i + 1] = (float)(radius * sine);
    }
}

static uint64_t name_hash(const char *name) { /* FNV-1a */
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

void taciti_model_init_unit(taciti_model *model, size_t unit, uint64_t seed) {
    float *flat = model->parameters.base;
    for (size_t i = 0; i < model->layout->tensor_count; i++) {
        const taciti_tensor *t = &model->layout->tensors[i];
        if (t->unit != unit) continue;
        float *out = flat + t->offset;
        if (t->dims == 1) {
            const bool norm = taciti_text_ends_with(t->name, "weight");
            for (size_t j = 0; j < t->n; j++) out[j] = norm ? 1.0F : 0.0F;
            continue;
        }
        const double residual =
            taciti_text_ends_with(t->name, "c_proj.weight") ? 1 / sqrt(2 * (double)model->layers) : 1;
        struct normals f = {out, t->n, 0.02 * residual, taciti_rng_key(seed, name_hash(t->name))};
        taciti_pool_run(model->pool, fill_part, &f);
    }
}

void taciti_model_init(taciti_model *model, uint64_t seed) {
    for (size_t unit = 0; unit < model->layout->unit_count; unit++) taciti_model_init_unit(model, unit, seed);
    taciti_model_refresh(model);
}

static void encode_part(void *context, int thread, int threads) {
    const taciti_model *model = context;
    size_t begin, end;
    taciti_pool_part(model->layout->n, 1024, thread, threads, &begin, &end);
    model->kernels->bf16_encode((taciti_bf16 *)model->copy16.base + begin,
                                (const float *)model->parameters.base + begin, end - begin);
}

void taciti_model_refresh(taciti_model *model) {
    if (model->bf16) taciti_pool_run(model->pool, encode_part, model);
}
