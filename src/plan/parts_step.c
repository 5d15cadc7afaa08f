/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/parts.h"

#include <string.h>

#include "base/memory.h"
#include "plan/compressed.h"

#define NONE SIZE_MAX

typedef enum unit_state { ABSENT, GATHERING, PRESENT } unit_state;

typedef struct unit_use {
    unit_state state;
    int users, gather;            /* gather: class of the last one */
    bool shared, writable, begun; /* shared: the ranks of a host have it between them */
} unit_use;

typedef struct builder {
    const taciti_scene *scene;
    const taciti_method *method;
    taciti_parts_plan *out;
    size_t units, first_unit; /* first_unit: of the first layer with tensors, the last in layout order */
    unit_use *state;          /* [units] */
    size_t *order;            /* [order_count] the units that a step needs, in this order */
    size_t order_count, position;
    bool recorded, failed;
    double update_s, pass_s; /* pass_s: of a float */
    int owners;              /* ranks that have a part of their own */
} builder;

static void append_op(builder *b, taciti_parts_op op) {
    taciti_parts_plan *p = b->out;
    taciti_parts_op *ops = b->failed ? NULL : taciti_with_room(p->ops, p->op_count, sizeof *ops);
    b->failed = ops == NULL;
    if (b->failed) return;
    p->ops = ops;
    ops[p->op_count++] = op;
}

static void append_transfer(builder *b, taciti_parts_kind kind, int class, size_t unit) {
    append_op(b, (taciti_parts_op){.kind = kind, .job = (size_t) class * b->units + unit});
}

/* Passes over floats on the threads that compute, beside compressed gathers. */
static void pass_over(builder *b, double passes, double floats) {
    if (b->method->gather.encoding.codec == NULL || !(b->pass_s > 0)) return;
    append_op(b,
              (taciti_parts_op){
                  .kind = TACITI_PARTS_COMPUTE, .seconds = passes * floats * b->pass_s, .update = true, .coded = true});
}

static bool sends_changes(const builder *b) { return b->method->parts.passes < 2; }

static double floats_of(const builder *b, size_t unit) { return (double)taciti_layout_unit(b->scene->layout, unit).n; }

/* A rank copies its part to where it is sent from, and subtracts what all ranks have if changes are sent. A share is
 * there already. */
static void begin_gather(builder *b, size_t unit) {
    unit_use *use = &b->state[unit];
    if (use->state != ABSENT) return;
    use->state = GATHERING;
    use->gather = b->method->parts.replicas || use->shared ? TACITI_PARTS_SHARE : TACITI_PARTS_GATHER;
    if (use->gather == TACITI_PARTS_GATHER) pass_over(b, sends_changes(b) ? 2 : 1, floats_of(b, unit) / b->owners);
    append_transfer(b, TACITI_PARTS_SUBMIT, use->gather, unit);
}

static void prefetch_next(builder *b) {
    if (b->recorded && b->position < b->order_count) begin_gather(b, b->order[b->position]);
}

static void need_unit(builder *b, size_t unit) {
    if (unit == NONE || b->state[unit].users++ > 0) return;
    size_t i = 0;
    while (b->recorded && i < b->order_count && b->order[(b->position + i) % b->order_count] != unit) i++;
    if (b->recorded)
        b->position = (b->position + i) % b->order_count + 1;
    else
        b->order[b->order_count++] = unit;
    begin_gather(b, unit);
    prefetch_next(b);
    if (b->state[unit].state == GATHERING) {
        append_transfer(b, TACITI_PARTS_WAIT, b->state[unit].gather, unit);
        if (sends_changes(b)) pass_over(b, 1, floats_of(b, unit)); /* changes are added */
        b->state[unit].shared = b->method->parts.secondary;
    }
    b->state[unit].state = PRESENT;
}

static void release_unit(builder *b, size_t unit) {
    if (unit == NONE || --b->state[unit].users > 0 || b->method->parts.passes < 2) return;
    b->state[unit].state = ABSENT;
    prefetch_next(b);
}

/* At most one sum stays under way. */
static void write_unit(builder *b, size_t unit) {
    size_t newest = NONE;
    if (unit == NONE || b->state[unit].writable) return;
    for (size_t u = 0; u < b->units; u++)
        if (b->state[u].writable && b->state[u].begun) newest = u;
    for (size_t u = 0; u < b->units && b->method->parts.gradients; u++) {
        if (u == newest || !b->state[u].writable || !b->state[u].begun) continue;
        append_transfer(b, TACITI_PARTS_WAIT, TACITI_PARTS_REDUCE, u);
        b->state[u].writable = false;
    }
    b->state[unit].writable = true;
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
        need_unit(b, own);
        need_unit(b, tied);
        append_op(b, (taciti_parts_op){.kind = TACITI_PARTS_COMPUTE, .seconds = p->layers[l].forward_s});
        if (l + 1 == p->layer_count) break;
        release_unit(b, tied);
        release_unit(b, own);
    }
    for (size_t l = p->layer_count; l-- > 0;) {
        const bool held = l + 1 == p->layer_count;
        const size_t own = p->layers[l].tensor_count > 0 ? at++ : NONE, tied = tied_unit(b, l, own);
        const size_t read = held || own != b->first_unit ? own : NONE;
        if (!held) need_unit(b, read);
        if (!held) need_unit(b, tied);
        write_unit(b, own);
        write_unit(b, tied);
        append_op(b, (taciti_parts_op){.kind = TACITI_PARTS_COMPUTE, .seconds = p->layers[l].backward_s});
        release_unit(b, tied);
        release_unit(b, read);
        if (own == NONE || !b->method->overlap) continue;
        b->state[own].begun = true;
        append_transfer(b, TACITI_PARTS_SUBMIT, TACITI_PARTS_REDUCE, own);
    }
}

static void finish_step(builder *b) {
    for (size_t u = 0; u < b->units; u++)
        if (!b->state[u].begun) append_transfer(b, TACITI_PARTS_SUBMIT, TACITI_PARTS_REDUCE, u);
    for (size_t u = 0; u < b->units; u++) append_transfer(b, TACITI_PARTS_WAIT, TACITI_PARTS_REDUCE, u);
    append_op(b, (taciti_parts_op){.kind = TACITI_PARTS_COMPUTE, .seconds = b->update_s, .update = true});
    memset(b->state, 0, b->units * sizeof *b->state);
    b->recorded = true;
    b->position = 0;
    prefetch_next(b);
}

/* An addition of arrays, as fast as the cluster's; 0: unknown. All ranks do it at the same time. */
static double pass_s(const taciti_cluster *cluster) {
    const double share = cluster->compute_core_share > 0 ? cluster->compute_core_share : 1;
    const taciti_cluster_compression *f32 = taciti_cluster_format_speed(cluster, "f32");
    return f32 == NULL ? 0 : f32->add_s / share;
}

tacit_status taciti_parts_owners(const taciti_scene *scene, const taciti_method *method, int *out) {
    taciti_arrangement arrangement;
    TACITI_TRY(taciti_plan_arrange(scene, method, &arrangement));
    *out = method->parts.replicas ? arrangement.lanes : arrangement.lanes * arrangement.hosts;
    taciti_arrangement_destroy(&arrangement);
    return TACIT_OK;
}

tacit_status taciti_parts_build_step(const taciti_scene *scene, const taciti_method *method, double update_s,
                                     taciti_parts_plan *out) {
    const size_t units = out->job_count / TACITI_PARTS_CLASSES;
    builder b = {.scene = scene,
                 .method = method,
                 .out = out,
                 .units = units,
                 .first_unit = units - 1,
                 .update_s = update_s,
                 .pass_s = pass_s(scene->cluster)};
    TACITI_TRY(taciti_parts_owners(scene, method, &b.owners));
    b.state = taciti_calloc(units, sizeof *b.state);
    b.order = taciti_calloc(4 * scene->profile->layer_count, sizeof *b.order); /* own and tied, there and back */
    b.failed = b.state == NULL || b.order == NULL;
    for (int step = 0; step < 2 && !b.failed;
         step++) { /* the first records the order; all others are like the second */
        out->op_count = 0;
        pass_units(&b);
        if (!b.failed) finish_step(&b);
    }
    taciti_free(b.state);
    taciti_free(b.order);
    return b.failed ? TACIT_E_MEMORY : TACIT_OK;
}
