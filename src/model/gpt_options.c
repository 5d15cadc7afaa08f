/* SPDX-License-Identifier: Apache-2.0
 *
 * The model's options: presets, checks, sizes.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "model/gpt.h"

struct preset {
    const char *name;
    int64_t sizes[TACITI_MODEL_SIZES]; /* in the order of the options */
};

static const struct preset presets[] = {
    {"nano", {2, 2, 32, 61, 16}},
    {"byte-2m", {4, 4, 192, 256, 128}},
    {"byte-10m", {6, 6, 384, 256, 256}},
    {"gpt2-30m", {6, 6, 384, 50257, 1024}},
    {"gpt2-124m", {12, 12, 768, 50257, 1024}},
    {"gpt2-350m", {24, 16, 1024, 50257, 1024}},
};
enum { PRESETS = sizeof presets / sizeof presets[0] };

const char *const *taciti_model_presets(void) {
    static const char *names[PRESETS + 1];
    for (size_t i = 0; i < PRESETS; i++) names[i] = presets[i].name;
    return names;
}

#define AT(field) offsetof(taciti_model_options, field)
static const taciti_option option_list[] = {
    TACITI_OPTION(
        "preset", TEXT, AT(preset), "",
        .help =
            "sizes to begin with: nano, byte-2m, byte-10m, gpt2-30m, gpt2-124m or gpt2-350m; other keys override it"),
    TACITI_OPTION("layers", INT, AT(layers), "0", .max = 1024, .help = "transformer layers; 0: from the preset"),
    TACITI_OPTION("heads", INT, AT(heads), "0", .max = 1024, .help = "attention heads; 0: from the preset"),
    TACITI_OPTION("channels", INT, AT(channels), "0", .max = 65536,
                  .help = "width of the residual stream, a multiple of model.heads; 0: from the preset"),
    TACITI_OPTION("vocabulary", INT, AT(vocabulary), "0", .max = 16777216,
                  .help = "number of different tokens; 0: from the preset or the data", .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("context", INT, AT(context), "0", .max = 1048576, .unit = "tokens",
                  .help = "longest sequence, the number of learned positions; 0: from the preset"),
    TACITI_OPTION("dropout", REAL, AT(dropout), "0", .max = 0.95,
                  .help = "probability of zeroing an element of embeddings, residual branches and attention weights"),
    TACITI_OPTION("tied", BOOL, AT(tied), "true", .help = "the output head shares the token embedding",
                  .flags = TACITI_OPTION_EXPERT),
    TACITI_OPTION("dtype", ENUM, AT(dtype), "f32", .choices = TACITI_DTYPE_CHOICES,
                  .help = "operand type of matrix products; parameters, sums and the optimizer stay in f32"),
};

const taciti_option_table taciti_model_option_table =
    TACITI_OPTION_TABLE("model", "the network: GPT-2 of any size", option_list);

/* The options of type INT, the first of which is "layers". */
static const taciti_option *const SIZES = &option_list[1];

int64_t taciti_model_size(const taciti_model_options *options, size_t index, const char **key) {
    int64_t value = 0;
    memcpy(&value, (const char *)options + SIZES[index].offset, sizeof value);
    *key = SIZES[index].key;
    return value;
}

static tacit_status fill_from_preset(taciti_model_options *o) {
    const char *key = NULL;
    if (o->preset.text[0] == '\0') return TACIT_OK;
    for (size_t i = 0; i < PRESETS; i++) {
        const struct preset *p = &presets[i];
        if (strcmp(p->name, o->preset.text) != 0) continue;
        for (size_t size = 0; size < TACITI_MODEL_SIZES; size++)
            if (taciti_model_size(o, size, &key) == 0)
                memcpy((char *)o + SIZES[size].offset, &p->sizes[size], sizeof p->sizes[size]);
        return TACIT_OK;
    }
    taciti_nearest nearest = {0};
    for (size_t i = 0; i < PRESETS; i++) taciti_nearest_offer(&nearest, o->preset.text, presets[i].name);
    return taciti_fail(
        TACIT_E_CONFIG,
        "model.preset: unknown preset \"%s\"%s (nano, byte-2m, byte-10m, gpt2-30m, gpt2-124m, gpt2-350m)",
        o->preset.text, nearest.hint);
}

static tacit_status check_sizes(const taciti_model_options *options) {
    for (size_t i = 0; i < TACITI_MODEL_SIZES; i++) {
        const char *key = NULL;
        const int64_t value = taciti_model_size(options, i, &key), max = (int64_t)SIZES[i].max;
        const char *known = strcmp(key, "vocabulary") == 0 ? " (bytes: 256, tokens of GPT-2: 50257)" : "";
        if (value == 0)
            return taciti_fail(TACIT_E_CONFIG, "model.%s is not set: give it%s, or a model.preset", key, known);
        if (value < 1 || value > max)
            return taciti_fail(TACIT_E_CONFIG, "model.%s is %lld, must be 1 to %lld", key, (long long)value,
                               (long long)max);
    }
    return TACIT_OK;
}

tacit_status taciti_model_resolve(taciti_model_options *options) {
    taciti_model_options o = *options;
    TACITI_TRY(fill_from_preset(&o));
    TACITI_TRY(check_sizes(&o));
    if (o.channels % o.heads != 0)
        return taciti_fail(TACIT_E_CONFIG, "model.channels is %lld, must be a multiple of model.heads, %lld",
                           (long long)o.channels, (long long)o.heads);
    if (!(o.dropout >= 0 && o.dropout <= 0.95))
        return taciti_fail(TACIT_E_CONFIG, "model.dropout is %g, must be 0 to 0.95", o.dropout);
    /* Dropout masks number the attention weights and the elements of a sample with 32 bits. */
    if (o.dropout > 0 && (double)o.heads * (double)o.context * (double)o.context > 4294967295.0)
        return taciti_fail(TACIT_E_CONFIG,
                           "model.dropout needs model.heads x model.context^2 < 2^32: shorten the context");
    if (o.dtype != TACITI_DTYPE_F32 && o.dtype != TACITI_DTYPE_BF16)
        return taciti_fail(TACIT_E_CONFIG, "model.dtype is %d, must be f32 or bf16", o.dtype);
    *options = o;
    return TACIT_OK;
}

static tacit_status append_layer(taciti_layout *layout, int64_t layer, size_t c) {
    static const struct {
        const char *name;
        size_t rows, columns; /* in units of C; rows 0: a vector */
    } tensors[TACITI_GPT_LAYER_TENSORS] = {
        [TACITI_GPT_MLP_PROJ_W] = {"mlp.c_proj.weight", 4, 1},
        [TACITI_GPT_MLP_PROJ_B] = {"mlp.c_proj.bias", 0, 1},
        [TACITI_GPT_FC_W] = {"mlp.c_fc.weight", 1, 4},
        [TACITI_GPT_FC_B] = {"mlp.c_fc.bias", 0, 4},
        [TACITI_GPT_LN2_W] = {"ln_2.weight", 0, 1},
        [TACITI_GPT_LN2_B] = {"ln_2.bias", 0, 1},
        [TACITI_GPT_PROJ_W] = {"attn.c_proj.weight", 1, 1},
        [TACITI_GPT_PROJ_B] = {"attn.c_proj.bias", 0, 1},
        [TACITI_GPT_QKV_W] = {"attn.c_attn.weight", 1, 3},
        [TACITI_GPT_QKV_B] = {"attn.c_attn.bias", 0, 3},
        [TACITI_GPT_LN1_W] = {"ln_1.weight", 0, 1},
        [TACITI_GPT_LN1_B] = {"ln_1.bias", 0, 1},
    };
    for (int i = 0; i < TACITI_GPT_LAYER_TENSORS; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "h.%lld.%s", (long long)layer, tensors[i].name);
        const bool matrix = tensors[i].rows > 0;
        const size_t shape[2] = {matrix ? tensors[i].rows * c : tensors[i].columns * c, tensors[i].columns * c};
        TACITI_TRY(taciti_layout_append(layout, name, matrix ? 2 : 1, shape, matrix));
    }
    return TACIT_OK;
}

static tacit_status append_all(const taciti_model_options *o, taciti_layout *layout) {
    const size_t c = (size_t)o->channels, vocabulary[2] = {(size_t)o->vocabulary, c},
                 positions[2] = {(size_t)o->context, c};
    if (!o->tied) TACITI_TRY(taciti_layout_append(layout, "lm_head.weight", 2, vocabulary, true));
    TACITI_TRY(taciti_layout_append(layout, "ln_f.weight", 1, &c, false));
    TACITI_TRY(taciti_layout_append(layout, "ln_f.bias", 1, &c, false));
    for (int64_t l = o->layers - 1; l >= 0; l--) {
        taciti_layout_next_unit(layout);
        TACITI_TRY(append_layer(layout, l, c));
    }
    taciti_layout_next_unit(layout);
    TACITI_TRY(taciti_layout_append(layout, "wpe.weight", 2, positions, true));
    TACITI_TRY(taciti_layout_append(layout, "wte.weight", 2, vocabulary, true));
    layout->tensors[layout->tensor_count - 1].early = o->tied;
    return TACIT_OK;
}

tacit_status taciti_model_layout(const taciti_model_options *options, size_t bucket_bytes, taciti_layout *out) {
    taciti_layout layout;
    TACITI_TRY(taciti_layout_create(5 + (size_t)options->layers * TACITI_GPT_LAYER_TENSORS, &layout));
    tacit_status status = append_all(options, &layout);
    if (status == TACIT_OK) status = taciti_layout_seal(&layout, bucket_bytes);
    if (status == TACIT_OK)
        *out = layout;
    else
        taciti_layout_destroy(&layout);
    return status;
}

double taciti_model_flops_per_token(const taciti_model_options *options, size_t time) {
    const double c = (double)options->channels, l = (double)options->layers, v = (double)options->vocabulary;
    const double n = l * (12 * c * c + 13 * c) + 2 * c + v * c; /* the embedding is a look-up, the head a product */
    return 6 * n + 12 * l * c * (double)time;
}

/* ---- tensors by index ----------------------------------------------------------------------------------------------
 */

size_t taciti_gpt_lnf_tensor(const taciti_model *model) { return model->options.tied ? 0 : 1; }

size_t taciti_gpt_layer_tensor(const taciti_model *model, size_t layer, int tensor) {
    return taciti_gpt_lnf_tensor(model) + 2 + (model->layers - 1 - layer) * TACITI_GPT_LAYER_TENSORS + (size_t)tensor;
}

size_t taciti_gpt_wpe_tensor(const taciti_model *model) {
    return taciti_gpt_lnf_tensor(model) + 2 + model->layers * TACITI_GPT_LAYER_TENSORS;
}

size_t taciti_gpt_wte_tensor(const taciti_model *model) { return taciti_gpt_wpe_tensor(model) + 1; }

size_t taciti_gpt_head_tensor(const taciti_model *model) {
    return model->options.tied ? taciti_gpt_wte_tensor(model) : 0;
}

float *taciti_gpt_parameter(const taciti_model *model, size_t tensor) {
    return (float *)model->parameters.base + model->layout->tensors[tensor].offset;
}

float *taciti_gpt_gradient(const taciti_model *model, size_t tensor) {
    return (float *)model->gradients.base + model->layout->tensors[tensor].offset;
}

const void *taciti_gpt_weight(const taciti_model *model, size_t tensor) {
    if (!model->bf16) return taciti_gpt_parameter(model, tensor);
    return (const taciti_bf16 *)model->copy16.base + model->layout->tensors[tensor].offset;
}
