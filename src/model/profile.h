/* SPDX-License-Identifier: Apache-2.0
 *
 * A compute profile: what one training step of a network costs on some accelerator, layer by layer, and the tensors of
 * each layer. Emulated compute (model/emulated.h) waits by it and the planner computes with it. A profile is a preset
 * or a JSON file of the documented schema (docs/profile.md).
 *
 * A layer's time is given in seconds, or as floating-point operations per sample that become seconds with a rate:
 * seconds = flops * batch / rate. A product and its sum count as two operations.
 */
#ifndef TACITI_MODEL_PROFILE_H
#define TACITI_MODEL_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/trace.h"
#include "model/model.h"
#include "tensor/layout.h"

typedef struct taciti_profile_tensor {
    char name[TACITI_TENSOR_NAME_BYTES];
    int dims;
    size_t shape[TACITI_TENSOR_DIMS];
} taciti_profile_tensor;

typedef struct taciti_profile_layer {
    char name[TACITI_TENSOR_NAME_BYTES];
    double forward_s, backward_s;         /* of one step; valid when the profile is in seconds */
    double forward_flops, backward_flops; /* per sample; valid when it is in operations */
    taciti_profile_tensor *tensors;       /* owned; may be none */
    size_t tensor_count;
} taciti_profile_layer;

typedef struct taciti_profile {
    char name[64];
    char source[256];     /* where the numbers come from, and what the rate stands for */
    bool in_flops;        /* layers are in operations until taciti_profile_to_seconds() */
    double rate, batch;   /* FLOP/s and samples per step unless the user names others; 0: not given */
    double sample_tokens; /* what a sample is, for messages: tokens, images (1), ... */
    double floor_s;       /* of forward and backward, whatever the batch: launches, small kernels; in_flops only */
    double update_s;      /* optimizer, after the last gradient; in seconds always */
    taciti_profile_layer *layers; /* in forward order; backward goes the other way. Owned */
    size_t layer_count;
} taciti_profile;

/* A preset name, or else a path. E_CONFIG names file, line and field, and for a name that is neither the nearest
 * preset. Returns owned. Any thread, not collective. */
tacit_status taciti_profile_load(const char *name_or_path, taciti_profile *out);
void taciti_profile_destroy(taciti_profile *profile);

/* NULL-terminated: "transformer-base", "gpt2-124m", "resnet-101", "vgg-16", "lstm-66m", ... */
const char *const *taciti_profile_presets(void);
const char *taciti_profile_preset_help(const char *name);

/* What the network of these options (resolved) would cost with sequences of `tokens` tokens, in operations; tensors and
 * their order are those of taciti_model_layout(). Neither rate nor batch are known. Returns owned. */
tacit_status taciti_profile_of_gpt(const taciti_model_options *options, size_t tokens, taciti_profile *out);

/* Measuring, from taciti_profile_of_gpt() on: `measure` turns it into one in seconds, all of them 0; `add_spans` adds
 * what taciti_model_train() recorded in the passes of one update (backward of all but the last counts as forward:
 * nothing can be sent before); `divide` makes means of sums, of update_s as well. */
void taciti_profile_measure(taciti_profile *profile);
void taciti_profile_add_spans(taciti_profile *profile, const taciti_span *spans, size_t count, size_t passes);
void taciti_profile_divide(taciti_profile *profile, double updates);

/* Turns operations into seconds, in place: operations x batch / rate, and its part of the floor. rate in FLOP/s, batch
 * in samples, both > 0; they are kept in the profile. Nothing to do when already in seconds. */
void taciti_profile_to_seconds(taciti_profile *profile, double rate, double batch);

size_t taciti_profile_parameters(const taciti_profile *profile);
double taciti_profile_forward_s(const taciti_profile *profile);
double taciti_profile_backward_s(const taciti_profile *profile);

/* The text of a profile file. Returns owned; taciti_free(). NULL when memory is short. */
char *taciti_profile_format(const taciti_profile *profile);

/* Writes it; atomic (temporary name, then rename). */
tacit_status taciti_profile_save(const taciti_profile *profile, const char *path);

/* Appends all tensors in ready order (last layer first, its tensors last first) and seals. Returns owned. */
tacit_status taciti_profile_layout(const taciti_profile *profile, size_t bucket_bytes, taciti_layout *out);

#endif
