/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/candidates_build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

enum { ROUNDS_WORTH = 128 };

/* ---- topologies -------------------------------------------------------------------------------------------------- */

static tacit_status make_topology(const taciti_candidates_builder *b, taciti_topology *out) {
    const taciti_pattern *pattern = b->pattern;
    taciti_topo_request request = pattern->topology;
    request.ranks = b->hosts->ranks;
    request.hosts = b->hosts;
    TACITI_TRY(taciti_topology_create(&request, out));
    const tacit_status status = taciti_plan_check_period(request.name, out->period, pattern->every, pattern->shorten);
    if (status != TACIT_OK) taciti_topology_destroy(out);
    return status;
}

/* Simulating every round of a long period takes seconds, which a row that is never recommended is not worth. */
static tacit_status check_worth(const taciti_candidates_builder *b, const taciti_plan_topology *t) {
    if (b->asked || !(t->gap * TACITI_PLAN_MIXES < 1) || t->topology.period <= ROUNDS_WORTH) return TACIT_OK;
    return taciti_fail(
        TACIT_E_CONFIG,
        "%s repeats after %zu rounds on %d ranks and mixes too slowly to be recommended: it is priced in "
        "the plan of a configuration that asks for it",
        b->pattern->topology.name, t->topology.period, b->hosts->ranks);
}

/* Adds the topology to the list, or the reason why there is none. */
static void try_topology(const taciti_candidates_builder *b) {
    taciti_candidates *c = b->out;
    taciti_plan_topology *t = &c->topologies[c->topology_count];
    taciti_plan_refusal *refusal = &c->refused[c->refused_count];
    taciti_log_capture(refusal->reason);
    tacit_status status = make_topology(b, &t->topology);
    if (status == TACIT_OK) {
        t->gap = (double)NAN;
        if (b->wanted == NULL && taciti_topology_mixing(&t->topology, &t->gap, &t->exact_after) != TACIT_OK)
            t->gap = (double)NAN;
        status = check_worth(b, t);
        if (status != TACIT_OK) taciti_topology_destroy(&t->topology);
    }
    taciti_log_capture(NULL);
    t->strategy = refusal->strategy = b->strategy->name;
    t->name = refusal->name = b->pattern->topology.name;
    if (status == TACIT_OK)
        c->topology_count++;
    else
        c->refused_count++;
}

/* Patterns that differ in their order share a topology. */
static bool was_tried(const taciti_candidates *c, const char *strategy, const char *name) {
    const size_t t = c->topology_count, r = c->refused_count;
    return (t > 0 && c->topologies[t - 1].strategy == strategy && strcmp(c->topologies[t - 1].name, name) == 0) ||
           (r > 0 && c->refused[r - 1].strategy == strategy && strcmp(c->refused[r - 1].name, name) == 0);
}

/* The pattern's topology; NULL: it is not wanted, or these ranks cannot have it. */
static const taciti_plan_topology *topology_of(const taciti_candidates_builder *b) {
    taciti_candidates *c = b->out;
    const char *name = b->pattern->topology.name, *strategy = b->strategy->name;
    size_t i = 0;
    while (b->wanted != NULL && b->wanted[i] != NULL && strcmp(b->wanted[i], name) != 0) i++;
    if (b->wanted != NULL && b->wanted[i] == NULL) return NULL;
    if (!was_tried(c, strategy, name) && c->topology_count + c->refused_count < TACITI_TOPOLOGIES_MAX) try_topology(b);
    if (c->topology_count == 0) return NULL;
    const taciti_plan_topology *t = &c->topologies[c->topology_count - 1];
    return t->strategy == strategy && strcmp(t->name, name) == 0 ? t : NULL;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static void append_wire(const taciti_candidates_builder *b, const taciti_plan_topology *t, int lanes,
                        const taciti_codec *wire, size_t known_arrays) {
    const taciti_pattern *pattern = b->pattern;
    const taciti_codec *mixes = taciti_settings_compression(b->settings).mixes.codec;
    taciti_method method = {.order = pattern->order,
                            .topology = t == NULL ? NULL : &t->topology,
                            .wire = wire,
                            .arrays = pattern->arrays + known_arrays,
                            .lanes = lanes,
                            .overlap = b->settings->exchange.overlap,
                            .every = pattern->every,
                            .delay = pattern->delay,
                            .also_mixed = pattern->also_mixed,
                            .common = pattern->common,
                            .parts = pattern->parts};
    taciti_method_label(pattern, &method);
    taciti_candidate *c = taciti_candidates_append(b->out, b->strategy->name, t == NULL ? "" : t->name, &method);
    if (c == NULL) return;
    const taciti_codec *own =
        b->ours && t != NULL && mixes != NULL ? mixes : taciti_exchange_wire(&b->settings->exchange);
    c->configured = b->ours && pattern->configured && lanes == 0 && wire == own &&
                    !(pattern->compresses && taciti_candidates_is_compressed(b->settings, pattern));
}

/* One candidate for every wire that the exchange takes. */
static void append_wires(const taciti_candidates_builder *b, int lanes) {
    const char *name = NULL;
    for (size_t i = 0; (name = taciti_codec_dense_name(i)) != NULL; i++)
        append_wire(b, NULL, lanes, taciti_codec_find(name), 0);
}

/* Whether training takes the codec of the mixes on this topology. *arrays: what a rank remembers for it. */
static bool takes_mixes(const taciti_candidates_builder *b, const taciti_plan_topology *t, size_t *arrays) {
    const taciti_strategy_context context = taciti_settings_context(b->settings);
    char reason[TACITI_REASON_BYTES];
    taciti_log_capture(reason);
    const tacit_status status = b->strategy->mixes(&context, b->hosts, &t->topology, arrays);
    taciti_log_capture(NULL);
    return status == TACIT_OK;
}

/* Through a wire, or through the codec of the mixes, which may be one of the wires. */
static void append_mix(const taciti_candidates_builder *b, const taciti_plan_topology *t, const taciti_codec *codec) {
    const taciti_codec *mixes = taciti_settings_compression(b->settings).mixes.codec;
    size_t arrays = 0;
    if (!b->ours || codec != mixes || takes_mixes(b, t, &arrays)) append_wire(b, t, 0, codec, arrays);
}

/* One for every wire, and one for the codec of the mixes, whose payloads have a fixed size. */
static void append_mixes(const taciti_candidates_builder *b, const taciti_plan_topology *t) {
    const taciti_codec *codec = taciti_settings_compression(b->settings).mixes.codec;
    const char *name = NULL;
    if (b->pattern->order == TACITI_ORDER_ASYNC) { /* over undirected edges, as f32 */
        if (!t->topology.directed) append_wire(b, t, 0, taciti_codec_find("f32"), 0);
        return;
    }
    for (size_t i = 0; (name = taciti_codec_dense_name(i)) != NULL; i++) append_mix(b, t, taciti_codec_find(name));
    if (codec != NULL && !taciti_codec_is_dense(codec) && b->ours) append_mix(b, t, codec);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

/* Where nobody asked for lanes, dense with 1, 2, 4, ... of them: what pays has to pay against the best. */
static void append_lanes(const taciti_candidates_builder *b) {
    const taciti_exchange_options *exchange = &b->settings->exchange;
    if (exchange->lanes > 0 || exchange->scheme == TACITI_SCHEME_FLAT || b->hosts->count == 1) return;
    const int max = taciti_hosts_sizes(b->hosts).min, share = TACITI_FLOWS / (b->hosts->count - 1);
    const int own = share < 1 ? 1 : share < max ? share : max;
    for (int lanes = 1; lanes <= max && max > 1; lanes *= 2)
        if (lanes != own) append_wires(b, lanes);
}

/* ---- parts by hosts ---------------------------------------------------------------------------------------------- */

/* Parts inside hosts need several hosts of several ranks. Where one has more than others, ranks would hold nothing:
 * only who asks for that gets it. */
static bool has_place(const taciti_candidates_builder *b) {
    if (!b->pattern->parts.replicas && !b->pattern->parts.secondary) return true;
    const int smallest = taciti_hosts_sizes(b->hosts).min;
    if (b->hosts->count == 1 || smallest < 2 || b->settings->exchange.scheme == TACITI_SCHEME_FLAT) return false;
    return (b->ours && b->pattern->configured) || smallest * b->hosts->count == b->hosts->ranks;
}

static void append_pattern(const taciti_candidates_builder *b) {
    if (!has_place(b)) return;
    if (b->pattern->topology.name == NULL) {
        append_wires(b, 0);
        if (b->pattern->order == TACITI_ORDER_DENSE) append_lanes(b);
        if (b->pattern->compresses && b->hosts->ranks > 1) taciti_candidates_compress(b);
        return;
    }
    const taciti_plan_topology *t = topology_of(b);
    if (t != NULL && b->hosts->ranks > 1) append_mixes(b, t);
}

/* Whether the options ask for the topology of the pattern, in whatever order. */
static bool is_asked(const taciti_pattern *patterns, size_t count, const taciti_pattern *pattern) {
    const char *name = pattern->topology.name;
    for (size_t i = 0; name != NULL && i < count; i++)
        if (patterns[i].configured && patterns[i].topology.name != NULL && strcmp(patterns[i].topology.name, name) == 0)
            return true;
    return false;
}

/* Appends the patterns of all strategies: those among all ranks, or those with a topology. */
static tacit_status append_strategies(const taciti_candidates_builder *b, bool topologies) {
    taciti_pattern patterns[TACITI_PATTERNS_MAX];
    for (const taciti_strategy *const *s = taciti_strategy_list(); *s != NULL; s++) {
        size_t count = 0;
        TACITI_TRY((*s)->patterns(taciti_settings_options(b->settings, (*s)->options), b->hosts, patterns, &count));
        for (size_t i = 0; i < count; i++) {
            taciti_candidates_builder one = *b;
            one.strategy = *s;
            one.pattern = &patterns[i];
            one.ours = *s == taciti_settings_strategy(b->settings);
            one.asked = one.ours && is_asked(patterns, count, &patterns[i]);
            if ((patterns[i].topology.name != NULL) == topologies) append_pattern(&one);
        }
    }
    return TACIT_OK;
}

/* ---- what others do ---------------------------------------------------------------------------------------------- */

/* The fastest at the largest size; NULL: only ours were measured. */
static const char *fastest_library(const taciti_cluster *cluster) {
    const taciti_cluster_timing *best = NULL;
    for (size_t i = 0; i < cluster->timing_count; i++) {
        const taciti_cluster_timing *t = &cluster->timings[i];
        if (t->collective != TACITI_COLLECTIVE_ALL_REDUCE || t->group != TACITI_GROUP_WORLD) continue;
        if (strcmp(t->by, "tacit") == 0) continue;
        if (best == NULL || t->bytes > best->bytes || (t->bytes == best->bytes && t->seconds < best->seconds)) best = t;
    }
    return best == NULL ? NULL : best->by;
}

/* Push-sum on the directed exponential graph: parameters are exchanged after the update, before the next forward. */
static void append_sgp(taciti_candidates *c, double serial_s) {
    for (size_t t = 0; t < c->topology_count; t++) {
        const taciti_method method = {.label = "SGP as published f32",
                                      .order = TACITI_ORDER_ATC,
                                      .topology = &c->topologies[t].topology,
                                      .wire = taciti_codec_find("f32"),
                                      .every = 1,
                                      .serial_s = serial_s};
        if (strcmp(c->topologies[t].name, "exp-directed") == 0)
            (void)taciti_candidates_append(c, "sgp", c->topologies[t].name, &method);
    }
}

void taciti_candidates_add_others(taciti_candidates *candidates, const taciti_cluster *cluster,
                                  const taciti_hosts *hosts, double sgp_s) {
    taciti_method method = {.label = "dense ring as NCCL/Gloo f32",
                            .order = TACITI_ORDER_DENSE,
                            .wire = taciti_codec_find("f32"),
                            .overlap = candidates->list[0].method.overlap,
                            .every = 1,
                            .library = TACITI_LIBRARY_RING};
    const size_t own = candidates->count;
    if (hosts->ranks < 2) return;
    (void)taciti_candidates_append(candidates, "library", "", &method);
    method.library = TACITI_LIBRARY_MEASURED;
    method.by = fastest_library(cluster);
    if (method.by != NULL && hosts->ranks == taciti_cluster_ranks(cluster)) {
        (void)snprintf(method.label, sizeof method.label, "dense %s f32", method.by);
        (void)taciti_candidates_append(candidates, "library", "", &method);
    }
    if (sgp_s >= 0) append_sgp(candidates, sgp_s);
    for (size_t i = own; i < candidates->count; i++) candidates->list[i].theirs = true;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

tacit_status taciti_candidates_create(const taciti_settings *settings, const taciti_hosts *hosts,
                                      const char *const *wanted, taciti_candidates *out) {
    const taciti_candidates_builder b = {.settings = settings, .hosts = hosts, .wanted = wanted, .out = out};
    *out = (taciti_candidates){.list = taciti_calloc(TACITI_CANDIDATES_MAX, sizeof *out->list)};
    if (out->list == NULL) return TACIT_E_MEMORY;
    tacit_status status = append_strategies(&b, false);
    if (status == TACIT_OK) status = append_strategies(&b, true);
    if (status != TACIT_OK) taciti_candidates_destroy(out);
    return status;
}

void taciti_candidates_destroy(taciti_candidates *candidates) {
    for (size_t t = 0; t < candidates->topology_count; t++)
        taciti_topology_destroy(&candidates->topologies[t].topology);
    taciti_free(candidates->list);
    *candidates = (taciti_candidates){0};
}

static bool is_known(const taciti_cluster *cluster, const taciti_plan_compression *c) {
    return c->encoding.codec == NULL || taciti_plan_compression_known(cluster, c->encoding.codec);
}

/* Whether the speed of every codec of the method is known. The speed of a dense wire does not matter. */
static bool is_priced(const taciti_cluster *cluster, const taciti_method *m) {
    return is_known(cluster, &m->compression) && is_known(cluster, &m->gather) &&
           (taciti_codec_is_dense(m->wire) || taciti_plan_compression_known(cluster, m->wire));
}

tacit_status taciti_candidates_predict(taciti_candidates *candidates, const taciti_scene *scene,
                                       const taciti_plan_options *options,
                                       void (*progress)(void *context, size_t done, size_t count), void *context) {
    for (size_t i = 0; i < candidates->count; i++) {
        taciti_candidate *c = &candidates->list[i];
        TACITI_TRY(taciti_predict(scene, &c->method, options, &c->prediction));
        c->priced = is_priced(scene->cluster, &c->method);
        if (progress != NULL) progress(context, i + 1, candidates->count);
    }
    const taciti_prediction *dense = &taciti_candidates_dense(candidates)->prediction;
    for (size_t i = 0; i < candidates->count; i++)
        candidates->list[i].verdict = taciti_verdict_of(dense, &candidates->list[i].prediction);
    return TACIT_OK;
}

/* ---- the same among others ------------------------------------------------------------------------------------------
 */

const taciti_candidate *taciti_candidates_find(const taciti_candidates *candidates, const taciti_candidate *like) {
    const taciti_parts *parts = &like->method.parts;
    const taciti_candidate *own = NULL; /* with as many lanes as there are by default */
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        const taciti_parts *p = &c->method.parts;
        if (strcmp(c->strategy, like->strategy) != 0 || strcmp(c->topology, like->topology) != 0 ||
            c->method.order != like->method.order || c->method.wire != like->method.wire ||
            c->method.library != like->method.library || p->passes != parts->passes ||
            p->gradients != parts->gradients || p->gather != parts->gather || p->replicas != parts->replicas ||
            p->secondary != parts->secondary ||
            !taciti_plan_compression_equal(&c->method.compression, &like->method.compression) ||
            !taciti_plan_compression_equal(&c->method.gather, &like->method.gather))
            continue;
        if (c->method.lanes == like->method.lanes) return c;
        if (c->method.lanes == 0) own = c;
    }
    return own;
}
