/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/parts.h"

#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "plan/compressed.h"

enum { WARM_UP_STEPS = 4, EVEN_STEPS = 4 };

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static int half_of(int hops) { return (hops + 1) / 2; }

/* Reduces the demand of an all-reduce to that of a class of traffic. */
static void take_part(const taciti_method *method, int class, taciti_demand *d) {
    const bool inside = class == TACITI_PARTS_SHARE;
    d->local_bytes /= 2;
    d->local_hops = half_of(d->local_hops);
    if (class == TACITI_PARTS_REDUCE && method->parts.replicas) return;
    d->host_bytes = inside ? 0 : d->host_bytes / 2;
    d->flow_bytes = inside ? 0 : d->flow_bytes / 2;
    d->wire_hops = inside ? 0 : half_of(d->wire_hops);
    if (inside) d->hosts = 1;
}

/* Returns the transfer of an array of that price. Nothing is added or encoded where ranks of a host gather. */
static taciti_transfer transfer_of(const taciti_scene *scene, const taciti_method *method, int class,
                                   const taciti_price *price) {
    const bool inside = class == TACITI_PARTS_SHARE;
    taciti_demand d =
        taciti_allreduce_demand(scene->hosts, NULL, (size_t)scene->hosts->ranks, taciti_plan_placement(scene, method),
                                price->length.wire_bytes, price->length.f32_bytes);
    take_part(method, class, &d);
    return (taciti_transfer){.demand = d,
                             .hosts = d.hosts,
                             .ranks = inside ? d.lanes : scene->hosts->ranks,
                             .price = *price,
                             .codec = inside                         ? NULL
                                      : class == TACITI_PARTS_GATHER ? method->parts.gather
                                                                     : method->wire};
}

static taciti_transfer dense_transfer(const taciti_scene *scene, const taciti_method *method, int class,
                                      size_t floats) {
    const taciti_codec *wire = class == TACITI_PARTS_GATHER ? method->parts.gather : method->wire;
    const taciti_length length = {taciti_codec_length(wire, NULL, floats).max, floats * sizeof(float)};
    return transfer_of(scene, method, class, &(taciti_price){.length = length});
}

/* The same through the codec of this class. */
static tacit_status coded_transfer(const taciti_scene *scene, const taciti_method *method, int class, size_t floats,
                                   taciti_transfer *out) {
    const bool gather = class == TACITI_PARTS_GATHER;
    const taciti_plan_compression *c = gather ? &method->gather : &method->compression;
    taciti_price sum;
    TACITI_TRY(taciti_plan_price(scene, method, c, gather ? TACITI_PHASE_ALL_GATHER : taciti_plan_reduce_phase(method),
                                 floats, &sum));
    *out = transfer_of(scene, method, class, &sum);
    taciti_compressed_demand(&sum, &out->demand);
    out->codec = c->encoding.codec;
    out->compressed = true;
    return TACIT_OK;
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

typedef struct cut {
    size_t floats, buckets;
} cut;

/* The buckets of a unit's tensors that are plain, or of those that are not: none has tensors of both. */
static cut cut_of(const taciti_layout *layout, size_t unit, bool plain, size_t max) {
    cut c = {0, 0};
    size_t run = 0;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const taciti_tensor *tensor = &layout->tensors[t];
        const bool last = t + 1 == layout->tensor_count;
        if (tensor->unit != unit || tensor->plain != plain) continue;
        run += (last ? layout->n : tensor[1].offset) - tensor->offset;
        if (!last && tensor[1].unit == unit && tensor[1].plain == plain) continue;
        c.floats += run;
        c.buckets += (run + max - 1) / max;
        run = 0;
    }
    return c;
}

static int class_of(const taciti_parts_plan *plan, size_t job) {
    return (int)(job / (plan->job_count / TACITI_PARTS_CLASSES));
}

static tacit_status fill_job(const taciti_scene *scene, const taciti_method *method, size_t max, size_t job,
                             taciti_parts_plan *p) {
    const size_t units = p->job_count / TACITI_PARTS_CLASSES;
    const int class = class_of(p, job);
    const cut coded = cut_of(scene->layout, job % units, false, max);
    const cut plain = cut_of(scene->layout, job % units, true, max);
    taciti_transfer *transfers[TACITI_PARTS_FORMS];
    for (size_t form = 0; form < TACITI_PARTS_FORMS; form++) {
        transfers[form] = &p->transfers[form * p->job_count + job];
        p->buckets[form * p->job_count + job] = form == TACITI_PARTS_PLAIN ? plain.buckets : coded.buckets;
    }
    if (plain.buckets > 0)
        *transfers[TACITI_PARTS_PLAIN] = dense_transfer(scene, method, class, plain.floats / plain.buckets);
    if (coded.buckets == 0) return TACIT_OK;
    const size_t floats = coded.floats / coded.buckets;
    *transfers[TACITI_PARTS_AS_IT_IS] = dense_transfer(scene, method, class, floats);
    if (!p->compressed[class]) return TACIT_OK;
    return coded_transfer(scene, method, class, floats, transfers[TACITI_PARTS_CODED]);
}

tacit_status taciti_parts_create(const taciti_scene *scene, const taciti_method *method, double wait_s,
                                 taciti_parts_plan *out) {
    const taciti_layout *layout = scene->layout;
    int owners;
    *out = (taciti_parts_plan){0};
    out->compressed[TACITI_PARTS_GATHER] = method->gather.encoding.codec != NULL;
    out->adapts[TACITI_PARTS_GATHER] = method->gather.adapts;
    out->compressed[TACITI_PARTS_REDUCE] = method->compression.encoding.codec != NULL;
    out->adapts[TACITI_PARTS_REDUCE] = method->compression.adapts;
    for (size_t c = 0; c < TACITI_SCENARIOS; c++) out->spread[c] = 1;
    TACITI_TRY(taciti_parts_owners(scene, method, &owners));
    const double update_s = (scene->profile->update_s + method->serial_s) / owners + wait_s;
    out->job_count = TACITI_PARTS_CLASSES * (layout->tensors[layout->tensor_count - 1].unit + 1);
    out->transfers = taciti_calloc(TACITI_PARTS_FORMS * out->job_count, sizeof *out->transfers);
    out->buckets = taciti_calloc((TACITI_PARTS_FORMS + 1) * out->job_count, sizeof *out->buckets);
    out->transfer_s = taciti_calloc(out->job_count * TACITI_SCENARIOS, sizeof *out->transfer_s);
    const bool room = out->transfers != NULL && out->buckets != NULL && out->transfer_s != NULL;
    if (room) out->times = out->buckets + TACITI_PARTS_FORMS * out->job_count;
    tacit_status status = room ? taciti_parts_build_step(scene, method, update_s, out) : TACIT_E_MEMORY;
    for (size_t i = 0; i < out->op_count && status == TACIT_OK; i++)
        if (out->ops[i].kind == TACITI_PARTS_SUBMIT) out->times[out->ops[i].job]++;
    for (size_t job = 0; job < out->job_count && scene->hosts->ranks > 1 && status == TACIT_OK; job++)
        if (out->times[job] > 0) status = fill_job(scene, method, layout->bucket_max, job, out);
    if (status != TACIT_OK) taciti_parts_destroy(out);
    return status;
}

void taciti_parts_destroy(taciti_parts_plan *plan) {
    taciti_free(plan->ops);
    taciti_free(plan->transfers);
    taciti_free(plan->buckets);
    taciti_free(plan->transfer_s);
    *plan = (taciti_parts_plan){0};
}

/* Returns the time of all buckets of a job in this form. */
static taciti_transfer_time time_of_form(const taciti_parts_plan *plan, const taciti_links *links, size_t job,
                                         int form) {
    const size_t at = (size_t)form * plan->job_count + job;
    if (plan->transfers[at].ranks < 2) return (taciti_transfer_time){0};
    taciti_transfer_time time = taciti_links_time(links, &plan->transfers[at]);
    time.latency_s *= (double)plan->buckets[at];
    time.bytes_s *= (double)plan->buckets[at];
    return time;
}

static int form_of(bool coded) { return coded ? TACITI_PARTS_CODED : TACITI_PARTS_AS_IT_IS; }

/* Returns the time of all buckets of a job; plain ones do not spread. */
static taciti_transfer_time time_of(const taciti_parts_plan *plan, const taciti_links *links, size_t job, bool coded,
                                    double spread) {
    taciti_transfer_time time = time_of_form(plan, links, job, form_of(coded));
    const taciti_transfer_time plain = time_of_form(plan, links, job, TACITI_PARTS_PLAIN);
    const double own_s = time.latency_s + time.bytes_s, plain_s = plain.latency_s + plain.bytes_s;
    time.latency_s += plain.latency_s;
    time.bytes_s = spread * time.bytes_s + plain.bytes_s;
    if (plain_s > 0) time.error = (own_s * time.error + plain_s * plain.error) / (own_s + plain_s);
    if (plain_s > own_s) time.calibrated = plain.calibrated;
    return time;
}

static double class_s(const taciti_parts_plan *plan, const taciti_links *links, int class, bool coded) {
    double sum = 0;
    for (size_t job = 0; job < plan->job_count; job++) {
        if (class_of(plan, job) != class) continue;
        const taciti_transfer_time time = time_of(plan, links, job, coded, 1);
        sum += (double)plan->times[job] * (time.latency_s + time.bytes_s);
    }
    return sum;
}

/* A class that adapts is dense where that keeps the communication thread busy for less time (adapt/payoff.c). */
static void choose_forms(const taciti_parts_plan *plan, const taciti_links *links, bool coded[TACITI_PARTS_CLASSES]) {
    for (int c = 0; c < TACITI_PARTS_CLASSES; c++) {
        coded[c] = plan->compressed[c];
        if (plan->compressed[c] && plan->adapts[c])
            coded[c] = class_s(plan, links, c, true) < class_s(plan, links, c, false);
    }
}

void taciti_parts_time(taciti_parts_plan *plan, size_t scenario, const taciti_links *links, double latency,
                       double bytes) {
    bool coded[TACITI_PARTS_CLASSES];
    choose_forms(plan, links, coded);
    plan->codes_gathers[scenario] = coded[TACITI_PARTS_GATHER];
    for (size_t job = 0; job < plan->job_count; job++) {
        const int class = class_of(plan, job);
        const double spread = class == TACITI_PARTS_REDUCE && coded[class] ? plan->spread[scenario] : 1;
        const taciti_transfer_time time = time_of(plan, links, job, coded[class], spread);
        plan->transfer_s[job * TACITI_SCENARIOS + scenario] = latency * time.latency_s + bytes * time.bytes_s;
    }
}

void taciti_parts_doubts(const taciti_parts_plan *plan, const taciti_links *links, double *error, double *calibrated) {
    double sum = 0, doubtful = 0, known = 0;
    bool coded[TACITI_PARTS_CLASSES];
    choose_forms(plan, links, coded);
    for (size_t job = 0; job < plan->job_count; job++) {
        const taciti_transfer_time time = time_of(plan, links, job, coded[class_of(plan, job)], 1);
        const double seconds = (double)plan->times[job] * (time.latency_s + time.bytes_s);
        sum += seconds;
        doubtful += seconds * time.error;
        known += time.calibrated ? seconds : 0;
    }
    *error = sum > 0 ? doubtful / sum : 0;
    *calibrated = sum > 0 ? known / sum : 0;
}

uint64_t taciti_parts_key(const taciti_parts_plan *plan, uint64_t key) {
    for (size_t k = 0; k < plan->op_count; k++) {
        const taciti_parts_op *op = &plan->ops[k];
        const uint64_t numbers[] = {(uint64_t)op->kind, op->job, op->update, op->coded};
        key = XXH3_64bits_withSeed(numbers, sizeof numbers, key);
        key = XXH3_64bits_withSeed(&op->seconds, sizeof op->seconds, key);
    }
    key = XXH3_64bits_withSeed(plan->codes_gathers, sizeof plan->codes_gathers, key);
    return XXH3_64bits_withSeed(plan->transfer_s, plan->job_count * TACITI_SCENARIOS * sizeof *plan->transfer_s, key);
}

double taciti_parts_transfer_s(const taciti_parts_plan *plan, size_t scenario) {
    double sum = 0;
    for (size_t job = 0; job < plan->job_count; job++)
        sum += (double)plan->times[job] * plan->transfer_s[job * TACITI_SCENARIOS + scenario];
    return sum;
}

double taciti_parts_nic_bytes(const taciti_parts_plan *plan, const taciti_links *links) {
    bool coded[TACITI_PARTS_CLASSES];
    double sum = 0;
    choose_forms(plan, links, coded);
    for (size_t job = 0; job < plan->job_count; job++) {
        const size_t at = (size_t)form_of(coded[class_of(plan, job)]) * plan->job_count + job;
        const size_t plain = TACITI_PARTS_PLAIN * plan->job_count + job;
        sum += (double)plan->times[job] * ((double)plan->buckets[at] * plan->transfers[at].demand.host_bytes +
                                           (double)plan->buckets[plain] * plan->transfers[plain].demand.host_bytes);
    }
    return sum;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Ranks that begin a step at the same moment are in the order of their compute times all through it, as all of them do
 * the same: who is there is seen from the fastest and the slowest, and all of them end together if these two do. */
typedef struct state {
    const taciti_parts_plan *plan;
    const taciti_recursion *r;
    size_t scenario;
    size_t count;   /* simulated ranks: all, or the fastest and the slowest */
    double *at;     /* [count] */
    double *factor; /* [count] of this step */
    double *end;    /* [jobs] */
    double free_s;  /* end of the last transfer */
} state;

static bool is_skipped(const state *s, const taciti_parts_op *op) {
    return op->coded && !s->plan->codes_gathers[s->scenario];
}

static double seconds_of(const taciti_parts_op *op, double factor) {
    return op->update ? op->seconds : op->seconds * factor;
}

static void run_op(state *s, const taciti_parts_op *op) {
    if (is_skipped(s, op)) return;
    if (op->kind == TACITI_PARTS_SUBMIT) {
        for (size_t i = 0; i < s->count; i++) s->free_s = s->at[i] > s->free_s ? s->at[i] : s->free_s;
        s->free_s += s->plan->transfer_s[op->job * TACITI_SCENARIOS + s->scenario];
        s->end[op->job] = s->free_s;
        return;
    }
    for (size_t i = 0; i < s->count; i++)
        if (op->kind == TACITI_PARTS_COMPUTE)
            s->at[i] += seconds_of(op, s->factor[i]);
        else if (s->end[op->job] > s->at[i])
            s->at[i] = s->end[op->job];
}

/* Sets out[ranks] to the factors of a step. */
static void draw_factors(const taciti_recursion *r, bool even, size_t step, double *out) {
    if (r->cv > 0 && !even) taciti_draws_of(r->draws, r->seed, r->cv, r->ranks, step, out);
    for (int i = 0; i < r->ranks; i++) {
        const double slow = r->slow == NULL ? 1 : r->slow[i];
        out[i] = even ? 1 : r->cv > 0 ? slow * out[i] : slow;
    }
}

/* Leaves the minimum and the maximum of them in the first two. */
static void keep_extremes(double *factor, int ranks) {
    double min = factor[0], max = factor[0];
    for (int i = 1; i < ranks; i++) {
        min = factor[i] < min ? factor[i] : min;
        max = factor[i] > max ? factor[i] : max;
    }
    factor[0] = min;
    factor[1] = max;
}

/* False: of two ranks that stand for all, one ended a step before the other. */
static bool run_steps(state *s, size_t first, size_t end) {
    const bool all = s->count == (size_t)s->r->ranks;
    for (size_t t = first; t < end; t++) {
        draw_factors(s->r, s->r->even[s->scenario], t, s->factor);
        if (!all) keep_extremes(s->factor, s->r->ranks);
        for (size_t k = 0; k < s->plan->op_count; k++) run_op(s, &s->plan->ops[k]);
        if (!all && s->at[0] != s->at[1]) return false;
        s->r->draws->events += s->count * s->plan->op_count;
    }
    return true;
}

static double mean_end(const state *s) {
    double sum = 0;
    for (int i = 0; i < s->r->ranks; i++) sum += s->at[s->count == (size_t)s->r->ranks ? i : 0];
    return sum / s->r->ranks;
}

static size_t steps_of(const taciti_recursion *r) { return r->cv > 0 ? r->steps : EVEN_STEPS; }

/* Mean of a rank and step. factor[ranks]: workspace. */
static double compute_s(const state *s) {
    const taciti_recursion *r = s->r;
    double sum = 0;
    for (size_t t = WARM_UP_STEPS; t < WARM_UP_STEPS + steps_of(r); t++) {
        draw_factors(r, r->even[s->scenario], t, s->factor);
        for (size_t k = 0; k < s->plan->op_count; k++) {
            const taciti_parts_op *op = &s->plan->ops[k];
            if (op->kind != TACITI_PARTS_COMPUTE || is_skipped(s, op)) continue;
            for (int i = 0; i < r->ranks; i++) sum += seconds_of(op, s->factor[i]);
        }
    }
    return sum / (double)steps_of(r) / r->ranks;
}

tacit_status taciti_parts_run(const taciti_parts_plan *plan, const taciti_recursion *r, taciti_recursion_times *out) {
    const size_t ranks = (size_t)r->ranks, doubles = 2 * ranks + plan->job_count, steps = steps_of(r);
    double *block = taciti_calloc(doubles, sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    state s = {.plan = plan, .r = r, .at = block, .factor = block + ranks, .end = block + 2 * ranks};
    for (s.scenario = 0; s.scenario < TACITI_SCENARIOS; s.scenario++) {
        bool done = false;
        for (s.count = ranks > 2 ? 2 : ranks; !done; s.count = ranks) {
            memset(block, 0, doubles * sizeof *block);
            s.free_s = 0;
            done = run_steps(&s, 0, WARM_UP_STEPS);
            const double begin = mean_end(&s);
            done = done && run_steps(&s, WARM_UP_STEPS, WARM_UP_STEPS + steps);
            if (done) out[s.scenario].step_s = (mean_end(&s) - begin) / (double)steps;
        }
        out[s.scenario].compute_s = s.scenario == 0 ? compute_s(&s) : out[0].compute_s;
    }
    taciti_free(block);
    return TACIT_OK;
}
