/* SPDX-License-Identifier: Apache-2.0
 *
 * Every distinct group of this rank has one all-reduce, every round of edges one list of neighbours; they all work in
 * the same buffers, because jobs run one after the other. So memory does not grow with the period.
 *
 * A lossy codec leaves an encoding error (residual.h). y = keep x + share buffer, and the error must come back whole:
 * with share = 1 / n the buffer gets n times of it.
 */
#include "exchange/mix.h"

#include "base/log.h"
#include "base/memory.h"
#include "exchange/allreduce.h"
#include "exchange/bucket_job.h"
#include "exchange/demand.h"
#include "exchange/neighbours.h"

enum { IDLE = -1 };

/* The part of this rank in one round. */
typedef struct step {
    int group, edges; /* index of its all-reduce, of its neighbours; IDLE: none */
    taciti_mix_weights weights;
    uint64_t bytes, nic_bytes; /* of all buckets; the maximum if the codec does not fix them */
    size_t segment_n;          /* floats of a message along edges */
} step;

/* An all-reduce among some ranks. */
typedef struct reduction {
    taciti_members members;
    taciti_placement placement;
    taciti_allreduce reduce;
    taciti_residual errors;
} reduction;

struct taciti_mix {
    taciti_comm *comm;               /* borrows */
    const taciti_layout *layout;     /* borrows */
    const taciti_topology *topology; /* borrows */
    taciti_encoding encoding;
    taciti_placement requested;
    size_t segment_bytes;
    int rank;
    const taciti_hosts *hosts; /* borrows */
    step *steps;               /* [period]; owned */
    reduction *reductions;     /* [period]; owned */
    size_t reduction_count;
    taciti_neighbours *neighbours; /* [period]; owned */
    size_t neighbours_count;
    taciti_pages workspace;            /* buffers of whatever runs, then the errors of a bucket */
    size_t staging_bytes, error_bytes; /* multiples of 64 */
    taciti_bucket_jobs jobs;
};

static const taciti_round *round_of(const taciti_mix *mix, size_t r) { return &mix->topology->rounds[r]; }

static size_t round_number(const taciti_mix *mix, int64_t number) { return (size_t)number % mix->topology->period; }

/* ---- what every round needs -------------------------------------------------------------------------------------- */
static bool same_reduction(const reduction *a, taciti_members members, taciti_placement placement) {
    if (a->members.count != members.count || a->placement.lanes != placement.lanes) return false;
    for (size_t i = 0; i < members.count; i++)
        if (a->members.ranks[i] != members.ranks[i]) return false;
    return true;
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
    c->errors = taciti_allreduce_errors(&c->reduce, (float)members.count);
    *out = (int)mix->reduction_count++;
    return TACIT_OK;
}

static tacit_status plan_round(taciti_mix *mix, size_t r) {
    const taciti_round *round = round_of(mix, r);
    step *s = &mix->steps[r];
    *s = (step){.group = IDLE, .edges = IDLE, .weights = {.keep = 1, .share = 0}};
    if (round->groups > 0) {
        taciti_members members;
        members.count = taciti_topology_group(mix->topology, r, mix->rank, &members.ranks);
        if (members.ranks == NULL) return TACIT_OK;
        s->weights = (taciti_mix_weights){.keep = 0, .share = 1 / (float)members.count};
        return find_reduction(mix, round, members, &s->group);
    }
    taciti_neighbours *nb = &mix->neighbours[mix->neighbours_count];
    TACITI_TRY(taciti_neighbours_describe(mix->hosts, round, mix->rank, &mix->encoding, mix->segment_bytes, nb));
    s->segment_n = nb->segment_n;
    const int all = (int)mix->neighbours_count++;
    if (nb->in_count == 0 && nb->out_count == 0 && nb->self == 1) return TACIT_OK;
    s->edges = all;
    s->weights = (taciti_mix_weights){.keep = 0, .share = 1};
    return TACIT_OK;
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
    const bool complete = mix->steps != NULL && mix->reductions != NULL && mix->neighbours != NULL;
    return complete ? TACIT_OK : TACIT_E_MEMORY;
}

/* Everything but buffers. Not collective. */
static tacit_status describe_mix(taciti_mix *mix, const taciti_comm *comm, const taciti_layout *layout,
                                 const taciti_topology *topology, const taciti_exchange_options *options,
                                 const taciti_encoding *encoding) {
    if (topology->ranks != taciti_comm_size(comm))
        return taciti_fail(TACIT_E_CONFIG, "topology %s is for %d ranks, but there are %d; make it for %d",
                           topology->name, topology->ranks, taciti_comm_size(comm), taciti_comm_size(comm));
    mix->layout = layout;
    mix->topology = topology;
    mix->encoding = *encoding;
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
    if (s->edges != IDLE) return taciti_neighbours_run(&mix->neighbours[s->edges], x, n, task);
    reduction *c = &mix->reductions[s->group];
    return taciti_allreduce_run(&c->reduce, x, n, task, &c->errors);
}

static tacit_status open_buffers(taciti_mix *mix, taciti_comm *comm) {
    mix->comm = comm;
    TACITI_TRY(
        taciti_pages_create(mix->staging_bytes + mix->error_bytes + 1, "the workspace of gossip", &mix->workspace));
    for (size_t c = 0; c < mix->reduction_count; c++) {
        taciti_residual_back_open(&mix->reductions[c].errors, (char *)mix->workspace.base + mix->staging_bytes);
        TACITI_TRY(taciti_allreduce_open(&mix->reductions[c].reduce, comm, mix->workspace.base));
    }
    for (size_t i = 0; i < mix->neighbours_count; i++)
        TACITI_TRY(taciti_neighbours_open(&mix->neighbours[i], comm, mix->workspace.base));
    for (size_t r = 0; r < mix->topology->period; r++) TACITI_TRY(count_bytes(mix, r));
    return taciti_bucket_jobs_create(comm, mix->layout, move_bucket, mix, &mix->jobs);
}

/* Destroys what describe() has made. */
static void forget_plan(taciti_mix *mix) {
    for (size_t c = 0; c < mix->reduction_count; c++) taciti_allreduce_destroy(&mix->reductions[c].reduce);
    for (size_t i = 0; i < mix->neighbours_count; i++) taciti_neighbours_destroy(&mix->neighbours[i]);
    taciti_free(mix->steps);
    taciti_free(mix->reductions);
    taciti_free(mix->neighbours);
}

tacit_status taciti_mix_create(taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                               const taciti_exchange_options *options, taciti_mix **out) {
    const taciti_encoding encoding = {.codec = taciti_exchange_wire(options)};
    return taciti_mix_create_encoded(comm, layout, topology, options, &encoding, out);
}

tacit_status taciti_mix_create_encoded(taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                                       const taciti_exchange_options *options, const taciti_encoding *encoding,
                                       taciti_mix **out) {
    taciti_mix *mix = taciti_calloc(1, sizeof *mix);
    tacit_status status = mix == NULL ? TACIT_E_MEMORY : describe_mix(mix, comm, layout, topology, options, encoding);
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
    taciti_pages_destroy(&mix->workspace);
    taciti_free(mix);
}

size_t taciti_mix_predict_bytes(const taciti_comm *comm, const taciti_layout *layout, const taciti_topology *topology,
                                const taciti_exchange_options *options) {
    taciti_mix mix = {0};
    const taciti_encoding encoding = {.codec = taciti_exchange_wire(options)};
    const tacit_status status = describe_mix(&mix, comm, layout, topology, options, &encoding);
    forget_plan(&mix);
    return status == TACIT_OK ? mix.staging_bytes + mix.error_bytes : 0;
}

/* ---- mixing ------------------------------------------------------------------------------------------------------ */
tacit_status taciti_mix_begin(taciti_mix *mix, float *flat, size_t bucket, int64_t number) {
    const step *s = &mix->steps[round_number(mix, number)];
    if (s->group == IDLE && s->edges == IDLE) return taciti_bucket_skip(&mix->jobs, bucket);
    return taciti_bucket_begin(&mix->jobs, flat, &(taciti_bucket_task){.bucket = bucket, .step = number},
                               "mix of bucket");
}

tacit_status taciti_mix_wait(taciti_mix *mix, size_t bucket) { return taciti_bucket_wait(&mix->jobs, bucket); }

taciti_mix_weights taciti_mix_weights_of(const taciti_mix *mix, int64_t number) {
    return mix->steps[round_number(mix, number)].weights;
}

uint64_t taciti_mix_bytes(const taciti_mix *mix, int64_t number) { return mix->steps[round_number(mix, number)].bytes; }

uint64_t taciti_mix_nic_bytes(const taciti_mix *mix, int64_t number) {
    return mix->steps[round_number(mix, number)].nic_bytes;
}
