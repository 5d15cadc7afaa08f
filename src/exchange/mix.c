/* SPDX-License-Identifier: Apache-2.0
 *
 * Every distinct group of this rank has one all-reduce, every round of edges one list of neighbours; they all work in
 * the same buffers, because jobs run one after the other. So memory does not grow with the period.
 *
 * A lossy codec leaves an encoding error (residual.h). y = keep x + share buffer, and the error must come back whole:
 * with share = 1 / n the buffer gets n times of it.
 */
#include "exchange/mix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "exchange/allreduce.h"
#include "exchange/bucket_job.h"
#include "exchange/demand.h"
#include "exchange/neighbours.h"
#include "exchange/power.h"
#include "exchange/reference.h"

enum { IDLE = -1, NOBODY = -1, POWER_SEED = 1 };

#define ROUNDING 1e-9 /* of weights */

/* The part of this rank in one round. */
typedef struct step {
    int group, edges, power; /* index of its all-reduce, of its neighbours, of its factors; IDLE: none */
    taciti_mix_weights weights;
    taciti_reference *reference; /* of differences; NULL: arrays travel as they are */
    uint64_t bytes, nic_bytes;   /* of all buckets; the maximum if the codec does not fix them */
    size_t segment_n;            /* floats of a message along edges */
} step;

/* An all-reduce among some ranks. */
typedef struct reduction {
    taciti_members members;
    taciti_placement placement;
    taciti_allreduce reduce;
    taciti_residual errors;
    taciti_reference *reference;
} reduction;

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
    size_t power_columns; /* 0: no PowerGossip */
    taciti_power *powers; /* [period]; owned; powers of the same members are one */
    size_t power_count;
    char names[TACITI_REFERENCES_MAX][TACITI_REFERENCE_NAME_BYTES];
    int (*pairs)[2];               /* [period] this rank and the other, ascending; owned */
    taciti_neighbours *neighbours; /* [period]; owned */
    size_t neighbours_count;
    taciti_pages workspace;            /* buffers of whatever runs, then the errors of a bucket */
    size_t staging_bytes, error_bytes; /* multiples of 64 */
    taciti_bucket_jobs jobs;
};

static const taciti_round *round_of(const taciti_mix *mix, size_t r) { return &mix->topology->rounds[r]; }

static size_t round_number(const taciti_mix *mix, int64_t number) { return (size_t)number % mix->topology->period; }

/* ---- what every round needs -------------------------------------------------------------------------------------- */
static bool same_members(taciti_members a, taciti_members b) {
    return a.count == b.count && memcmp(a.ranks, b.ranks, a.count * sizeof *a.ranks) == 0;
}

static bool same_reduction(const reduction *a, taciti_members members, taciti_placement placement) {
    return same_members(a->members, members) && a->placement.lanes == placement.lanes;
}

static tacit_status refuse_ways(const taciti_mix *mix) {
    return taciti_fail(TACIT_E_CONFIG,
                       "topology %s: rank %d meets others in more than %d ways, and compressed mixing remembers what "
                       "each of them knows; take a topology with fewer rounds (base-k, exp, aer), or mix as it is: "
                       "--gossip.codec none",
                       mix->topology->name, mix->rank, (int)TACITI_REFERENCES_MAX);
}

static tacit_status add_reference(taciti_mix *mix, const taciti_reference *what, taciti_reference **out) {
    *out = taciti_references_add(&mix->references, what);
    return *out != NULL ? TACIT_OK : refuse_ways(mix);
}

/* The other end of the only edge in each direction of this rank, or NOBODY. */
static int only_neighbour(const taciti_round *round, int rank) {
    int other = NOBODY, edges = 0;
    for (size_t e = 0; e < round->edge_count; e++) {
        const taciti_edge *edge = &round->edges[e];
        if (edge->from != rank && edge->to != rank) continue;
        const int end = edge->from == rank ? edge->to : edge->from;
        if (other != NOBODY && end != other) return NOBODY;
        other = end;
        edges++;
    }
    return edges == 2 ? other : NOBODY;
}

bool taciti_mix_is_pair(const taciti_round *round, int rank) {
    const int other = only_neighbour(round, rank);
    return other != NOBODY && only_neighbour(round, other) == rank;
}

/* The array of the other of a pair arrives as it is. */
static tacit_status add_edges(taciti_mix *mix, size_t r, taciti_neighbours *nb, taciti_reference **out) {
    const taciti_round *round = round_of(mix, r);
    taciti_reference what = {.kind = TACITI_REFERENCE_EDGES, .w = {.self = 1}};
    for (size_t k = 0; k < nb->out_count; k++) what.w.self -= (double)(float)nb->out[k].weight; /* columns sum to 1 */
    what.w.row = what.w.self;
    for (size_t k = 0; k < nb->in_count; k++) what.w.row += (double)(float)nb->in[k].weight;
    if (taciti_mix_is_pair(round, mix->rank)) {
        what.kind = TACITI_REFERENCE_PAIR;
        what.w.other = nb->in[0].weight;
        what.w.their_self = 1 - (double)(float)nb->in[0].weight;
        what.w.their_other = nb->out[0].weight;
        nb->in[0].weight = 1;
    }
    return add_reference(mix, &what, out);
}

/* The all-reduce of a group, a new one when no round before had it. */
static tacit_status find_reduction(taciti_mix *mix, const taciti_round *round, taciti_members members, int *out) {
    const taciti_placement placement = taciti_mix_placement(mix->hosts, round, members, mix->requested);
    for (size_t c = 0; c < mix->reduction_count; c++) {
        *out = (int)c;
        if (same_reduction(&mix->reductions[c], members, placement)) return TACIT_OK;
    }
    reduction *c = &mix->reductions[mix->reduction_count];
    *c = (reduction){.members = members, .placement = placement};
    taciti_encoding encoding = mix->encoding;
    encoding.codec = taciti_mix_codec(mix->hosts, members, encoding.codec);
    if (encoding.codec != mix->encoding.codec) encoding.options = NULL;
    TACITI_TRY(taciti_allreduce_describe(mix->hosts, members, mix->rank, &encoding, placement, mix->segment_bytes,
                                         &c->reduce));
    *out = (int)mix->reduction_count++;
    const bool differences = mix->differences && encoding.codec == mix->encoding.codec;
    c->errors = taciti_allreduce_errors(&c->reduce, differences ? 1 : (float)members.count);
    const taciti_reference what = {.kind = TACITI_REFERENCE_GROUP, .members = members.count};
    return differences ? add_reference(mix, &what, &c->reference) : TACIT_OK;
}

/* ---- rounds of PowerGossip --------------------------------------------------------------------------------------- */

static bool is_idle(const taciti_round *round, int rank) {
    return round->groups == 0 && round->self[rank] == 1 && only_neighbour(round, rank) == NOBODY;
}

/* Weights that are not equal would not keep the sum. */
static bool is_even_pair(const taciti_round *round, int rank) {
    if (!taciti_mix_is_pair(round, rank)) return false;
    return fabs(round->self[rank] - round->self[only_neighbour(round, rank)]) < ROUNDING;
}

bool taciti_mix_takes_power(const taciti_topology *topology) {
    for (size_t r = 0; r < topology->period && !topology->directed; r++)
        for (int rank = 0; rank < topology->ranks && topology->rounds[r].groups == 0; rank++)
            if (!is_idle(&topology->rounds[r], rank) && !is_even_pair(&topology->rounds[r], rank)) return false;
    return !topology->directed;
}

/* The ranks that a rank meets in a round; none: it is idle. pair: memory for two. */
static taciti_members members_in(const taciti_mix *mix, size_t r, int rank, int pair[2]) {
    const taciti_round *round = round_of(mix, r);
    taciti_members members = {.ranks = NULL};
    if (round->groups > 0) {
        members.count = taciti_topology_group(mix->topology, r, rank, &members.ranks);
    } else if (!is_idle(round, rank)) {
        const int other = only_neighbour(round, rank);
        pair[0] = other < rank ? other : rank;
        pair[1] = other < rank ? rank : other;
        members = (taciti_members){.ranks = pair, .count = 2};
    }
    return members;
}

static taciti_power_setup power_setup(const taciti_mix *mix, size_t r, taciti_members members) {
    const taciti_round *round = round_of(mix, r);
    taciti_power_setup setup = {.hosts = mix->hosts,
                                .rank = mix->rank,
                                .layout = mix->layout,
                                .members = members,
                                .placement = mix->requested,
                                .segment_bytes = mix->segment_bytes,
                                .width = mix->power_columns,
                                .seed = mix->encoding.seed};
    if (round->groups > 0)
        setup.placement = taciti_mix_placement(mix->hosts, round, members, mix->requested);
    else
        setup.placement.lanes = 1;
    return setup;
}

/* A pair with the weight w moves 2 w of the way to its mean. */
static tacit_status plan_power_round(taciti_mix *mix, size_t r) {
    const taciti_round *round = round_of(mix, r);
    step *s = &mix->steps[r];
    const taciti_members members = members_in(mix, r, mix->rank, mix->pairs[r]);
    if (members.ranks == NULL) return TACIT_OK;
    const float share = round->groups > 0 ? 1 : (float)(2 * (1 - round->self[mix->rank]));
    s->weights = (taciti_mix_weights){.keep = 1 - share, .share = share};
    for (s->power = 0; s->power < (int)mix->power_count; s->power++)
        if (same_members(mix->powers[s->power].setup.members, members)) return TACIT_OK;
    const taciti_power_setup setup = power_setup(mix, r, members);
    if (mix->power_count == TACITI_REFERENCES_MAX) return refuse_ways(mix);
    return taciti_power_describe(&setup, &mix->powers[mix->power_count++]);
}

/* Counts every group once, by its lowest rank. */
static tacit_status count_power_bytes(taciti_mix *mix, size_t r) {
    step *s = &mix->steps[r];
    if (s->power != IDLE) s->bytes = taciti_power_bytes(&mix->powers[s->power]);
    for (int rank = 0; rank < mix->topology->ranks; rank++) {
        int pair[2];
        taciti_power power;
        const taciti_members members = members_in(mix, r, rank, pair);
        if (members.ranks == NULL || members.ranks[0] != rank) continue;
        const taciti_power_setup setup = power_setup(mix, r, members);
        const tacit_status status = taciti_power_describe(&setup, &power);
        if (status == TACIT_OK) s->nic_bytes += taciti_power_nic_bytes(&power, mix->hosts->host_of[mix->rank]);
        taciti_power_destroy(&power);
        if (status != TACIT_OK) return status;
    }
    return TACIT_OK;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static tacit_status plan_round(taciti_mix *mix, size_t r) {
    const taciti_round *round = round_of(mix, r);
    step *s = &mix->steps[r];
    *s = (step){.group = IDLE, .edges = IDLE, .power = IDLE, .weights = {.keep = 1, .share = 0}};
    if (mix->power_columns > 0) return plan_power_round(mix, r);
    if (round->groups > 0) {
        taciti_members members;
        members.count = taciti_topology_group(mix->topology, r, mix->rank, &members.ranks);
        if (members.ranks == NULL) return TACIT_OK;
        TACITI_TRY(find_reduction(mix, round, members, &s->group));
        s->reference = mix->reductions[s->group].reference;
        s->weights = (taciti_mix_weights){.keep = 0, .share = s->reference != NULL ? 1 : 1 / (float)members.count};
        return TACIT_OK;
    }
    taciti_neighbours *nb = &mix->neighbours[mix->neighbours_count];
    TACITI_TRY(taciti_neighbours_describe(mix->hosts, round, mix->rank, &mix->encoding, mix->segment_bytes, nb));
    s->segment_n = nb->segment_n;
    const int all = (int)mix->neighbours_count++;
    if (nb->in_count == 0 && nb->out_count == 0 && nb->self == 1) return TACIT_OK;
    s->edges = all;
    s->weights = (taciti_mix_weights){.keep = mix->differences ? 1 : 0, .share = 1};
    return mix->differences ? add_edges(mix, r, nb, &s->reference) : TACIT_OK;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */
/* Returns the bytes of all buckets to one neighbour, which travel segment by segment. */
static uint64_t edge_bytes(const taciti_mix *mix, size_t segment_n) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < mix->layout->bucket_count; b++) {
        const size_t n = mix->layout->buckets[b].n;
        bytes += n / segment_n * taciti_encoding_bound(&mix->encoding, segment_n);
        if (n % segment_n != 0) bytes += taciti_encoding_bound(&mix->encoding, n % segment_n);
    }
    return bytes;
}

/* Adds the bytes that one group's members on my host send to other hosts; I need not be in that group. */
static tacit_status add_group_nic_bytes(taciti_mix *mix, const taciti_round *round, size_t group, uint64_t *bytes) {
    const taciti_members members = taciti_members_of(round, group);
    const int host = mix->hosts->host_of[mix->rank];
    if (!taciti_members_cross(mix->hosts, members, host)) return TACIT_OK;
    taciti_allreduce reduce;
    TACITI_TRY(taciti_allreduce_describe(mix->hosts, members, mix->rank, &mix->encoding,
                                         taciti_mix_placement(mix->hosts, round, members, mix->requested),
                                         mix->segment_bytes, &reduce));
    for (size_t b = 0; b < mix->layout->bucket_count; b++)
        *bytes += taciti_allreduce_nic_bytes(&reduce, mix->layout->buckets[b].n, host);
    taciti_allreduce_destroy(&reduce);
    return TACIT_OK;
}

static bool leaves_my_host(const taciti_mix *mix, const taciti_edge *edge) {
    const int host = mix->hosts->host_of[mix->rank];
    return mix->hosts->host_of[edge->from] == host && mix->hosts->host_of[edge->to] != host;
}

static tacit_status count_bytes(taciti_mix *mix, size_t r) {
    const taciti_round *round = round_of(mix, r);
    step *s = &mix->steps[r];
    if (mix->power_columns > 0) return count_power_bytes(mix, r);
    for (size_t b = 0; b < mix->layout->bucket_count && s->group != IDLE; b++)
        s->bytes += taciti_allreduce_bytes(&mix->reductions[s->group].reduce, mix->layout->buckets[b].n);
    if (s->edges != IDLE) s->bytes = edge_bytes(mix, s->segment_n) * mix->neighbours[s->edges].out_count;
    for (size_t g = 0; g < round->groups; g++) TACITI_TRY(add_group_nic_bytes(mix, round, g, &s->nic_bytes));
    for (size_t e = 0; e < round->edge_count; e++)
        if (leaves_my_host(mix, &round->edges[e])) s->nic_bytes += edge_bytes(mix, s->segment_n);
    return TACIT_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */
static void size_workspace(taciti_mix *mix) {
    for (size_t c = 0; c < mix->reduction_count; c++) {
        const size_t bytes = taciti_allreduce_workspace_bytes(&mix->reductions[c].reduce);
        if (bytes > mix->staging_bytes) mix->staging_bytes = bytes;
        const size_t error_bytes = taciti_residual_back_bytes(&mix->reductions[c].errors);
        if (error_bytes > mix->error_bytes) mix->error_bytes = error_bytes;
    }
    for (size_t i = 0; i < mix->power_count; i++) {
        const size_t bytes = taciti_power_workspace_bytes(&mix->powers[i]);
        if (bytes > mix->staging_bytes) mix->staging_bytes = bytes;
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
    mix->powers = taciti_calloc(period, sizeof *mix->powers);
    mix->pairs = taciti_calloc(period, sizeof *mix->pairs);
    const bool complete = mix->steps != NULL && mix->reductions != NULL && mix->neighbours != NULL &&
                          mix->powers != NULL && mix->pairs != NULL;
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
    mix->power_columns = form != NULL ? form->power : 0;
    if (form != NULL && form->encoding.codec != NULL && form->power == 0) {
        mix->encoding = form->encoding;
        mix->differences = form->differences && !taciti_codec_suits(mix->encoding.codec, TACITI_USE_COPIES);
    } else {
        mix->encoding = (taciti_encoding){.codec = taciti_exchange_wire(options), .seed = POWER_SEED};
    }
    if (mix->power_columns > 0 && !taciti_mix_takes_power(topology))
        return taciti_fail(TACIT_E_INTERNAL, "PowerGossip on topology %s, which has other edges than those of pairs",
                           topology->name);
    mix->requested = taciti_exchange_placement(options);
    mix->segment_bytes = taciti_comm_segment_bytes(comm);
    mix->rank = taciti_comm_rank(comm);
    mix->hosts = taciti_comm_hosts(comm);
    TACITI_TRY(allocate_plan(mix));
    for (size_t r = 0; r < topology->period; r++) TACITI_TRY(plan_round(mix, r));
    size_workspace(mix);
    mix->staging_bytes = taciti_round_up(mix->staging_bytes, TACITI_ALIGN_BYTES);
    return TACIT_OK;
}

static tacit_status move_bucket(void *owner, float *x, size_t n, const taciti_bucket_task *task) {
    taciti_mix *mix = owner;
    const step *s = &mix->steps[round_number(mix, task->step)];
    if (s->power != IDLE) return taciti_power_run(&mix->powers[s->power], x, n, task);
    const size_t at = mix->layout->buckets[task->bucket].offset;
    float *apart = s->reference == NULL ? NULL : mix->references.apart + at;
    if (s->reference != NULL) taciti_reference_subtract(s->reference, x, at, n);
    if (s->edges != IDLE) return taciti_neighbours_run(&mix->neighbours[s->edges], x, apart, n, task);
    reduction *c = &mix->reductions[s->group];
    c->errors.apart = apart;
    if (apart != NULL) memset(apart, 0, n * sizeof *apart);
    return taciti_allreduce_run(&c->reduce, x, n, task, &c->errors);
}

static tacit_status open_buffers(taciti_mix *mix, taciti_comm *comm) {
    mix->comm = comm;
    TACITI_TRY(taciti_references_open(&mix->references, mix->layout));
    TACITI_TRY(
        taciti_pages_create(mix->staging_bytes + mix->error_bytes + 1, "the workspace of gossip", &mix->workspace));
    for (size_t c = 0; c < mix->reduction_count; c++) {
        taciti_residual_back_open(&mix->reductions[c].errors, (char *)mix->workspace.base + mix->staging_bytes);
        TACITI_TRY(taciti_allreduce_open(&mix->reductions[c].reduce, comm, mix->workspace.base));
    }
    for (size_t i = 0; i < mix->power_count; i++)
        TACITI_TRY(taciti_power_open(&mix->powers[i], comm, mix->workspace.base));
    for (size_t i = 0; i < mix->neighbours_count; i++)
        TACITI_TRY(taciti_neighbours_open(&mix->neighbours[i], comm, mix->workspace.base));
    for (size_t r = 0; r < mix->topology->period; r++) TACITI_TRY(count_bytes(mix, r));
    return taciti_bucket_jobs_create(comm, mix->layout, move_bucket, mix, &mix->jobs);
}

/* Destroys what describe() has made. */
static void forget_plan(taciti_mix *mix) {
    for (size_t c = 0; c < mix->reduction_count; c++) taciti_allreduce_destroy(&mix->reductions[c].reduce);
    for (size_t i = 0; i < mix->neighbours_count; i++) taciti_neighbours_destroy(&mix->neighbours[i]);
    for (size_t i = 0; i < mix->power_count; i++) taciti_power_destroy(&mix->powers[i]);
    taciti_free(mix->powers);
    taciti_free(mix->pairs);
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
    taciti_free(mix);
}

size_t taciti_mix_predict_bytes(const taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                                const taciti_exchange_options *options, const taciti_mix_form *form) {
    taciti_mix mix = {0};
    const tacit_status status = describe_mix(&mix, comm, layout, topology, options, form);
    size_t bytes = mix.staging_bytes + mix.error_bytes + taciti_references_bytes(&mix.references, layout);
    for (size_t i = 0; i < mix.power_count; i++) bytes += taciti_power_factor_bytes(&mix.powers[i]);
    forget_plan(&mix);
    return status == TACIT_OK ? bytes : 0;
}

/* ---- mixing ------------------------------------------------------------------------------------------------------ */
tacit_status taciti_mix_begin(taciti_mix *mix, float *flat, size_t bucket, int64_t number) {
    const step *s = &mix->steps[round_number(mix, number)];
    taciti_bucket_task task = {.bucket = bucket, .step = number};
    if (s->group == IDLE && s->edges == IDLE && s->power == IDLE) return taciti_bucket_skip(&mix->jobs, bucket);
    task.setting[TACITI_PAYLOAD_CONTRIBUTION] = mix->encoding.expected;
    if (s->group != IDLE)
        task.setting[TACITI_PAYLOAD_RESULT] =
            taciti_encoding_result_setting(&mix->encoding, (int)mix->reductions[s->group].members.count);
    return taciti_bucket_begin(&mix->jobs, flat, &task, "mix of bucket");
}

tacit_status taciti_mix_wait(taciti_mix *mix, float *flat, size_t bucket, int64_t number) {
    const step *s = &mix->steps[round_number(mix, number)];
    const taciti_bucket *b = &mix->layout->buckets[bucket];
    TACITI_TRY(taciti_bucket_wait(&mix->jobs, bucket));
    if (s->power != IDLE) taciti_power_settle(&mix->powers[s->power], bucket);
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
    for (size_t i = 0; i < mix->power_count; i++) taciti_power_begin_anew(&mix->powers[i]);
}

void taciti_mix_list(taciti_mix *mix, const char *prefix, taciti_state *out) {
    taciti_references_list(&mix->references, prefix, out);
    for (size_t i = 0; i < mix->power_count; i++) {
        size_t n = 0;
        float *factors = taciti_power_factors(&mix->powers[i], &n);
        (void)snprintf(mix->names[i], sizeof mix->names[i], "strategy.factors.%zu", i);
        taciti_state_add(out, (taciti_state_entry){.name = mix->names[i],
                                                   .kind = TACITI_STATE_BYTES,
                                                   .owner = TACITI_STATE_OWN,
                                                   .regroup = TACITI_STATE_RESET,
                                                   .data = factors,
                                                   .n = n * sizeof *factors,
                                                   .optional = true});
    }
}

taciti_mix_weights taciti_mix_weights_of(const taciti_mix *mix, int64_t number) {
    return mix->steps[round_number(mix, number)].weights;
}

uint64_t taciti_mix_bytes(const taciti_mix *mix, int64_t number) { return mix->steps[round_number(mix, number)].bytes; }

uint64_t taciti_mix_nic_bytes(const taciti_mix *mix, int64_t number) {
    return mix->steps[round_number(mix, number)].nic_bytes;
}
