/* SPDX-License-Identifier: Apache-2.0
 *
 * The candidates that stand out, and what the plan says of them.
 */
#include <math.h>
#include <stdio.h>

#include "advise/candidates.h"
#include "base/text.h"

static const double TIE = 0.01; /* steps that differ by less are as fast as each other */

/* ---- what stands out --------------------------------------------------------------------------------------------- */

const taciti_plan_topology *taciti_candidate_topology(const taciti_candidates *candidates,
                                                      const taciti_candidate *candidate) {
    for (size_t t = 0; t < candidates->topology_count; t++)
        if (&candidates->topologies[t].topology == candidate->method.topology) return &candidates->topologies[t];
    return NULL;
}

typedef bool is_eligible(const taciti_candidates *candidates, const taciti_candidate *candidate);

static const taciti_candidate *fastest_of(const taciti_candidates *candidates, is_eligible *eligible) {
    const taciti_candidate *fastest = NULL;
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (!eligible(candidates, c)) continue;
        if (fastest == NULL || c->prediction.step_s < fastest->prediction.step_s) fastest = c;
    }
    return fastest;
}

static bool is_dense(const taciti_candidates *candidates, const taciti_candidate *c) {
    (void)candidates;
    return c->method.compression.encoding.codec == NULL && c->method.order == TACITI_ORDER_DENSE;
}

const taciti_candidate *taciti_candidates_dense(const taciti_candidates *candidates) {
    const taciti_candidate *fastest = fastest_of(candidates, is_dense);
    return fastest != NULL ? fastest : &candidates->list[0];
}

/* The automatic choice is what it chooses, which has a row of its own. */
static bool is_recommendable_sum(const taciti_candidates *candidates, const taciti_candidate *c) {
    (void)candidates;
    return c->method.compression.encoding.codec != NULL && !c->method.compression.adapts &&
           c->method.order == TACITI_ORDER_DENSE && c->priced && c->prediction.fits &&
           c->caution != TACITI_CAUTION_STRONG;
}

const taciti_candidate *taciti_candidates_compressed(const taciti_candidates *candidates) {
    const taciti_candidate *fastest = fastest_of(candidates, is_recommendable_sum), *best = NULL;
    for (size_t i = 0; i < candidates->count && fastest != NULL; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (!is_recommendable_sum(candidates, c) || c->prediction.step_s > (1 + TIE) * fastest->prediction.step_s)
            continue;
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
    return candidate->method.topology != NULL && !candidate->theirs && candidate->priced &&
           candidate->prediction.fits && taciti_candidate_mixes(candidates, candidate);
}

/* On links as described and on slow ones: next to the rate where a method's transfers no longer hide, one alone
 * misleads. */
static bool is_tied_with(const taciti_candidate *c, const taciti_candidate *fastest) {
    const taciti_prediction *a = &c->prediction, *b = &fastest->prediction;
    return a->step_s <= (1 + TIE) * b->step_s && a->slow_links_s <= (1 + TIE) * b->slow_links_s;
}

/* Ranks that wait for nobody mix as often as links allow, on any graph, and hold two arrays for each neighbour. */
static bool is_better_graph(const taciti_candidates *candidates, const taciti_candidate *a, const taciti_candidate *b) {
    if (a->method.order == TACITI_ORDER_ASYNC && b->method.order == TACITI_ORDER_ASYNC)
        return a->prediction.memory_bytes < b->prediction.memory_bytes;
    return gap_of(candidates, a) > gap_of(candidates, b);
}

const taciti_candidate *taciti_candidates_gossip(const taciti_candidates *candidates) {
    const taciti_candidate *fastest = fastest_of(candidates, is_recommendable), *best = NULL;
    for (size_t i = 0; i < candidates->count && fastest != NULL; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (!is_recommendable(candidates, c) || !is_tied_with(c, fastest)) continue;
        if (best == NULL || is_better_graph(candidates, c, best)) best = c;
    }
    return best;
}

const taciti_candidate *taciti_candidates_sparser(const taciti_candidates *candidates) {
    static const double FAR_LESS = 1.5;
    const taciti_candidate *fastest = fastest_of(candidates, is_recommendable),
                           *gossip = taciti_candidates_gossip(candidates);
    const taciti_candidate *sparsest = gossip;
    for (size_t i = 0; i < candidates->count && gossip != NULL; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (!is_recommendable(candidates, c) || !is_tied_with(c, fastest)) continue;
        if (c->method.wire != gossip->method.wire || c->method.order != gossip->method.order) continue;
        if (c->prediction.nic_bytes > 0 && c->prediction.nic_bytes < sparsest->prediction.nic_bytes) sparsest = c;
    }
    if (sparsest == gossip) return NULL;
    return gossip->prediction.nic_bytes / sparsest->prediction.nic_bytes >= FAR_LESS ? sparsest : NULL;
}

const taciti_candidate *taciti_candidates_fastest(const taciti_candidates *candidates, int which) {
    const taciti_candidate *best = NULL;
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        const bool periodic = c->method.topology == NULL && c->method.order == TACITI_ORDER_ATC;
        if ((which & TACITI_FASTEST_PERIODIC) && !periodic) continue;
        if ((which & TACITI_FASTEST_PARTS) && c->method.order != TACITI_ORDER_PARTS) continue;
        if ((which & TACITI_FASTEST_FITS) && !c->prediction.fits) continue;
        if (!c->priced || c->caution == TACITI_CAUTION_STRONG) continue;
        if (best == NULL || c->prediction.step_s < best->prediction.step_s) best = c;
    }
    return best;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

/* Appends the flags of a codec that a controller takes or leaves. */
static void add_adapting(const taciti_plan_compression *c, char *out, size_t size) {
    const taciti_codec *codec = c->encoding.codec;
    if (!c->adapts || codec == NULL) return;
    taciti_text_add(out, size, " --compress.codec %s", c->automatic ? "auto" : codec->name);
    if (c->automatic) return;
    if (taciti_plan_factor(c) > 1) taciti_text_add(out, size, " --compress.factor %g", taciti_plan_factor(c));
    taciti_text_add(out, size, " --adapt.policy payoff");
}

void taciti_method_flags(const taciti_method *m, char *out, size_t size) {
    const char *wire = m->compression.encoding.codec == NULL ? taciti_codec_narrow_name(m->wire) : NULL;
    taciti_parts parts = m->parts;
    parts.coded = m->gather.encoding.codec != NULL;
    parts.flags(&parts, out, size);
    const char *key = taciti_codec_is_dense(m->wire) ? "exchange.wire" : "gossip.codec";
    if (wire != NULL) taciti_text_add(out, size, " --%s %s", key, wire);
    add_adapting(&m->compression, out, size);
}

/* Where whole replicas do not fit, parts are the answer, or nothing is. */
static taciti_verdict verdict_of_parts(const taciti_candidates *candidates, const taciti_candidate *dense,
                                       char text[TACITI_VERDICT_BYTES]) {
    const taciti_candidate *parts = taciti_candidates_fastest(candidates, TACITI_FASTEST_PARTS | TACITI_FASTEST_FITS);
    const double gib = dense->prediction.memory_bytes / 0x1p30;
    char flags[TACITI_FLAGS_BYTES];
    if (parts != NULL) taciti_method_flags(&parts->method, flags, sizeof flags);
    size_t i = 0; /* of the strategy whose ranks hold parts */
    while (i + 1 < candidates->count && candidates->list[i].method.order != TACITI_ORDER_PARTS) i++;
    if (parts == NULL)
        (void)snprintf(text, TACITI_VERDICT_BYTES,
                       "nothing fits: a replica takes %.2f GiB per rank without activations, and no --strategy %s "
                       "fits on these ranks either: more hosts, or a smaller model",
                       gib, candidates->list[i].strategy);
    else
        (void)snprintf(text, TACITI_VERDICT_BYTES,
                       "a replica does not fit: %.2f GiB per rank without activations; --strategy %s does: %s takes "
                       "%.2f GiB (%s)",
                       gib, parts->strategy, parts->method.label, parts->prediction.memory_bytes / 0x1p30, flags);
    return (taciti_verdict){.speedup = 1, .low = 1, .high = 1};
}

taciti_verdict taciti_verdict_of(const taciti_prediction *dense, const taciti_prediction *other) {
    const double slow = dense->slow_links_s / other->slow_links_s, fast = dense->fast_links_s / other->fast_links_s;
    const double error = fmax(dense->model_error, other->model_error);
    taciti_verdict v = {.speedup = dense->step_s / other->step_s};
    v.low = fmin(v.speedup, fmin(slow, fast)) * (1 - error);
    v.high = fmax(v.speedup, fmax(slow, fast)) * (1 + error);
    v.pays = v.low > 1;
    return v;
}

const char *taciti_candidate_owner(const taciti_candidate *dense) {
    return dense->theirs ? " (another library's; tacit's own: --strategy dp)" : "";
}

/* Says of the other method, `what` it is about, whether it pays against dense. */
static void say_verdict(const char *what, const taciti_verdict *v, const taciti_candidate *other,
                        const taciti_candidate *dense, const char *more, char text[TACITI_VERDICT_BYTES]) {
    if (v->pays)
        (void)snprintf(text, TACITI_VERDICT_BYTES, "%spays: %.2fx (%.2f-%.2f) with %s instead of %s%s%s", what,
                       v->speedup, v->low, v->high, other->method.label, dense->method.label,
                       taciti_candidate_owner(dense), more);
    else
        (void)snprintf(text, TACITI_VERDICT_BYTES,
                       "%sdoes not pay: keep %s all-reduce%s; %s would be %.2fx (%.2f-%.2f)", what, dense->method.label,
                       taciti_candidate_owner(dense), other->method.label, v->speedup, v->low, v->high);
}

/* Why no gossip is recommended. */
const char *taciti_candidates_no_gossip(const taciti_candidates *candidates) {
    const bool alone = candidates->topology_count > 0 && candidates->topologies[0].topology.ranks == 1;
    size_t rows = 0, fit = 0;
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        const bool ours = c->method.topology != NULL && !c->theirs;
        rows += ours;
        fit += ours && c->prediction.fits;
    }
    if (alone) return "one rank has nobody to exchange with";
    if (rows == 0) return "no topology of gossip is possible with these ranks";
    return fit == 0 ? "no gossip fits into the memory of a host" : "no topology of gossip mixes fast enough here";
}

taciti_verdict taciti_candidates_verdict(const taciti_candidates *candidates, char text[TACITI_VERDICT_BYTES]) {
    const taciti_candidate *dense = taciti_candidates_dense(candidates);
    const taciti_candidate *gossip = taciti_candidates_gossip(candidates);
    if (!dense->prediction.fits) return verdict_of_parts(candidates, dense, text);
    if (gossip == NULL) {
        (void)snprintf(text, TACITI_VERDICT_BYTES, "does not pay: keep %s all-reduce%s; %s", dense->method.label,
                       taciti_candidate_owner(dense), taciti_candidates_no_gossip(candidates));
        return (taciti_verdict){.speedup = 1, .low = 1, .high = 1};
    }
    const taciti_verdict v = taciti_verdict_of(&dense->prediction, &gossip->prediction);
    char sparser[TACITI_CAUTION_BYTES] = "";
    const taciti_candidate *other = taciti_candidates_sparser(candidates);
    if (other != NULL)
        (void)snprintf(sparser, sizeof sparser, " (%s within 1 %% with %.1f times fewer bytes)", other->topology,
                       gossip->prediction.nic_bytes / other->prediction.nic_bytes);
    say_verdict("", &v, gossip, dense, sparser, text);
    return v;
}

taciti_verdict taciti_candidates_compression_verdict(const taciti_candidates *candidates,
                                                     char text[TACITI_VERDICT_BYTES]) {
    const taciti_candidate *dense = taciti_candidates_dense(candidates);
    const taciti_candidate *best = taciti_candidates_compressed(candidates);
    char caution[TACITI_CAUTION_BYTES], more[TACITI_CAUTION_BYTES + 2];
    *text = '\0';
    if (best == NULL) return (taciti_verdict){.speedup = 1, .low = 1, .high = 1};
    const taciti_verdict v = taciti_verdict_of(&dense->prediction, &best->prediction);
    (void)taciti_method_caution(&best->method, caution, sizeof caution);
    (void)snprintf(more, sizeof more, "%s%s", *caution == '\0' ? "" : "; ", caution);
    say_verdict("compression ", &v, best, dense, more, text);
    return v;
}
