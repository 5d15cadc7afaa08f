/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_curves.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "plan/reuse.h"

enum { RATE_POINTS = 3 * TACITI_CURVE_DECADE + 1, RANKS_MAX = 512, HOSTS_MIN_END = 64 };
static const double RATE_MIN = 0.1, RATE_DECADES = 3; /* Gbit/s, where that has the cluster's own */

/* ---- which methods ----------------------------------------------------------------------------------------------- */

/* Measured times make no line, since they hold for one rate and one number of hosts. */
static void add_line(taciti_plan_curves *curves, const taciti_candidate *candidate) {
    if (candidate == NULL) return;
    if (candidate->method.library == TACITI_LIBRARY_MEASURED) return;
    for (size_t i = 0; i < curves->line_count; i++)
        if (curves->lines[i] == candidate) return;
    curves->lines[curves->line_count++] = candidate;
}

/* Chooses dense f32, the methods that the answer names, the fastest of the table and the fastest localsgd. */
static void choose_lines(const taciti_candidates *candidates, taciti_plan_curves *curves) {
    add_line(curves, &candidates->list[0]);
    add_line(curves, taciti_candidates_dense(candidates));
    add_line(curves, taciti_candidates_compressed(candidates));
    add_line(curves, taciti_candidates_gossip(candidates));
    add_line(curves, taciti_candidates_sparser(candidates));
    add_line(curves, taciti_candidates_fastest(candidates, 0));
    add_line(curves, taciti_candidates_fastest(candidates, TACITI_FASTEST_PERIODIC));
}

/* ---- rates ------------------------------------------------------------------------------------------------------- */

static tacit_status vary_rate(const taciti_scene *scene, const taciti_plan_options *options,
                              taciti_plan_curves *curves) {
    taciti_plan_curve *curve = &curves->rate;
    double bit_per_s[RATE_POINTS];
    if (scene->hosts->count == 1) return TACIT_OK;
    curve->here = 8 / taciti_plan_wire_beta_s(scene->cluster) / 1e9;
    /* Three decades, with the cluster's own rate in them. */
    const double above = floor(log10(curve->here / RATE_MIN) - RATE_DECADES) + 1;
    const double lower = curve->here < RATE_MIN ? pow(10, floor(log10(curve->here))) : RATE_MIN;
    const double min = above > 0 ? RATE_MIN * pow(10, above) : lower;
    for (size_t p = 0; p < RATE_POINTS; p++) {
        curve->x[p] = min * pow(10, RATE_DECADES * (double)p / (RATE_POINTS - 1));
        curve->ranks[p] = scene->hosts->ranks;
        bit_per_s[p] = curve->x[p] * 1e9;
    }
    for (size_t l = 0; l < curves->line_count; l++)
        TACITI_TRY(
            taciti_predict_rates(scene, &curves->lines[l]->method, options, bit_per_s, RATE_POINTS, curve->step_s[l]));
    curve->count = RATE_POINTS;
    return TACIT_OK;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------- */

static tacit_status predict_lines(const taciti_candidates *there, const taciti_scene *scene,
                                  const taciti_plan_options *options, taciti_plan_curves *curves, size_t point) {
    for (size_t l = 0; l < curves->line_count; l++) {
        const taciti_candidate *c = taciti_candidates_find(there, curves->lines[l]);
        taciti_prediction prediction = {.step_s = (double)NAN};
        if (c != NULL) TACITI_TRY(taciti_predict(scene, &c->method, options, &prediction));
        curves->hosts.step_s[l][point] = prediction.step_s;
    }
    return TACIT_OK;
}

/* The plan itself: its ranks, which need not fill their hosts, and those that are named as slow. */
static void add_own(const taciti_scene *scene, taciti_plan_curves *curves) {
    const size_t point = curves->hosts.count++;
    curves->hosts.x[point] = scene->hosts->count;
    curves->hosts.ranks[point] = scene->hosts->ranks;
    for (size_t l = 0; l < curves->line_count; l++)
        curves->hosts.step_s[l][point] = curves->lines[l]->prediction.step_s;
}

/* Seconds of copying and weighing of stochastic gradient push; < 0: it has no line. */
static double sgp_of(const taciti_plan_curves *curves) {
    for (size_t l = 0; l < curves->line_count; l++)
        if (strcmp(curves->lines[l]->strategy, "sgp") == 0) return curves->lines[l]->method.serial_s;
    return -1;
}

static tacit_status add_hosts(const taciti_settings *settings, const taciti_scene *scene, int count,
                              const taciti_plan_options *options, taciti_plan_curves *curves) {
    taciti_hosts hosts;
    const int ranks = taciti_cluster_ranks_on(scene->cluster, count, RANKS_MAX);
    TACITI_TRY(taciti_cluster_hosts(scene->cluster, ranks, &hosts));
    taciti_scene other = *scene;
    other.hosts = &hosts;
    other.slow = NULL; /* named ranks are those of the plan itself */
    taciti_reuse reuse = {0};
    taciti_plan_options there_options = *options;
    there_options.reuse = &reuse;
    taciti_candidates there = {0};
    const char *names[TACITI_CURVE_LINES + 1] = {NULL};
    for (size_t l = 0; l < curves->line_count; l++) names[l] = curves->lines[l]->topology;
    tacit_status status = taciti_candidates_create(settings, &hosts, names, &there);
    const size_t point = curves->hosts.count;
    if (status == TACIT_OK) {
        taciti_candidates_add_others(&there, scene->cluster, &hosts, sgp_of(curves));
        status = predict_lines(&there, &other, &there_options, curves, point);
    }
    curves->hosts.x[point] = count;
    curves->hosts.ranks[point] = ranks;
    curves->hosts.count += status == TACIT_OK;
    taciti_reuse_destroy(&reuse);
    taciti_candidates_destroy(&there);
    taciti_hosts_destroy(&hosts);
    return status;
}

static tacit_status vary_hosts(const taciti_settings *settings, const taciti_scene *scene,
                               const taciti_plan_options *options, taciti_plan_curves *curves) {
    const int own = scene->hosts->count, end = 2 * own > HOSTS_MIN_END ? 2 * own : HOSTS_MIN_END;
    bool added = false;
    curves->hosts.here = own;
    if (scene->cluster->between.alpha_s < 0) return TACIT_OK;
    for (int hosts = 1; hosts <= end && taciti_cluster_ranks_on(scene->cluster, hosts, RANKS_MAX) <= RANKS_MAX;
         hosts *= 2) {
        if (!added && own <= hosts) add_own(scene, curves);
        added = added || own <= hosts;
        if (hosts != own) TACITI_TRY(add_hosts(settings, scene, hosts, options, curves));
    }
    if (!added) add_own(scene, curves);
    return TACIT_OK;
}

tacit_status taciti_plan_curves_compute(const taciti_settings *settings, const taciti_candidates *candidates,
                                        const taciti_scene *scene, const taciti_plan_options *options,
                                        taciti_plan_curves *out) {
    taciti_plan_options brief = *options;
    brief.brief = true;
    *out = (taciti_plan_curves){0};
    choose_lines(candidates, out);
    TACITI_TRY(vary_rate(scene, &brief, out));
    return vary_hosts(settings, scene, &brief, out);
}
