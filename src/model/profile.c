/* SPDX-License-Identifier: Apache-2.0 */
#include "model/profile.h"

#include "base/log.h"
#include "base/memory.h"
#include "model/profile_build.h"

void taciti_profile_destroy(taciti_profile *profile) {
    for (size_t l = 0; l < profile->layer_count; l++) taciti_free(profile->layers[l].tensors);
    taciti_free(profile->layers);
    *profile = (taciti_profile){0};
}

/* ---- growing ----------------------------------------------------------------------------------------------------- */

taciti_profile_layer *taciti_profile_append_layer(taciti_profile *profile) {
    taciti_profile_layer *layers = taciti_with_room(profile->layers, profile->layer_count, sizeof *layers);
    if (layers == NULL) return NULL;
    profile->layers = layers;
    return &layers[profile->layer_count++];
}

taciti_profile_tensor *taciti_profile_append_tensor(taciti_profile_layer *layer) {
    taciti_profile_tensor *tensors = taciti_with_room(layer->tensors, layer->tensor_count, sizeof *tensors);
    if (tensors == NULL) return NULL;
    layer->tensors = tensors;
    return &tensors[layer->tensor_count++];
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

void taciti_profile_to_seconds(taciti_profile *profile, double rate, double batch) {
    if (!profile->in_flops) return;
    for (size_t l = 0; l < profile->layer_count; l++) {
        taciti_profile_layer *layer = &profile->layers[l];
        layer->forward_s = layer->forward_flops * batch / rate;
        layer->backward_s = layer->backward_flops * batch / rate;
    }
    /* Every pass gets its part of the floor in proportion to its other time. */
    const double sum = taciti_profile_forward_s(profile) + taciti_profile_backward_s(profile);
    for (size_t l = 0; l < profile->layer_count && sum > 0; l++) {
        profile->layers[l].forward_s *= 1 + profile->floor_s / sum;
        profile->layers[l].backward_s *= 1 + profile->floor_s / sum;
    }
    profile->rate = rate;
    profile->batch = batch;
    profile->in_flops = false;
}

size_t taciti_profile_parameters(const taciti_profile *profile) {
    size_t sum = 0;
    for (size_t l = 0; l < profile->layer_count; l++)
        for (size_t t = 0; t < profile->layers[l].tensor_count; t++) {
            const taciti_profile_tensor *tensor = &profile->layers[l].tensors[t];
            size_t n = 1;
            for (int d = 0; d < tensor->dims; d++) n *= tensor->shape[d];
            sum += n;
        }
    return sum;
}

double taciti_profile_forward_s(const taciti_profile *profile) {
    double sum = 0;
    for (size_t l = 0; l < profile->layer_count; l++) sum += profile->layers[l].forward_s;
    return sum;
}

double taciti_profile_backward_s(const taciti_profile *profile) {
    double sum = 0;
    for (size_t l = 0; l < profile->layer_count; l++) sum += profile->layers[l].backward_s;
    return sum;
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

static tacit_status append_backwards(const taciti_profile *profile, taciti_layout *layout) {
    for (size_t l = profile->layer_count; l-- > 0;) {
        if (profile->layers[l].tensor_count > 0) taciti_layout_next_unit(layout);
        for (size_t t = profile->layers[l].tensor_count; t-- > 0;) {
            const taciti_profile_tensor *tensor = &profile->layers[l].tensors[t];
            TACITI_TRY(taciti_layout_append(layout, tensor->name, tensor->dims, tensor->shape, tensor->dims > 1));
        }
    }
    return TACIT_OK;
}

tacit_status taciti_profile_layout(const taciti_profile *profile, size_t bucket_bytes, taciti_layout *out) {
    taciti_layout layout;
    size_t count = 0;
    bool tied = false;
    for (size_t l = 0; l < profile->layer_count; l++) {
        count += profile->layers[l].tensor_count;
        tied = tied || profile->layers[l].tied;
    }
    TACITI_TRY(taciti_layout_create(count, &layout));
    tacit_status status = append_backwards(profile, &layout);
    if (status == TACIT_OK) status = taciti_layout_seal(&layout, bucket_bytes);
    if (status != TACIT_OK) {
        taciti_layout_destroy(&layout);
        return status;
    }
    for (size_t t = 0; t < count; t++)
        layout.tensors[t].early = tied && layout.tensors[t].unit + 1 == layout.unit_count;
    *out = layout;
    return TACIT_OK;
}

/* ---- measuring ------------------------------------------------------------------------------------------------------
 * Spans of taciti_model_train(), added up by layer. They chain, so nothing is left out: looking up embeddings before
 * the first layer counts to h.0, the last norm's gradient to the last layer. */

void taciti_profile_measure(taciti_profile *profile) {
    profile->in_flops = false;
    profile->rate = profile->batch = 0;
    profile->update_s = 0;
    for (size_t l = 0; l < profile->layer_count; l++) {
        profile->layers[l].forward_flops = profile->layers[l].backward_flops = 0;
        profile->layers[l].forward_s = profile->layers[l].backward_s = 0;
    }
}

void taciti_profile_add_spans(taciti_profile *profile, const taciti_span *spans, size_t count, size_t passes) {
    size_t pass = 1;
    for (size_t i = 0; i < count; i++) {
        const taciti_span *span = &spans[i];
        const size_t index = (size_t)(span->detail + 1); /* of gradients -1 is the embedding, the last the head */
        const double seconds = (double)(span->end_ns - span->begin_ns) * 1e-9;
        const bool forward = span->kind == TACITI_SPAN_FORWARD, backward = span->kind == TACITI_SPAN_BACKWARD;
        if (span->detail < -1 || index >= profile->layer_count || (!forward && !backward)) continue;
        taciti_profile_layer *layer = &profile->layers[index];
        /* Gradients of earlier passes are not final: their time comes before anything can be sent. */
        if (forward || pass < passes)
            layer->forward_s += seconds;
        else
            layer->backward_s += seconds;
        if (backward && span->detail == -1) pass++;
    }
}

void taciti_profile_divide(taciti_profile *profile, double updates) {
    profile->update_s /= updates;
    for (size_t l = 0; l < profile->layer_count; l++) {
        profile->layers[l].forward_s /= updates;
        profile->layers[l].backward_s /= updates;
    }
}
