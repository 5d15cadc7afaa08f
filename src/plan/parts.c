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

static tacit_status fill_job(const taciti_scene *scene, const taciti_method *method, size_t max, size_t index,
                             taciti_parts_plan *p) {
    const size_t units = p->job_count / TACITI_PARTS_CLASSES;
    const int class = class_of(p, index);
    const cut coded = cut_of(scene->layout, index % units, false, max);
    const cut plain = cut_of(scene->layout, index % units, true, max);
    taciti_parts_job *job = &p->jobs[index];
    job->buckets = coded.buckets;
    job->plain_buckets = plain.buckets;
    if (plain.buckets > 0) job->plain = dense_transfer(scene, method, class, plain.floats / plain.buckets);
    if (coded.buckets == 0) return TACIT_OK;
    const size_t floats = coded.floats / coded.buckets;
    job->dense = dense_transfer(scene, method, class, floats);
    return p->compressed[class] ? coded_transfer(scene, method, class, floats, &job->coded) : TACIT_OK;
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
    out->jobs = taciti_calloc(out->job_count, sizeof *out->jobs);
    tacit_status status = out->jobs == NULL ? TACIT_E_MEMORY : taciti_parts_build_step(scene, method, update_s, out);
    for (size_t i = 0; i < out->op_count && status == TACIT_OK; i++)
        if (out->ops[i].kind == TACITI_PARTS_SUBMIT) out->jobs[out->ops[i].job].times++;
    for (size_t i = 0; i < out->job_count && scene->hosts->ranks > 1 && status == TACIT_OK; i++)
        if (out->jobs[i].times > 0) status = fill_job(scene, method, layout->bucket_max, i, out);
    if (status != TACIT_OK) taciti_parts_destroy(out);
    return status;
}

void taciti_parts_destroy(taciti_parts_plan *plan) {
    taciti_free(plan->ops);
    taciti_free(plan->jobs);
    *plan = (taciti_parts_plan){0};
}

/* Returns the time of that many transfers. */
static taciti_transfer_time time_of_buckets(const taciti_links *links, const taciti_transfer *one, size_t buckets) {
    if (one->ranks < 2) return (taciti_transfer_time){0};
    taciti_transfer_time time = taciti_links_time(links, one);
    time.latency_s *= (double)buckets;
    time.bytes_s *= (double)buckets;
    return time;
}

static const taciti_transfer *form_of(const taciti_parts_job *job, bool coded) {
    return coded ? &job->coded : &job->dense;
}

/* Returns the time of all buckets of a job; plain ones do not spread. */
static taciti_transfer_time time_of(const taciti_links *links, const taciti_parts_job *job, bool coded, double spread) {
    taciti_transfer_time time = time_of_buckets(links, form_of(job, coded), job->buckets);
    const taciti_transfer_time plain = time_of_buckets(links, &job->plain, job->plain_buckets);
    const double own_s = time.latency_s + time.bytes_s, plain_s = plain.latency_s + plain.bytes_s;
    time.latency_s += plain.latency_s;
    time.bytes_s = spread * time.bytes_s + plain.bytes_s;
    if (plain_s > 0) time.error = (own_s * time.error + plain_s * plain.error) / (own_s + plain_s);
    if (plain_s > own_s) time.calibrated = plain.calibrated;
    return time;
}

static double class_s(const taciti_parts_plan *plan, const taciti_links *links, int class, bool coded) {
    double sum = 0;
    for (size_t i = 0; i < plan->job_count; i++) {
        if (class_of(plan, i) != class) continue;
        const taciti_transfer_time time = time_of(links, &plan->jobs[i], coded, 1);
        sum += (double)plan->jobs[i].times * (time.latency_s + time.bytes_s);
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
    for (size_t i = 0; i < plan->job_count; i++) {
        const int class = class_of(plan, i);
        const double spread = class == TACITI_PARTS_REDUCE && coded[class] ? plan->spread[scenario] : 1;
        const taciti_transfer_time time = time_of(links, &plan->jobs[i], coded[class], spread);
        plan->jobs[i].transfer_s[scenario] = latency * time.latency_s + bytes * time.bytes_s;
    }
}

void taciti_parts_doubts(const taciti_parts_plan *plan, const taciti_links *links, double *error, double *calibrated) {
    double sum = 0, doubtful = 0, known = 0;
    bool coded[TACITI_PARTS_CLASSES];
    choose_forms(plan, links, coded);
    for (size_t i = 0; i < plan->job_count; i++) {
        const taciti_transfer_time time = time_of(links, &plan->jobs[i], coded[class_of(plan, i)], 1);
        const double seconds = (double)plan->jobs[i].times * (time.latency_s + time.bytes_s);
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
    for (size_t i = 0; i < plan->job_count; i++)
        key = XXH3_64bits_withSeed(plan->jobs[i].transfer_s, sizeof plan->jobs[i].transfer_s, key);
    return XXH3_64bits_withSeed(plan->codes_gathers, sizeof plan->codes_gathers, key);
}

double taciti_parts_transfer_s(const taciti_parts_plan *plan, size_t scenario) {
    double sum = 0;
    for (const taciti_parts_job *job = plan->jobs; job < plan->jobs + plan->job_count; job++)
        sum += (double)job->times * job->transfer_s[scenario];
    return sum;
}

double taciti_parts_nic_bytes(const taciti_parts_plan *plan, const taciti_links *links) {
    bool coded[TACITI_PARTS_CLASSES];
    double sum = 0;
    choose_forms(plan, links, coded);
    for (size_t i = 0; i < plan->job_count; i++) {
        const taciti_parts_job *job = &plan->jobs[i];
        const double bytes = form_of(job, coded[class_of(plan, i)])->demand.host_bytes;
        sum += (double)job->times *
               ((double)job->buckets * bytes + (double)job->plain_buckets * job->plain.demand.host_bytes);
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
        s->free_s += s->plan->jobs[op->job].transfer_s[s->scenario];
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
