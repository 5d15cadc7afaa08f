/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/candidates_build.h"

#include <stdio.h>

#include "base/text.h"

taciti_candidate *taciti_candidates_append(taciti_candidates *c, const char *strategy, const char *topology,
                                           const taciti_method *method) {
    if (c->count == TACITI_CANDIDATES_MAX) return NULL;
    taciti_candidate *candidate = &c->list[c->count++];
    *candidate = (taciti_candidate){.method = *method, .strategy = strategy, .topology = topology};
    return candidate;
}

/* Appends to a label. */
#define say(method, ...) taciti_text_add((method)->label, sizeof(method)->label, __VA_ARGS__)

/* The codec of a compression, or the wire where it has none. */
static void say_codec(taciti_method *method, const taciti_plan_compression *c, const taciti_codec *wire) {
    say(method, "%s", c->encoding.codec != NULL ? c->encoding.codec->name : wire->name);
    if (c->encoding.codec != NULL && taciti_plan_factor(c) > 1) say(method, " %g", taciti_plan_factor(c));
}

/* Labels look like "dense auto topk 100" and "gossip aer awc f32 every 2". Methods of parts: "shard 3 gather bf16 f32",
 * "shard 2 int4, gather int4", "shard 3 f32, gather int8"; "auto" stands before codecs that adapt. Replicas gather
 * nothing between hosts: "shard 3 over host f32". */
void taciti_method_label(const taciti_pattern *pattern, taciti_method *method) {
    const taciti_plan_compression *sums = &method->compression, *gathers = &method->gather;
    const bool gathered = method->order == TACITI_ORDER_PARTS && !method->parts.replicas,
               coded = sums->encoding.codec != NULL || gathers->encoding.codec != NULL;
    (void)snprintf(method->label, sizeof method->label, "%s", pattern->label);
    if (!coded && gathered) say(method, " gather %s", method->parts.gather->name);
    say(method, sums->adapts || gathers->adapts ? " auto " : " ");
    say_codec(method, sums, method->wire);
    if (sums->encoding.back.factor > 0) say(method, ", back %g", sums->encoding.back.factor);
    if (coded && gathered) say(method, ", gather ");
    if (gathers->encoding.codec != NULL || (coded && gathered)) say_codec(method, gathers, method->parts.gather);
    if (method->lanes > 0) say(method, ", %d lane%s", method->lanes, method->lanes == 1 ? "" : "s");
    if (method->topology != NULL && method->every > 1) say(method, " every %d", method->every);
}
