/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/parts.h"

#include <string.h>

#include "base/memory.h"
#include "model/emulated.h"

#define NONE SIZE_MAX

enum { WARM_UP_STEPS = 4, EVEN_STEPS = 4 };

/* ---- a step as the network and the strategy make it -------------------------------------------------------------- */

typedef enum unit_state { ABSENT, GATHERING, PRESENT } unit_state;

typedef struct unit_use {
    unit_state state;
    int users;
    bool writable, begun;
} unit_use;

typedef struct builder {
    const taciti_scene *scene;
    const taciti_method *method;
    taciti_parts_plan *out;
    size_t units, first_unit; /* first_unit: of the first layer with tensors, the last in layout order */
    unit_use *state;          /* [units] */
    size_t *order;            /* [order_count] of the units that a step needs */
    size_t order_count, order_room, position;
    bool recorded, failed;
    double update_s;
} builder;

static void *with_room(builder *b, void *list, size_t count, size_t *room, size_t size) {
    if (count < *room) return list;
    void *more = taciti_calloc(2 * *room + 64, size);
    b->failed = b->failed || more == NULL;
    if (more == NULL) return list;
    if (count > 0) memcpy(more, list, count * size);
    taciti_free(list);
    *room = 2 * *room + 64;
    return more;
}

static void append(builder *b, taciti_parts_op op) {
    taciti_parts_plan *p = b->out;
    p->ops = with_room(b, p->ops, p->op_count, &p->op_room, sizeof *p->ops);
    if (!b->failed) p->ops[p->op_count++] = op;
}

static void submit(builder *b, int class, size_t unit) {
    append(b, (taciti_parts_op){.kind = TACITI_PARTS_SUBMIT, .job = (size_t) class * b->units + unit});
}

static void await(builder *b, int class, size_t unit) {
    append(b, (taciti_parts_op){.kind = TACITI_PARTS_WAIT, .job = (size_t) class * b->units + unit});
}

static void begin_gather(builder *b, size_t unit) {
    if (b->state[unit].state != ABSENT) return;
    b->state[unit].state = GATHERING;
    submit(b, TACITI_PARTS_GATHER, unit);
}

static void prefetch(builder *b) {
    if (b->recorded && b->position < b->order_count) begin_gather(b, b->order[b->position]);
}

static void follow(builder *b, size_t unit) {
    size_t i = 0;
    while (i < b->order_count && b->order[(b->position + i) % b->order_count] != unit) i++;
    b->position = (b->position + i) % b->order_count + 1;
}

static void need(builder *b, size_t unit) {
    if (unit == NONE || b->state[unit].users++ > 0) return;
    if (b->recorded) follow(b, unit);
    if (!b->recorded) {
        b->order = with_room(b, b->order, b->order_count, &b->order_room, sizeof *b->order);
        if (!b->failed) b->order[b->order_count++] = unit;
    }
    begin_gather(b, unit);
    prefetch(b);
    if (b->state[unit].state == GATHERING) await(b, TACITI_PARTS_GATHER, unit);
    b->state[unit].state = PRESENT;
}

static void release(builder *b, size_t unit) {
    if (unit == NONE || --b->state[unit].users > 0 || b->method->parts.passes < 2) return;
    b->state[unit].state = ABSENT;
    prefetch(b);
}

/* At most one sum stays under way. */
static void write(builder *b, size_t unit) {
    size_t newest = NONE;
    if (unit == NONE || b->state[unit].writable) return;
    for (size_t u = 0; u < b->units; u++)
        if (b->state[u].writable && b->state[u].begun) newest = u;
    for (size_t u = 0; u < b->units && b->method->parts.gradients; u++) {
        if (u == newest || !b->state[u].writable || !b->state[u].begun) continue;
        await(b, TACITI_PARTS_REDUCE, u);
        b->state[u].writable = false;
    }
    b->state[unit].writable = true;
}

static void compute(builder *b, double seconds) {
    append(b, (taciti_parts_op){.kind = TACITI_PARTS_COMPUTE, .seconds = seconds});
}

static void ready(builder *b, size_t unit) {
    if (unit == NONE || !b->method->overlap) return;
    b->state[unit].begun = true;
    submit(b, TACITI_PARTS_REDUCE, unit);
}

static size_t tied_unit(const builder *b, size_t layer, size_t unit) {
    return b->scene->profile->layers[layer].tied && unit != b->first_unit ? b->first_unit : NONE;
}

/* As the step of emulated compute (model/emulated.h). */
static void pass_units(builder *b) {
    const taciti_profile *p = b->scene->profile;
    size_t unit = b->units, at = 0;
    for (size_t l = 0; l < p->layer_count; l++) {
        const size_t own = p->layers[l].tensor_count > 0 ? --unit : NONE, tied = tied_unit(b, l, own);
        need(b, own);
        need(b, tied);
        compute(b, p->layers[l].forward_s);
        if (l + 1 == p->layer_count) break;
        release(b, tied);
        release(b, own);
    }
    for (size_t l = p->layer_count; l-- > 0;) {
        const bool held = l + 1 == p->layer_count;
        const size_t own = p->layers[l].tensor_count > 0 ? at++ : NONE, tied = tied_unit(b, l, own);
        const size_t read = held || own != b->first_unit ? own : NONE;
        if (!held) need(b, read);
        if (!held) need(b, tied);
        write(b, own);
        write(b, tied);
        compute(b, p->layers[l].backward_s);
        release(b, tied);
        release(b, read);
        ready(b, own);
    }
}

static void finish(builder *b) {
    for (size_t u = 0; u < b->units; u++)
        if (!b->state[u].begun) submit(b, TACITI_PARTS_REDUCE, u);
    for (size_t u = 0; u < b->units; u++) await(b, TACITI_PARTS_REDUCE, u);
    append(b, (taciti_parts_op){.kind = TACITI_PARTS_COMPUTE, .seconds = b->update_s, .update = true});
    memset(b->state, 0, b->units * sizeof *b->state);
    b->recorded = true;
    b->position = 0;
    prefetch(b);
}

/* The first step records the order; every other one is like the second. */
static tacit_status build_steps(builder *b) {
    b->state = taciti_calloc(b->units, sizeof *b->state);
    b->failed = b->state == NULL;
    for (int step = 0; step < 2 && !b->failed; step++) {
        b->out->op_count = 0;
        pass_units(b);
        if (!b->failed) finish(b);
    }
    taciti_free(b->state);
    taciti_free(b->order);
    return b->failed ? TACIT_E_MEMORY : TACIT_OK;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static size_t largest_bucket(const taciti_layout *layout) {
    size_t n = 1;
    for (size_t k = 0; k < layout->bucket_count; k++) n = layout->buckets[k].n > n ? layout->buckets[k].n : n;
    return n;
}

static int half(int hops) { return (hops + 1) / 2; }

/* Half of an all-reduce of n floats among all ranks, each with all. */
static taciti_transfer half_of(const taciti_scene *scene, const taciti_codec *wire, size_t n) {
    const taciti_placement flat = {.scheme = TACITI_SCHEME_FLAT};
    const size_t wire_bytes = wire->bound(NULL, n), f32_bytes = n * sizeof(float);
    taciti_demand d =
        taciti_allreduce_demand(scene->hosts, NULL, (size_t)scene->hosts->ranks, flat, wire_bytes, f32_bytes);
    d.host_bytes /= 2;
    d.flow_bytes /= 2;
    d.local_bytes /= 2;
    d.wire_hops = half(d.wire_hops);
    d.local_hops = half(d.local_hops);
    return (taciti_transfer){.demand = d,
                             .hosts = d.hosts,
                             .ranks = scene->hosts->ranks,
                             .f32_bytes = f32_bytes,
                             .codec = wire,
                             .wire_bytes = wire_bytes};
}

static void fill_jobs(const builder *b) {
    taciti_parts_plan *p = b->out;
    const size_t max = largest_bucket(b->scene->layout);
    for (size_t job = 0; job < p->job_count; job++) {
        const bool gather = job < b->units;
        const size_t n = taciti_layout_unit(b->scene->layout, job % b->units).n;
        p->buckets[job] = (n + max - 1) / max;
        if (p->buckets[job] == 0 || b->scene->hosts->ranks == 1) continue;
        p->transfers[job] = half_of(b->scene, gather ? b->method->parts.gather : b->method->wire, n / p->buckets[job]);
    }
    for (size_t i = 0; i < p->op_count; i++)
        if (p->ops[i].kind == TACITI_PARTS_SUBMIT) p->times[p->ops[i].job]++;
    for (size_t job = 0; job < p->job_count; job++)
        p->nic_bytes += (double)(p->times[job] * p->buckets[job]) * p->transfers[job].demand.host_bytes;
}

tacit_status taciti_parts_create(const taciti_scene *scene, const taciti_method *method, double wait_s,
                                 taciti_parts_plan *out) {
    const taciti_layout *layout = scene->layout;
    *out = (taciti_parts_plan){0};
    builder b = {.scene = scene, .method = method, .out = out};
    b.first_unit = layout->tensors[layout->tensor_count - 1].unit;
    b.units = b.first_unit + 1;
    b.update_s = (scene->profile->update_s + method->serial_s) / scene->hosts->ranks + wait_s;
    out->job_count = TACITI_PARTS_CLASSES * b.units;
    out->transfers = taciti_calloc(out->job_count, sizeof *out->transfers);
    out->buckets = taciti_calloc(2 * out->job_count, sizeof *out->buckets);
    out->transfer_s = taciti_calloc(out->job_count * TACITI_SCENARIOS, sizeof *out->transfer_s);
    const bool room = out->transfers != NULL && out->buckets != NULL && out->transfer_s != NULL;
    const tacit_status status = room ? build_steps(&b) : TACIT_E_MEMORY;
    if (status != TACIT_OK) {
        taciti_parts_destroy(out);
        return status;
    }
    out->times = out->buckets + out->job_count;
    fill_jobs(&b);
    return TACIT_OK;
}

void taciti_parts_destroy(taciti_parts_plan *plan) {
    taciti_free(plan->ops);
    taciti_free(plan->transfers);
    taciti_free(plan->buckets);
    taciti_free(plan->transfer_s);
    *plan = (taciti_parts_plan){0};
}

static taciti_transfer_time time_of(const taciti_parts_plan *plan, const taciti_links *links, size_t job) {
    const taciti_transfer *t = &plan->transfers[job];
    if (t->ranks < 2) return (taciti_transfer_time){0};
    taciti_transfer_time time = taciti_links_time(links, t);
    time.latency_s *= (double)plan->buckets[job];
    time.bytes_s *= (double)plan->buckets[job];
    return time;
}

void taciti_parts_time(taciti_parts_plan *plan, size_t scenario, const taciti_links *links, double latency,
                       double bytes) {
    for (size_t job = 0; job < plan->job_count; job++) {
        const taciti_transfer_time time = time_of(plan, links, job);
        plan->transfer_s[job * TACITI_SCENARIOS + scenario] = latency * time.latency_s + bytes * time.bytes_s;
    }
}

void taciti_parts_doubts(const taciti_parts_plan *plan, const taciti_links *links, double *error, double *calibrated) {
    double sum = 0, doubtful = 0, known = 0;
    for (size_t job = 0; job < plan->job_count; job++) {
        const taciti_transfer_time time = time_of(plan, links, job);
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
