/* SPDX-License-Identifier: Apache-2.0
 *
 * The short answer of `tacit plan`: what pays, and the best method of each family in words. plan_print.c has the table.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/plan_print.h"

#define MS 1e3
#define MB 1e-6

enum { WORDS = 400, ROWS_MAX = 10 };
static const double TIE = 0.01; /* as of the verdicts */

#define say_line(out, ...) taciti_text_add(out, WORDS, __VA_ARGS__)

/* ---- words for a method ------------------------------------------------------------------------------------------ */

static bool is_localsgd(const taciti_candidate *c) {
    return c->method.order == TACITI_ORDER_ATC && c->method.topology == NULL;
}

static void say_family(const taciti_candidate *c, char out[WORDS]) {
    const taciti_method *m = &c->method;
    if (m->order == TACITI_ORDER_DENSE) say_line(out, "all-reduce");
    if (m->order == TACITI_ORDER_PARTS)
        say_line(out, "%s, stage %d%s", c->strategy, taciti_parts_stage(&m->parts),
                 m->parts.replicas    ? " inside hosts"
                 : m->parts.secondary ? " with a copy inside hosts"
                                      : "");
    if (m->topology != NULL) say_line(out, "%s, %s graph", c->strategy, c->topology);
    if (is_localsgd(c)) say_line(out, "%s, a mean every %d steps", c->strategy, m->every);
}

/* The codec of a compression, or the wire where it has none. */
static void say_codec(const taciti_plan_compression *c, const taciti_codec *wire, char out[WORDS]) {
    const taciti_codec *codec = c->encoding.codec;
    say_line(out, "%s%s%s", codec != NULL && c->automatic ? "auto: " : "", codec != NULL ? codec->name : wire->name,
             codec != NULL && c->adapts && !c->automatic ? " where it pays" : "");
    if (codec != NULL && taciti_plan_factor(c) > 1) say_line(out, ", 1 of %g elements", taciti_plan_factor(c));
}

/* "all-reduce, bf16, 2 ranks of a host send", "gossip, complete graph, bf16". */
static void describe_row(const taciti_candidate *c, char out[WORDS]) {
    const taciti_method *m = &c->method;
    *out = '\0';
    if (c->theirs) {
        say_line(out, "%s", m->label);
        return;
    }
    say_family(c, out);
    say_line(out, ", ");
    say_codec(&m->compression, m->wire, out);
    if (m->lanes > 0)
        say_line(out, ", %d rank%s of a host send%s", m->lanes, m->lanes > 1 ? "s" : "", m->lanes > 1 ? "" : "s");
    if (m->order != TACITI_ORDER_PARTS || m->parts.replicas) return;
    say_line(out, ", gathers ");
    say_codec(&m->gather, m->parts.gather, out);
}

/* Says in what the steps of this method differ from those of dense training. */
static void say_cost(const taciti_plan_report *r, const taciti_candidate *c, char out[WORDS]) {
    const taciti_method *m = &c->method;
    const bool differ = m->topology != NULL || is_localsgd(c),
               coded = m->compression.encoding.codec != NULL || m->gather.encoding.codec != NULL;
    *out = '\0';
    if (!c->prediction.fits) say_line(out, ", does not fit into memory");
    if (differ) say_line(out, ", replicas differ");
    if (m->order == TACITI_ORDER_AWC) say_line(out, ", updates arrive a step late");
    if (m->order == TACITI_ORDER_ASYNC) say_line(out, ", updates arrive late, slow ranks make fewer");
    if (!taciti_candidate_mixes(r->candidates, c)) say_line(out, ", mixes too slowly");
    if (taciti_plan_is_lossy(&m->compression) || taciti_plan_is_lossy(&m->gather))
        say_line(out, "%s",
                 c->caution == TACITI_CAUTION_STRONG ? ", known to cost accuracy"
                 : c->caution == TACITI_CAUTION_SOME ? ", needs error feedback"
                                                     : ", lossy");
    if (!coded && taciti_codec_narrow_name(m->wire) != NULL) say_line(out, ", rounded");
    if (!c->priced) say_line(out, ", speed of the codec unknown");
    if (*out == '\0') say_line(out, ", -");
}

/* Also takes back what is configured and the method does not have: settings hold until a flag replaces them. */
static void say_compression_flags(const taciti_settings *settings, const taciti_candidate *c, char out[WORDS]) {
    const taciti_plan_compression *sums = &c->method.compression;
    const taciti_codec *codec = sums->encoding.codec;
    const bool selects = codec != NULL && taciti_plan_factor(sums) > 1;
    if (codec != NULL)
        say_line(out, " --compress.codec %s", codec->name);
    else if (strcmp(settings->compress.codec.text, "none") != 0) /* auto also means the codec of mixes */
        say_line(out, " --compress.codec none");
    if (selects) say_line(out, " --compress.factor %g", taciti_plan_factor(sums));
    if (selects && settings->compress.back > 0 && !(sums->encoding.back.factor > 0))
        say_line(out, " --compress.back 0");
    if (!c->configured && strcmp(settings->adapt.policy.text, "fixed") != 0) say_line(out, " --adapt.policy fixed");
    if (strcmp(settings->compress.gather.text, "auto") != 0) say_line(out, " --compress.gather auto");
}

/* Whether the settings give the option of the candidate's strategy another value than this one. */
static bool is_set_otherwise(const taciti_settings *settings, const taciti_candidate *c, const char *option,
                             const char *text) {
    char key[TACITI_KEY_BYTES];
    taciti_place place;
    (void)snprintf(key, sizeof key, "%s.%s", c->strategy, option);
    return taciti_config_find(&settings->config, key, &place) && !taciti_place_is(&place, text);
}

/* Whether the wire of the method is the codec of mixes that is configured. */
static bool has_coded_mixes(const taciti_settings *settings, const taciti_candidate *c) {
    const bool ours = strcmp(taciti_settings_strategy(settings)->name, c->strategy) == 0;
    return c->method.topology != NULL && ours && c->method.wire == taciti_settings_compression(settings).mixes.codec;
}

/* Says the codec of mixes, and takes back what is configured and the topology is not priced with. */
static void say_mix_flags(const taciti_settings *settings, const taciti_candidate *c, char out[WORDS]) {
    const taciti_method *m = &c->method;
    if (has_coded_mixes(settings, c))
        say_line(out, " --%s.codec %s", c->strategy, m->wire->name);
    else if (is_set_otherwise(settings, c, "codec", "none"))
        say_line(out, " --%s.codec none", c->strategy);
    if (m->delay == 0 && is_set_otherwise(settings, c, "delay", "0")) say_line(out, " --%s.delay 0", c->strategy);
    if (is_set_otherwise(settings, c, "topology", c->topology) && is_set_otherwise(settings, c, "degree", "0"))
        say_line(out, " --%s.degree 0", c->strategy);
}

/* Says what to type for a method that a verdict recommends: all-reduce or gossip, and no codec that adapts. */
static void say_flags(const taciti_plan_report *r, const taciti_candidate *c, char out[WORDS]) {
    const taciti_method *m = &c->method;
    say_line(out, "--strategy %s", c->strategy);
    if (m->topology != NULL) say_line(out, " --%s.topology %s", c->strategy, c->topology);
    if (m->topology != NULL && m->order == TACITI_ORDER_ASYNC)
        say_line(out, " --%s.async", c->strategy);
    else if (m->topology != NULL)
        say_line(out, " --%s.order %s", c->strategy, m->order == TACITI_ORDER_AWC ? "awc" : "atc");
    if (m->topology != NULL) say_mix_flags(r->settings, c, out);
    if (m->compression.encoding.codec == NULL && !has_coded_mixes(r->settings, c) &&
        m->wire != taciti_exchange_wire(&r->settings->exchange))
        say_line(out, " --exchange.wire %s", m->wire->name);
    say_compression_flags(r->settings, c, out);
    if (m->lanes > 0) say_line(out, " --exchange.lanes %d", m->lanes);
}

/* ---- the best of each family ------------------------------------------------------------------------------------- */

typedef struct rows {
    const taciti_candidate *list[ROWS_MAX];
    size_t count;
} rows;

static void add_row(rows *r, const taciti_candidate *c) {
    if (c == NULL || r->count == ROWS_MAX) return;
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i] == c) return;
    r->list[r->count++] = c;
}

int taciti_plan_by_step(const void *a, const void *b) {
    const taciti_candidate *x = *(const taciti_candidate *const *)a, *y = *(const taciti_candidate *const *)b;
    if (x->prediction.step_s != y->prediction.step_s) return x->prediction.step_s > y->prediction.step_s ? 1 : -1;
    return (x > y) - (x < y);
}

/* Chooses the configured methods and, of those that fit, the best of each family and the fastest of all. */
static rows choose_rows(const taciti_candidates *candidates) {
    rows r = {.count = 0};
    for (size_t i = 0; i < candidates->count; i++)
        if (candidates->list[i].configured) add_row(&r, &candidates->list[i]);
    if (taciti_candidates_dense(candidates)->prediction.fits) add_row(&r, taciti_candidates_dense(candidates));
    add_row(&r, taciti_candidates_compressed(candidates));
    add_row(&r, taciti_candidates_gossip(candidates));
    add_row(&r, taciti_candidates_sparser(candidates));
    add_row(&r, taciti_candidates_fastest(candidates, TACITI_FASTEST_FITS | TACITI_FASTEST_PERIODIC));
    add_row(&r, taciti_candidates_fastest(candidates, TACITI_FASTEST_FITS));
    add_row(&r, taciti_candidates_fastest(candidates, TACITI_FASTEST_PARTS | TACITI_FASTEST_FITS));
    qsort(r.list, r.count, sizeof(*r.list), taciti_plan_by_step);
    return r;
}

static void print_row(const taciti_plan_report *r, const taciti_candidate *c, int width) {
    const taciti_prediction *p = &c->prediction;
    const taciti_verdict *v = &c->verdict;
    char name[WORDS], cost[WORDS];
    describe_row(c, name);
    say_cost(r, c, cost);
    printf("%c %-*s %9.2f  %5.2fx (%.2f-%.2f) %9.2f %9.0f  %s\n", c->configured ? '*' : ' ', width, name,
           MS * p->step_s, v->speedup, v->low, v->high, MB * p->nic_bytes, MB * p->memory_bytes, cost + strlen(", "));
}

static void print_scene(const taciti_plan_report *r) {
    const taciti_scene *s = r->scene;
    printf("\n%s, %.2f million parameters, on %d rank%s of %d host%s", s->profile->name,
           (double)s->layout->parameters / 1e6, s->hosts->ranks, s->hosts->ranks == 1 ? "" : "s", s->hosts->count,
           s->hosts->count == 1 ? "" : "s");
    if (s->hosts->count > 1) printf(" with %.4g Gbit/s each", 8 / taciti_plan_wire_beta_s(s->cluster) / 1e9);
    printf(" (%s)\n", r->cluster_path);
}

static void print_rows(const taciti_plan_report *r) {
    const rows best = choose_rows(r->candidates);
    int width = 0;
    for (size_t i = 0; i < best.count; i++) {
        char name[WORDS];
        describe_row(best.list[i], name);
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
    }
    printf("  %-*s %9s  %18s %9s %9s  %s\n", width, "the best of each kind", "step ms", "speed-up", "MB sent",
           "MB held", "what a step costs besides");
    for (size_t i = 0; i < best.count; i++) print_row(r, best.list[i], width);
    printf(
        "\n* this configuration. speed-up: against the fastest all-reduce without compression. sent: per step by the "
        "busiest host.\nheld: by a rank, without activations and buffers. --all: all %zu methods, and what holds "
        "them up.\n",
        r->candidates->count);
}

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static void print_kind(const taciti_plan_report *r, const char *kind, const taciti_candidate *c,
                       const taciti_verdict *v) {
    char flags[WORDS] = "";
    say_flags(r, c, flags);
    printf("%s %s: %.2f times the speed of the fastest all-reduce (%.2f-%.2f)%s%s\n", kind,
           v->pays ? "pays" : "does not pay", v->speedup, v->low, v->high, v->pays ? ": " : "", v->pays ? flags : "");
}

/* A dense aer sends less than a complete graph that takes as long: both are told. */
static void print_sparser(const taciti_plan_report *r) {
    const taciti_candidate *gossip = taciti_candidates_gossip(r->candidates);
    const taciti_candidate *sparser = taciti_candidates_sparser(r->candidates);
    if (sparser == NULL) return;
    printf("%s %s takes as long within 1 %% and sends %.1f times less, but mixes more slowly than %s\n",
           gossip->strategy, sparser->topology, gossip->prediction.nic_bytes / sparser->prediction.nic_bytes,
           gossip->topology);
}

/* True if gossip pays. */
static bool print_gossip(const taciti_plan_report *r) {
    char text[TACITI_VERDICT_BYTES];
    const taciti_candidate *gossip = taciti_candidates_gossip(r->candidates);
    const taciti_verdict v = taciti_candidates_verdict(r->candidates, text);
    if (!taciti_candidates_dense(r->candidates)->prediction.fits)
        printf("%s\n", text);
    else if (gossip == NULL)
        printf("gossip does not pay: %s\n", taciti_candidates_no_gossip(r->candidates));
    else if (r->even != NULL)
        printf(
            "no verdict on gossip: compute.cv %.0f %% is that of a busy machine; with it %.2fx, without jitter %.2fx\n",
            100 * r->cv, v.speedup, r->even->speedup);
    else
        print_kind(r, "gossip", gossip, &v);
    const bool pays = v.pays && r->even == NULL;
    if (pays) print_sparser(r);
    return pays;
}

/* Why no compressed all-reduce is recommended; nothing where only accuracy speaks against those that fit. */
static void print_no_compression(const taciti_candidates *candidates) {
    bool fits = false, unknown = false;
    for (size_t i = 0; i < candidates->count; i++) {
        const taciti_candidate *c = &candidates->list[i];
        if (c->method.order != TACITI_ORDER_DENSE || c->method.compression.encoding.codec == NULL) continue;
        fits = fits || c->prediction.fits;
        unknown = unknown || (c->prediction.fits && !c->priced && c->caution != TACITI_CAUTION_STRONG);
    }
    if (unknown)
        printf("no verdict on compression: the cluster file does not tell how fast codecs are (tacit probe)\n");
    else if (!fits)
        printf("no verdict on compression: no compressed all-reduce fits into memory\n");
}

static bool print_compression(const taciti_plan_report *r) {
    const taciti_candidate *best = taciti_candidates_compressed(r->candidates);
    if (best == NULL && r->scene->hosts->ranks > 1) print_no_compression(r->candidates);
    if (best != NULL && r->even != NULL)
        printf("no verdict on compression: compute.cv %.0f %% is that of a busy machine; with it %.2fx\n", 100 * r->cv,
               best->verdict.speedup);
    if (best == NULL || r->even != NULL) return false;
    print_kind(r, "compression", best, &best->verdict);
    return best->verdict.pays;
}

/* Prints the method that is ahead of all that are recommended, and why it is not; nothing where a verdict has said so.
 */
static void print_ahead(const taciti_plan_report *r, double recommended_s) {
    const taciti_candidate *c = taciti_candidates_fastest(r->candidates, TACITI_FASTEST_FITS);
    char name[WORDS], doubt[WORDS] = "";
    if (c == NULL || !(c->prediction.step_s < (1 - TIE) * recommended_s)) return;
    describe_row(c, name);
    if (is_localsgd(c))
        say_line(doubt, "ranks go %d steps alone, and what that costs the loss is not predicted", c->method.every);
    else if (!taciti_candidate_mixes(r->candidates, c))
        say_line(doubt, "it takes more than %d mixes until a disagreement has fallen to 1/e", TACITI_PLAN_MIXES);
    else if (c->method.order == TACITI_ORDER_PARTS)
        say_line(doubt, "it is there to save memory, and no verdict is about it");
    if (*doubt != '\0') printf("%s is faster (%.2fx), but not recommended: %s\n", name, c->verdict.speedup, doubt);
}

void taciti_plan_print_answer(const taciti_plan_report *r) {
    const taciti_candidate *dense = taciti_candidates_dense(r->candidates);
    double best_s = dense->prediction.step_s;
    const bool gossip = print_gossip(r), compression = print_compression(r);
    if (gossip) best_s = fmin(best_s, taciti_candidates_gossip(r->candidates)->prediction.step_s);
    if (compression) best_s = fmin(best_s, taciti_candidates_compressed(r->candidates)->prediction.step_s);
    if (!gossip && !compression && dense->prediction.fits && r->even == NULL) {
        char name[WORDS], flags[WORDS] = ": ";
        describe_row(dense, name);
        say_flags(r, dense, flags);
        printf("keep %s%s\n", name, dense->theirs ? taciti_candidate_owner(dense) : flags);
    }
    if (dense->prediction.fits) print_ahead(r, best_s);
    print_scene(r);
    print_rows(r);
}
