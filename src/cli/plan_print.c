/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_print.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exchange/route.h"

#define MS 1e3
#define MB 1e-6
#define PERCENT 100

enum { MIN_LABEL = 32 };
static const double PERSISTENT_LAG1 = 0.5; /* delays that stay: gossip does not average them away */

/* ---- head -------------------------------------------------------------------------------------------------------- */

static void print_head(const taciti_plan_report *r) {
    const taciti_scene *s = r->scene;
    const taciti_profile *p = s->profile;
    const taciti_cluster *c = s->cluster;
    printf("model       %s, %.2f million parameters in %zu bucket%s, with a codec %zu: %s\n", p->name,
           (double)s->layout->parameters / 1e6, s->layout->bucket_count, s->layout->bucket_count == 1 ? "" : "s",
           s->coded->bucket_count, r->model_path);
    printf("compute     forward %.2f ms, backward %.2f ms, update %.2f ms per rank; cv %.1f %%; %s\n",
           MS * taciti_profile_forward_s(p), MS * taciti_profile_backward_s(p), MS * p->update_s, PERCENT * r->cv,
           p->source[0] == '\0' ? "source unknown" : p->source);
    printf("cluster     %d host%s, %d rank%s: %s%s%s\n", s->hosts->count, s->hosts->count == 1 ? "" : "s",
           s->hosts->ranks, s->hosts->ranks == 1 ? "" : "s", r->cluster_path, c->name[0] == '\0' ? "" : ", ", c->name);
    if (s->hosts->count > 1)
        printf("links       %.4g Gbit/s of a host and %.4g us between hosts; %s, transfers +- %.0f %%\n",
               8 / taciti_plan_wire_beta_s(c) / 1e9, c->between.alpha_s * 1e6,
               r->candidates->list[0].prediction.calibrated ? "measured all-reduces used" : "no measured all-reduces",
               PERCENT * r->candidates->list[0].prediction.link_error);
}

/* ---- table ------------------------------------------------------------------------------------------------------- */

static bool is_compressed(const taciti_candidate *c) {
    return c->method.compression.encoding.codec != NULL || c->method.gather.encoding.codec != NULL;
}

/* Writes the letters for what steps are worth; the legend explains them. */
static void cost_letters(const taciti_plan_report *r, const taciti_candidate *c, char out[16]) {
    const bool gossip = c->method.topology != NULL;
    const bool dense = c->method.order == TACITI_ORDER_DENSE || c->method.order == TACITI_ORDER_PARTS;
    const char *compressed = !is_compressed(c) ? "" : c->caution == TACITI_CAUTION_STRONG ? " C" : " c";
    (void)snprintf(out, 16, "%s%s%s%s%s%s%s",
                   gossip  ? " r"
                   : dense ? ""
                           : " l",
                   c->method.order == TACITI_ORDER_AWC ? " s" : "",
                   taciti_candidate_mixes(r->candidates, c) ? "" : " m",
                   taciti_codec_narrow_name(c->method.wire) == NULL ? "" : " w", compressed, c->priced ? "" : "?",
                   c->prediction.fits ? "" : " x");
    if (out[0] == '\0') (void)snprintf(out, 16, " -");
}

static void print_row(const taciti_plan_report *r, const taciti_candidate *c, int width) {
    const taciti_prediction *p = &c->prediction;
    const taciti_plan_topology *t = taciti_candidate_topology(r->candidates, c);
    char mixes[32] = "", bounds[32], letters[16];
    cost_letters(r, c, letters);
    if (t != NULL && t->exact_after > 0)
        (void)snprintf(mixes, sizeof mixes, "exact/%zu", t->exact_after);
    else if (t != NULL && !isnan(t->gap))
        (void)snprintf(mixes, sizeof mixes, t->gap > 0 && t->gap < 0.001 ? "%.0e" : "%.3f", t->gap);
    (void)snprintf(bounds, sizeof bounds, "%.1f-%.1f", MS * p->low_s, MS * p->high_s);
    printf("%c %-*s %9.2f %17s %7.2fx %7.1f %% %11.2f %8.0f  %-10s %-9s%s\n", c->configured ? '*' : ' ', width,
           c->method.label, MS * p->step_s, bounds, c->verdict.speedup, PERCENT * p->exposed_s / p->step_s,
           MB * p->nic_bytes, MB * p->memory_bytes, taciti_bottleneck_name(p->bottleneck), mixes, letters);
}

static void print_table(const taciti_plan_report *r) {
    const taciti_candidate *rows[TACITI_CANDIDATES_MAX];
    const size_t count = r->candidates->count;
    int width = MIN_LABEL;
    for (size_t i = 0; i < count; i++) {
        rows[i] = &r->candidates->list[i];
        if ((int)strlen(rows[i]->method.label) > width) width = (int)strlen(rows[i]->method.label);
    }
    qsort(rows, count, sizeof *rows, taciti_plan_by_step);
    printf("\n  %-*s %9s %17s %8s %9s %11s %8s  %-10s %-9s %s\n", width, "method", "step ms", "low-high", "speed-up",
           "exposed", "NIC MB/step", "rank MB", "held up by", "mixes", "cost");
    for (size_t i = 0; i < count; i++) print_row(r, rows[i], width);
    for (size_t i = 0; i < r->candidates->refused_count; i++) printf("  %s\n", r->candidates->refused[i].reason);
}

static void print_legend(const taciti_plan_report *r) {
    int every = 0; /* steps between two averages of localsgd */
    for (size_t i = 0; i < r->candidates->count; i++) {
        const taciti_method *m = &r->candidates->list[i].method;
        if (m->topology == NULL && m->order == TACITI_ORDER_ATC) every = m->every;
    }
    /* clang-format off */
    printf(
        "\n"
        "* this configuration. speed-up: against %s, the fastest dense all-reduce. NIC: busiest host, one direction. rank: parameters, gradients, moments and residuals, without\n"
        "activations and buffers; x does not fit a host whose memory_gib is known, and is never recommended. held up by: what a step would lose most without (link:\n"
        "bytes, between hosts or inside). mixes: exact/K: after K mixes all ranks hold the mean, else the share of a\n"
        "disagreement that one mix removes at least. cost: steps are the same in number, not in what they learn:\n"
        "r every rank has a replica of its own, s neighbours hear of an update one step later and the learning rate has\n"
        "another limit (tacit info topologies), l ranks go %d steps alone, w payloads are rounded, m too slow a mixer to\n"
        "be recommended: a disagreement needs more than %d mixes to fall to 1/e. What it does to losses: docs/gossip.md\n"
        "c sums or gathers are compressed, C so strongly that it is known to cost accuracy, ? at a speed that the cluster file\n"
        "does not tell: encoding counts as free, and the row is never recommended. auto: where it is faster than dense\n",
        taciti_candidates_dense(r->candidates)->method.label, every, TACITI_PLAN_MIXES);
    /* clang-format on */
}

/* ---- what it rests on -------------------------------------------------------------------------------------------- */

static void print_cause(const char *what, const taciti_candidate *c) {
    const taciti_prediction *p = &c->prediction;
    printf("%-11s %s: %.2f ms of computing; free bytes would save %.2f ms, free messages %.2f ms, equal compute times "
           "%.2f ms\n",
           what, c->method.label, MS * p->cost_s[TACITI_BOTTLENECK_COMPUTE], MS * p->cost_s[TACITI_BOTTLENECK_LINK],
           MS * p->cost_s[TACITI_BOTTLENECK_LATENCY], MS * p->cost_s[TACITI_BOTTLENECK_STRAGGLERS]);
}

/* Nobody knows how evenly ranks compute: both ends of what may be. */
static void print_unknown_cv(const taciti_plan_report *r) {
    const taciti_prediction *dense = &taciti_candidates_dense(r->candidates)->prediction;
    const taciti_candidate *gossip = taciti_candidates_gossip(r->candidates);
    if (!(dense->uneven_s > 0)) return;
    printf("note        compute.cv is unknown: steps are those of even ranks (cv 0). At cv %g: all-reduce %.2f ms",
           TACITI_PLAN_DOUBTFUL_CV, MS * dense->uneven_s);
    if (gossip != NULL)
        printf(", gossip %.2f ms: %.2fx", MS * gossip->prediction.uneven_s,
               dense->uneven_s / gossip->prediction.uneven_s);
    printf("; `high` holds both; --compute.cv 0.05 or --no-jitter tells\n");
}

/* Codecs of a method that the cluster file says nothing of. */
static void print_unknown_speed(const taciti_plan_report *r, const taciti_candidate *c) {
    const taciti_codec *codecs[] = {c->method.compression.encoding.codec, c->method.gather.encoding.codec,
                                    taciti_codec_is_dense(c->method.wire) ? NULL : c->method.wire};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        if (codecs[i] == NULL || (i == 1 && codecs[i] == codecs[0]) ||
            taciti_plan_compression_known(r->scene->cluster, codecs[i]))
            continue;
        if (!taciti_route_of(codecs[i])->probed)
            printf(
                "note        nothing tells how long sketches (%s) take to add up and decode, and tacit probe does not "
                "measure it: the step is without. Measure it with tacit bench step --compress.codec %s\n",
                codecs[i]->name, codecs[i]->name);
        else
            printf(
                "note        the cluster file does not tell how fast %s is: measure with `mpirun -n N tacit probe -o "
                "cluster.json`\n",
                codecs[i]->name);
    }
}

/* Prints what is known of the compression that is configured or recommended. */
static void print_cautions(const taciti_plan_report *r) {
    const taciti_candidate *best = taciti_candidates_compressed(r->candidates);
    char text[TACITI_CAUTION_BYTES];
    for (size_t i = 0; i < r->candidates->count; i++) {
        const taciti_candidate *c = &r->candidates->list[i];
        if (!c->configured && c != best) continue;
        if (is_compressed(c) && taciti_method_caution(&c->method, text, sizeof text) != TACITI_CAUTION_NONE)
            printf("caution     %s: %s\n", c->method.label, text);
        print_unknown_speed(r, c);
    }
}

/* Prints how many methods do not fit in the memory of a host. */
static void print_misfits(const taciti_plan_report *r) {
    const taciti_cluster *c = r->scene->cluster;
    const int ranks = taciti_hosts_sizes(r->scene->hosts).max;
    const double each = c->memory_gib * 0x1p30 / ranks;
    const taciti_candidate *smallest = NULL;
    size_t misfits = 0;
    for (size_t i = 0; i < r->candidates->count; i++) {
        const taciti_candidate *one = &r->candidates->list[i];
        if (one->prediction.fits) continue;
        misfits++;
        if (smallest == NULL || one->prediction.memory_bytes < smallest->prediction.memory_bytes) smallest = one;
    }
    if (smallest == NULL) return;
    printf("note        %zu of %zu methods do not fit: a rank has %.0f MB (%g GiB of a host for %d rank%s), the "
           "smallest of them, %s, takes %.0f MB without activations\n",
           misfits, r->candidates->count, MB * each, c->memory_gib, ranks, ranks > 1 ? "s" : "", smallest->method.label,
           MB * smallest->prediction.memory_bytes);
}

/* Prints the share of the network that is compressed, and the tensors whose names tell no class. */
static void print_layers(const taciti_plan_report *r) {
    const taciti_plan_layers l = taciti_plan_layers_of(r->scene);
    const char *layers = r->settings->compress.layers.text;
    if (strcmp(layers, "all") == 0) return;
    printf("note        compress.layers %s: %zu of %zu tensors with %.1f %% of the parameters are compressed\n", layers,
           l.coded_tensors, l.tensors, PERCENT * l.coded_share);
    if (l.other_tensors > 0)
        printf(
            "note        names of %zu tensors with %.1f %% of the parameters tell no class (the first is %s): they are "
            "`other`\n",
            l.other_tensors, PERCENT * l.other_share, l.other);
}

static void print_notes(const taciti_plan_report *r) {
    const taciti_cluster *c = r->scene->cluster;
    if (c->compute_lag1 > PERSISTENT_LAG1)
        printf("note        delays stay (lag1 %.2f): gossip averages fewer of them away than predicted\n",
               c->compute_lag1);
    if (r->options->cv < 0 && c->compute_cv > TACITI_PLAN_BUSY_CV)
        printf("note        compute.cv is %.0f %%: the machine was busy when it was measured; --no-jitter or "
               "--compute.cv 0.03 plan without\n",
               PERCENT * c->compute_cv);
    if (c->inside.alpha_s < 0 && taciti_cluster_max_ranks_per_host(c) > 1)
        printf("note        links.inside is unknown: what stays inside of hosts is counted as free\n");
    print_unknown_cv(r);
    print_cautions(r);
    print_layers(r);
    print_misfits(r);
}

taciti_verdict taciti_plan_answer(const taciti_plan_report *r, char text[TACITI_ANSWER_BYTES]) {
    char measured[TACITI_VERDICT_BYTES];
    taciti_verdict v = taciti_candidates_verdict(r->candidates, measured);
    if (r->even == NULL) {
        (void)snprintf(text, TACITI_ANSWER_BYTES, "%s", measured);
        return v;
    }
    v.low = fmin(v.low, r->even->low);
    v.high = fmax(v.high, r->even->high);
    v.pays = false;
    (void)snprintf(text, TACITI_ANSWER_BYTES,
                   "no verdict: compute.cv %.0f %% is that of a busy machine. With it: %s. Without jitter: %s",
                   PERCENT * r->cv, measured, r->even_text);
    return v;
}

taciti_verdict taciti_plan_compression_answer(const taciti_plan_report *r, char text[TACITI_ANSWER_BYTES]) {
    char measured[TACITI_VERDICT_BYTES];
    taciti_verdict v = taciti_candidates_compression_verdict(r->candidates, measured);
    (void)snprintf(text, TACITI_ANSWER_BYTES, "%s", measured);
    if (*measured == '\0' || r->even == NULL) return v;
    v.pays = false;
    (void)snprintf(text, TACITI_ANSWER_BYTES, "no verdict: compute.cv %.0f %% is that of a busy machine. With it: %s",
                   PERCENT * r->cv, measured);
    return v;
}

static void print_all(const taciti_plan_report *r) {
    const taciti_candidate *gossip = taciti_candidates_gossip(r->candidates);
    const taciti_candidate *compressed = taciti_candidates_compressed(r->candidates);
    print_head(r);
    print_table(r);
    print_legend(r);
    printf("\n");
    print_cause("dense", taciti_candidates_dense(r->candidates));
    if (gossip != NULL) print_cause("gossip", gossip);
    if (compressed != NULL) print_cause("compressed", compressed);
}

void taciti_plan_print(const taciti_plan_report *r) {
    char answer[TACITI_ANSWER_BYTES];
    if (r->all)
        print_all(r);
    else
        taciti_plan_print_answer(r);
    print_notes(r);
    if (!r->all) return;
    (void)taciti_plan_answer(r, answer);
    printf("\n%s\n", answer);
    (void)taciti_plan_compression_answer(r, answer);
    if (*answer != '\0') printf("%s\n", answer);
}
