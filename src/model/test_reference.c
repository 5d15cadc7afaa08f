/* SPDX-License-Identifier: Apache-2.0 */
#include "model/test_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

struct net {
    const taciti_model_options *options;
    const taciti_layout *layout;
    const double *flat;
    const taciti_model_batch *batch;
    double dropout;
    size_t channels, heads, time, sample;
};

enum { EMBEDDING, ATTENTION, PROJ, MLP };

static double *zeros(size_t n) { return calloc(n, sizeof(double)); }

static const double *tensor(const struct net *net, const char *name) {
    return net->flat + net->layout->tensors[taciti_layout_find(net->layout, name)].offset;
}

static const double *layer_tensor(const struct net *net, size_t layer, const char *name) {
    char full[64];
    (void)snprintf(full, sizeof full, "h.%zu.%s", layer, name);
    return tensor(net, full);
}

/* x under the mask of a site: kept elements grow by 1 / (1 - p). */
static double drop(const struct net *net, size_t layer, int site, size_t index, double x) {
    if (net->dropout <= 0) return x;
    uint64_t key = taciti_rng_key(net->batch->dropout_key, net->batch->first_sample + net->sample);
    key = taciti_rng_key(key, layer * 4 + (uint64_t)site);
    const uint32_t threshold = (uint32_t)((double)(float)net->dropout * 4294967296.0);
    return taciti_rng_u32(key, (uint32_t)index) < threshold ? 0 : x / (1 - net->dropout);
}

static void norm(const struct net *net, double *out, const double *x, const double *weight, const double *bias) {
    const size_t c = net->channels;
    for (size_t t = 0; t < net->time; t++) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < c; i++) mean += x[t * c + i] / (double)c;
        for (size_t i = 0; i < c; i++) variance += (x[t * c + i] - mean) * (x[t * c + i] - mean) / (double)c;
        for (size_t i = 0; i < c; i++)
            out[t * c + i] = (x[t * c + i] - mean) / sqrt(variance + 1e-5) * weight[i] + bias[i];
    }
}

/* out[T][columns] = x[T][inner] w[inner][columns] + bias */
static void affine(const struct net *net, double *out, const double *x, const double *w, const double *bias,
                   const size_t size[2]) {
    for (size_t t = 0; t < net->time; t++)
        for (size_t j = 0; j < size[1]; j++) {
            double sum = bias[j];
            for (size_t i = 0; i < size[0]; i++) sum += x[t * size[0] + i] * w[i * size[1] + j];
            out[t * size[1] + j] = sum;
        }
}

static void attend_row(const struct net *net, double *out, const double *qkv, size_t layer, size_t head, size_t t) {
    const size_t c = net->channels, d = c / net->heads;
    const double *q = qkv + t * 3 * c + head * d;
    double *weight = zeros(t + 1), max = (double)-INFINITY, sum = 0;
    for (size_t s = 0; s <= t; s++) {
        const double *k = qkv + s * 3 * c + c + head * d;
        for (size_t i = 0; i < d; i++) weight[s] += q[i] * k[i] / sqrt((double)d);
        max = fmax(max, weight[s]);
    }
    for (size_t s = 0; s <= t; s++) sum += weight[s] = exp(weight[s] - max);
    for (size_t i = 0; i < d; i++) out[t * c + head * d + i] = 0;
    for (size_t s = 0; s <= t; s++) {
        const double *v = qkv + s * 3 * c + 2 * c + head * d;
        const double w = drop(net, layer, ATTENTION, (head * net->time + t) * net->time + s, weight[s] / sum);
        for (size_t i = 0; i < d; i++) out[t * c + head * d + i] += w * v[i];
    }
    free(weight);
}

static double gelu(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static void run_layer(const struct net *net, size_t layer, double *x) {
    const size_t c = net->channels, n = net->time * c;
    double *a = zeros(n), *wide = zeros(4 * n), *b = zeros(n);
    norm(net, a, x, layer_tensor(net, layer, "ln_1.weight"), layer_tensor(net, layer, "ln_1.bias"));
    affine(net, wide, a, layer_tensor(net, layer, "attn.c_attn.weight"), layer_tensor(net, layer, "attn.c_attn.bias"),
           (const size_t[]){c, 3 * c});
    for (size_t h = 0; h < net->heads; h++)
        for (size_t t = 0; t < net->time; t++) attend_row(net, a, wide, layer, h, t);
    affine(net, b, a, layer_tensor(net, layer, "attn.c_proj.weight"), layer_tensor(net, layer, "attn.c_proj.bias"),
           (const size_t[]){c, c});
    for (size_t i = 0; i < n; i++) x[i] += drop(net, layer, PROJ, i, b[i]);
    norm(net, a, x, layer_tensor(net, layer, "ln_2.weight"), layer_tensor(net, layer, "ln_2.bias"));
    affine(net, wide, a, layer_tensor(net, layer, "mlp.c_fc.weight"), layer_tensor(net, layer, "mlp.c_fc.bias"),
           (const size_t[]){c, 4 * c});
    for (size_t i = 0; i < 4 * n; i++) wide[i] = gelu(wide[i]);
    affine(net, b, wide, layer_tensor(net, layer, "mlp.c_proj.weight"), layer_tensor(net, layer, "mlp.c_proj.bias"),
           (const size_t[]){4 * c, c});
    for (size_t i = 0; i < n; i++) x[i] += drop(net, layer, MLP, i, b[i]);
    free(a);
    free(b);
    free(wide);
}

/* -log softmax(x head^T)[target] */
static double row_loss(const struct net *net, const double *x, int32_t target) {
    const size_t c = net->channels, vocabulary = (size_t)net->options->vocabulary;
    const double *head = tensor(net, net->options->tied ? "wte.weight" : "lm_head.weight");
    double *logits = zeros(vocabulary), max = (double)-INFINITY, sum = 0;
    for (size_t v = 0; v < vocabulary; v++) {
        for (size_t i = 0; i < c; i++) logits[v] += x[i] * head[v * c + i];
        max = fmax(max, logits[v]);
    }
    for (size_t v = 0; v < vocabulary; v++) sum += exp(logits[v] - max);
    const double loss = max + log(sum) - logits[target];
    free(logits);
    return loss;
}

static double sample_loss(const struct net *net) {
    const size_t c = net->channels, n = net->time * c;
    const double *wte = tensor(net, "wte.weight"), *wpe = tensor(net, "wpe.weight");
    const int32_t *tokens = net->batch->tokens + net->sample * net->time;
    const int32_t *targets = net->batch->targets + net->sample * net->time;
    double *x = zeros(n), *last = zeros(n), loss = 0;
    for (size_t t = 0; t < net->time; t++)
        for (size_t i = 0; i < c; i++)
            x[t * c + i] = drop(net, 0, EMBEDDING, t * c + i, wte[(size_t)tokens[t] * c + i] + wpe[t * c + i]);
    for (size_t l = 0; l < (size_t)net->options->layers; l++) run_layer(net, l, x);
    norm(net, last, x, tensor(net, "ln_f.weight"), tensor(net, "ln_f.bias"));
    for (size_t t = 0; t < net->time; t++)
        if (targets[t] >= 0) loss += row_loss(net, last + t * c, targets[t]);
    free(x);
    free(last);
    return loss;
}

double reference_loss(const taciti_model_options *options, const taciti_layout *layout, const double *flat,
                      const taciti_model_batch *batch, bool dropout) {
    struct net net = {.options = options,
                      .layout = layout,
                      .flat = flat,
                      .batch = batch,
                      .dropout = dropout ? options->dropout : 0,
                      .channels = (size_t)options->channels,
                      .heads = (size_t)options->heads,
                      .time = batch->time};
    double loss = 0;
    for (net.sample = 0; net.sample < batch->batch; net.sample++) loss += sample_loss(&net);
    return loss;
}
