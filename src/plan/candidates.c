/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/candidates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

static const double TIE = 0.01; /* steps that differ by less are as fast as each other */

/* What candidates are made of. */
typedef struct builder {
    const taciti_settings *settings;
    const taciti_hosts *hosts;
    const char *const *wanted;
    taciti_candidates *out;
} builder;

/* ---- topologies -------------------------------------------------------------------------------------------------- */

static void measure(taciti_plan_topology *t, bool figures) {
    t->gap = (double)NAN;
    if (figures && taciti_topology_mixing(&t->topology, &t->gap, &t->exact_after) != TACIT_OK) t->gap = (double)NAN;
}

static tacit_status make_topology(const builder *b, const taciti_pattern *pattern, taciti_topology *out) {
    taciti_topo_request request = pattern->topology;
    request.ranks = b->hosts->ranks;
    request.hosts = b->hosts;
    TACITI_TRY(taciti_topology_create(&request, out));
    const tacit_status status = taciti_plan_check_period(request.name, out->period, pattern->every);
    if (status != TACIT_OK) taciti_topology_destroy(out);
    return status;
}

/* Adds the topology to the list, or the reason why there is none. */
static void try_topology(const builder *b, const char *strategy, const taciti_pattern *pattern) {
    taciti_candidates *c = b->out;
    taciti_plan_topology *t = &c->topologies[c->topology_count];
    taciti_plan_refusal *refusal = &c->refused[c->refused_count];
    taciti_log_capture(refusal->reason);
    const tacit_status status = make_topology(b, pattern, &t->topology);
    if (status == TACIT_OK) measure(t, b->wanted == NULL);
    taciti_log_capture(NULL);
    t->strategy = refusal->strategy = strategy;
    t->name = refusal->name = pattern->topology.name;
    if (status == TACIT_OK)
        c->topology_count++;
    else
        c->refused_count++;
}

static bool is_wanted(const char *const *wanted, const char *name) {
    for (size_t i = 0; wanted != NULL && wanted[i] != NULL; i++)
        if (strcmp(wanted[i], name) == 0) return true;
    return wanted == NULL;
}

/* Patterns that differ in their order share a topology. */
static bool was_tried(const taciti_candidates *c, const char *strategy, const char *name) {
    const size_t t = c->topology_count, r = c->refused_count;
    return (t > 0 && c->topologies[t - 1].strategy == strategy && strcmp(c->topologies[t - 1].name, name) == 0) ||
           (r > 0 && c->refused[r - 1].strategy == strategy && strcmp(c->refused[r - 1].name, name) == 0);
}

/* The pattern's topology; NULL: it is not wanted, or these ranks cannot have it. */
static const taciti_plan_topology *topology_of(const builder *b, const char *strategy, const taciti_pattern *pattern) {
    taciti_candidates *c = b->out;
    const char *name = pattern->topology.name;
    if (!is_wanted(b->wanted, name)) return NULL;
    if (!was_tried(c, strategy, name) && c->topology_count + c->refused_count < TACITI_TOPOLOGIES_MAX)
        try_topology(b, strategy, pattern);
    if (c->topology_count == 0) return NULL;
    const taciti_plan_topology *t = &c->topologies[c->topology_count - 1];
    return t->strategy == strategy && strcmp(t->name, name) == 0 ? t : NULL;
}

/* ---- what is configured ------------------------------------------------------------------------------------------ */

/* The value of a key of the section `compress`, or NULL. */
static const void *compress_value(const taciti_settings *settings, const char *key) {
    taciti_place place;
    return taciti_config_find(&settings->config, key, &place) ? place.value : NULL;
}

/* compress.scope: 0 is `model`. */
static bool is_uneven(const taciti_settings *settings, const taciti_codec *codec) {
    const int *scope = compress_value(settings, "compress.scope");
    return codec->thresholds && scope != NULL && *scope == 0;
}

/* compress.codec and its factors; codec NULL: none is configured. */
static taciti_plan_compression configured_compression(const taciti_settings *settings) {
    const taciti_text *name = compress_value(settings, "compress.codec");
    const double *factor = compress_value(settings, "compress.factor"),
                 *back = compress_value(settings, "compress.back");
    const int *way = compress_value(settings, "compress.collective");
    taciti_plan_compression c = {.codec = name == NULL ? NULL : taciti_codec_find(name->text)};
    if (c.codec == NULL) return c;
    c.options = taciti_settings_options(settings, c.codec->options);
    if (factor != NULL && c.codec->selects) c.forth.factor = *factor;
    if (back != NULL && c.codec->selects) c.back.factor = *back;
    if (way != NULL) c.way = (taciti_plan_way)*way;
    c.uneven = is_uneven(settings, c.codec);
    return c;
}

static bool is_same_compression(const taciti_plan_compression *a, const taciti_plan_compression *b) {
    if (a->codec == NULL || a->codec != b->codec) return a->codec == b->codec;
    const double x = taciti_plan_factor(a), y = taciti_plan_factor(b);
    return fabs(x - y) < 1e-9 * x && fabs(a->back.factor - b->back.factor) < 1e-9 * x;
}

/* Whether sums are compressed as configured; factor 1 is dense. */
static bool compresses(const taciti_settings *settings) {
    const taciti_plan_compression own = configured_compression(settings);
    return own.codec != NULL && (!own.codec->selects || taciti_plan_factor(&own) > 1);
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static taciti_candidate *append(taciti_candidates *c, const char *strategy, const char *topology,
                                const taciti_method *method) {
    if (c->count == TACITI_CANDIDATES_MAX) return NULL;
    taciti_candidate *candidate = &c->list[c->count++];
    *candidate = (taciti_candidate){.method = *method, .strategy = strategy, .topology = topology};
    return candidate;
}

static void write_label(const taciti_pattern *pattern, taciti_method *method) {
    char *label = method->label;
    const size_t size = sizeof method->label;
    const taciti_plan_compression *c = &method->compression;
    (void)snprintf(label, size, "%s %s", pattern->label, c->codec == NULL ? method->wire->name : c->codec->name);
    if (c->codec != NULL && c->codec->selects)
        (void)snprintf(label + strlen(label), size - strlen(label), " %g", taciti_plan_factor(c));
    if (c->back.factor > 0) (void)snprintf(label + strlen(label), size - strlen(label), ", back %g", c->back.factor);
    if (method->lanes > 0)
        (void)snprintf(label + strlen(label), size - strlen(label), ", %d lane%s", method->lanes,
                       method->lanes == 1 ? "" : "s");
    if (method->topology != NULL && method->every > 1)
        (void)snprintf(label + strlen(label), size - strlen(label), " every %d", method->every);
}

/* One candidate for every wire that the exchange takes. */
static void append_wires(const builder *b, const taciti_strategy *strategy, const taciti_pattern *pattern,
                         const taciti_plan_topology *t, int lanes) {
    const taciti_exchange_options *exchange = &b->settings->exchange;
    const bool ours = strategy == taciti_settings_strategy(b->settings);
    const char *name = NULL;
    for (size_t i = 0; (name = taciti_codec_dense_name(i)) != NULL; i++) {
        taciti_method method = {.order = pattern->order,
                                .topology = t == NULL ? NULL : &t->topology,
                                .wire = taciti_codec_find(name),
                                .lanes = lanes,
                                .overlap = exchange->overlap,
                                .every = pattern->every,
                                .delay = pattern->delay,
                                .parts = pattern->parts};
        write_label(pattern, &method);
        taciti_candidate *c = append(b->out, strategy->name, t == NULL ? "" : t->name, &method);
        if (c == NULL) return;
        c->configured = ours && pattern->configured && lanes == 0 && method.wire == taciti_exchange_wire(exchange) &&
                        !(pattern->compresses && compresses(b->settings));
    }
}

/* ---- compression ------------------------------------------------------------------------------------------------- */

static taciti_candidate *append_compression(const builder *b, const taciti_strategy *strategy,
                                            const taciti_pattern *pattern, const taciti_plan_compression *compression) {
    char caution[TACITI_CAUTION_BYTES];
    taciti_method method = {.order = pattern->order,
                            .wire = taciti_exchange_wire(&b->settings->exchange),
                            .compression = *compression,
                            .overlap = b->settings->exchange.overlap,
                            .every = pattern->every};
    write_label(pattern, &method);
    taciti_candidate *c = append(b->out, strategy->name, "", &method);
    if (c != NULL) c->caution = taciti_plan_caution(compression, caution, sizeof caution);
    return c;
}

/* The configured codec, then every other one at a few factors. Number formats are wires; the union that sizes a sketch
 * is not known before a run. */
static void append_compressions(const builder *b, const taciti_strategy *strategy, const taciti_pattern *pattern) {
    static const double FACTORS[] = {10, 100, 1000};
    const taciti_plan_compression own = configured_compression(b->settings);
    if (compresses(b->settings)) {
        taciti_candidate *c = append_compression(b, strategy, pattern, &own);
        if (c != NULL) c->configured = pattern->configured && strategy == taciti_settings_strategy(b->settings);
    }
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++)
        for (size_t i = 0; i < sizeof FACTORS / sizeof *FACTORS; i++) {
            taciti_plan_compression c = {.codec = *codec,
                                         .options = taciti_settings_options(b->settings, (*codec)->options),
                                         .way = own.way,
                                         .uneven = is_uneven(b->settings, *codec)};
            if (taciti_codec_is_dense(*codec) || (*codec)->sketches || (!(*codec)->selects && i > 0)) continue;
            if ((*codec)->selects) c.forth.factor = FACTORS[i];
            if (!is_same_compression(&c, &own)) (void)append_compression(b, strategy, pattern, &c);
        }
}

static int smallest_host(const taciti_hosts *hosts) {
    int smallest = hosts->ranks, count = 0;
    for (int r = 0; r < hosts->ranks; r++) {
        count++;
        if (r + 1 < hosts->ranks && hosts->host_of[r + 1] == hosts->host_of[r]) continue;
        smallest = count < smallest ? count : smallest;
        count = 0;
    }
    return smallest;
}

/* Where nobody asked for lanes, dense with 1, 2, 4, ... of them: what pays has to pay against the best. */
static void append_lanes(const builder *b, const taciti_strategy *strategy, const taciti_pattern *pattern) {
    const taciti_exchange_options *exchange = &b->settings->exchange;
    if (exchange->lanes > 0 || exchange->scheme == TACITI_SCHEME_FLAT || b->hosts->count == 1) return;
    const int max = smallest_host(b->hosts), share = TACITI_FLOWS / (b->hosts->count - 1);
    const int own = share < 1 ? 1 : share < max ? share : max;
    for (int lanes = 1; lanes <= max && max > 1; lanes *= 2)
        if (lanes != own) append_wires(b, strategy, pattern, NULL, lanes);
}

static void append_pattern(const builder *b, const taciti_strategy *strategy, const taciti_pattern *pattern) {
    if (pattern->topology.name == NULL) {
        append_wires(b, strategy, pattern, NULL, 0);
        if (pattern->order == TACITI_ORDER_DENSE) append_lanes(b, strategy, pattern);
        if (pattern->compresses && b->hosts->ranks > 1) append_compressions(b, strategy, pattern);
        return;
    }
    const taciti_plan_topology *t = topology_of(b, strategy->name, pattern);
    if (t != NULL && b->hosts->ranks > 1) append_wires(b, strategy, pattern, t, 0);
}

/* Of all strategies: patterns among all ranks, or those with a topology. */
static tacit_status append_strategies(const builder *b, bool topologies) {
    taciti_pattern patterns[TACITI_PATTERNS_MAX];
    for (const taciti_strategy *const *s = taciti_strategy_list(); *s != NULL; s++) {
        size_t count = 0;
        TACITI_TRY((*s)->patterns(taciti_settings_options(b->settings, (*s)->options), patterns, &count));
        for (size_t i = 0; i < count; i++)
            if ((patterns[i].topology.name != NULL) == topologies) append_pattern(b, *s, &patterns[i]);
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

static void append_theirs(taciti_candidates *c, const char *strategy, const char *topology,
                          const taciti_method *method) {
    taciti_candidate *candidate = append(c, strategy, topology, method);
    if (candidate != NULL) candidate->theirs = true;
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
        if (strcmp(c->topologies[t].name, "exp-directed") == 0) append_theirs(c, "sgp", c->topologies[t].name, &method);
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
    if (hosts->ranks < 2) return;
    append_theirs(candidates, "library", "", &method);
    method.library = TACITI_LIBRARY_MEASURED;
    method.by = fastest_library(cluster);
    if (method.by != NULL && hosts->ranks == taciti_cluster_ranks(cluster)) {
        (void)snprintf(method.label, sizeof method.label, "dense %s f32", method.by);
        append_theirs(candidates, "library", "", &method);
    }
    if (sgp_s >= 0) append_sgp(candidates, sgp_s);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

tacit_status taciti_candidates_create(const taciti_settings *settings, const taciti_hosts *hosts,
                                      const char *const *wanted, taciti_candidates *out) {
    const builder b = {.settings = settings, .hosts = hosts, .wanted = wanted, .out = out};
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

tacit_status taciti_candidates_predict(taciti_candidates *candidates, const taciti_scene *scene,
                                       const taciti_plan_options *options,
                                       void (*progress)(void *context, size_t done, size_t count), void *context) {
    for (size_t i = 0; i < candidates->count; i++) {
        taciti_candidate *c = &candidates->list[i];
        TACITI_TRY(taciti_predict(scene, &c->method, options, &c->prediction));
        c->verdict = taciti_verdict_of(&candidates->list[0].prediction, &c->prediction);
        c->priced = c->method.compression.codec == NULL ||
                    taciti_plan_compression_known(scene->cluster, c->method.compression.codec);
        if (progress != NULL) progress(context, i + 1, candidates->count);
    }
    return TACIT_OK;
}

/* ---- what stands out --------------------------------------------------------------------------------------------- */

const taciti_plan_topology *taciti_candidate_topology(const taciti_candidates *candidates,
                                                      const taciti_candidate *candidate) {
    for (size_t t = 0; t < candidates->topology_count; t++)
        if (&candidates->topologies[t].topology == candidate->method.topology) return &candidates->topologies[t];
    return NULL;
}

const taciti_candidate *taciti_candidates_dense(const taciti_candidates *candidates) {
    const taciti_candidate *best = &candidates->list[0];
    for (size_t i = 1; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (c->method.compression.codec != NULL) continue;
        if (c->method.order == TACITI_ORDER_DENSE && c->prediction.step_s < best->prediction.step_s) best = c;
    }
    return best;
}

static bool is_recommendable_sum(const taciti_candidate *c) {
    return c->method.compression.codec != NULL && c->method.order == TACITI_ORDER_DENSE && c->priced &&
           c->prediction.fits && c->caution != TACITI_CAUTION_STRONG;
}

const taciti_candidate *taciti_candidates_compressed(const taciti_candidates *candidates) {
    const taciti_candidate *fastest = NULL, *best = NULL;
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (!is_recommendable_sum(c)) continue;
        if (fastest == NULL || c->prediction.step_s < fastest->prediction.step_s) fastest = c;
    }
    for (size_t i = 0; i < candidates->count && fastest != NULL; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (!is_recommendable_sum(c) || c->prediction.step_s > (1 + TIE) * fastest->prediction.step_s) continue;
        if (best == NULL || c->prediction.nic_bytes > best->prediction.nic_bytes) best = c;
    }
    return best;
}

/* How well a topology mixes; an unknown gap is none. */
static double gap_of(const taciti_candidates *candidates, const taciti_candidate *candidate) {
    const taciti_plan_topology *topology = taciti_candidate_topology(candidates, candidate);
    return topology == NULL || isnan(topology->gap) ? 0 : topology->gap;
}

bool taciti_candidate_mixes(const taciti_candidates *candidates, const taciti_candidate *candidate) {
    return candidate->method.topology == NULL || gap_of(candidates, candidate) * TACITI_PLAN_MIXES >= 1;
}

static bool is_recommendable(const taciti_candidates *candidates, const taciti_candidate *candidate) {
    return candidate->method.topology != NULL && !candidate->theirs && candidate->prediction.fits &&
           taciti_candidate_mixes(candidates, candidate);
}

const taciti_candidate *taciti_candidates_gossip(const taciti_candidates *candidates) {
    const taciti_candidate *fastest = NULL, *best = NULL;
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (!is_recommendable(candidates, c)) continue;
        if (fastest == NULL || c->prediction.step_s < fastest->prediction.step_s) fastest = c;
    }
    for (size_t i = 0; i < candidates->count && fastest != NULL; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (!is_recommendable(candidates, c) || c->prediction.step_s > (1 + TIE) * fastest->prediction.step_s) continue;
        if (best == NULL || gap_of(candidates, c) > gap_of(candidates, best)) best = c;
    }
    return best;
}

static bool is_same_parts(const taciti_parts *a, const taciti_parts *b) {
    return a->passes == b->passes && a->gradients == b->gradients && a->gather == b->gather;
}

const taciti_candidate *taciti_candidates_find(const taciti_candidates *candidates, const taciti_candidate *like) {
    const taciti_candidate *own = NULL; /* with as many lanes as there are by default */
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (strcmp(c->strategy, like->strategy) != 0 || strcmp(c->topology, like->topology) != 0 ||
            c->method.order != like->method.order || c->method.wire != like->method.wire ||
            c->method.library != like->method.library || !is_same_parts(&c->method.parts, &like->method.parts) ||
            !is_same_compression(&c->method.compression, &like->method.compression))
            continue;
        if (c->method.lanes == like->method.lanes) return c;
        if (c->method.lanes == 0) own = c;
    }
    return own;
}

const taciti_candidate *taciti_candidates_parts(const taciti_candidates *candidates) {
    const taciti_candidate *best = NULL;
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (c->method.order != TACITI_ORDER_PARTS || !c->prediction.fits) continue;
        if (best == NULL || c->prediction.step_s < best->prediction.step_s) best = c;
    }
    return best;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

/* Where whole replicas do not fit, parts are the answer, or nothing is. */
static taciti_verdict verdict_of_parts(const taciti_candidates *candidates, const taciti_candidate *dense,
                                       char text[TACITI_VERDICT_BYTES]) {
    const taciti_candidate *parts = taciti_candidates_parts(candidates);
    const double gib = dense->prediction.memory_bytes / 0x1p30;
    if (parts == NULL)
        (void)snprintf(text, TACITI_VERDICT_BYTES,
                       "nothing fits: a replica takes %.2f GiB per rank without activations, and no --strategy shard "
                       "fits on these ranks either: more hosts, or a smaller model",
                       gib);
    else
        (void)snprintf(text, TACITI_VERDICT_BYTES,
                       "a replica does not fit: %.2f GiB per rank without activations; --strategy shard does: %s takes "
                       "%.2f GiB",
                       gib, parts->method.label, parts->prediction.memory_bytes / 0x1p30);
    return (taciti_verdict){.speedup = 1, .low = 1, .high = 1};
}

taciti_verdict taciti_candidates_verdict(const taciti_candidates *candidates, char text[TACITI_VERDICT_BYTES]) {
    const taciti_candidate *dense = taciti_candidates_dense(candidates);
    const taciti_candidate *gossip = taciti_candidates_gossip(candidates);
    if (!dense->prediction.fits) return verdict_of_parts(candidates, dense, text);
    if (gossip == NULL) {
        (void)snprintf(text, TACITI_VERDICT_BYTES, "does not pay: one rank has nobody to exchange with");
        return (taciti_verdict){.speedup = 1, .low = 1, .high = 1};
    }
    const taciti_verdict v = taciti_verdict_of(&dense->prediction, &gossip->prediction);
    if (v.pays)
        (void)snprintf(text, TACITI_VERDICT_BYTES, "pays: %.2fx (%.2f-%.2f) with %s instead of %s", v.speedup, v.low,
                       v.high, gossip->method.label, dense->method.label);
    else
        (void)snprintf(text, TACITI_VERDICT_BYTES, "does not pay: keep %s all-reduce; %s would be %.2fx (%.2f-%.2f)",
                       dense->method.label, gossip->method.label, v.speedup, v.low, v.high);
    return v;
}

taciti_verdict taciti_candidates_compression_verdict(const taciti_candidates *candidates,
                                                     char text[TACITI_VERDICT_BYTES]) {
    const taciti_candidate *dense = taciti_candidates_dense(candidates);
    const taciti_candidate *best = taciti_candidates_compressed(candidates);
    char caution[TACITI_CAUTION_BYTES];
    *text = '\0';
    if (best == NULL) return (taciti_verdict){.speedup = 1, .low = 1, .high = 1};
    const taciti_verdict v = taciti_verdict_of(&dense->prediction, &best->prediction);
    (void)taciti_plan_caution(&best->method.compression, caution, sizeof caution);
    if (v.pays)
        (void)snprintf(text, TACITI_VERDICT_BYTES, "compression pays: %.2fx (%.2f-%.2f) with %s instead of %s%s",
                       v.speedup, v.low, v.high, best->method.label, dense->method.label, *caution == '\0' ? "" : "; ");
    else
        (void)snprintf(text, TACITI_VERDICT_BYTES,
                       "compression does not pay: keep %s all-reduce; %s would be %.2fx (%.2f-%.2f)",
                       dense->method.label, best->method.label, v.speedup, v.low, v.high);
    if (v.pays) (void)snprintf(text + strlen(text), TACITI_VERDICT_BYTES - strlen(text), "%s", caution);
    return v;
}
