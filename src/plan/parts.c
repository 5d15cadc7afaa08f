/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/parts.h"

#include <string.h>

#include "base/memory.h"
#include "model/emulated.h"
#include "plan/compressed.h"
#include "plan/parts_step.h"

enum { WARM_UP_STEPS = 4, EVEN_STEPS = 4 };

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static size_t largest_bucket(const taciti_layout *layout) {
    size_t n = 1;
    for (size_t k = 0; k < layout->bucket_count; k++) n = layout->buckets[k].n > n ? layout->buckets[k].n : n;
    return n;
}

static int half(int hops) { return (hops + 1) / 2; }

/* Half of an all-reduce of that length among all ranks. */
static taciti_transfer half_of(const taciti_scene *scene, const taciti_method *method, const taciti_codec *codec,
                               taciti_length length) {
    taciti_demand d =
        taciti_allreduce_demand(scene->hosts, NULL, (size_t)scene->hosts->ranks, taciti_plan_placement(scene, method),
                                length.wire_bytes, length.f32_bytes);
    d.host_bytes /= 2;
    d.flow_bytes /= 2;
    d.local_bytes /= 2;
    d.wire_hops = half(d.wire_hops);
    d.local_hops = half(d.local_hops);
    return (taciti_transfer){.demand = d,
                             .hosts = d.hosts,
                             .ranks = scene->hosts->ranks,
                             .f32_bytes = length.f32_bytes,
                             .codec = codec,
                             .wire_bytes = length.wire_bytes};
}

/* The same through the codec of this class. */
static tacit_status coded_half(const taciti_scene *scene, const taciti_method *method, bool gather, size_t n,
                               taciti_transfer *out) {
    const taciti_codec *codec = gather ? method->gather.codec : method->compression.codec;
    taciti_compressed_sum sum;
    TACITI_TRY(taciti_compressed_half_of(scene, method, gather ? TACITI_PLAN_ALL_GATHER : TACITI_PLAN_REDUCE_SCATTER, n,
                                         &sum));
    *out = half_of(scene, method, codec, sum.length);
    taciti_compressed_demand(&sum, &out->demand);
    out->compressed = true;
    out->codec_s = sum.codec_s;
    out->fillings = sum.fillings;
    out->messages = sum.messages;
    return TACIT_OK;
}

static tacit_status fill_jobs(const taciti_scene *scene, const taciti_method *method, taciti_parts_plan *p) {
    const size_t max = largest_bucket(scene->layout), units = p->job_count / TACITI_PARTS_CLASSES;
    for (size_t job = 0; job < p->job_count; job++) {
        const bool gather = job < units;
        const size_t n = taciti_layout_unit(scene->layout, job % units).n;
        p->buckets[job] = (n + max - 1) / max;
        if (p->buckets[job] == 0 || scene->hosts->ranks == 1) continue;
        const size_t floats = n / p->buckets[job];
        const taciti_codec *wire = gather ? method->parts.gather : method->wire;
        p->transfers[job] =
            half_of(scene, method, wire, (taciti_length){wire->bound(NULL, floats), floats * sizeof(float)});
        if (p->compressed[gather ? TACITI_PARTS_GATHER : TACITI_PARTS_REDUCE])
            TACITI_TRY(coded_half(scene, method, gather, floats, &p->transfers[p->job_count + job]));
    }
    for (size_t i = 0; i < p->op_count; i++)
        if (p->ops[i].kind == TACITI_PARTS_SUBMIT) p->times[p->ops[i].job]++;
    return TACIT_OK;
}

static void set_classes(const taciti_method *method, taciti_parts_plan *p) {
    p->compressed[TACITI_PARTS_GATHER] = method->gather.codec != NULL;
    p->adapts[TACITI_PARTS_GATHER] = method->gather.adapts;
    p->compressed[TACITI_PARTS_REDUCE] = method->compression.codec != NULL;
    p->adapts[TACITI_PARTS_REDUCE] = method->compression.adapts;
    for (size_t c = 0; c < TACITI_SCENARIOS; c++) p->spread[c] = 1;
}

tacit_status taciti_parts_create(const taciti_scene *scene, const taciti_method *method, double wait_s,
                                 taciti_parts_plan *out) {
    const taciti_layout *layout = scene->layout;
    *out = (taciti_parts_plan){0};
    set_classes(method, out);
    const double update_s = (scene->profile->update_s + method->serial_s) / scene->hosts->ranks + wait_s;
    out->job_count = TACITI_PARTS_CLASSES * (layout->tensors[layout->tensor_count - 1].unit + 1);
    out->transfers = taciti_calloc(2 * out->job_count, sizeof *out->transfers);
    out->buckets = taciti_calloc(2 * out->job_count, sizeof *out->buckets);
    out->transfer_s = taciti_calloc(out->job_count * TACITI_SCENARIOS, sizeof *out->transfer_s);
    const bool room = out->transfers != NULL && out->buckets != NULL && out->transfer_s != NULL;
    if (room) out->times = out->buckets + out->job_count;
    tacit_status status = room ? taciti_parts_build_step(scene, method, update_s, out) : TACIT_E_MEMORY;
    if (status == TACIT_OK) status = fill_jobs(scene, method, out);
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

/* Of all buckets of a job. */
static taciti_transfer_time time_of(const taciti_parts_plan *plan, const taciti_links *links, size_t job, bool coded) {
    const taciti_transfer *t = &plan->transfers[job + (coded ? plan->job_count : 0)];
    if (t->ranks < 2) return (taciti_transfer_time){0};
    taciti_transfer_time time = taciti_links_time(links, t);
    time.latency_s *= (double)plan->buckets[job];
    time.bytes_s *= (double)plan->buckets[job];
    return time;
}

static int class_of(const taciti_parts_plan *plan, size_t job) {
    return (int)(job / (plan->job_count / TACITI_PARTS_CLASSES));
}

static double class_s(const taciti_parts_plan *plan, const taciti_links *links, int class, bool coded) {
    double sum = 0;
    for (size_t job = 0; job < plan->job_count; job++) {
        if (class_of(plan, job) != class) continue;
        const taciti_transfer_time time = time_of(plan, links, job, coded);
        sum += (double)plan->times[job] * (time.latency_s + time.bytes_s);
    }
    return sum;
}

/* What adapts is dense where that keeps the communication thread busy for less time (adapt/payoff.c). */
static void choose(const taciti_parts_plan *plan, const taciti_links *links, bool coded[TACITI_PARTS_CLASSES]) {
    for (int c = 0; c < TACITI_PARTS_CLASSES; c++) {
        coded[c] = plan->compressed[c];
        if (plan->compressed[c] && plan->adapts[c])
            coded[c] = class_s(plan, links, c, true) < class_s(plan, links, c, false);
    }
}

void taciti_parts_time(taciti_parts_plan *plan, size_t scenario, const taciti_links *links, double latency,
                       double bytes) {
    bool coded[TACITI_PARTS_CLASSES];
    choose(plan, links, coded);
    plan->codes_gathers[scenario] = coded[TACITI_PARTS_GATHER];
    for (size_t job = 0; job < plan->job_count; job++) {
        const int class = class_of(plan, job);
        const double spread = class == TACITI_PARTS_REDUCE && coded[class] ? plan->spread[scenario] : 1;
        const taciti_transfer_time time = time_of(plan, links, job, coded[class]);
        plan->transfer_s[job * TACITI_SCENARIOS + scenario] = latency * time.latency_s + spread * bytes * time.bytes_s;
    }
}

void taciti_parts_doubts(const taciti_parts_plan *plan, const taciti_links *links, double *error, double *calibrated) {
    double sum = 0, doubtful = 0, known = 0;
    bool coded[TACITI_PARTS_CLASSES];
    choose(plan, links, coded);
    for (size_t job = 0; job < plan->job_count; job++) {
        const taciti_transfer_time time = time_of(plan, links, job, coded[class_of(plan, job)]);
        const double seconds = (double)plan->times[job] * (time.latency_s + time.bytes_s);
        sum += seconds;
        doubtful += seconds * time.error;
        known += time.calibrated ? seconds : 0;
    }
    *error = sum > 0 ? doubtful / sum : 0;
    *calibrated = sum > 0 ? known / sum : 0;
}

double taciti_parts_transfer_s(const taciti_parts_plan *plan) {
    double sum = 0;
    for (size_t job = 0; job < plan->job_count; job++)
        sum += (double)plan->times[job] * plan->transfer_s[job * TACITI_SCENARIOS];
    return sum;
}

double taciti_parts_nic_bytes(const taciti_parts_plan *plan, const taciti_links *links) {
    bool coded[TACITI_PARTS_CLASSES];
    double sum = 0;
    choose(plan, links, coded);
    for (size_t job = 0; job < plan->job_count; job++) {
        const size_t at = job + (coded[class_of(plan, job)] ? plan->job_count : 0);
        sum += (double)(plan->times[job] * plan->buckets[job]) * plan->transfers[at].demand.host_bytes;
    }
    return sum;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef struct state {
    const taciti_parts_plan *plan;
    const taciti_recursion *r;
    size_t scenario;
    double *at;     /* [ranks] */
    double *factor; /* [ranks] of this step */
    double *end;    /* [jobs] */
    double free_s;  /* end of the last transfer */
    double compute_s;
} state;

static double latest(const state *s) {
    double max = 0;
    for (int i = 0; i < s->r->ranks; i++) max = s->at[i] > max ? s->at[i] : max;
    return max;
}

static double mean(const state *s) {
    double sum = 0;
    for (int i = 0; i < s->r->ranks; i++) sum += s->at[i];
    return sum / s->r->ranks;
}

static void run_op(state *s, const taciti_parts_op *op) {
    if (op->coded && !s->plan->codes_gathers[s->scenario]) return;
    if (op->kind == TACITI_PARTS_SUBMIT) {
        const double now = latest(s);
        s->free_s = (now > s->free_s ? now : s->free_s) + s->plan->transfer_s[op->job * TACITI_SCENARIOS + s->scenario];
        s->end[op->job] = s->free_s;
        return;
    }
    for (int i = 0; i < s->r->ranks; i++) {
        const double seconds = op->update ? op->seconds : op->seconds * s->factor[i];
        if (op->kind == TACITI_PARTS_WAIT && s->end[op->job] > s->at[i]) s->at[i] = s->end[op->job];
        if (op->kind != TACITI_PARTS_COMPUTE) continue;
        s->at[i] += seconds;
        s->compute_s += seconds;
    }
}

static void run_steps(state *s, size_t first, size_t end) {
    const taciti_recursion *r = s->r;
    for (size_t t = first; t < end; t++) {
        for (int i = 0; i < r->ranks; i++) {
            const double slow = r->slow == NULL ? 1 : r->slow[i];
            s->factor[i] = r->cv > 0 ? slow * taciti_compute_deviation(r->seed, r->cv, i, (int64_t)t) : slow;
            if (r->even[s->scenario]) s->factor[i] = 1;
        }
        for (size_t k = 0; k < s->plan->op_count; k++) run_op(s, &s->plan->ops[k]);
    }
}

static taciti_recursion_times simulate(state *s) {
    const size_t steps = s->r->cv > 0 ? s->r->steps : EVEN_STEPS;
    run_steps(s, 0, WARM_UP_STEPS);
    const double begin = mean(s);
    s->compute_s = 0;
    run_steps(s, WARM_UP_STEPS, WARM_UP_STEPS + steps);
    return (taciti_recursion_times){.step_s = (mean(s) - begin) / (double)steps,
                                    .compute_s = s->compute_s / (double)steps / s->r->ranks};
}

tacit_status taciti_parts_run(const taciti_parts_plan *plan, const taciti_recursion *r, taciti_recursion_times *out) {
    const size_t ranks = (size_t)r->ranks, doubles = 2 * ranks + plan->job_count;
    double *block = taciti_calloc(doubles, sizeof *block);
    if (block == NULL) return TACIT_E_MEMORY;
    for (size_t c = 0; c < r->scenarios; c++) {
        memset(block, 0, doubles * sizeof *block);
        state s = {.plan = plan, .r = r, .scenario = c, .at = block, .factor = block + ranks, .end = block + 2 * ranks};
        out[c] = simulate(&s);
    }
    taciti_free(block);
    return TACIT_OK;
}
