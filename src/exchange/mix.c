/* SPDX-License-Identifier: Apache-2.0
 *
 * Every distinct group of this rank has one all-reduce, or factors of PowerGossip, which pairs along edges have as
 * well; every other round of edges has one list of neighbours. They all work in the same buffers, because jobs run one
 * after the other. So memory does not grow with the period.
 *
 * A lossy codec leaves an encoding error (residual.h). y = keep x + share buffer, and the error must come back whole:
 * with share = 1 / n the buffer gets n times of it.
 */
#include "exchange/mix.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "exchange/allreduce.h"
#include "exchange/bucket_job.h"
#include "exchange/demand.h"
#include "exchange/mix_ways.h"
#include "exchange/neighbours.h"
#include "exchange/power.h"
#include "exchange/reference.h"

enum { POWER_SEED = 1 };

/* An all-reduce, or PowerGossip, among some ranks. */
typedef struct reduction {
    taciti_members members;
    taciti_placement placement;
    taciti_allreduce reduce;
    taciti_residual errors;
    taciti_reference *reference;
    taciti_power power;
    char name[TACITI_REFERENCE_NAME_BYTES]; /* of its factors */
} reduction;

/* The part of this rank in one round: a reduction, or edges, or nothing. */
typedef struct step {
    reduction *group;         /* or pair; NULL: none */
    taciti_neighbours *edges; /* NULL: none */
    int pair[2];              /* the members of a reduction, if they are a pair along edges */
    taciti_mix_weights weights;
    taciti_reference *reference; /* of differences; NULL: arrays travel as they are */
} step;

struct taciti_mix {
    taciti_comm *comm;               /* borrows */
    const taciti_layout *layout;     /* borrows */
    const taciti_topology *topology; /* borrows */
    taciti_encoding encoding;
    bool differences;
    taciti_references references;
    taciti_placement requested;
    size_t segment_bytes;
    int rank;
    const taciti_hosts *hosts; /* borrows */
    step *steps;               /* [period]; owned */
    reduction *reductions;     /* [period]; owned */
    size_t reduction_count;
    size_t columns;                /* of the factors of PowerGossip; 0: none */
    int *partners;                 /* [ranks] of the round that is planned; owned */
    taciti_neighbours *neighbours; /* [period]; owned */
    size_t neighbours_count;
    taciti_pages workspace;            /* buffers of whatever runs, then the errors of a bucket */
    size_t staging_bytes, error_bytes; /* multiples of 64 */
    taciti_bucket_jobs jobs;
    uint64_t *sent;         /* [buckets] by the last job of each; owned, as is the next */
    uint64_t *sent_in;      /* [period] by all buckets in the last mix of this place; before that taciti_mix_bytes() */
    uint64_t arrived_bytes; /* `sent` of the buckets of a mix that have been waited for */
    size_t arrived;         /* how many these are */
};

static const taciti_round *round_of(const taciti_mix *mix, size_t r) { return &mix->topology->rounds[r]; }

static size_t place_of(const taciti_mix *mix, int64_t number) { return (size_t)number % mix->topology->period; }

static step *step_of(const taciti_mix *mix, size_t bucket, int64_t number) {
    return &mix->steps[taciti_topology_round(mix->topology, number, mix->layout->buckets[bucket].half)];
}

/* ---- what every round needs -------------------------------------------------------------------------------------- */
/* The same members have the same factors, wherever they meet. */
static bool is_same(const taciti_mix *mix, const reduction *a, taciti_members members, taciti_placement placement) {
    return taciti_members_equal(a->members, members) && (mix->columns > 0 || a->placement.lanes == placement.lanes);
}

static tacit_status add_reference(taciti_mix *mix, const taciti_reference *what, taciti_reference **out) {
    *out = taciti_references_add(&mix->references, what);
    return *out != NULL ? TACIT_OK : taciti_mix_refuse_ways(mix->topology, mix->rank);
}

/* The array of the other of a pair arrives as it is. */
static tacit_status add_edges(taciti_mix *mix, taciti_neighbours *nb, taciti_reference **out) {
    taciti_reference what = {.kind = TACITI_REFERENCE_EDGES, .w = {.self = 1}};
    for (size_t k = 0; k < nb->out_count; k++) what.w.self -= (double)(float)nb->out[k].weight; /* columns sum to 1 */
    what.w.row = what.w.self;
    for (size_t k = 0; k < nb->in_count; k++) what.w.row += (double)(float)nb->in[k].weight;
    if (taciti_partners_are_pair(mix->partners, mix->rank)) {
        what.kind = TACITI_REFERENCE_PAIR;
        what.w.other = nb->in[0].weight;
        what.w.their_self = 1 - (double)(float)nb->in[0].weight;
        what.w.their_other = nb->out[0].weight;
        nb->in[0].weight = 1;
    }
    return add_reference(mix, &what, out);
}

static tacit_status describe_sum(taciti_mix *mix, reduction *c) {
    taciti_encoding encoding = mix->encoding;
    encoding.codec = taciti_mix_codec(mix->hosts, c->members, encoding.codec);
    if (encoding.codec != mix->encoding.codec) encoding.options = NULL;
    TACITI_TRY(taciti_allreduce_describe(mix->hosts, c->members, mix->rank, &encoding, c->placement, mix->segment_bytes,
                                         &c->reduce));
    const bool differences = mix->differences && encoding.codec == mix->encoding.codec;
    c->errors = taciti_allreduce_errors(&c->reduce, differences ? 0 : (float)c->members.count);
    const taciti_reference what = {.kind = TACITI_REFERENCE_GROUP, .members = c->members.count};
    return differences ? add_reference(mix, &what, &c->reference) : TACIT_OK;
}

static tacit_status describe_power(taciti_mix *mix, reduction *c) {
    const taciti_power_setup setup = {.hosts = mix->hosts,
                                      .rank = mix->rank,
                                      .layout = mix->layout,
                                      .members = c->members,
                                      .placement = c->placement,
                                      .segment_bytes = mix->segment_bytes,
                                      .width = mix->columns,
                                      .seed = mix->encoding.seed};
    if (mix->reduction_count > TACITI_REFERENCES_MAX) return taciti_mix_refuse_ways(mix->topology, mix->rank);
    return taciti_power_describe(&setup, &c->power);
}

/* The reduction of a group or a pair, a new one when no round before had it. */
static tacit_status find_reduction(taciti_mix *mix, const taciti_round *round, taciti_members members,
                                   reduction **out) {
    taciti_placement placement = mix->requested;
    if (round->groups > 0)
        placement = taciti_mix_placement(mix->hosts, round, members, mix->requested);
    else
        placement.lanes = 1;
    for (*out = mix->reductions; *out < mix->reductions + mix->reduction_count; ++*out)
        if (is_same(mix, *out, members, placement)) return TACIT_OK;
    mix->reduction_count++;
    **out = (reduction){.members = members, .placement = placement};
    return (mix->columns > 0 ? describe_power : describe_sum)(mix, *out);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* A pair along edges, which PowerGossip mixes, moves 2 w of the way to its mean with the weight w. A sum without
 * references is divided by the members. */
static tacit_status plan_group(taciti_mix *mix, size_t r, step *s) {
    const taciti_round *round = round_of(mix, r);
    const taciti_members members = taciti_round_members(round, mix->partners, mix->rank, s->pair);
    float share = 1, part = 1;
    if (members.ranks == NULL) return TACIT_OK;
    TACITI_TRY(find_reduction(mix, round, members, &s->group));
    s->reference = s->group->reference;
    if (round->groups == 0) share = (float)(2 * (1 - round->self[mix->rank]));
    if (mix->columns == 0 && s->reference == NULL) part = 1 / (float)members.count;
    s->weights = (taciti_mix_weights){.keep = 1 - share, .share = share * part};
    return TACIT_OK;
}

static tacit_status plan_edges(taciti_mix *mix, size_t r, step *s) {
    taciti_neighbours *nb = &mix->neighbours[mix->neighbours_count];
    TACITI_TRY(
        taciti_neighbours_describe(mix->hosts, round_of(mix, r), mix->rank, &mix->encoding, mix->segment_bytes, nb));
    mix->neighbours_count++;
    if (nb->in_count == 0 && nb->out_count == 0 && nb->self == 1) return TACIT_OK;
    s->edges = nb;
    s->weights = (taciti_mix_weights){.keep = mix->differences ? 1 : 0, .share = 1};
    return mix->differences ? add_edges(mix, nb, &s->reference) : TACIT_OK;
}

static tacit_status plan_round(taciti_mix *mix, size_t r) {
    const taciti_round *round = round_of(mix, r);
    step *s = &mix->steps[r];
    *s = (step){.weights = {.keep = 1, .share = 0}};
    taciti_round_partners(round, mix->topology->ranks, mix->partners);
    return (round->groups > 0 || mix->columns > 0 ? plan_group : plan_edges)(mix, r, s);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */
/* Returns the bytes of n floats to one neighbour, which travel segment by segment. */
static uint64_t edge_bytes(const taciti_mix *mix, size_t segment_n, size_t n) {
    const size_t rest = n % segment_n;
    return n / segment_n * taciti_encoding_bound(&mix->encoding, segment_n) +
           (rest != 0 ? taciti_encoding_bound(&mix->encoding, rest) : 0);
}

static uint64_t bucket_bytes(const taciti_mix *mix, size_t bucket, int64_t number) {
    const step *s = step_of(mix, bucket, number);
    const size_t n = mix->layout->buckets[bucket].n;
    if (s->edges != NULL) return edge_bytes(mix, s->edges->segment_n, n) * s->edges->out_count;
    if (s->group == NULL) return 0;
    return mix->columns > 0 ? taciti_power_bytes(&s->group->power, bucket)
                            : taciti_allreduce_bytes(&s->group->reduce, n);
}

uint64_t taciti_mix_bytes(const taciti_mix *mix, int64_t number) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < mix->layout->bucket_count; b++) bytes += bucket_bytes(mix, b, number);
    return bytes;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
static size_t workspace_bytes(const taciti_mix *mix, const reduction *c) {
    return mix->columns > 0 ? taciti_power_workspace_bytes(&c->power) : taciti_allreduce_workspace_bytes(&c->reduce);
}

/* Errors of a result, then of a whole bucket. */
static size_t error_bytes(const taciti_mix *mix, const reduction *c) {
    size_t n = 0;
    for (size_t b = 0; b < mix->layout->bucket_count; b++) n = taciti_max(n, mix->layout->buckets[b].n);
    return c->errors.encodes ? (c->reduce.segment_n + n) * sizeof(float) : 0;
}

static void size_workspace(taciti_mix *mix) {
    for (size_t c = 0; c < mix->reduction_count; c++) {
        const reduction *one = &mix->reductions[c];
        mix->staging_bytes = taciti_max(mix->staging_bytes, workspace_bytes(mix, one));
        mix->error_bytes = taciti_max(mix->error_bytes, error_bytes(mix, one));
    }
    for (size_t i = 0; i < mix->neighbours_count; i++) {
        const size_t bytes = taciti_neighbours_workspace_bytes(&mix->neighbours[i]);
        if (bytes > mix->staging_bytes) mix->staging_bytes = bytes;
    }
}

static tacit_status allocate_plan(taciti_mix *mix) {
    const size_t period = mix->topology->period;
    mix->steps = taciti_calloc(period, sizeof *mix->steps);
    mix->reductions = taciti_calloc(period, sizeof *mix->reductions);
    mix->neighbours = taciti_calloc(period, sizeof *mix->neighbours);
    mix->partners = taciti_calloc((size_t)mix->topology->ranks, sizeof *mix->partners);
    const bool complete =
        mix->steps != NULL && mix->reductions != NULL && mix->neighbours != NULL && mix->partners != NULL;
    return complete ? TACIT_OK : TACIT_E_MEMORY;
}

/* Everything but buffers. Not collective. */
static tacit_status describe_mix(taciti_mix *mix, const taciti_comm *comm, const taciti_layout *layout,
                                 const taciti_topology *topology, const taciti_exchange_options *options,
                                 const taciti_mix_form *form) {
    if (topology->ranks != taciti_comm_size(comm))
        return taciti_fail(TACIT_E_CONFIG, "topology %s is for %d ranks, but there are %d; make it for %d",
                           topology->name, topology->ranks, taciti_comm_size(comm), taciti_comm_size(comm));
    mix->layout = layout;
    mix->topology = topology;
    mix->columns = form != NULL ? form->power : 0;
    if (form != NULL && form->encoding.codec != NULL && mix->columns == 0) {
        mix->encoding = form->encoding;
        mix->differences = form->differences && !taciti_codec_suits(mix->encoding.codec, TACITI_USE_COPIES);
    } else {
        mix->encoding = (taciti_encoding){.codec = taciti_exchange_wire(options), .seed = POWER_SEED};
    }
    mix->requested = taciti_exchange_placement(options);
    mix->segment_bytes = taciti_comm_segment_bytes(comm);
    mix->rank = taciti_comm_rank(comm);
    mix->hosts = taciti_comm_hosts(comm);
    if (mix->columns > 0 && !taciti_mix_takes_power(topology))
        return taciti_fail(TACIT_E_INTERNAL, "PowerGossip on topology %s, which has other edges than those of pairs",
                           topology->name);
    TACITI_TRY(allocate_plan(mix));
    for (size_t r = 0; r < topology->period; r++) TACITI_TRY(plan_round(mix, r));
    size_workspace(mix);
    mix->staging_bytes = taciti_round_up(mix->staging_bytes, TACITI_ALIGN_BYTES);
    return TACIT_OK;
}

static tacit_status mix_bucket(taciti_mix *mix, float *x, size_t n, const taciti_bucket_task *task) {
    const step *s = step_of(mix, task->bucket, task->step);
    if (mix->columns > 0) return taciti_power_run(&s->group->power, x, n, task);
    const size_t at = mix->layout->buckets[task->bucket].offset;
    float *apart = s->reference == NULL ? NULL : mix->references.apart + at;
    if (s->reference != NULL) taciti_reference_subtract(s->reference, x, at, n);
    if (s->edges != NULL) return taciti_neighbours_run(s->edges, x, apart, n, task);
    if (apart != NULL) s->group->errors.errors = memset(apart, 0, n * sizeof *apart);
    return taciti_allreduce_run(&s->group->reduce, x, n, task, &s->group->errors);
}

/* Jobs run one after the other, and nobody else sends meanwhile. */
static tacit_status move_bucket(void *owner, float *x, size_t n, const taciti_bucket_task *task) {
    taciti_mix *mix = owner;
    const uint64_t before = taciti_comm_count(mix->comm).bytes_sent;
    const tacit_status status = mix_bucket(mix, x, n, task);
    mix->sent[task->bucket] = taciti_comm_count(mix->comm).bytes_sent - before;
    return status;
}

static tacit_status open_reduction(taciti_mix *mix, reduction *c) {
    char *workspace = mix->workspace.base;
    if (mix->columns > 0) return taciti_power_open(&c->power, mix->comm, workspace);
    c->errors.scratch = (float *)(void *)(workspace + mix->staging_bytes);
    c->errors.errors = c->errors.scratch + c->reduce.segment_n;
    return taciti_allreduce_open(&c->reduce, mix->comm, workspace);
}

static tacit_status open_buffers(taciti_mix *mix, taciti_comm *comm) {
    mix->comm = comm;
    TACITI_TRY(taciti_references_open(&mix->references, mix->layout));
    TACITI_TRY(
        taciti_pages_create(mix->staging_bytes + mix->error_bytes + 1, "the workspace of gossip", &mix->workspace));
    for (size_t c = 0; c < mix->reduction_count; c++) TACITI_TRY(open_reduction(mix, &mix->reductions[c]));
    for (size_t i = 0; i < mix->neighbours_count; i++)
        TACITI_TRY(taciti_neighbours_open(&mix->neighbours[i], comm, mix->workspace.base));
    mix->sent = taciti_calloc(mix->layout->bucket_count, sizeof *mix->sent);
    mix->sent_in = taciti_calloc(mix->topology->period, sizeof *mix->sent_in);
    if (mix->sent == NULL || mix->sent_in == NULL) return TACIT_E_MEMORY;
    for (size_t r = 0; r < mix->topology->period; r++) mix->sent_in[r] = taciti_mix_bytes(mix, (int64_t)r);
    return taciti_bucket_jobs_create(comm, mix->layout, move_bucket, mix, &mix->jobs);
}

/* Destroys what describe() has made. */
static void forget_plan(taciti_mix *mix) {
    for (size_t c = 0; c < mix->reduction_count; c++) {
        taciti_allreduce_destroy(&mix->reductions[c].reduce);
        taciti_power_destroy(&mix->reductions[c].power);
    }
    for (size_t i = 0; i < mix->neighbours_count; i++) taciti_neighbours_destroy(&mix->neighbours[i]);
    taciti_free(mix->partners);
    taciti_free(mix->steps);
    taciti_free(mix->reductions);
    taciti_free(mix->neighbours);
}

tacit_status taciti_mix_create(taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                               const taciti_exchange_options *options, const taciti_mix_form *form, taciti_mix **out) {
    taciti_mix *mix = taciti_calloc(1, sizeof *mix);
    tacit_status status = mix == NULL ? TACIT_E_MEMORY : describe_mix(mix, comm, layout, topology, options, form);
    if (status == TACIT_OK) status = open_buffers(mix, comm);
    status = taciti_comm_agree(comm, status);
    if (status == TACIT_OK)
        *out = mix;
    else
        taciti_mix_destroy(mix);
    return status;
}

void taciti_mix_destroy(taciti_mix *mix) {
    if (mix == NULL) return;
    taciti_bucket_jobs_destroy(&mix->jobs);
    forget_plan(mix);
    taciti_references_close(&mix->references);
    taciti_pages_destroy(&mix->workspace);
    taciti_free(mix->sent);
    taciti_free(mix->sent_in);
    taciti_free(mix);
}

size_t taciti_mix_predict_bytes(const taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                                const taciti_exchange_options *options, const taciti_mix_form *form) {
    taciti_mix mix = {0};
    const tacit_status status = describe_mix(&mix, comm, layout, topology, options, form);
    size_t bytes = mix.staging_bytes + mix.error_bytes + taciti_references_bytes(&mix.references, layout);
    for (size_t c = 0; c < mix.reduction_count; c++) bytes += taciti_power_factor_bytes(&mix.reductions[c].power);
    forget_plan(&mix);
    return status == TACIT_OK ? bytes : 0;
}

/* ---- mixing ------------------------------------------------------------------------------------------------------ */
tacit_status taciti_mix_begin(taciti_mix *mix, float *flat, size_t bucket, int64_t number) {
    const step *s = step_of(mix, bucket, number);
    taciti_bucket_task task = {.bucket = bucket, .step = number};
    if (s->group == NULL && s->edges == NULL) {
        mix->sent[bucket] = 0;
        return taciti_bucket_skip(&mix->jobs, bucket);
    }
    task.setting[TACITI_PAYLOAD_CONTRIBUTION] = mix->encoding.expected;
    if (s->group != NULL)
        task.setting[TACITI_PAYLOAD_RESULT] =
            taciti_encoding_result_setting(&mix->encoding, (int)s->group->members.count);
    return taciti_bucket_begin(&mix->jobs, flat, &task, "mix of bucket");
}

/* Takes down what a bucket has sent. The last one of a mix makes the sum. */
static void count_sent(taciti_mix *mix, size_t bucket, int64_t number) {
    mix->arrived_bytes += mix->sent[bucket];
    if (++mix->arrived < mix->layout->bucket_count) return;
    mix->sent_in[place_of(mix, number)] = mix->arrived_bytes;
    mix->arrived_bytes = mix->arrived = 0;
}

tacit_status taciti_mix_wait(taciti_mix *mix, float *flat, size_t bucket, int64_t number) {
    const step *s = step_of(mix, bucket, number);
    const taciti_bucket *b = &mix->layout->buckets[bucket];
    TACITI_TRY(taciti_bucket_wait(&mix->jobs, bucket));
    count_sent(mix, bucket, number);
    if (mix->columns > 0 && s->group != NULL) taciti_power_settle(&s->group->power, bucket);
    if (s->reference == NULL) return TACIT_OK;
    /* Codecs that rotate blocks decode something else than 0 in padding. */
    float *apart = mix->references.apart + b->offset;
    taciti_layout_clear_gaps(mix->layout, bucket, (taciti_range){0, b->n}, flat + b->offset);
    taciti_layout_clear_gaps(mix->layout, bucket, (taciti_range){0, b->n}, apart);
    taciti_reference_settle(s->reference, apart, flat + b->offset, b->offset, b->n);
    return TACIT_OK;
}

void taciti_mix_set_references(taciti_mix *mix, const float *flat) {
    if (mix->references.count > 0) taciti_references_set(&mix->references, flat);
    for (size_t c = 0; c < mix->reduction_count && mix->columns > 0; c++)
        taciti_power_begin_anew(&mix->reductions[c].power);
}

void taciti_mix_list(taciti_mix *mix, const char *prefix, taciti_state *out) {
    taciti_references_list(&mix->references, prefix, out);
    for (size_t c = 0; c < mix->reduction_count && mix->columns > 0; c++) {
        reduction *one = &mix->reductions[c];
        size_t n = 0;
        float *factors = taciti_power_factors(&one->power, &n);
        (void)snprintf(one->name, sizeof one->name, "strategy.factors.%zu", c);
        taciti_state_add_bytes(out, one->name, TACITI_STATE_OWN, factors, n * sizeof *factors)->optional = true;
    }
}

taciti_mix_weights taciti_mix_weights_of(const taciti_mix *mix, size_t bucket, int64_t number) {
    return step_of(mix, bucket, number)->weights;
}

uint64_t taciti_mix_sent(const taciti_mix *mix, int64_t number) { return mix->sent_in[place_of(mix, number)]; }
