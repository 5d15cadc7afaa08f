/* SPDX-License-Identifier: Apache-2.0
 *
 * Profiles of well-known networks, computed from their architecture: tensors as their authors' programs hold them, and
 * operations of the matrix products and convolutions (element-wise work is not counted). A product and its sum are two
 * operations. Backward does each product twice, once for the input's gradient and once for the weight's, so it is
 * twice the forward; the first layer's input gradient, which nobody needs, is counted all the same.
 *
 * Sources:
 *   gpt2-*          A. Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; src/model/gpt*.c
 *   transformer-*   A. Vaswani et al., arXiv 1706.03762, table 3; names as in torch.nn.Transformer without final norms
 *   resnet-101      K. He et al., arXiv 1512.03385, table 1; stride in the 3x3 convolution, as in torchvision
 *   vgg-16          K. Simonyan, A. Zisserman, arXiv 1409.1556, configuration D
 *   lstm-66m        W. Zaremba et al., arXiv 1409.2329, the large model; two biases per layer, as in torch.nn.LSTM
 *
 * Tensors are appended so that their reverse is the order in which gradients become final. A tied tensor is final when
 * its last use in the backward pass is done, so it stands with its first use in the forward pass, and only there.
 *
 * The default rates are what a step of such a network reaches on one accelerator of the class of an NVIDIA A40 (74.8
 * TFLOP/s peak in TF32, 696 GB/s of memory): a quarter of the peak for large products, a fifteenth for the small ones
 * of a recurrent network. The update is AdamW at that memory's speed.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/profile_build.h"

static const double LARGE_RATE = 20e12, RECURRENT_RATE = 5e12; /* FLOP/s */
static const double MEMORY_RATE = 696e9;                       /* bytes/s */
/* AdamW in f32 reads parameter, gradient and two moments, and writes all but the gradient. */
static const double UPDATE_BYTES = 7 * 4;
static const double BACKWARD = 2; /* times forward */

typedef struct preset preset;

/* A profile under construction; after the first failure nothing more happens. */
typedef struct builder {
    taciti_profile profile;
    bool failed;
} builder;

struct preset {
    const char *name, *help;
    void (*build)(builder *b, const preset *p);
    struct {
        size_t layers, width, vocabulary;
        size_t tokens;    /* of a sample; 1: images */
        size_t positions; /* learned ones; 0: as many as tokens */
        bool untied;      /* the output has a matrix of its own */
        double batch, rate;
    };
};

/* ---- building blocks --------------------------------------------------------------------------------------------- */

TACITI_PRINTF(3, 4) static void append_layer(builder *b, double forward_flops, const char *format, ...) {
    taciti_profile_layer *l = b->failed ? NULL : taciti_profile_append_layer(&b->profile);
    b->failed = l == NULL;
    if (l == NULL) return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(l->name, sizeof l->name, format, arguments);
    va_end(arguments);
    l->forward_flops = forward_flops;
    l->backward_flops = BACKWARD * forward_flops;
}

/* Up to TACITI_PROFILE_DIMS sizes, 0 where there are fewer. */
#define SHAPE(...) ((const size_t[TACITI_PROFILE_DIMS]){__VA_ARGS__})

/* Appends to the newest layer. The name is "layer.name", or `name` alone when it begins with '/'. */
static void append_tensor(builder *b, const char *name, const size_t *shape) {
    if (b->failed) return;
    taciti_profile_layer *l = &b->profile.layers[b->profile.layer_count - 1];
    taciti_profile_tensor *t = taciti_profile_append_tensor(l);
    b->failed = t == NULL;
    if (t == NULL) return;
    if (*name == '/')
        (void)snprintf(t->name, sizeof t->name, "%s", name + 1);
    else /* cut nowhere: the longest is 47 bytes (test_profile.c finds doubles) */
        (void)snprintf(t->name, sizeof t->name, "%.24s.%.38s", l->name, name);
    while (t->dims < TACITI_PROFILE_DIMS && shape[t->dims] != 0) {
        t->shape[t->dims] = shape[t->dims];
        t->dims++;
    }
}

/* Appends tensors to the newest layer: "name rows columns ...", in units of the network's width; columns 0: a vector.
 */
static void append_tensors(builder *b, const char *list, size_t width) {
    char name[TACITI_PROFILE_NAME_BYTES];
    size_t rows = 0, columns = 0;
    for (int n = 0; sscanf(list, "%63s %zu %zu %n", name, &rows, &columns, &n) == 3; list += n) /* NOLINT: our own */
        append_tensor(b, name, SHAPE(rows * width, columns * width));
}

/* The newest layer also uses the tensors of the first one. */
static void tie_layer(builder *b) {
    if (!b->failed) b->profile.layers[b->profile.layer_count - 1].tied = true;
}

/* Operations of a product of [rows][in] and [in][out]. */
static double product_flops(size_t rows, size_t in, size_t out) { return 2 * (double)rows * (double)in * (double)out; }

/* Operations of attention of `queries` tokens to `keys` tokens: scores, and sums weighted by them. Masked pairs count,
 * as most kernels compute them. */
static double attention_flops(size_t queries, size_t keys, size_t width) {
    return product_flops(queries, width, keys) + product_flops(queries, keys, width);
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

/* Weight after bias, the reverse of the order of append_layer() in gpt_options.c. */
static const char GPT_LAYER[] = "ln_1.bias 1 0 ln_1.weight 1 0 "
                                "attn.c_attn.bias 3 0 attn.c_attn.weight 1 3 "
                                "attn.c_proj.bias 1 0 attn.c_proj.weight 1 1 "
                                "ln_2.bias 1 0 ln_2.weight 1 0 mlp.c_fc.bias 4 0 mlp.c_fc.weight 1 4 "
                                "mlp.c_proj.bias 1 0 mlp.c_proj.weight 4 1";

static void build_gpt2(builder *b, const preset *p) {
    const size_t c = p->width, t = p->tokens;
    append_layer(b, 0, "embedding");
    append_tensor(b, "/wte.weight", SHAPE(p->vocabulary, c));
    append_tensor(b, "/wpe.weight", SHAPE(p->positions > 0 ? p->positions : t, c));
    for (size_t l = 0; l < p->layers; l++) {
        append_layer(b, product_flops(t, c, 12 * c) + attention_flops(t, t, c), "h.%zu", l); /* 3 + 1 + 4 + 4 */
        append_tensors(b, GPT_LAYER, c);
    }
    append_layer(b, product_flops(t, c, p->vocabulary), "head"); /* the matrix is wte unless there is one of its own */
    append_tensor(b, "/ln_f.bias", SHAPE(c));
    append_tensor(b, "/ln_f.weight", SHAPE(c));
    if (p->untied) append_tensor(b, "/lm_head.weight", SHAPE(p->vocabulary, c));
    if (!p->untied) tie_layer(b);
}

/* Projections of torch.nn.MultiheadAttention, and the feed-forward half with the norms of two of them. */
static const char SELF_ATTENTION[] = "self_attn.in_proj_weight 3 1 self_attn.in_proj_bias 3 0 "
                                     "self_attn.out_proj.weight 1 1 self_attn.out_proj.bias 1 0";
static const char CROSS_ATTENTION[] = "multihead_attn.in_proj_weight 3 1 multihead_attn.in_proj_bias 3 0 "
                                      "multihead_attn.out_proj.weight 1 1 multihead_attn.out_proj.bias 1 0";
static const char FEED_FORWARD[] = "linear1.weight 4 1 linear1.bias 4 0 linear2.weight 1 4 linear2.bias 1 0 "
                                   "norm1.weight 1 0 norm1.bias 1 0 norm2.weight 1 0 norm2.bias 1 0";

/* A sample is a sentence pair, p->tokens on either side. Source and target embedding and the output share a matrix. */
static void build_transformer(builder *b, const preset *p) {
    const size_t d = p->width, t = p->tokens;
    append_layer(b, 0, "embedding");
    append_tensor(b, "/shared.weight", SHAPE(p->vocabulary, d));
    for (size_t l = 0; l < p->layers; l++) {
        append_layer(b, product_flops(t, d, 4 * d) + attention_flops(t, t, d) + 2 * product_flops(t, d, 4 * d),
                     "encoder.layers.%zu", l);
        append_tensors(b, SELF_ATTENTION, d);
        append_tensors(b, FEED_FORWARD, d);
    }
    for (size_t l = 0; l < p->layers; l++) {
        append_layer(b, product_flops(t, d, 8 * d) + 2 * attention_flops(t, t, d) + 2 * product_flops(t, d, 4 * d),
                     "decoder.layers.%zu", l);
        append_tensors(b, SELF_ATTENTION, d);
        append_tensors(b, CROSS_ATTENTION, d);
        append_tensors(b, FEED_FORWARD, d);
        append_tensors(b, "norm3.weight 1 0 norm3.bias 1 0", d);
    }
    append_layer(b, product_flops(t, d, p->vocabulary), "output");
    tie_layer(b);
}

/* A convolution without bias and its batch norm; returns its operations. `side`: of the square result. */
static double append_convolution(builder *b, const char *conv, const char *norm, const size_t shape[4], size_t side) {
    char name[32];
    append_tensor(b, conv, shape);
    (void)snprintf(name, sizeof name, "%s.weight", norm);
    append_tensor(b, name, SHAPE(shape[0]));
    (void)snprintf(name, sizeof name, "%s.bias", norm);
    append_tensor(b, name, SHAPE(shape[0]));
    return product_flops(side * side, shape[1] * shape[2] * shape[3], shape[0]);
}

/* One bottleneck block; `side` is that of its result, `stride` that of its 3x3 convolution. */
static void append_bottleneck(builder *b, size_t in, size_t width, size_t side, size_t stride) {
    const size_t out = 4 * width;
    double flops = append_convolution(b, "conv1.weight", "bn1", SHAPE(width, in, 1, 1), side * stride);
    flops += append_convolution(b, "conv2.weight", "bn2", SHAPE(width, width, 3, 3), side);
    flops += append_convolution(b, "conv3.weight", "bn3", SHAPE(out, width, 1, 1), side);
    if (in != out) flops += append_convolution(b, "downsample.0.weight", "downsample.1", SHAPE(out, in, 1, 1), side);
    if (b->failed) return;
    taciti_profile_layer *l = &b->profile.layers[b->profile.layer_count - 1];
    l->forward_flops = flops;
    l->backward_flops = BACKWARD * flops;
}

/* Images of 224 x 224. */
static void build_resnet101(builder *b, const preset *p) {
    static const size_t blocks[4] = {3, 4, 23, 3};
    size_t in = 64, side = 56;
    append_layer(b, product_flops((size_t)112 * 112, (size_t)3 * 7 * 7, 64), "stem");
    append_tensor(b, "/conv1.weight", SHAPE(64, 3, 7, 7));
    append_tensor(b, "/bn1.weight", SHAPE(64));
    append_tensor(b, "/bn1.bias", SHAPE(64));
    for (size_t stage = 0; stage < 4; stage++) {
        const size_t width = (size_t)64 << stage;
        for (size_t block = 0; block < blocks[stage]; block++) {
            const size_t stride = block == 0 && stage > 0 ? 2 : 1;
            side /= stride;
            append_layer(b, 0, "layer%zu.%zu", stage + 1, block);
            append_bottleneck(b, in, width, side, stride);
            in = 4 * width;
        }
    }
    append_layer(b, product_flops(1, in, p->vocabulary), "fc");
    append_tensor(b, "weight", SHAPE(p->vocabulary, in));
    append_tensor(b, "bias", SHAPE(p->vocabulary));
}

/* Images of 224 x 224; 0 in the list of widths is a 2x2 pooling. */
static void build_vgg16(builder *b, const preset *p) {
    static const size_t widths[] = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};
    const size_t dense[] = {4096, 4096, p->vocabulary};
    size_t in = 3, side = 224, index = 0; /* index: of torchvision's nn.Sequential, where a ReLU is a member, too */
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        if (widths[i] == 0) {
            side /= 2;
            index += 1;
            continue;
        }
        append_layer(b, product_flops(side * side, in * 3 * 3, widths[i]), "features.%zu", index);
        append_tensor(b, "weight", SHAPE(widths[i], in, 3, 3));
        append_tensor(b, "bias", SHAPE(widths[i]));
        in = widths[i];
        index += 2;
    }
    in *= side * side;
    for (size_t i = 0; i < sizeof dense / sizeof dense[0]; i++) {
        append_layer(b, product_flops(1, in, dense[i]), "classifier.%zu", 3 * i); /* ReLU and dropout lie between */
        append_tensor(b, "weight", SHAPE(dense[i], in));
        append_tensor(b, "bias", SHAPE(dense[i]));
        in = dense[i];
    }
}

/* A sample is p->tokens time steps of one sequence; a layer's gradients are final when its steps are all undone. */
static void build_lstm(builder *b, const preset *p) {
    static const char *const suffixes[4] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const size_t h = p->width;
    append_layer(b, 0, "encoder");
    append_tensor(b, "weight", SHAPE(p->vocabulary, h));
    for (size_t l = 0; l < p->layers; l++) {
        append_layer(b, 2 * product_flops(p->tokens, h, 4 * h), "rnn.%zu", l);
        for (size_t i = 0; i < 4; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "/rnn.%s_l%zu", suffixes[i], l);
            append_tensor(b, name, i < 2 ? SHAPE(4 * h, h) : SHAPE(4 * h));
        }
    }
    append_layer(b, product_flops(p->tokens, h, p->vocabulary), "decoder");
    append_tensor(b, "weight", SHAPE(p->vocabulary, h));
    append_tensor(b, "bias", SHAPE(p->vocabulary));
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static const preset PRESETS[] = {
    {"transformer-base",
     "63.1 M parameters: translation, 6 + 6 layers of 512; a sample is a pair of sentences of 32 tokens",
     build_transformer,
     {.layers = 6, .width = 512, .vocabulary = 37120, .tokens = 32, .batch = 128, .rate = LARGE_RATE}},
    {"transformer-big",
     "209.1 M parameters: translation, 6 + 6 layers of 1024; a sample is a pair of sentences of 32 tokens",
     build_transformer,
     {.layers = 6, .width = 1024, .vocabulary = 32000, .tokens = 32, .batch = 128, .rate = LARGE_RATE}},
    {"gpt2-124m",
     "124.4 M parameters: GPT-2 small, output tied to the embedding; a sample is 1024 tokens",
     build_gpt2,
     {.layers = 12, .width = 768, .vocabulary = 50257, .tokens = 1024, .batch = 8, .rate = LARGE_RATE}},
    {"gpt2-124m-untied",
     "162.7 M parameters: GPT-2 small with an output of its own, as TAGC trains it; a sample is 512 tokens",
     build_gpt2,
     {.layers = 12, .width = 768, .vocabulary = 50304, .tokens = 512, .untied = true, .batch = 8, .rate = LARGE_RATE}},
    {"gpt2-350m",
     "354.8 M parameters: GPT-2 medium, output tied to the embedding; a sample is 1024 tokens",
     build_gpt2,
     {.layers = 24, .width = 1024, .vocabulary = 50257, .tokens = 1024, .batch = 4, .rate = LARGE_RATE}},
    {"resnet-101",
     "44.5 M parameters: a sample is an image of 224 x 224, one of 1000 classes",
     build_resnet101,
     {.vocabulary = 1000, .tokens = 1, .batch = 32, .rate = LARGE_RATE}},
    {"vgg-16",
     "138.4 M parameters: a sample is an image of 224 x 224, one of 1000 classes",
     build_vgg16,
     {.vocabulary = 1000, .tokens = 1, .batch = 32, .rate = LARGE_RATE}},
    {"lstm-66m",
     "66.0 M parameters: a language model of two recurrent layers of 1500; a sample is 35 tokens",
     build_lstm,
     {.layers = 2, .width = 1500, .vocabulary = 10000, .tokens = 35, .batch = 20, .rate = RECURRENT_RATE}},
};
enum { PRESET_COUNT = sizeof PRESETS / sizeof PRESETS[0] };

const char *const *taciti_profile_presets(void) {
    static const char *names[PRESET_COUNT + 1];
    for (size_t i = 0; i < PRESET_COUNT; i++) names[i] = PRESETS[i].name;
    return names;
}

static const preset *find_preset(const char *name) {
    for (size_t i = 0; i < PRESET_COUNT; i++)
        if (strcmp(PRESETS[i].name, name) == 0) return &PRESETS[i];
    return NULL;
}

const char *taciti_profile_preset_help(const char *name) {
    const preset *p = find_preset(name);
    return p == NULL ? NULL : p->help;
}

static tacit_status build_preset(const preset *p, taciti_profile *out) {
    builder b = {.profile = {.in_flops = true, .rate = p->rate, .batch = p->batch, .sample_tokens = (double)p->tokens}};
    p->build(&b, p);
    if (b.failed) {
        taciti_profile_destroy(&b.profile);
        return TACIT_E_MEMORY;
    }
    (void)snprintf(b.profile.name, sizeof b.profile.name, "%.63s", p->name);
    b.profile.update_s = (double)taciti_profile_parameters(&b.profile) * UPDATE_BYTES / MEMORY_RATE;
    *out = b.profile;
    return TACIT_OK;
}

tacit_status taciti_profile_preset(const char *name, taciti_profile *out) {
    const preset *p = find_preset(name);
    if (p == NULL) return taciti_fail(TACIT_E_CONFIG, "no compute profile is called %s", name);
    TACITI_TRY(build_preset(p, out));
    (void)snprintf(out->source, sizeof out->source,
                   "computed from the architecture; %g TFLOP/s stand for one accelerator of the class of an NVIDIA A40",
                   p->rate / 1e12);
    return TACIT_OK;
}

tacit_status taciti_profile_of_gpt(const taciti_model_options *options, size_t tokens, taciti_profile *out) {
    const preset gpt = {.name = options->preset.text[0] == '\0' ? "gpt" : options->preset.text,
                        .build = build_gpt2,
                        .layers = (size_t)options->layers,
                        .width = (size_t)options->channels,
                        .vocabulary = (size_t)options->vocabulary,
                        .tokens = tokens,
                        .positions = (size_t)options->context,
                        .untied = !options->tied};
    TACITI_TRY(build_preset(&gpt, out));
    (void)snprintf(out->source, sizeof out->source,
                   "computed from model.*: operations of matrix products; update at the %g GB/s of an NVIDIA A40",
                   MEMORY_RATE / 1e9);
    return TACIT_OK;
}
