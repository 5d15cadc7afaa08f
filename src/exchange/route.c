/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange/route.h"

const taciti_route_verbs *taciti_route_of(const taciti_codec *codec) {
    if (codec == NULL) return &taciti_route_dense;
    if (codec->aggregation == TACITI_CODEC_LINEAR) return &taciti_route_linear;
    return codec->sketches ? &taciti_route_sketch : &taciti_route_payload;
}

tacit_status taciti_route_describe(const taciti_route_setup *setup, taciti_route *out) {
    *out = (taciti_route){.verbs = taciti_route_of(setup->encoding.codec), .setup = *setup};
    return out->verbs->describe(out);
}

void taciti_route_close(taciti_route *route) {
    if (route->verbs != NULL && route->verbs->close != NULL) route->verbs->close(route);
    taciti_allreduce_destroy(&route->reduce);
    *route = (taciti_route){.verbs = NULL};
}

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/* Returns who encodes which range, for stores. */
static const taciti_allreduce *encoders_of(const taciti_route *route) {
    return route->verbs->whole ? NULL : &route->reduce;
}

bool taciti_route_encodes(const taciti_route *route) {
    return (route->verbs->whole ? route->setup.hosts->ranks : route->reduce.arrangement.hosts) > 1;
}

tacit_status taciti_route_create_store(const taciti_route *route, taciti_store *out) {
    return taciti_store_create(encoders_of(route), route->setup.layout, route->setup.encoding.feedback, out);
}

size_t taciti_route_store_bytes(const taciti_route *route) {
    if (!taciti_route_encodes(route)) return 0;
    return taciti_store_predict_bytes(encoders_of(route), route->setup.layout, route->setup.encoding.feedback);
}
