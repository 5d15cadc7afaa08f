/* SPDX-License-Identifier: Apache-2.0
 *
 * A compute profile: the time that each layer of a network takes in one training step on some accelerator, and the
 * tensors of each layer. Emulated compute (model/emulated.h) and the planner use it. A profile is a preset or a JSON
 * file (docs/profile.md).
 *
 * A layer's cost is given in seconds or in floating-point operations per sample; seconds = flops * batch / rate. A
 * multiply-add counts as two operations.
 */
#ifndef TACITI_MODEL_PROFILE_H
#define TACITI_MODEL_PROFILE_H

#include "base/trace.h"
#include "model/model.h"
#include "tensor/layout.h"

enum { TACITI_PROFILE_NAME_BYTES = 64, TACITI_PROFILE_DIMS = 4 };

typedef struct taciti_profile_tensor {
    char name[TACITI_PROFILE_NAME_BYTES];
    int dims;
    size_t shape[TACITI_PROFILE_DIMS];
} taciti_profile_tensor;

typedef struct taciti_profile_layer {
    char name[TACITI_PROFILE_NAME_BYTES];
    double forward_s, backward_s;         /* of one step; valid if the profile is in seconds */
    double forward_flops, backward_flops; /* per sample; valid if it is in operations */
    taciti_profile_tensor *tensors;       /* owned; may be NULL */
    size_t tensor_count;
    bool tied; /* both of its passes also use the tensors of the first layer that has some: an output tied to the
                  embedding */
} taciti_profile_layer;

typedef struct taciti_profile {
    char name[64];
    char source[256];     /* origin of the numbers, and meaning of the rate */
    bool in_flops;        /* layers are in operations until taciti_profile_to_seconds() */
    double rate, batch;   /* default FLOP/s and samples per step; 0: not given */
    double sample_tokens; /* tokens per sample, 1 for images; for messages */
    double floor_s;  /* of forward and backward, independent of the batch: launches, small kernels; in_flops only */
    double update_s; /* optimizer, after the last gradient; always in seconds */
    taciti_profile_layer *layers; /* in forward order; backward goes the other way. Owned */
    size_t layer_count;
} taciti_profile;

/* Loads a preset by name, or a file if the name contains "/" or ".". The message of E_CONFIG names file, line and
 * field, or the nearest preset for an unknown name. Returns owned. Any thread, not collective. */
tacit_status taciti_profile_load(const char *name_or_path, taciti_profile *out);
void taciti_profile_destroy(taciti_profile *profile);

/* NULL-terminated: "transformer-base", "gpt2-124m", "resnet-101", "vgg-16", "lstm-66m", ... */
const char *const *taciti_profile_presets(void);
const char *taciti_profile_preset_help(const char *name);

/* Computes the profile, in operations, of a GPT with these resolved options and sequences of `tokens` tokens; tensors
 * and their order are those of taciti_model_layout(). Rate and batch are 0. Returns owned. */
tacit_status taciti_profile_of_gpt(const taciti_model_options *options, size_t tokens, taciti_profile *out);

/* Measuring a profile, after taciti_profile_of_gpt(): `measure` turns it into a profile in seconds, all 0. `add_spans`
 * adds the spans that taciti_model_train() recorded in the passes of one update; the backward of all passes but the
 * last counts as forward, because no gradient is final before. `divide` turns the sums, update_s included, into means.
 */
void taciti_profile_measure(taciti_profile *profile);
void taciti_profile_add_spans(taciti_profile *profile, const taciti_span *spans, size_t count, size_t passes);
void taciti_profile_divide(taciti_profile *profile, double updates);

/* Converts operations to seconds in place: operations x batch / rate plus a proportional part of the floor. rate
 * (FLOP/s) and batch (samples) must be > 0 and are stored in the profile. Does nothing if the profile is in seconds. */
void taciti_profile_to_seconds(taciti_profile *profile, double rate, double batch);

size_t taciti_profile_parameters(const taciti_profile *profile);
double taciti_profile_forward_s(const taciti_profile *profile);
double taciti_profile_backward_s(const taciti_profile *profile);

/* Formats a profile file. Returns owned; release with taciti_free(). Returns NULL if memory is exhausted. */
char *taciti_profile_format(const taciti_profile *profile);

/* Writes the profile file atomically. */
tacit_status taciti_profile_save(const taciti_profile *profile, const char *path);

/* Creates a sealed layout of all tensors in ready order: the last layer first, and within a layer the last tensor
 * first. Every layer with tensors is a unit. The tensors of the first layer are early if a layer is tied. Returns
 * owned. */
tacit_status taciti_profile_layout(const taciti_profile *profile, size_t bucket_bytes, taciti_layout *out);

#endif
