/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/candidates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

static const double TIE = 0.01; /* steps that differ by less are as fast as each other */

/* ---- topologies -------------------------------------------------------------------------------------------------- */

static void measure(taciti_plan_topology *t, bool figures) {
    t->gap = (double)NAN;
    if (figures && taciti_topology_mixing(&t->topology, &t->gap, &t->exact_after) != TACIT_OK) t->gap = (double)NAN;
}

/* Its options are those of the configuration where that names the same topology. */
static taciti_topo_request request_of(const taciti_gossip_options *gossip, const taciti_hosts *seen, const char *name) {
    taciti_topo_request request = {.name = name, .ranks = seen->ranks, .hosts = seen, .seed = (uint64_t)gossip->seed};
    if (strcmp(gossip->topology.text, name) != 0) return request;
    request.degree = (int)gossip->degree;
    request.period = (int)gossip->period;
    request.file = gossip->file.text[0] == '\0' ? NULL : gossip->file.text;
    return request;
}

/* One topology of the list, or the reason why there is none. */
static void try_topology(const taciti_settings *settings, const taciti_hosts *seen, const char *name, bool figures,
                         taciti_candidates *out) {
    taciti_plan_topology *t = &out->topologies[out->topology_count];
    taciti_plan_refusal *refusal = &out->refused[out->refused_count];
    const taciti_topo_request request = request_of(&settings->gossip, seen, name);
    taciti_cli_log_keep(refusal->reason);
    tacit_status status = taciti_topology_create(&request, &t->topology);
    if (status == TACIT_OK) {
        status = taciti_plan_check_period(name, t->topology.period, (int)settings->gossip.every);
        if (status != TACIT_OK) taciti_topology_destroy(&t->topology);
    }
    if (status == TACIT_OK) measure(t, figures);
    taciti_cli_log_init(0, false);
    t->name = refusal->name = name;
    if (status == TACIT_OK)
        out->topology_count++;
    else
        out->refused_count++;
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static const char *order_name(taciti_order order) { return order == TACITI_ORDER_AWC ? "awc" : "atc"; }

static void append(taciti_candidates *c, const char *strategy, const taciti_method *method, const char *topology) {
    if (c->count == TACITI_CANDIDATES_MAX) return;
    taciti_candidate *candidate = &c->list[c->count++];
    *candidate = (taciti_candidate){.method = *method, .strategy = strategy, .topology = topology};
    char *label = candidate->method.label;
    const size_t size = sizeof candidate->method.label;
    const char *wire = method->wire->name;
    if (method->library == TACITI_LIBRARY_RING)
        (void)snprintf(label, size, "dense ring as NCCL/Gloo %s", wire);
    else if (method->library == TACITI_LIBRARY_MEASURED)
        (void)snprintf(label, size, "dense %s %s", method->by, wire);
    else if (strcmp(strategy, "sgp") == 0)
        (void)snprintf(label, size, "SGP as published %s", wire);
    else if (method->order == TACITI_ORDER_DENSE && method->lanes > 0)
        (void)snprintf(label, size, "dense %s, %d lane%s", wire, method->lanes, method->lanes == 1 ? "" : "s");
    else if (method->order == TACITI_ORDER_DENSE)
        (void)snprintf(label, size, "dense %s", wire);
    else if (*topology == '\0')
        (void)snprintf(label, size, "localsgd every %d %s", method->every, wire);
    else
        (void)snprintf(label, size, "gossip %s %s %s", topology, order_name(method->order), wire);
    if (*topology != '\0' && method->every > 1)
        (void)snprintf(label + strlen(label), size - strlen(label), " every %d", method->every);
}

static void append_dense_lanes(taciti_candidates *c, const taciti_settings *s, int lanes) {
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        if ((*codec)->aggregation != TACITI_CODEC_SUM) continue;
        const taciti_method method = {
            .order = TACITI_ORDER_DENSE, .wire = *codec, .overlap = s->exchange.overlap, .every = 1, .lanes = lanes};
        append(c, "dp", &method, "");
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

/* As configured; and where nobody asked for lanes, with 1, 2, 4, ... of them: what pays has to pay against the best. */
static void append_dense(taciti_candidates *c, const taciti_settings *s, const taciti_hosts *hosts) {
    append_dense_lanes(c, s, 0);
    if (s->exchange.lanes > 0 || s->exchange.scheme == TACITI_SCHEME_FLAT || hosts->count == 1) return;
    const int max = smallest_host(hosts), share = TACITI_FLOWS / (hosts->count - 1);
    const int own = share < 1 ? 1 : share < max ? share : max;
    for (int lanes = 1; lanes <= max && max > 1; lanes *= 2)
        if (lanes != own) append_dense_lanes(c, s, lanes);
}

static void append_local(taciti_candidates *c, const taciti_settings *s) {
    for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
        if ((*codec)->aggregation != TACITI_CODEC_SUM) continue;
        const taciti_method method = {
            .order = TACITI_ORDER_ATC, .wire = *codec, .overlap = s->exchange.overlap, .every = (int)s->localsgd.every};
        append(c, "localsgd", &method, "");
    }
}

static void append_gossip(taciti_candidates *c, const taciti_settings *s, const taciti_plan_topology *t) {
    static const taciti_order orders[] = {TACITI_ORDER_AWC, TACITI_ORDER_ATC};
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
        for (const taciti_codec *const *codec = taciti_codec_list(); *codec != NULL; codec++) {
            if ((*codec)->aggregation != TACITI_CODEC_SUM) continue;
            const bool awc = orders[o] == TACITI_ORDER_AWC;
            const taciti_method method = {.order = orders[o],
                                          .topology = &t->topology,
                                          .wire = *codec,
                                          .overlap = s->exchange.overlap,
                                          .every = (int)s->gossip.every,
                                          .delay = awc ? (int)s->gossip.delay : 0};
            append(c, "gossip", &method, t->name);
        }
}

/* ---- what others do ---------------------------------------------------------------------------------------------- */

static bool is_theirs(const taciti_candidate *c) {
    return strcmp(c->strategy, "library") == 0 || strcmp(c->strategy, "sgp") == 0;
}

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
        const taciti_method method = {.order = TACITI_ORDER_ATC,
                                      .topology = &c->topologies[t].topology,
                                      .wire = taciti_codec_find("f32"),
                                      .every = 1,
                                      .serial_s = serial_s};
        if (strcmp(c->topologies[t].name, "exp-directed") == 0) append(c, "sgp", &method, c->topologies[t].name);
    }
}

void taciti_candidates_add_others(taciti_candidates *candidates, const taciti_cluster *cluster,
                                  const taciti_hosts *hosts, double sgp_s) {
    taciti_method method = {.order = TACITI_ORDER_DENSE,
                            .wire = taciti_codec_find("f32"),
                            .overlap = candidates->list[0].method.overlap,
                            .every = 1,
                            .library = TACITI_LIBRARY_RING};
    if (hosts->ranks < 2) return;
    append(candidates, "library", &method, "");
    method.library = TACITI_LIBRARY_MEASURED;
    method.by = fastest_library(cluster);
    if (method.by != NULL && hosts->ranks == taciti_cluster_ranks(cluster)) append(candidates, "library", &method, "");
    if (sgp_s >= 0) append_sgp(candidates, sgp_s);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Marks what the configuration would run, if it is in the list. */
static void mark_configured(taciti_candidates *c, const taciti_settings *s) {
    const taciti_codec *wire = taciti_codec_list()[s->exchange.wire];
    const taciti_order order = s->gossip.order == TACITI_GOSSIP_AWC ? TACITI_ORDER_AWC : TACITI_ORDER_ATC;
    for (size_t i = 0; i < c->count; i++) {
        taciti_candidate *candidate = &c->list[i];
        const bool gossip = candidate->method.topology != NULL;
        candidate->configured = candidate->method.wire == wire && strcmp(candidate->strategy, s->strategy.text) == 0;
        if (candidate->method.lanes > 0) candidate->configured = false; /* not what was asked for */
        if (gossip && (strcmp(candidate->topology, s->gossip.topology.text) != 0 || candidate->method.order != order))
            candidate->configured = false;
    }
}

static bool is_wanted(const char *const *wanted, const char *name) {
    for (size_t i = 0; wanted != NULL && wanted[i] != NULL; i++)
        if (strcmp(wanted[i], name) == 0) return true;
    return wanted == NULL;
}

static void try_topologies(const taciti_settings *settings, const taciti_hosts *seen, const char *const *wanted,
                           taciti_candidates *out) {
    const bool has_file = settings->gossip.file.text[0] != '\0';
    for (const taciti_topo_kind *kind = taciti_topo_kinds(); kind->name != NULL; kind++)
        if (out->topology_count + out->refused_count < TACITI_TOPOLOGIES_MAX && is_wanted(wanted, kind->name) &&
            (has_file || strcmp(kind->name, "file") != 0))
            try_topology(settings, seen, kind->name, wanted == NULL, out);
    for (size_t t = 0; t < out->topology_count && seen->ranks > 1; t++)
        append_gossip(out, settings, &out->topologies[t]);
}

tacit_status taciti_candidates_create(const taciti_settings *settings, const taciti_hosts *hosts,
                                      const char *const *wanted, taciti_candidates *out) {
    const int64_t per_host = settings->gossip.per_host;
    taciti_hosts seen = {0}; /* as topologies see them, where that differs */
    if (per_host > 0) TACITI_TRY(taciti_hosts_by_size(hosts->ranks, (int)per_host, &seen));
    *out = (taciti_candidates){.list = taciti_calloc(TACITI_CANDIDATES_MAX, sizeof *out->list)};
    if (out->list == NULL) {
        taciti_hosts_destroy(&seen);
        return TACIT_E_MEMORY;
    }
    append_dense(out, settings, hosts);
    append_local(out, settings);
    try_topologies(settings, per_host > 0 ? &seen : hosts, wanted, out);
    mark_configured(out, settings);
    taciti_hosts_destroy(&seen);
    return TACIT_OK;
}

void taciti_candidates_destroy(taciti_candidates *candidates) {
    for (size_t t = 0; t < candidates->topology_count; t++)
        taciti_topology_destroy(&candidates->topologies[t].topology);
    taciti_free(candidates->list);
    *candidates = (taciti_candidates){0};
}

/* On a terminal, once it has taken a second. */
static void show_progress(size_t done, size_t count, int64_t start_ns) {
    static const char WIPE[] = "\r                                \r";
    if (isatty(STDERR_FILENO) == 0 || taciti_now_ns() - start_ns < TACITI_NS_PER_S) return;
    if (done < count)
        (void)fprintf(stderr, "\rplan: %zu of %zu methods", done, count);
    else
        (void)fputs(WIPE, stderr);
}

tacit_status taciti_candidates_predict(taciti_candidates *candidates, const taciti_scene *scene,
                                       const taciti_plan_options *options) {
    const int64_t start_ns = taciti_now_ns();
    for (size_t i = 0; i < candidates->count; i++) {
        taciti_candidate *c = &candidates->list[i];
        TACITI_TRY(taciti_predict(scene, &c->method, options, &c->prediction));
        c->verdict = taciti_verdict_of(&candidates->list[0].prediction, &c->prediction);
        show_progress(i + 1, candidates->count, start_ns);
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
        if (c->method.order == TACITI_ORDER_DENSE && c->prediction.step_s < best->prediction.step_s) best = c;
    }
    return best;
}

/* How well a topology mixes; an unknown gap is none. */
static double gap_of(const taciti_candidates *candidates, const taciti_candidate *candidate) {
    const double gap = taciti_candidate_topology(candidates, candidate)->gap;
    return isnan(gap) ? 0 : gap;
}

bool taciti_candidate_mixes(const taciti_candidates *candidates, const taciti_candidate *candidate) {
    return candidate->method.topology == NULL || gap_of(candidates, candidate) * TACITI_PLAN_MIXES >= 1;
}

static bool is_recommendable(const taciti_candidates *candidates, const taciti_candidate *candidate) {
    return candidate->method.topology != NULL && !is_theirs(candidate) && taciti_candidate_mixes(candidates, candidate);
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

const taciti_candidate *taciti_candidates_find(const taciti_candidates *candidates, const taciti_candidate *like) {
    const taciti_candidate *own = NULL; /* with as many lanes as there are by default */
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (strcmp(c->strategy, like->strategy) != 0 || strcmp(c->topology, like->topology) != 0 ||
            c->method.order != like->method.order || c->method.wire != like->method.wire ||
            c->method.library != like->method.library)
            continue;
        if (c->method.lanes == like->method.lanes) return c;
        if (c->method.lanes == 0) own = c;
    }
    return own;
}
