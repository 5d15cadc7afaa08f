/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime model: when buckets are ready (profile and layout), how long their transfers take (plan/links.h), who
 * waits for whom (plan/recursion.h), and what that leaves uncertain.
 *
 * The dependencies are those of our code (strategy/):
 *
 *   dense      bucket k may go when backward has passed its last tensor; buckets go in order through one channel, all
 *              ranks take part; the update waits for all of them, as it needs the norm of the whole gradient
 *
 *   awc        nothing happens during backward; then, bucket by bucket: wait for its mix, update, hand it over. The mix
 *              has until the same place of the next step. A rank's channel carries its buckets in order, and a mix
 *              begins when all of its group have handed the bucket over
 *
 *   atc        bucket by bucket: update, hand over; then wait for all
 *
 *   localsgd   as atc among all ranks, in every so many steps
 *
 * Compute times are those of the emulated accelerator: profile x slow x max(0.1, 1 + cv z), drawn from (seed, rank,
 * step), so all methods that simulate the same steps see the same ones. Means are over whole periods after a warm-up.
 */
#include <math.h>

#include "base/log.h"
#include "base/memory.h"
#include "plan/rounds.h"

/* Draws of a simulation: enough for a mean that moves by less than cv / 100, few enough to be instant. */
enum { DRAWS = 1 << 15, STEPS_LEAST = 64, STEPS_MOST = 1024 };

static const char *const BOTTLENECKS[TACITI_BOTTLENECKS] = {"compute", "link", "latency", "stragglers"};
const char *taciti_bottleneck_name(taciti_bottleneck bottleneck) { return BOTTLENECKS[bottleneck]; }

/* ---- where ranks are --------------------------------------------------------------------------------------------- */

int taciti_plan_ranks(const taciti_cluster *cluster, int64_t hosts, int most) {
    int ranks = 0;
    for (int64_t h = 0; h < hosts && ranks <= most; h++) ranks += cluster->ranks_per_host[h % cluster->hosts];
    return ranks <= most ? ranks : most + 1;
}

tacit_status taciti_plan_where(const taciti_cluster *cluster, int ranks, int **host_of, taciti_where *out) {
    int *list = taciti_calloc((size_t)ranks, sizeof *list);
    if (list == NULL) return TACIT_E_MEMORY;
    int host = 0, used = 0;
    for (int r = 0; r < ranks; r++) {
        if (used == cluster->ranks_per_host[host % cluster->hosts]) {
            host++;
            used = 0;
        }
        list[r] = host;
        used++;
    }
    *host_of = list;
    *out = (taciti_where){.ranks = ranks, .hosts = host + 1, .host_of = list};
    return TACIT_OK;
}

/* ---- how long a period is ---------------------------------------------------------------------------------------- */

tacit_status taciti_plan_check_period(const char *what, size_t rounds, int every) {
    if (rounds <= TACITI_PLAN_PERIOD_MOST / (size_t)(every > 0 ? every : 1)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "%s repeats after %zu x %d steps, and a plan simulates at most %d of them: choose a smaller "
                       "gossip.every, localsgd.every or gossip.period",
                       what, rounds, every, TACITI_PLAN_PERIOD_MOST);
}

/* ---- when buckets are ready -------------------------------------------------------------------------------------- */

/* Gradients become final last layer first. */
static void fill_ready(const taciti_profile *profile, const taciti_layout *layout, double *ready_s) {
    double at = taciti_profile_forward_s(profile);
    size_t tensors = 0, bucket = 0;
    for (size_t l = profile->layer_count; l-- > 0;) {
        at += profile->layers[l].backward_s;
        tensors += profile->layers[l].tensor_count;
        while (bucket < layout->bucket_count && layout->buckets[bucket].last < tensors) ready_s[bucket++] = at;
    }
}

/* With what the method does more in every step. */
static void fill_updates(const taciti_profile *profile, const taciti_layout *layout, double serial_s,
                         double *update_s) {
    for (size_t k = 0; k < layout->bucket_count; k++)
        update_s[k] = (profile->update_s + serial_s) * (double)layout->buckets[k].n / (double)layout->n;
}

/* ---- one method -------------------------------------------------------------------------------------------------- */

typedef struct model {
    taciti_recursion recursion;
    taciti_rounds rounds;
    double *ready_s, *update_s; /* [buckets]; one block, owned by the first */
} model;

static size_t steps_of(int ranks) {
    const size_t steps = DRAWS / (size_t)ranks;
    return steps < STEPS_LEAST ? STEPS_LEAST : steps > STEPS_MOST ? STEPS_MOST : steps;
}

static double cv_of(const taciti_cluster *cluster, const taciti_plan_options *options) {
    if (options->cv >= 0) return options->cv;
    return cluster->compute_cv > 0 ? cluster->compute_cv : 0;
}

static void fill_recursion(const taciti_scene *scene, const taciti_method *method, const taciti_plan_options *options,
                           model *m) {
    m->recursion = (taciti_recursion){
        .order = method->order,
        .overlap = method->overlap,
        .every = method->every > 0 ? method->every : 1,
        .delay = method->delay,
        .ranks = scene->where->ranks,
        .buckets = scene->layout->bucket_count,
        .period = m->rounds.period,
        .rounds = m->rounds.list,
        .compute_s = taciti_profile_forward_s(scene->profile) + taciti_profile_backward_s(scene->profile),
        .ready_s = m->ready_s,
        .update_s = m->update_s,
        .slow = scene->slow,
        .cv = cv_of(scene->cluster, options),
        .seed = options->seed,
        .steps = steps_of(scene->where->ranks),
    };
}

/* The step when messages cost `latency` and bytes `bytes` times what they do. */
static tacit_status step_s(model *m, double latency, double bytes, double *out) {
    taciti_recursion_times times;
    taciti_rounds_weigh(&m->rounds, latency, bytes);
    TACITI_TRY(taciti_recursion_run(&m->recursion, &times));
    *out = times.step_s;
    return TACIT_OK;
}

static double beyond(double with, double without) { return with > without ? with - without : 0; }

/* What a step would lose if bytes, messages or differences of compute times were free. */
static tacit_status find_causes(model *m, taciti_prediction *p) {
    double links, latency, stragglers;
    TACITI_TRY(step_s(m, 1, 0, &links));
    TACITI_TRY(step_s(m, 0, 1, &latency));
    m->recursion.cv = 0;
    m->recursion.slow = NULL;
    TACITI_TRY(step_s(m, 1, 1, &stragglers));
    p->cost_s[TACITI_BOTTLENECK_COMPUTE] = p->compute_s;
    p->cost_s[TACITI_BOTTLENECK_LINK] = beyond(p->step_s, links);
    p->cost_s[TACITI_BOTTLENECK_LATENCY] = beyond(p->step_s, latency);
    p->cost_s[TACITI_BOTTLENECK_STRAGGLERS] = beyond(p->step_s, stragglers);
    for (int b = 0; b < TACITI_BOTTLENECKS; b++)
        if (p->cost_s[b] > p->cost_s[p->bottleneck]) p->bottleneck = (taciti_bottleneck)b;
    return TACIT_OK;
}

/* Where nobody knows how evenly ranks compute, a step may as well be that of doubtful ones. */
static tacit_status find_uneven(const taciti_cluster *c, const taciti_plan_options *options, model *m,
                                taciti_prediction *p) {
    if (options->cv >= 0 || c->compute_cv >= 0) return TACIT_OK;
    m->recursion.cv = TACITI_PLAN_DOUBTFUL_CV;
    const tacit_status status = step_s(m, 1, 1, &p->uneven_s);
    m->recursion.cv = 0;
    return status;
}

static tacit_status find_bounds(const taciti_cluster *cluster, const taciti_plan_options *options, model *m,
                                taciti_prediction *p) {
    const double faster = p->link_error < 1 ? 1 - p->link_error : 0, slower = 1 + p->link_error;
    TACITI_TRY(step_s(m, faster, faster, &p->fast_links_s));
    TACITI_TRY(step_s(m, slower, slower, &p->slow_links_s));
    p->low_s = p->fast_links_s * (1 - TACITI_PLAN_MODEL_ERROR);
    TACITI_TRY(find_uneven(cluster, options, m, p));
    p->high_s = fmax(p->slow_links_s, p->uneven_s) * (1 + TACITI_PLAN_MODEL_ERROR);
    return TACIT_OK;
}

static tacit_status run(const taciti_scene *scene, const taciti_plan_options *options, model *m, taciti_prediction *p) {
    taciti_recursion_times times;
    TACITI_TRY(taciti_recursion_run(&m->recursion, &times));
    p->step_s = times.step_s;
    p->compute_s = times.compute_s;
    p->exposed_s = times.step_s > times.compute_s ? times.step_s - times.compute_s : 0;
    p->transfer_s = taciti_rounds_transfer_s(&m->rounds) / m->recursion.every;
    if (options->brief) return TACIT_OK;
    TACITI_TRY(find_bounds(scene->cluster, options, m, p));
    return find_causes(m, p);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Of one bucket, by the busiest host's link: of one all-reduce, or on average over the mixes of a period. */
static double nic_of_bucket(const taciti_scene *s, const taciti_method *method, size_t n, const int *all) {
    const size_t wire = method->wire->bound(n);
    if (method->library == TACITI_LIBRARY_RING)
        return taciti_links_ring(s->where->ranks, s->where->hosts, wire).host_bytes;
    if (method->topology != NULL) return taciti_mix_nic_bytes_mean(s->where, method->topology, s->placement, wire);
    return taciti_allreduce_demand(s->where, all, (size_t)s->where->ranks, s->placement, wire, n * sizeof(float))
        .host_bytes;
}

static tacit_status nic_bytes(const taciti_scene *scene, const taciti_method *method, double *out) {
    int *all = taciti_calloc((size_t)scene->where->ranks, sizeof *all);
    if (all == NULL) return TACIT_E_MEMORY;
    double sum = 0;
    for (int r = 0; r < scene->where->ranks; r++) all[r] = r;
    for (size_t k = 0; k < scene->layout->bucket_count; k++)
        sum += nic_of_bucket(scene, method, scene->layout->buckets[k].n, all);
    *out = sum / (method->every > 0 ? method->every : 1);
    taciti_free(all);
    return TACIT_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static tacit_status build(const taciti_scene *scene, const taciti_method *method, const taciti_plan_options *options,
                          const taciti_links *links, model *out) {
    const size_t buckets = scene->layout->bucket_count;
    model m = {.ready_s = taciti_calloc(2 * buckets, sizeof *m.ready_s)};
    if (m.ready_s == NULL) return TACIT_E_MEMORY;
    const tacit_status status = taciti_rounds_create(scene, method, links, &m.rounds);
    if (status != TACIT_OK) {
        taciti_free(m.ready_s);
        return status;
    }
    m.update_s = m.ready_s + buckets;
    fill_ready(scene->profile, scene->layout, m.ready_s);
    fill_updates(scene->profile, scene->layout, method->serial_s, m.update_s);
    fill_recursion(scene, method, options, &m);
    *out = m;
    return TACIT_OK;
}

/* Transfers count by what they take. */
static void find_doubts(const taciti_rounds *r, taciti_prediction *p) {
    double sum = 0, doubtful = 0, calibrated = 0;
    for (size_t i = 0; i < r->meeting_count * r->buckets; i++) {
        const taciti_transfer_time *t = &r->times[i];
        const double seconds = t->latency_s + t->bytes_s;
        sum += seconds;
        doubtful += seconds * t->error;
        calibrated += t->calibrated ? seconds : 0;
    }
    p->link_error = sum > 0 ? doubtful / sum : 0;
    p->calibrated = sum > 0 && calibrated > sum / 2;
}

static tacit_status predict(const taciti_scene *scene, const taciti_method *method, const taciti_plan_options *options,
                            const taciti_links *links, taciti_prediction *out) {
    model m;
    taciti_prediction p = {0};
    TACITI_TRY(build(scene, method, options, links, &m));
    find_doubts(&m.rounds, &p);
    tacit_status status = run(scene, options, &m, &p);
    if (status == TACIT_OK) status = nic_bytes(scene, method, &p.nic_bytes);
    taciti_rounds_destroy(&m.rounds);
    taciti_free(m.ready_s);
    if (status == TACIT_OK) *out = p;
    return status;
}

tacit_status taciti_predict(const taciti_scene *scene, const taciti_method *method, const taciti_plan_options *options,
                            taciti_prediction *out) {
    taciti_links links;
    TACITI_TRY(taciti_plan_check_period(method->label, method->topology == NULL ? 1 : method->topology->period,
                                        method->every));
    if (scene->profile->in_flops)
        return taciti_fail(TACIT_E_CONFIG, "the profile \"%s\" is in operations: give compute.rate and compute.batch",
                           scene->profile->name);
    TACITI_TRY(taciti_links_create(scene, &links));
    const tacit_status status = predict(scene, method, options, &links, out);
    taciti_links_destroy(&links);
    return status;
}

/* ---- verdict ----------------------------------------------------------------------------------------------------- */

taciti_verdict taciti_verdict_of(const taciti_prediction *dense, const taciti_prediction *other) {
    const double slow = dense->slow_links_s / other->slow_links_s, fast = dense->fast_links_s / other->fast_links_s;
    taciti_verdict v = {.speedup = dense->step_s / other->step_s};
    v.low = fmin(v.speedup, fmin(slow, fast)) * (1 - TACITI_PLAN_MODEL_ERROR);
    v.high = fmax(v.speedup, fmax(slow, fast)) * (1 + TACITI_PLAN_MODEL_ERROR);
    v.pays = v.low > 1;
    return v;
}
