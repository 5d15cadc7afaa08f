/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2's initial values (Radford et al. 2019, section 2.3): weights normal(0, 0.02), projections into the residual
 * stream normal(0, 0.02 / sqrt(2 layers)), biases 0, norms 1. Normals come from the Box-Muller transform of a
 * counter-based generator. Logarithm, sine and cosine are series of our own in plain double arithmetic: a mathematics
 * library may round differently from one machine to the next, and ranks must agree on every bit.
 */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "model/gpt.h"

#define PI 3.14159265358979323846
#define SQRT2 1.41421356237309504880
#define LN2 0.69314718055994530942

/* Natural logarithm of x in (0, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), then 2 atanh((m - 1) / (m + 1)). */
static double log_series(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < SQRT2 / 2) {
        m *= 2;
        e--;
    }
    const double s = (m - 1) / (m + 1), s2 = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k; /* s2 < 0.03: the next term is below 1e-17 */
    return 2 * s * sum + e * LN2;
}

/* Cosine and sine of 2 pi u for u in [0, 1), from Taylor series on [-pi/4, pi/4]. */
static void circle(double u, double *cosine, double *sine) {
    const int quarter = (int)(u * 4 + 0.5);
    const double x = (u - quarter * 0.25) * (2 * PI), x2 = x * x;
    double c = 0, s = 0;
    for (int k = 16; k >= 2; k -= 2) {
        c = (1 - c) * x2 / ((k - 1) * k); /* 1 - x^2/2! (1 - x^2/(3 4) (...)) */
        s = (1 - s) * x2 / (k * (k + 1));
    }
    c = 1 - c;
    s = x * (1 - s);
    *cosine = quarter % 2 == 0 ? (quarter == 2 ? -c : c) : (quarter == 1 ? -s : s);
    *sine = quarter % 2 == 0 ? (quarter == 2 ? -s : s) : (quarter == 1 ? c : -c);
}

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
        const double radius = f->deviation * sqrt(-2 * log_series(1 - taciti_rng_unit(f->key, i)));
        double cosine, sine;
        circle(taciti_rng_unit(f->key, i + 1), &cosine, &sine);
        f->out[i] = (float)(radius * cosine);
        if (i + 1 < end) f->out[i + 1] = (float)(radius * sine);
    }
}

static uint64_t name_hash(const char *name) { /* FNV-1a */
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), k = strlen(end);
    return n >= k && strcmp(name + n - k, end) == 0;
}

void taciti_model_init(taciti_model *model, uint64_t seed) {
    float *flat = model->parameters.base;
    for (size_t i = 0; i < model->layout->tensor_count; i++) {
        const taciti_tensor *t = &model->layout->tensors[i];
        float *out = flat + t->offset;
        if (t->dims == 1) {
            const bool norm = ends_with(t->name, "weight");
            for (size_t j = 0; j < t->n; j++) out[j] = norm ? 1.0F : 0.0F;
            continue;
        }
        const double residual = ends_with(t->name, "c_proj.weight") ? 1 / sqrt(2 * (double)model->layers) : 1;
        struct normals f = {out, t->n, 0.02 * residual, taciti_rng_key(seed, name_hash(t->name))};
        taciti_pool_run(model->pool, fill_part, &f);
    }
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
