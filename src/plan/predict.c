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
 *   localsgd   as atc among all ranks, in every `every`-th step
 *
 *   async      nobody waits: a step is computing and the updates, and a mix is made when its two ranks are ready
 *
 *   parts      unit by unit: plan/parts.h
 *
 * Compute times are those of the emulated accelerator: profile x slow x max(0.1, 1 + cv z), drawn from (seed, rank,
 * step), so all methods that simulate the same steps see the same ones. Means are over whole periods after a warm-up.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "plan/compressed.h"
#include "plan/footprint.h"
#include "plan/parts.h"
#include "plan/reuse.h"
#include "plan/uneven.h"
#include "strategy/compression.h"

/* Draws of a simulation: enough for a mean that moves by less than cv / 50, few enough to be instant. */
enum { DRAWS = 1 << 15, STEPS_MIN = 32, STEPS_MAX = 1024 };
#define ROUNDING 1e-9

static const char *const BOTTLENECKS[TACITI_BOTTLENECKS] = {"compute", "link", "latency", "stragglers"};
const char *taciti_bottleneck_name(taciti_bottleneck bottleneck) { return BOTTLENECKS[bottleneck]; }

/* ---- how long a period is ---------------------------------------------------------------------------------------- */

tacit_status taciti_plan_check_period(const char *what, size_t rounds, int every, const char *shorten) {
    if (rounds <= TACITI_PLAN_PERIOD_MAX / (size_t)(every > 0 ? every : 1)) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG,
                       "%s repeats after %zu x %d steps, and a plan simulates at most %d of them: choose a smaller %s",
                       what, rounds, every, TACITI_PLAN_PERIOD_MAX, shorten);
}

/* ---- one method -------------------------------------------------------------------------------------------------- */

typedef struct model {
    const taciti_scene *scene;
    const taciti_plan_options *options;
    taciti_method method; /* with its busiest link */
    taciti_links links;   /* borrows what is reused */
    taciti_recursion recursion;
    taciti_stretches stretches;
    taciti_reuse *reuse, own;              /* own: where the caller shares nothing */
    taciti_rounds *rounds;                 /* borrowed from what is reused */
    taciti_parts_plan parts;               /* of order PARTS, instead of stretches and rounds */
    double even, uneven;                   /* factors of transfers at the ends of the range */
    double nic_bytes;                      /* of rounds, per step, of the busiest host */
    double busy_s[TACITI_SCENARIOS];       /* for how long mixes occupy its link; 0: the simulation knows */
    double waits_s;                        /* of the updates: hand-over and short messages */
    double *ready_s, *update_s, *behind_s; /* [stretches]; one block, owned by the first */
    bool *other;                           /* [stretches] of a topology that alternates, else NULL; owned */
} model;

static void fill_recursion(model *m) {
    const taciti_scene *scene = m->scene;
    const taciti_method *method = &m->method;
    const size_t steps = DRAWS / (size_t)scene->hosts->ranks;
    const double known_cv = scene->cluster->compute_cv > 0 ? scene->cluster->compute_cv : 0;
    m->recursion = (taciti_recursion){
        .order = method->order,
        .overlap = method->overlap,
        .every = method->every > 0 ? method->every : 1,
        .delay = method->delay,
        .ranks = scene->hosts->ranks,
        .buckets = m->stretches.count,
        .period = m->rounds == NULL ? 1 : m->rounds->period,
        .rounds = m->rounds == NULL ? NULL : m->rounds->list,
        .other = m->other,
        .compute_s = taciti_profile_forward_s(scene->profile) + taciti_profile_backward_s(scene->profile),
        .ready_s = m->ready_s,
        .update_s = m->update_s,
        .update_behind_s = m->behind_s,
        .slow = scene->slow,
        .cv = m->options->cv >= 0 ? m->options->cv : known_cv,
        .seed = m->options->seed,
        .draws = &m->reuse->draws,
        .steps = steps < STEPS_MIN   ? STEPS_MIN
                 : steps > STEPS_MAX ? STEPS_MAX
                                     : steps,
    };
}

static double excess_of(double with, double without) { return with > without ? with - without : 0; }

/* Scenarios: as described; all links faster, all slower by their error; without bytes, without messages; and without
 * differences of compute times. */
enum { AS_IT_IS, FAST_LINKS, SLOW_LINKS, NO_BYTES, NO_MESSAGES, NO_STRAGGLERS, SCENARIOS };
_Static_assert((int)SCENARIOS <= (int)TACITI_SCENARIOS, "all at once");

/* Finds how much shorter a step would be if bytes, messages or differences of compute times cost nothing. */
static void find_causes(const model *m, const taciti_recursion_times *times, taciti_prediction *p) {
    p->cost_s[TACITI_BOTTLENECK_COMPUTE] = p->compute_s;
    p->cost_s[TACITI_BOTTLENECK_LINK] = excess_of(p->step_s, times[NO_BYTES].step_s);
    p->cost_s[TACITI_BOTTLENECK_LATENCY] = excess_of(p->step_s, times[NO_MESSAGES].step_s) + m->waits_s;
    p->cost_s[TACITI_BOTTLENECK_STRAGGLERS] = excess_of(p->step_s, times[NO_STRAGGLERS].step_s);
    for (int b = 0; b < TACITI_BOTTLENECKS; b++)
        if (p->cost_s[b] > p->cost_s[p->bottleneck]) p->bottleneck = (taciti_bottleneck)b;
}

/* ---- what a step waits for besides transfers --------------------------------------------------------------------- */

/* Ranks tell rank 0 what their encodes have seen, which sends the sums to everybody along a tree, between the exchange
 * and the update (comm/collective.c). A method that adapts does so in dense steps, for each bucket. */
static double agreement_s(const taciti_scene *s, const taciti_method *method, const taciti_links *links) {
    const int ranks = s->hosts->ranks;
    int levels = 0; /* of the tree */
    while (1 << levels < ranks) levels++;
    const int every = method->every > 0 ? method->every : 1;
    if (ranks < 2) return 0;
    const bool parts = method->order == TACITI_ORDER_PARTS;
    const bool sums = method->compression.encoding.codec != NULL || method->compression.adapts;
    const int codecs = sums + (parts && method->gather.encoding.codec != NULL);
    const double bytes =
        (double)taciti_compression_statistics_bytes(s->layout->bucket_count, method->compression.adapts) * codecs;
    const int messages = (codecs + parts) * (1 + levels); /* of parts, the norm as well */
    return taciti_links_messages_s(links, s->hosts, messages, ((double)ranks - 1 + levels) * bytes) / every;
}

/* A step that waits for an exchange of all ranks: from the end of backward to the messages, and back to the update.
 * Gossip waits for buckets that were handed over long before. */
static double hand_over_s(const taciti_scene *s, const taciti_method *method) {
    const bool equal = method->order == TACITI_ORDER_DENSE || method->order == TACITI_ORDER_PARTS;
    const bool waits = equal && method->library == TACITI_LIBRARY_OURS;
    return waits && s->hosts->ranks > 1 && s->cluster->hand_over_s > 0 ? s->cluster->hand_over_s : 0;
}

/* ---- rounds, or parts -------------------------------------------------------------------------------------------- */

static bool has_parts(const model *m) { return m->method.order == TACITI_ORDER_PARTS; }

static tacit_status time_links(model *m, size_t scenario, const taciti_links *links, double latency, double bytes) {
    const double arrays = m->method.order == TACITI_ORDER_ATC ? 1 : 1 + m->method.also_mixed;
    if (m->method.topology != NULL) m->busy_s[scenario] = bytes * taciti_links_busy_s(links, m->nic_bytes);
    if (!has_parts(m)) return taciti_rounds_time(m->rounds, scenario, links, arrays * latency, arrays * bytes);
    taciti_parts_time(&m->parts, scenario, links, latency, bytes);
    return TACIT_OK;
}

/* All that a simulation depends on; equal keys mean equal results. */
static uint64_t key_of(const model *m) {
    const taciti_recursion *r = &m->recursion;
    const uint64_t counts[] = {(uint64_t)r->order, r->overlap,
                               (uint64_t)r->every, (uint64_t)r->delay,
                               r->buckets,         (uint64_t)r->ranks,
                               r->period,          r->steps,
                               (uint64_t)r->seed,  (uint64_t)(uintptr_t)m->method.topology};
    const double seconds[] = {r->compute_s, r->cv};
    uint64_t key = XXH3_64bits_withSeed(counts, sizeof counts, 0);
    key = XXH3_64bits_withSeed(seconds, sizeof seconds, key);
    key = XXH3_64bits_withSeed(r->even, sizeof r->even, key);
    if (r->slow != NULL) key = XXH3_64bits_withSeed(r->slow, (size_t)r->ranks * sizeof *r->slow, key);
    if (has_parts(m)) return taciti_parts_key(&m->parts, key);
    key = XXH3_64bits_withSeed(m->ready_s, 3 * r->buckets * sizeof *m->ready_s, key);
    if (r->other != NULL) key = XXH3_64bits_withSeed(r->other, r->buckets * sizeof *r->other, key);
    return taciti_rounds_key(m->rounds, key);
}

static tacit_status simulate_rounds(const model *m, taciti_recursion_times *times) {
    const uint64_t key = key_of(m);
    const taciti_recursion_times *known = taciti_reuse_find(m->reuse, key);
    if (known != NULL) {
        memcpy(times, known, TACITI_SCENARIOS * sizeof *times);
        return TACIT_OK;
    }
    TACITI_TRY(has_parts(m) ? taciti_parts_run(&m->parts, &m->recursion, times)
                            : taciti_recursion_run(&m->recursion, times));
    taciti_reuse_keep(m->reuse, key, times);
    return TACIT_OK;
}

/* Under atc the arrays that are mixed beside the parameters travel while the next step computes, before these do. */
static double late_s(const model *m, size_t scenario) {
    if (m->method.order != TACITI_ORDER_ATC || m->method.also_mixed == 0) return 0;
    const double beside_s = m->method.overlap ? m->recursion.compute_s : 0;
    return excess_of(m->method.also_mixed * taciti_rounds_transfer_s(m->rounds, scenario), beside_s);
}

/* Ranks of a host that are in different rounds share its link, and a simulation of rounds does not know that. */
static tacit_status run_model(const model *m, taciti_recursion_times *times) {
    TACITI_TRY(simulate_rounds(m, times));
    for (size_t s = 0; s < TACITI_SCENARIOS; s++) times[s].step_s += late_s(m, s);
    for (size_t s = 0; s < TACITI_SCENARIOS && m->method.order != TACITI_ORDER_ASYNC; s++)
        if (m->busy_s[s] > times[s].step_s * (1 + ROUNDING)) times[s].step_s = m->busy_s[s];
    return TACIT_OK;
}

/* Finds the range of a step. Where nobody knows how evenly ranks compute, it may as well be that of doubtful ones. */
static tacit_status find_range(model *m, const taciti_recursion_times *times, taciti_prediction *p) {
    taciti_recursion_times doubtful[TACITI_SCENARIOS];
    if (m->options->cv < 0 && m->scene->cluster->compute_cv < 0) {
        m->recursion.cv = TACITI_PLAN_DOUBTFUL_CV;
        TACITI_TRY(run_model(m, doubtful));
        p->uneven_s = doubtful[AS_IT_IS].step_s;
    }
    p->fast_links_s = times[FAST_LINKS].step_s;
    p->slow_links_s = times[SLOW_LINKS].step_s;
    p->low_s = p->fast_links_s * (1 - p->model_error);
    p->high_s = fmax(p->slow_links_s, p->uneven_s) * (1 + p->model_error);
    return TACIT_OK;
}

static tacit_status time_scenarios(model *m, double link_error) {
    const double faster = link_error < 1 ? 1 - link_error : 0, slower = 1 + link_error;
    double *spread = has_parts(m) ? m->parts.spread : m->rounds->spread;
    spread[FAST_LINKS] = m->even;
    spread[SLOW_LINKS] = m->uneven;
    TACITI_TRY(time_links(m, FAST_LINKS, &m->links, faster, faster));
    TACITI_TRY(time_links(m, SLOW_LINKS, &m->links, slower, slower));
    TACITI_TRY(time_links(m, NO_BYTES, &m->links, 1, 0));
    TACITI_TRY(time_links(m, NO_MESSAGES, &m->links, 0, 1));
    m->recursion.even[NO_STRAGGLERS] = true;
    return time_links(m, NO_STRAGGLERS, &m->links, 1, 1);
}

/* Seconds of a mean step in which transfers are under way, or the updates wait. */
static double transfer_s_of(const model *m, size_t scenario) {
    const double arrays = m->method.order == TACITI_ORDER_ATC ? 1 + m->method.also_mixed : 1;
    const double mixes_s = has_parts(m) ? taciti_parts_transfer_s(&m->parts, scenario)
                                        : taciti_rounds_transfer_s(m->rounds, scenario) / m->recursion.every;
    return mixes_s * arrays + m->waits_s;
}

static tacit_status simulate_scenarios(model *m, taciti_prediction *p) {
    taciti_recursion_times times[TACITI_SCENARIOS];
    TACITI_TRY(time_links(m, AS_IT_IS, &m->links, 1, 1));
    if (!m->options->brief) TACITI_TRY(time_scenarios(m, p->link_error));
    TACITI_TRY(run_model(m, times));
    p->step_s = p->fast_links_s = p->slow_links_s = times[AS_IT_IS].step_s;
    p->compute_s = times[AS_IT_IS].compute_s - m->waits_s;
    p->exposed_s = excess_of(p->step_s, p->compute_s);
    p->transfer_s = transfer_s_of(m, AS_IT_IS);
    if (m->method.order == TACITI_ORDER_ASYNC && m->busy_s[AS_IT_IS] > p->step_s)
        p->nic_bytes *= p->step_s / m->busy_s[AS_IT_IS]; /* there are fewer mixes than steps */
    if (m->options->brief) return TACIT_OK;
    TACITI_TRY(find_range(m, times, p));
    find_causes(m, times, p);
    return TACIT_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Fills in the times of stretches that do not depend on links; updates include the method's additional work. */
static tacit_status fill_stretches(model *m) {
    const taciti_scene *scene = m->scene;
    const size_t buckets = scene->layout->bucket_count, count = m->stretches.count, lengths = m->stretches.length_count;
    double *ready_s = taciti_calloc(buckets + lengths, sizeof *ready_s);
    m->ready_s = taciti_calloc(3 * count, sizeof *m->ready_s);
    if (ready_s == NULL || m->ready_s == NULL) {
        taciti_free(ready_s);
        return TACIT_E_MEMORY;
    }
    double *updates = ready_s + buckets;
    m->update_s = m->ready_s + count;
    m->behind_s = m->update_s + count;
    double at = taciti_profile_forward_s(scene->profile);
    size_t tensors = 0, bucket = 0;
    for (size_t l = scene->profile->layer_count; l-- > 0;) { /* gradients become final last layer first */
        at += scene->profile->layers[l].backward_s;
        tensors += scene->profile->layers[l].tensor_count;
        while (bucket < buckets && scene->layout->buckets[bucket].last < tensors) ready_s[bucket++] = at;
    }
    for (size_t k = 0; k < count; k++) m->ready_s[k] = ready_s[m->stretches.list[k].last];
    for (size_t i = 0; i < lengths; i++)
        updates[i] = (scene->profile->update_s + m->method.serial_s + m->waits_s) * (double)m->stretches.lengths[i] /
                     (double)scene->layout->n;
    taciti_stretches_fill(&m->stretches, updates, m->update_s, m->behind_s);
    taciti_free(ready_s);
    return TACIT_OK;
}

static tacit_status alternate_stretches(model *m) {
    const taciti_topology *topology = m->method.topology;
    if (topology == NULL || !topology->alternates) return TACIT_OK;
    m->other = taciti_calloc(m->stretches.count + 1, sizeof *m->other);
    if (m->other == NULL) return TACIT_E_MEMORY;
    for (size_t k = 0; k < m->stretches.count; k++) m->other[k] = m->stretches.list[k].half == 1;
    return TACIT_OK;
}

static void tear_down(model *m) {
    taciti_parts_destroy(&m->parts);
    taciti_stretches_destroy(&m->stretches);
    taciti_reuse_destroy(&m->own);
    taciti_free(m->ready_s);
    taciti_free(m->other);
}

static tacit_status build_rounds(model *m) {
    const bool together = m->method.order == TACITI_ORDER_DENSE && !m->method.overlap;
    const bool whole = together || (m->method.order == TACITI_ORDER_AWC && !m->method.overlap);
    TACITI_TRY(taciti_stretches_create(m->scene->layout, together ? 0 : TACITI_STRETCHES_SINGLE, whole, &m->stretches));
    TACITI_TRY(fill_stretches(m));
    TACITI_TRY(alternate_stretches(m));
    TACITI_TRY(taciti_reuse_rounds(m->reuse, m->scene, &m->method, &m->stretches, &m->rounds));
    return taciti_plan_nic_bytes(m->scene, &m->method, m->rounds, &m->nic_bytes);
}

static tacit_status build_model(const taciti_scene *scene, const taciti_method *method,
                                const taciti_plan_options *options, model *m) {
    *m = (model){.scene = scene, .options = options, .method = *method};
    m->reuse = options->reuse != NULL ? options->reuse : &m->own;
    tacit_status status = m->reuse->links.cluster != NULL ? TACIT_OK : taciti_links_create(scene, &m->reuse->links);
    m->links = taciti_links_at(&m->reuse->links, scene->between_bit_per_s);
    if (status == TACIT_OK) status = taciti_uneven_range(scene, &m->method, options->seed, &m->even, &m->uneven);
    if (status == TACIT_OK) {
        m->waits_s = agreement_s(scene, method, &m->links) + hand_over_s(scene, method);
        status = has_parts(m) ? taciti_parts_create(scene, &m->method, m->waits_s, &m->parts) : build_rounds(m);
    }
    if (status == TACIT_OK)
        fill_recursion(m);
    else
        tear_down(m);
    return status;
}

static tacit_status predict_step(model *m, taciti_prediction *out) {
    const taciti_scene *scene = m->scene;
    double calibrated;
    taciti_prediction p = {.step_s = 0};
    TACITI_TRY(taciti_plan_memory_bytes(scene, &m->method, &p.memory_bytes));
    p.fits = taciti_plan_fits(scene, p.memory_bytes);
    if (has_parts(m)) {
        p.nic_bytes = taciti_parts_nic_bytes(&m->parts, &m->links);
        taciti_parts_doubts(&m->parts, &m->links, &p.link_error, &calibrated);
    } else {
        p.nic_bytes = m->nic_bytes;
        taciti_rounds_doubts(m->rounds, &m->links, &p.link_error, &calibrated);
    }
    p.calibrated = calibrated > 0.5;
    p.model_error = p.calibrated || p.link_error <= 0 ? TACITI_PLAN_MODEL_ERROR : TACITI_PLAN_MODEL_ERROR_UNMEASURED;
    TACITI_TRY(simulate_scenarios(m, &p));
    *out = p;
    return TACIT_OK;
}

static tacit_status check_method(const taciti_scene *scene, const taciti_method *method) {
    TACITI_TRY(taciti_plan_check_period(method->label, method->topology == NULL ? 1 : method->topology->period,
                                        method->every, "period"));
    if (!scene->profile->in_flops) return TACIT_OK;
    return taciti_fail(TACIT_E_CONFIG, "the profile \"%s\" is in operations: give compute.rate and compute.batch",
                       scene->profile->name);
}

/* ---- sums over all ranks beside mixes ------------------------------------------------------------------------------
 * A step of a method with such sums (taciti_common_sums) is the mean over a run: of its dense steps at the start, and
 * of the others, among them those that send signals. */

/* SGD has no second moments to look at. */
static bool has_signals(const taciti_scene *s, const taciti_method *method) {
    return method->common.every > 0 && (s->optim == NULL || s->optim->name != TACITI_OPTIM_SGD);
}

/* The dense method whose steps are those of the start. Signals are summed in the same way. */
static taciti_method dense_of(const taciti_method *method) {
    const taciti_codec *codec = method->common.codec;
    taciti_method out = {
        .order = TACITI_ORDER_DENSE, .wire = taciti_codec_find("f32"), .overlap = method->overlap, .every = 1};
    (void)snprintf(out.label, sizeof out.label, "%s", method->label);
    out.compression.encoding.codec = codec;
    out.compression.encoding.feedback.errors = true;
    out.compression.encoding.expected = taciti_codec_setting_of(codec, (taciti_codec_setting){.factor = 0});
    return out;
}

/* Returns how much longer a step becomes, on average, by the sums of signals. Mixes of awc are under way during the
 * step; those of atc begin when it has computed, and signals before. Without overlap a step waits for both. */
static double find_signal_wait(const taciti_scene *scene, const taciti_method *method, double step_s, double transfer_s,
                               double signal_s) {
    const double compute_s = taciti_profile_forward_s(scene->profile) + taciti_profile_backward_s(scene->profile);
    const double beside_s = method->order == TACITI_ORDER_AWC ? fmax(step_s - transfer_s, 0) : compute_s;
    const double idle_s = method->overlap ? beside_s : 0;
    return has_signals(scene, method) ? fmax(signal_s - idle_s, 0) / (double)method->common.every : 0;
}

static void add_signals(const taciti_scene *s, const taciti_method *method, const taciti_prediction *sums,
                        taciti_prediction *p) {
    if (!has_signals(s, method)) return;
    const double every = (double)method->common.every;
    const double wait_s = find_signal_wait(s, method, p->step_s, p->transfer_s, sums->transfer_s);
    double *const steps[] = {&p->step_s,
                             &p->exposed_s,
                             &p->fast_links_s,
                             &p->slow_links_s,
                             &p->low_s,
                             &p->high_s,
                             &p->cost_s[TACITI_BOTTLENECK_LINK]};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) *steps[i] += wait_s;
    if (p->uneven_s > 0) p->uneven_s += wait_s;
    p->transfer_s += sums->transfer_s / every;
    p->nic_bytes += sums->nic_bytes / every;
}

static void blend_time(double *mixes, double start, double share) { *mixes += share * (start - *mixes); }

static void add_start(const taciti_method *method, const taciti_prediction *start, taciti_prediction *p) {
    const double share = method->common.start;
    const double of_start[] = {start->step_s,    start->compute_s,    start->exposed_s,    start->transfer_s,
                               start->nic_bytes, start->fast_links_s, start->slow_links_s, start->uneven_s,
                               start->low_s,     start->high_s};
    double *const all[] = {&p->step_s,       &p->compute_s,    &p->exposed_s, &p->transfer_s, &p->nic_bytes,
                           &p->fast_links_s, &p->slow_links_s, &p->uneven_s,  &p->low_s,      &p->high_s};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) blend_time(all[i], of_start[i], share);
    for (int b = 0; b < TACITI_BOTTLENECKS; b++) blend_time(&p->cost_s[b], start->cost_s[b], share);
}

/* The residuals of the start, which a rank holds beside the arrays of mixes. */
static tacit_status add_residuals(const taciti_scene *scene, const taciti_method *dense, taciti_prediction *p) {
    size_t residuals;
    TACITI_TRY(taciti_plan_residual_bytes(scene, dense, &residuals));
    p->memory_bytes += scene->optim == NULL ? 0 : (double)residuals;
    p->fits = taciti_plan_fits(scene, p->memory_bytes);
    return TACIT_OK;
}

/* Makes the prediction of a method's mixes that of the whole run. */
static void add_common(const taciti_scene *scene, const taciti_method *method, const taciti_prediction *sums,
                       taciti_prediction *mixes) {
    add_signals(scene, method, sums, mixes);
    if (method->common.start > 0) add_start(method, sums, mixes);
    for (int b = 0; b < TACITI_BOTTLENECKS; b++)
        if (mixes->cost_s[b] > mixes->cost_s[mixes->bottleneck]) mixes->bottleneck = (taciti_bottleneck)b;
}

/* ---- with its codec, or without ---------------------------------------------------------------------------------- */

/* Sets the scene's layout to the one that this method exchanges: methods that compress have buckets of their own, in
 * which what compress.layers chooses and what it does not lie apart. Where nothing is left to compress, the method
 * becomes dense. */
static void choose_layout(taciti_scene *scene, taciti_method *method) {
    const bool compresses = method->compression.encoding.codec != NULL || method->gather.encoding.codec != NULL;
    const bool mixes_coded = method->topology != NULL && !taciti_codec_is_dense(method->wire);
    if (scene->coded == NULL || !(compresses || mixes_coded)) return;
    size_t bucket = 0;
    while (bucket < scene->coded->bucket_count && scene->coded->buckets[bucket].plain) bucket++;
    if (bucket < scene->coded->bucket_count)
        scene->layout = scene->coded;
    else
        method->compression = method->gather = (taciti_plan_compression){.adapts = false};
}

/* Whether a method whose sums adapt has to be predicted without its codec as well. Parts find out by themselves. */
static bool has_choice(const taciti_method *method) {
    return method->compression.adapts && method->compression.encoding.codec != NULL &&
           method->order != TACITI_ORDER_PARTS;
}

/* A question about methods. Each rate between hosts gets a prediction, of the seconds of step and transfers alone. */
typedef struct request {
    const taciti_scene *scene;
    const taciti_plan_options *options;
    const double *bit_per_s; /* [count]; NULL: one prediction, at the cluster's own rate */
    size_t count;
    taciti_prediction *work; /* [2 count] */
} request;

/* As many rates at once as there are scenarios. */
static tacit_status predict_rates(model *m, const double *bit_per_s, size_t count, taciti_prediction *out) {
    taciti_recursion_times times[TACITI_SCENARIOS];
    for (size_t i = 0; i < count; i++) {
        const taciti_links links = taciti_links_at(&m->reuse->links, bit_per_s[i]);
        TACITI_TRY(time_links(m, i, &links, 1, 1));
    }
    TACITI_TRY(run_model(m, times));
    for (size_t i = 0; i < count; i++)
        out[i] = (taciti_prediction){.step_s = times[i].step_s, .transfer_s = transfer_s_of(m, i)};
    return TACIT_OK;
}

static tacit_status predict_one(const request *q, const taciti_method *method, taciti_prediction *out) {
    model m;
    TACITI_TRY(build_model(q->scene, method, q->options, &m));
    const size_t rates = q->bit_per_s == NULL ? 0 : q->count;
    tacit_status status = rates > 0 ? TACIT_OK : predict_step(&m, out);
    for (size_t at = 0; at < rates && status == TACIT_OK; at += TACITI_SCENARIOS)
        status = predict_rates(&m, q->bit_per_s + at, taciti_min(rates - at, TACITI_SCENARIOS), out + at);
    tear_down(&m);
    return status;
}

/* A method that adapts is dense where that keeps the communication thread busy for less time, and keeps its residuals.
 */
static tacit_status predict_choice(const request *q, const taciti_method *method, taciti_prediction *out) {
    taciti_scene scene = *q->scene;
    request own = *q;
    taciti_method m = *method;
    own.scene = &scene;
    choose_layout(&scene, &m);
    TACITI_TRY(predict_one(&own, &m, out));
    if (!has_choice(&m)) return TACIT_OK;
    m.compression.encoding.codec = NULL;
    TACITI_TRY(predict_one(&own, &m, q->work));
    for (size_t i = 0; i < q->count; i++) {
        taciti_prediction *dense = &q->work[i];
        dense->memory_bytes = out[i].memory_bytes;
        dense->fits = out[i].fits;
        if (dense->transfer_s < out[i].transfer_s) out[i] = *dense;
    }
    return TACIT_OK;
}

/* Many methods have the same sums beside their mixes; buckets are those of methods that do not compress. */
static tacit_status predict_common(const request *q, const taciti_method *sums, taciti_prediction *out) {
    const taciti_plan_options *o = q->options;
    struct taciti_sums *known = o->reuse == NULL ? NULL : taciti_reuse_sums(o->reuse, o->cv);
    const int kind = q->bit_per_s == NULL ? 0 : 1;
    if (known == NULL || q->count > TACITI_REUSE_RATES) return predict_one(q, sums, out);
    if (known->count[kind] != q->count) TACITI_TRY(predict_one(q, sums, &known->list[kind]));
    known->count[kind] = q->count;
    memcpy(out, &known->list[kind], q->count * sizeof *out);
    return TACIT_OK;
}

static tacit_status predict_run(const request *q, const taciti_method *method, taciti_prediction *mixes) {
    taciti_prediction *sums = q->work + q->count;
    TACITI_TRY(check_method(q->scene, method));
    TACITI_TRY(predict_choice(q, method, mixes));
    if (q->scene->hosts->ranks < 2 || !(method->common.start > 0 || has_signals(q->scene, method))) return TACIT_OK;
    const taciti_method dense = dense_of(method);
    TACITI_TRY(predict_common(q, &dense, sums));
    for (size_t i = 0; i < q->count; i++) add_common(q->scene, method, &sums[i], &mixes[i]);
    return method->common.start > 0 ? add_residuals(q->scene, &dense, mixes) : TACIT_OK;
}

tacit_status taciti_predict(const taciti_scene *scene, const taciti_method *method, const taciti_plan_options *options,
                            taciti_prediction *out) {
    taciti_prediction work[2], mixes;
    TACITI_TRY(predict_run(&(request){scene, options, NULL, 1, work}, method, &mixes));
    *out = mixes;
    return TACIT_OK;
}

tacit_status taciti_predict_rates(const taciti_scene *scene, const taciti_method *method,
                                  const taciti_plan_options *options, const double *bit_per_s, size_t count,
                                  double *step_s) {
    taciti_prediction *mixes = taciti_calloc(3 * count + 1, sizeof *mixes);
    if (mixes == NULL) return TACIT_E_MEMORY;
    const tacit_status status = predict_run(&(request){scene, options, bit_per_s, count, mixes + count}, method, mixes);
    for (size_t i = 0; i < count && status == TACIT_OK; i++) step_s[i] = mixes[i].step_s;
    taciti_free(mixes);
    return status;
}
