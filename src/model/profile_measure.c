/* SPDX-License-Identifier: Apache-2.0
 *
 * A profile of what was measured: the spans that taciti_model_train() leaves, added up by layer. Spans chain, so
 * nothing is left out: looking up embeddings before the first layer counts to h.0, the last norm's gradient to the last
 * layer.
 */
#include "model/profile.h"

void taciti_profile_measure(taciti_profile *profile) {
    profile->in_flops = false;
    profile->rate = profile->batch = 0;
    profile->update_s = 0;
    for (size_t l = 0; l < profile->layer_count; l++) {
        profile->layers[l].forward_flops = profile->layers[l].backward_flops = 0;
        profile->layers[l].forward_s = profile->layers[l].backward_s = 0;
    }
}

/* Spans of gradients carry -1 for the embedding, the number of a layer, or the number of layers for the head. */
static taciti_profile_layer *layer_of(const taciti_profile *profile, const taciti_span *span) {
    const size_t index = (size_t)(span->detail + 1);
    return span->detail >= -1 && index < profile->layer_count ? &profile->layers[index] : NULL;
}

void taciti_profile_add_spans(taciti_profile *profile, const taciti_span *spans, size_t count, size_t passes) {
    size_t pass = 1;
    for (size_t i = 0; i < count; i++) {
        const taciti_span *span = &spans[i];
        taciti_profile_layer *layer = layer_of(profile, span);
        const double seconds = (double)(span->end_ns - span->begin_ns) * 1e-9;
        const bool forward = span->kind == TACITI_SPAN_FORWARD, backward = span->kind == TACITI_SPAN_BACKWARD;
        if (layer == NULL || (!forward && !backward)) continue;
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
