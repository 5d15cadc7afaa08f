/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <string.h>

#include "bench/statistics.h"
#include "cli/plan_print.h"

/* null: everything is compressed. */
static json_t *layers_json(const taciti_plan_report *r) {
    const taciti_plan_layers l = taciti_plan_layers_of(r->scene);
    const char *layers = r->settings->compress.layers.text;
    if (strcmp(layers, "all") == 0) return json_null();
    return json_pack("{s:s, s:I, s:I, s:f, s:I, s:f}", "choice", layers, "tensors", (json_int_t)l.tensors,
                     "compressed_tensors", (json_int_t)l.coded_tensors, "compressed_share", l.coded_share,
                     "other_tensors", (json_int_t)l.other_tensors, "other_share", l.other_share);
}

static json_t *model_json(const taciti_plan_report *r) {
    const taciti_profile *p = r->scene->profile;
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "file", r->model_path, "profile",
                     p->name, "source", p->source, "parameters", (json_int_t)r->scene->layout->parameters, "buckets",
                     (json_int_t)r->scene->layout->bucket_count, "coded_buckets",
                     (json_int_t)r->scene->coded->bucket_count, "forward_s", taciti_profile_forward_s(p), "backward_s",
                     taciti_profile_backward_s(p), "update_s", p->update_s, "cv", r->cv, "layers", layers_json(r));
}

static json_t *cluster_json(const taciti_plan_report *r) {
    const taciti_cluster *c = r->scene->cluster;
    const taciti_prediction *p = &r->candidates->list[0].prediction;
    const bool known = c->between.alpha_s >= 0;
    return json_pack("{s:s, s:s, s:i, s:i, s:o, s:o, s:b, s:f}", "file", r->cluster_path, "name", c->name, "hosts",
                     r->scene->hosts->count, "ranks", r->scene->hosts->ranks, "between_gbit_per_s",
                     known ? json_real(8 / taciti_plan_wire_beta_s(c) / 1e9) : json_null(), "between_latency_us",
                     known ? json_real(c->between.alpha_s * 1e6) : json_null(), "calibrated", p->calibrated,
                     "link_error", p->link_error);
}

static json_t *mixing_json(const taciti_plan_report *r, const taciti_candidate *c) {
    const taciti_plan_topology *t = taciti_candidate_topology(r->candidates, c);
    if (t == NULL) return json_null();
    return json_pack("{s:s, s:I, s:o, s:o, s:b}", "topology", t->name, "period", (json_int_t)t->topology.period,
                     "spectral_gap", taciti_real_json(t->gap), "exact_after",
                     t->exact_after > 0 ? json_integer((json_int_t)t->exact_after) : json_null(), "directed",
                     t->topology.directed);
}

static json_t *verdict_json(const taciti_verdict *v) {
    return json_pack("{s:f, s:f, s:f, s:b}", "speedup", v->speedup, "low", v->low, "high", v->high, "pays", v->pays);
}

static json_t *compression_json(const taciti_plan_report *r, const taciti_candidate *c) {
    const taciti_plan_compression *compression = &c->method.compression;
    const bool known = compression->encoding.codec == NULL ||
                       taciti_plan_compression_known(r->scene->cluster, compression->encoding.codec);
    static const char *const cautions[] = {"none", "some", "strong"};
    char text[TACITI_CAUTION_BYTES];
    if (compression->encoding.codec == NULL) return json_null();
    (void)taciti_method_caution(&c->method, text, sizeof text);
    return json_pack("{s:s, s:f, s:f, s:b, s:b, s:s, s:s}", "codec", compression->encoding.codec->name, "factor",
                     taciti_plan_factor(compression), "factor_back", compression->encoding.back.factor, "adapts",
                     compression->adapts, "speed_known", known, "caution_level", cautions[c->caution], "caution", text);
}

/* Describes what ranks own parts of, and how they gather it. */
static json_t *parts_json(const taciti_plan_report *r, const taciti_method *m) {
    const taciti_plan_compression *g = &m->gather;
    if (m->order != TACITI_ORDER_PARTS) return json_null();
    json_t *codec = g->encoding.codec == NULL
                        ? json_null()
                        : json_pack("{s:s, s:f, s:b, s:b, s:b}", "codec", g->encoding.codec->name, "factor",
                                    taciti_plan_factor(g), "changes", m->parts.passes == 1, "adapts", g->adapts,
                                    "speed_known", taciti_plan_compression_known(r->scene->cluster, g->encoding.codec));
    char flags[TACITI_FLAGS_BYTES];
    taciti_method_flags(m, flags, sizeof flags);
    return json_pack("{s:i, s:i, s:b, s:s, s:s, s:b, s:s, s:o}", "stage", taciti_parts_stage(&m->parts), "gathers",
                     m->parts.passes, "gradients", m->parts.gradients, "gather", m->parts.gather->name, "over",
                     m->parts.replicas ? "host" : "all", "secondary", m->parts.secondary, "options", flags,
                     "compression", codec);
}

static json_t *method_json(const taciti_plan_report *r, const taciti_candidate *c) {
    static const char *const orders[] = {"dense", "awc", "atc", "parts", "async"};
    const taciti_prediction *p = &c->prediction;
    json_t *seconds = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "step", p->step_s, "low", p->low_s, "high",
                                p->high_s, "fast_links", p->fast_links_s, "slow_links", p->slow_links_s, "compute",
                                p->compute_s, "exposed", p->exposed_s, "transfer", p->transfer_s);
    json_t *causes = json_object();
    for (int b = 0; b < TACITI_BOTTLENECKS; b++)
        (void)json_object_set_new(causes, taciti_bottleneck_name((taciti_bottleneck)b), json_real(p->cost_s[b]));
    if (p->uneven_s > 0) (void)json_object_set_new(seconds, "uneven", json_real(p->uneven_s));
    return json_pack("{s:s, s:s, s:s, s:o, s:s, s:o, s:i, s:i, s:i, s:b, s:b, s:o, s:f, s:f, s:f, s:f, s:s, s:o, s:o, "
                     "s:b, s:o, s:o, s:b}",
                     "label", c->method.label, "strategy", c->strategy, "order", orders[c->method.order], "mixing",
                     mixing_json(r, c), "wire", c->method.wire->name, "compression", compression_json(r, c), "every",
                     c->method.every, "delay", c->method.delay, "lanes", c->method.lanes, "mixes_fast_enough",
                     taciti_candidate_mixes(r->candidates, c), "configured", c->configured, "seconds", seconds,
                     "link_error", p->link_error, "model_error", p->model_error, "exposed_share",
                     p->step_s > 0 ? p->exposed_s / p->step_s : 0., "nic_bytes_per_step", p->nic_bytes, "bottleneck",
                     taciti_bottleneck_name(p->bottleneck), "costs_s", causes, "against_dense",
                     verdict_json(&c->verdict), "replicas_equal",
                     c->method.order == TACITI_ORDER_DENSE || c->method.order == TACITI_ORDER_PARTS, "parts",
                     parts_json(r, &c->method), "memory_bytes",
                     p->memory_bytes > 0 ? json_real(p->memory_bytes) : json_null(), "fits", p->fits);
}

static json_t *answer_json(const taciti_plan_report *r) {
    char text[TACITI_ANSWER_BYTES];
    const taciti_verdict v = taciti_plan_answer(r, text);
    const taciti_candidate *dense = taciti_candidates_dense(r->candidates);
    const taciti_candidate *gossip = taciti_candidates_gossip(r->candidates);
    json_t *answer = verdict_json(&v);
    (void)json_object_set_new(answer, "text", json_string(text));
    (void)json_object_set_new(answer, "without_jitter", r->even == NULL ? json_null() : verdict_json(r->even));
    (void)json_object_set_new(answer, "dense", json_string(dense->method.label));
    (void)json_object_set_new(answer, "gossip", gossip == NULL ? json_null() : json_string(gossip->method.label));
    (void)json_object_set_new(answer, "bottleneck", json_string(taciti_bottleneck_name(dense->prediction.bottleneck)));
    return answer;
}

/* null: no codec of this build may be recommended. */
static json_t *compression_verdict_json(const taciti_plan_report *r) {
    char text[TACITI_ANSWER_BYTES];
    const taciti_candidate *best = taciti_candidates_compressed(r->candidates);
    const taciti_verdict v = taciti_plan_compression_answer(r, text);
    if (best == NULL) return json_null();
    json_t *answer = verdict_json(&v);
    (void)json_object_set_new(answer, "text", json_string(text));
    (void)json_object_set_new(answer, "dense", json_string(taciti_candidates_dense(r->candidates)->method.label));
    (void)json_object_set_new(answer, "compressed", json_string(best->method.label));
    return answer;
}

static json_t *curve_json(const taciti_plan_curves *curves, const taciti_plan_curve *curve, const char *name) {
    json_t *x = json_array(), *ranks = json_array(), *lines = json_array();
    for (size_t p = 0; p < curve->count; p++) {
        (void)json_array_append_new(x, json_real(curve->x[p]));
        (void)json_array_append_new(ranks, json_integer(curve->ranks[p]));
    }
    for (size_t l = 0; l < curves->line_count; l++) {
        json_t *step = json_array();
        for (size_t p = 0; p < curve->count; p++)
            (void)json_array_append_new(step, taciti_real_json(curve->step_s[l][p]));
        (void)json_array_append_new(lines,
                                    json_pack("{s:s, s:o}", "label", curves->lines[l]->method.label, "step_s", step));
    }
    return json_pack("{s:o, s:o, s:o}", name, x, "ranks", ranks, "lines", lines);
}

json_t *taciti_plan_json(const taciti_plan_report *r) {
    const taciti_candidates *c = r->candidates;
    json_t *methods = json_array(), *refused = json_array();
    for (size_t i = 0; i < c->count; i++) (void)json_array_append_new(methods, method_json(r, &c->list[i]));
    for (size_t i = 0; i < c->refused_count; i++)
        (void)json_array_append_new(
            refused, json_pack("{s:s, s:s}", "topology", c->refused[i].name, "reason", c->refused[i].reason));
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "program", "tacit", "version",
                     tacit_version(), "model", model_json(r), "cluster", cluster_json(r), "configuration",
                     taciti_config_values(&r->settings->config, 0), "verdict", answer_json(r), "compression",
                     compression_verdict_json(r), "methods", methods, "not_possible", refused, "by_rate",
                     curve_json(r->curves, &r->curves->rate, "gbit_per_s"), "by_hosts",
                     curve_json(r->curves, &r->curves->hosts, "hosts"));
}
