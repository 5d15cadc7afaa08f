/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of an edge belong to the communication thread while the job of offer() runs, else to the training thread.
 */
#include "exchange/async.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "exchange/calls.h"

enum { HEAD_BYTES = 64, ARRAYS_FLOW = 16382, CALLS_FLOW = 16383 };

#define SHARE 0.5 /* that the weights of one kind, of what is under way, sum to at most */

/* Kinds of offers: own initiatives, those to peers that are late, and answers. */
enum { INITIATIVE, LATE, ANSWER, KINDS };

enum { PATIENCE = 4 }; /* own steps after which a peer that has not answered is late */

/* A message: this, then the array; without the array: goodbye. */
typedef struct head {
    int64_t clock; /* steps that the sender had made or passed over */
} head;

typedef struct edge {
    int peer;
    double weight;
    double portion;          /* of the weight, at a meeting; else 1 */
    int64_t offers;          /* mine so far: both ranks make equally many */
    int64_t offered_at;      /* own step of the last offer */
    bool offered, answered;  /* my array is out; as an answer */
    bool late;               /* the peer was, when I last took the initiative */
    bool arrived;            /* theirs is in */
    bool to_send, to_listen; /* the next job posts it */
    bool sending, listening, said_goodbye;
    taciti_engine_request send, receive;
    char *mine, *theirs; /* messages: a head, and n floats */
} edge;

struct taciti_async {
    taciti_comm *comm;
    taciti_pool *pool;
    taciti_arrivals *arrivals;
    taciti_calls *calls; /* not used when a log is followed: it says when ranks meet; owned */
    size_t n, period, edges;
    int64_t own_steps; /* since the start */
    double gamma;
    edge *edge;     /* [edges], ascending by peer; owned */
    bool *in_round; /* [period][edges]; owned */
    taciti_pages pages;
    int *ranks; /* [2 ranks] of the log; owned */
    taciti_arrivals_step step;
    edge **taken;        /* [edges] that add() works on; owned */
    double *squares;     /* [threads] of the changes; owned */
    double *weights;     /* [ranks] that each takes in at a meeting; owned */
    float *x;            /* that add() changes, or copy() reads */
    taciti_job job;      /* of offer() */
    bool running, begun; /* it was submitted and not waited for; there was a step */
    _Atomic int end;     /* it shall end */
};

/* ---- the graph --------------------------------------------------------------------------------------------------- */

/* Half the sum of both directions: then all rows and columns still sum to 1. */
static double weight_between(const taciti_topology *t, size_t round, int a, int b) {
    return (taciti_topology_weight(t, round, a, b) + taciti_topology_weight(t, round, b, a)) / 2;
}

/* The largest of any round. */
static double weight_of_edge(const taciti_topology *t, int a, int b) {
    double max = 0;
    for (size_t r = 0; a != b && r < t->period; r++) max = fmax(max, weight_between(t, r, a, b));
    return max;
}

static size_t count_edges(const taciti_topology *t, int rank) {
    size_t count = 0;
    for (int peer = 0; peer < t->ranks; peer++) count += weight_of_edge(t, rank, peer) > 0;
    return count;
}

static size_t message_bytes(size_t n) { return HEAD_BYTES + n * sizeof(float); }
static size_t slot_bytes(size_t n) { return taciti_round_up(message_bytes(n), HEAD_BYTES); }

size_t taciti_async_predict_bytes(const taciti_topology *topology, size_t n) {
    return taciti_async_neighbours(topology) * (2 * slot_bytes(n) + sizeof(edge));
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void describe_edges(taciti_async *a, const taciti_async_setup *setup) {
    const taciti_topology *t = setup->topology;
    const int rank = taciti_comm_rank(a->comm);
    char *at = a->pages.base;
    edge *e = a->edge;
    for (int peer = 0; peer < t->ranks; peer++) {
        const double weight = weight_of_edge(t, rank, peer);
        if (weight <= 0) continue;
        *e = (edge){.peer = peer,
                    .weight = fmin(weight, SHARE),
                    .portion = 1,
                    .to_listen = true,
                    .mine = at,
                    .theirs = at + slot_bytes(a->n)};
        for (size_t r = 0; r < t->period; r++)
            a->in_round[r * a->edges + (size_t)(e - a->edge)] = weight_between(t, r, rank, peer) > 0;
        at += 2 * slot_bytes(a->n);
        e++;
    }
}

static tacit_status allocate_arrays(taciti_async *a, const taciti_async_setup *setup) {
    const size_t ranks = (size_t)setup->topology->ranks, edges = a->edges > 0 ? a->edges : 1;
    if (message_bytes(a->n) > TACITI_COMM_RECEIVE_UP_TO)
        return taciti_fail(TACIT_E_UNSUPPORTED,
                           "gossip.async sends all parameters in one message, of at most %zu bytes, and this model has "
                           "%zu; --no-gossip.async",
                           TACITI_COMM_RECEIVE_UP_TO, message_bytes(a->n));
    a->edge = taciti_calloc(edges, sizeof *a->edge);
    a->in_round = taciti_calloc(edges * a->period, sizeof *a->in_round);
    a->taken = taciti_calloc(edges, sizeof *a->taken);
    a->ranks = taciti_calloc(2 * ranks, sizeof *a->ranks);
    a->squares = taciti_calloc((size_t)taciti_pool_threads(a->pool), sizeof *a->squares);
    a->weights = taciti_calloc(ranks, sizeof *a->weights);
    if (a->edge == NULL || a->in_round == NULL || a->taken == NULL || a->ranks == NULL || a->squares == NULL ||
        a->weights == NULL)
        return TACIT_E_MEMORY;
    TACITI_TRY(taciti_calls_create(a->comm, CALLS_FLOW, &a->calls));
    a->step.take = a->ranks;
    a->step.offer = a->ranks + ranks;
    if (a->edges == 0) return TACIT_OK;
    TACITI_TRY(taciti_pages_create(2 * a->edges * slot_bytes(a->n), "arrays on their way", &a->pages));
    memset(a->pages.base, 0, a->pages.bytes);
    return TACIT_OK;
}

/* Messages may still be written to what communication that failed has left behind. */
static void release_memory(taciti_async *a) {
    if (!taciti_comm_let_go(a->comm)) return;
    taciti_pages_destroy(&a->pages);
    taciti_calls_destroy(a->calls);
    taciti_free(a->edge);
    taciti_free(a->in_round);
    taciti_free(a->taken);
    taciti_free(a->ranks);
    taciti_free(a->squares);
    taciti_free(a->weights);
    taciti_free(a);
}

static tacit_status post_all(taciti_comm *comm, void *context) {
    taciti_async *a = context;
    for (size_t i = 0; i < a->edges; i++) {
        edge *e = &a->edge[i];
        if (e->to_listen)
            TACITI_TRY(taciti_comm_irecv_up_to(comm, e->peer, e->theirs, message_bytes(a->n), &e->receive));
        if (e->to_send) TACITI_TRY(taciti_comm_isend(comm, e->peer, e->mine, message_bytes(a->n), &e->send));
        e->listening = e->listening || e->to_listen;
        e->sending = e->sending || e->to_send;
        e->to_listen = e->to_send = false;
    }
    return TACIT_OK;
}

static tacit_status run_job(taciti_async *a, tacit_status (*run)(taciti_comm *comm, void *context)) {
    taciti_job job = {.run = run, .context = a, .name = "asynchronous gossip", .detail = -1, .flow = ARRAYS_FLOW};
    return taciti_job_run(a->comm, &job);
}

tacit_status taciti_async_create(const taciti_async_setup *setup, taciti_async **out) {
    taciti_async *a = taciti_calloc(1, sizeof *a);
    tacit_status status = a == NULL ? TACIT_E_MEMORY : TACIT_OK;
    if (status == TACIT_OK) {
        a->comm = setup->comm;
        a->pool = setup->pool;
        a->arrivals = setup->arrivals;
        a->n = setup->n;
        a->period = setup->topology->period;
        a->gamma = setup->gamma;
        a->edges = count_edges(setup->topology, taciti_comm_rank(setup->comm));
        status = allocate_arrays(a, setup);
    }
    status = taciti_comm_agree(setup->comm, status);
    if (status == TACIT_OK) {
        describe_edges(a, setup);
        status = taciti_calls_begin(a->calls);
        if (status == TACIT_OK) status = run_job(a, post_all);
    }
    if (status == TACIT_OK)
        *out = a;
    else if (a != NULL)
        release_memory(a);
    return status;
}

void taciti_async_set_log(taciti_async *a, taciti_arrivals *arrivals) { a->arrivals = arrivals; }

/* ---- the job that runs beside a step ----------------------------------------------------------------------------- */

static tacit_status test_edge(taciti_comm *comm, taciti_async *a, edge *e) {
    bool done = false;
    if (e->sending) TACITI_TRY(taciti_comm_test(comm, &e->send, &done));
    if (done) e->sending = false;
    done = false;
    if (e->listening) TACITI_TRY(taciti_comm_test(comm, &e->receive, &done));
    if (done) {
        e->listening = false;
        e->arrived = e->receive.bytes == message_bytes(a->n); /* else it has said goodbye */
    }
    return TACIT_OK;
}

static tacit_status move_arrays(taciti_comm *comm, void *context) {
    taciti_async *a = context;
    TACITI_TRY(post_all(comm, a));
    for (;;) {
        for (size_t i = 0; i < a->edges; i++) TACITI_TRY(test_edge(comm, a, &a->edge[i]));
        TACITI_TRY(taciti_calls_move(a->calls));
        if (atomic_load_explicit(&a->end, memory_order_acquire) != 0) return TACIT_OK;
        TACITI_TRY(taciti_comm_rest(comm));
    }
}

/* Without a communication thread the job looks once, and returns. */
static void start_job(taciti_async *a) {
    atomic_store(&a->end, taciti_comm_has_thread(a->comm) ? 0 : 1);
    a->job = (taciti_job){
        .run = move_arrays, .context = a, .name = "asynchronous gossip", .detail = -1, .flow = ARRAYS_FLOW};
    a->running = true;
    taciti_job_submit(a->comm, &a->job);
}

static tacit_status end_job(taciti_async *a) {
    if (!a->running) return TACIT_OK;
    a->running = false;
    atomic_store_explicit(&a->end, 1, memory_order_release);
    TACITI_TRY(taciti_job_wait(a->comm, &a->job));
    return taciti_comm_has_thread(a->comm) ? TACIT_OK : run_job(a, move_arrays);
}

/* ---- take -------------------------------------------------------------------------------------------------------- */

static tacit_status find_edge(const taciti_async *a, int peer, edge **out) {
    for (*out = a->edge; *out < a->edge + a->edges; ++*out)
        if ((*out)->peer == peer) return TACIT_OK;
    return taciti_fail(TACIT_E_DATA,
                       "the log of arrivals has rank %d meet rank %d after step %lld: they are no neighbours",
                       taciti_comm_rank(a->comm), peer, (long long)a->step.step);
}

static tacit_status await_edge(taciti_comm *comm, edge *e, size_t full) {
    if (e->sending) TACITI_TRY(taciti_comm_await(comm, &e->send));
    e->sending = false;
    if (!e->listening) return TACIT_OK;
    TACITI_TRY(taciti_comm_await(comm, &e->receive));
    e->listening = false;
    e->arrived = e->receive.bytes == full;
    return TACIT_OK;
}

/* Waits for those that the log names. */
static tacit_status await_taken(taciti_comm *comm, void *context) {
    taciti_async *a = context;
    TACITI_TRY(post_all(comm, a));
    for (size_t i = 0; i < a->step.taken; i++) {
        edge *e = NULL;
        TACITI_TRY(find_edge(a, a->step.take[i], &e));
        TACITI_TRY(await_edge(comm, e, message_bytes(a->n)));
        if (e->offered && e->arrived) continue;
        return taciti_fail(TACIT_E_DATA,
                           "the log of arrivals has rank %d take in the array of rank %d after step %lld, "
                           "which it has not offered its own",
                           taciti_comm_rank(comm), e->peer, (long long)a->step.step);
    }
    return TACIT_OK;
}

static tacit_status choose_taken(taciti_async *a) {
    if (taciti_arrivals_replays(a->arrivals)) {
        TACITI_TRY(taciti_arrivals_read(a->arrivals, &a->step));
        return run_job(a, await_taken);
    }
    a->step.taken = a->step.offered = 0;
    for (size_t i = 0; i < a->edges; i++)
        if (a->edge[i].offered && a->edge[i].arrived) a->step.take[a->step.taken++] = a->edge[i].peer;
    return TACIT_OK;
}

/* x += gamma weight portion (theirs - mine) for every edge that is taken, in their order. */
static void add_part(void *context, int thread, int threads) {
    taciti_async *a = context;
    size_t begin = 0, end = 0;
    double squares = 0;
    taciti_pool_part(a->n, 16, thread, threads, &begin, &end);
    for (size_t k = 0; k < a->step.taken; k++) {
        const edge *e = a->taken[k];
        const float *mine = (const float *)(const void *)(e->mine + HEAD_BYTES);
        const float weight = (float)(a->gamma * e->weight * e->portion);
        const float *theirs = (const float *)(const void *)(e->theirs + HEAD_BYTES);
        for (size_t i = begin; i < end; i++) {
            const float change = weight * (theirs[i] - mine[i]);
            a->x[i] += change;
            squares += (double)change * (double)change;
        }
    }
    a->squares[thread] = squares;
}

static int64_t clock_of(const edge *e) {
    head theirs;
    memcpy(&theirs, e->theirs, sizeof theirs);
    return theirs.clock;
}

static bool has_waited(const taciti_async *a, const edge *e) { return a->own_steps - e->offered_at > PATIENCE; }

/* Adds what step.take names, and makes these edges idle. */
static tacit_status add_taken(taciti_async *a, float *x, int64_t *clock, double *moved) {
    for (size_t k = 0; k < a->step.taken; k++) {
        edge *e = NULL;
        TACITI_TRY(find_edge(a, a->step.take[k], &e));
        a->taken[k] = e;
        if (clock_of(e) > *clock) *clock = clock_of(e);
        if (!e->answered) e->late = has_waited(a, e);
        e->offered = e->answered = e->arrived = false;
        e->to_listen = true;
    }
    if (a->step.taken == 0) return TACIT_OK;
    a->x = x;
    taciti_pool_run(a->pool, add_part, a);
    for (int t = 0; t < taciti_pool_threads(a->pool); t++) *moved += a->squares[t];
    return TACIT_OK;
}

tacit_status taciti_async_take(taciti_async *a, int64_t step, float *x, int64_t *clock, double *moved) {
    TACITI_TRY(end_job(a));
    if (!a->begun) TACITI_TRY(taciti_arrivals_begin(a->arrivals, step));
    a->begun = true;
    a->step.step = step;
    *clock = step + 1;
    TACITI_TRY(choose_taken(a));
    return add_taken(a, x, clock, moved);
}

/* ---- offer ------------------------------------------------------------------------------------------------------- */

static int kind_of(const edge *e) { return e->answered ? ANSWER : e->late ? LATE : INITIATIVE; }

static void add_weights(taciti_async *a, double under_way[KINDS]) {
    for (size_t i = 0; i < a->edges; i++) {
        edge *e = &a->edge[i];
        if (!e->offered) continue;
        if (!e->answered && has_waited(a, e)) e->late = true;
        under_way[kind_of(e)] += e->weight;
    }
}

/* If it fits. An answer does where there is no other: no offer waits for ever. */
static void try_offer(taciti_async *a, edge *e, bool answer, double under_way[KINDS]) {
    e->answered = answer;
    double *sum = &under_way[kind_of(e)];
    if (*sum + e->weight > SHARE && !(answer && *sum <= 0)) return;
    *sum += e->weight;
    a->step.offer[a->step.offered++] = e->peer;
}

/* Another edge comes first in every step, so that none is always the one that does not fit. Own steps are counted,
 * not the clock, whose steps may leave out the same edge for ever. */
static void choose_offers(taciti_async *a, int64_t step) {
    double under_way[KINDS] = {0};
    const size_t first = a->edges > 0 ? (size_t)(a->own_steps % (int64_t)a->edges) : 0;
    const bool *in_round = a->in_round + (size_t)step % a->period * a->edges;
    add_weights(a, under_way);
    for (size_t k = 0; k < a->edges; k++) {
        const size_t i = (first + k) % a->edges;
        edge *e = &a->edge[i];
        if (e->offered || e->sending) continue;
        if (e->arrived || (in_round[i] && (e->listening || e->to_listen))) try_offer(a, e, e->arrived, under_way);
    }
}

static void copy_part(void *context, int thread, int threads) {
    const taciti_async *a = context;
    size_t begin = 0, end = 0;
    taciti_pool_part(a->n, 16, thread, threads, &begin, &end);
    for (size_t i = 0; i < a->edges; i++)
        if (a->edge[i].to_send)
            memcpy(a->edge[i].mine + HEAD_BYTES + begin * sizeof(float), a->x + begin, (end - begin) * sizeof(float));
}

static tacit_status await_sends(taciti_comm *comm, void *context) {
    taciti_async *a = context;
    for (size_t k = 0; k < a->step.offered; k++) {
        edge *e = NULL;
        TACITI_TRY(find_edge(a, a->step.offer[k], &e));
        if (e->sending) TACITI_TRY(taciti_comm_await(comm, &e->send));
        e->sending = false;
    }
    return TACIT_OK;
}

/* Copies the array for all edges that step.offer names. */
static tacit_status copy_offers(taciti_async *a, int64_t clock, float *x) {
    const head mine = {.clock = clock};
    for (size_t k = 0; k < a->step.offered; k++) {
        edge *e = NULL;
        TACITI_TRY(find_edge(a, a->step.offer[k], &e));
        e->offered = e->to_send = true;
        e->offers++;
        e->offered_at = a->own_steps;
        memcpy(e->mine, &mine, sizeof mine);
    }
    a->x = x;
    if (a->step.offered > 0) taciti_pool_run(a->pool, copy_part, a);
    return TACIT_OK;
}

tacit_status taciti_async_offer(taciti_async *a, int64_t step, int64_t clock, float *x) {
    a->own_steps++;
    if (taciti_arrivals_replays(a->arrivals))
        TACITI_TRY(run_job(a, await_sends));
    else
        choose_offers(a, step);
    TACITI_TRY(copy_offers(a, clock, x));
    taciti_arrivals_write(a->arrivals, &a->step);
    start_job(a);
    return TACIT_OK;
}

/* ---- meet -------------------------------------------------------------------------------------------------------- */

bool taciti_async_answer(taciti_async *a, bool due) {
    if (taciti_arrivals_replays(a->arrivals)) return taciti_arrivals_meets(a->arrivals, a->step.step);
    const bool meets = taciti_calls_answer(a->calls, due);
    /* Without a thread the answer would leave a step later. The next call reports a failure. */
    if (!meets && !taciti_comm_has_thread(a->comm)) (void)run_job(a, move_arrays);
    return meets;
}

/* The offers of all ranks, by rank and peer. Returns owned. */
static tacit_status gather_offers(taciti_async *a, int64_t **out) {
    const size_t ranks = (size_t)taciti_comm_size(a->comm);
    int64_t *mine = taciti_calloc(ranks, sizeof *mine), *all = taciti_calloc(ranks * ranks, sizeof *all);
    const bool fine = mine != NULL && all != NULL;
    tacit_status status = taciti_comm_agree(a->comm, fine ? TACIT_OK : TACIT_E_MEMORY);
    for (size_t i = 0; status == TACIT_OK && i < a->edges; i++) mine[a->edge[i].peer] = a->edge[i].offers;
    if (status == TACIT_OK) status = taciti_comm_allgather(a->comm, mine, ranks * sizeof *mine, all);
    taciti_free(mine);
    if (status == TACIT_OK)
        *out = all;
    else
        taciti_free(all);
    return status;
}

/* First, ranks take in what they have not taken in of what both have offered. Then those who have made fewer offers
 * than a neighbour answer, and both take in. Returns the sum of the weights of what this rank takes in. */
static double choose_at_meeting(taciti_async *a, const int64_t *all, bool answers) {
    const size_t ranks = (size_t)taciti_comm_size(a->comm), rank = (size_t)taciti_comm_rank(a->comm);
    double weights = 0;
    a->step.taken = a->step.offered = 0;
    for (size_t i = 0; i < a->edges; i++) {
        const edge *e = &a->edge[i];
        const int64_t theirs = all[(size_t)e->peer * ranks + rank];
        if (answers && theirs > e->offers) a->step.offer[a->step.offered++] = e->peer;
        if (!(answers ? theirs > e->offers || e->offered : e->offered && theirs >= e->offers)) continue;
        a->step.take[a->step.taken++] = e->peer;
        weights += e->weight;
    }
    return weights;
}

/* A rank that takes in from many at once would be left behind them, on the other side: with weights that sum to 1 at
 * most it is not. Both ends of an edge know both sums. */
static tacit_status share_weights(taciti_async *a, double sum) {
    TACITI_TRY(taciti_comm_allgather(a->comm, &sum, sizeof sum, a->weights));
    for (size_t i = 0; i < a->edges; i++) a->edge[i].portion = 1 / fmax(1, fmax(sum, a->weights[a->edge[i].peer]));
    return TACIT_OK;
}

static void take_whole_weights(taciti_async *a) {
    for (size_t i = 0; i < a->edges; i++) a->edge[i].portion = 1;
}

static tacit_status complete_offers(taciti_async *a, const int64_t *all, bool answers, float *x, int64_t *clock,
                                    double *moved) {
    TACITI_TRY(share_weights(a, choose_at_meeting(a, all, answers)));
    TACITI_TRY(run_job(a, await_sends));
    TACITI_TRY(copy_offers(a, *clock, x));
    TACITI_TRY(run_job(a, await_taken));
    return add_taken(a, x, clock, moved);
}

/* By itself: another rank may wait for an offer that this one would make after the meeting. */
static tacit_status check_meeting(taciti_async *a) {
    if (!taciti_arrivals_replays(a->arrivals) || taciti_arrivals_meets(a->arrivals, a->step.step)) return TACIT_OK;
    TACITI_TRY(taciti_arrivals_read(a->arrivals, &a->step)); /* or is it damaged? */
    return taciti_fail(
        TACIT_E_CONFIG,
        "the log of arrivals has no meeting after step %lld; repeat the run with the options that it had",
        (long long)a->step.step);
}

static void note_meeting(taciti_async *a) {
    const taciti_arrivals_step line = {.step = a->step.step, .meet = true};
    taciti_arrivals_write(a->arrivals, &line);
    taciti_arrivals_flush(a->arrivals);
}

tacit_status taciti_async_meet(taciti_async *a, float *x, int64_t *clock, double *moved, bool *ends) {
    int64_t *all = NULL;
    TACITI_TRY(end_job(a));
    TACITI_TRY(check_meeting(a));
    if (!taciti_arrivals_replays(a->arrivals)) TACITI_TRY(taciti_calls_gather(a->calls));
    note_meeting(a);
    TACITI_TRY(taciti_arrivals_check(a->arrivals));
    TACITI_TRY(gather_offers(a, &all));
    tacit_status status = complete_offers(a, all, false, x, clock, moved);
    if (status == TACIT_OK) status = complete_offers(a, all, true, x, clock, moved);
    taciti_free(all);
    take_whole_weights(a);
    TACITI_TRY(status);
    TACITI_TRY(run_job(a, post_all));
    enum { CLOCK, GOES_ON, FIGURES };
    double max[FIGURES] = {[CLOCK] = (double)*clock, [GOES_ON] = taciti_arrivals_ended(a->arrivals) ? 0 : 1};
    TACITI_TRY(taciti_comm_allreduce_f64(a->comm, max, FIGURES, TACITI_OP_MAX));
    *clock = (int64_t)max[CLOCK];
    *ends = max[GOES_ON] <= 0;
    return TACIT_OK;
}

/* ---- goodbye ----------------------------------------------------------------------------------------------------- */

/* The last message in either direction. Own arrays that are under way go first; those of the peer that come before its
 * goodbye are not read. */
static tacit_status move_goodbye(taciti_comm *comm, taciti_async *a, edge *e) {
    TACITI_TRY(test_edge(comm, a, e));
    if (e->arrived) {
        e->arrived = false;
        e->listening = true;
        TACITI_TRY(taciti_comm_irecv_up_to(comm, e->peer, e->theirs, message_bytes(a->n), &e->receive));
    }
    if (e->sending || e->said_goodbye) return TACIT_OK;
    e->said_goodbye = e->sending = true;
    return taciti_comm_isend(comm, e->peer, e->mine, HEAD_BYTES, &e->send);
}

/* All edges move at once: a rank that waited for one of them would hold what another rank waits for. */
static tacit_status say_goodbye(taciti_comm *comm, void *context) {
    taciti_async *a = context;
    const int64_t begin_ns = taciti_now_ns();
    for (size_t i = 0; i < a->edges; i++) {
        edge *e = &a->edge[i];
        e->to_listen = e->to_listen || e->arrived;
        e->arrived = false;
    }
    TACITI_TRY(post_all(comm, a));
    for (;;) {
        bool over = true;
        for (size_t i = 0; i < a->edges; i++) {
            edge *e = &a->edge[i];
            TACITI_TRY(move_goodbye(comm, a, e));
            if (!e->sending && !e->listening) continue;
            TACITI_TRY(taciti_comm_check_wait(comm, e->peer, begin_ns));
            over = false;
        }
        if (over) return TACIT_OK;
        TACITI_TRY(taciti_comm_rest(comm));
    }
}

void taciti_async_destroy(taciti_async *a) {
    if (a == NULL) return;
    if (end_job(a) == TACIT_OK && taciti_comm_health(a->comm) == TACIT_OK) {
        (void)taciti_calls_end(a->calls);
        if (taciti_comm_health(a->comm) == TACIT_OK) (void)run_job(a, say_goodbye);
    }
    release_memory(a);
}
