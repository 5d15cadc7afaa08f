/* SPDX-License-Identifier: Apache-2.0
 *
 * Links: what a message costs between two ranks, and what is left of it when many send at once.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "cluster/fit.h"
#include "cluster/probe_state.h"
#include "exchange/pipeline.h"

static const size_t SIZES[] = {1,       8,       64,      1 << 10, 4 << 10, 16 << 10, 64 << 10,
                               1 << 18, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20};
static const size_t QUICK_SIZES[] = {1, 64, 16 << 10, 1 << 18, 1 << 20, 2 << 20, 4 << 20};
/* These tell links apart: a short message and one that takes some time. */
static const size_t CHECK_SIZES[] = {1, 1 << 18};

enum { ROUNDS_MIN = 3, ROUNDS_MAX = 200, CHECKS_MAX = 16, FLOW_ROUNDS = 5 };
/* Up to here the latency is most of the time. */
enum { LATENCY_BYTES = 64 << 10 };
/* Pieces of a transfer that are under way at once: one moves while the next one is announced, as in an exchange. */
enum { WINDOW = 2 };
enum { FLOW_MAX_BYTES = 64 << 20 };
/* Maximum share of a pair's time for a short size, and share of the rest for a long one. */
static const double SHORT_SHARE = 0.03, LONG_SHARE = 0.3;
static const double FLOW_S = 0.25, FLOW_S_QUICK = 0.12, FLOW_SHARE = 0.25;
/* A pair that differs by more from the median is named: memory differs with where the ranks happen to run. */
static const double UNEVEN_BETWEEN = 1.2, UNEVEN_INSIDE = 3;

typedef struct flow {
    int from, to;
} flow;

/* ---- ping-pong --------------------------------------------------------------------------------------------------- */

typedef struct ping_pong {
    int from, to;
    const size_t *sizes; /* ascending */
    size_t count;
    double max_s;
    char *buffer;                   /* of the longest size on both ranks */
    double seconds[TACITI_FIT_MAX]; /* one way, of the sizes there was time for; on `from` */
    size_t measured;
} ping_pong;

/* The message of `from` to `to` before each series; rounds 0 is the end. */
typedef struct series {
    uint64_t bytes, rounds;
} series;

static tacit_status answer_series(taciti_comm *comm, const ping_pong *p) {
    for (;;) {
        series s = {0};
        TACITI_TRY(taciti_comm_receive(comm, p->from, &s, sizeof s));
        if (s.rounds == 0) return TACIT_OK;
        for (uint64_t i = 0; i < s.rounds; i++) {
            TACITI_TRY(taciti_comm_receive(comm, p->from, p->buffer, s.bytes));
            TACITI_TRY(taciti_comm_send(comm, p->from, p->buffer, s.bytes));
        }
    }
}

/* Sets *out_s to the median of that many round trips. */
static tacit_status run_series(taciti_comm *comm, const ping_pong *p, size_t bytes, size_t rounds, double *out_s) {
    double seconds[ROUNDS_MAX];
    const series s = {.bytes = bytes, .rounds = rounds};
    TACITI_TRY(taciti_comm_send(comm, p->to, &s, sizeof s));
    for (size_t i = 0; i < rounds; i++) {
        const int64_t begin_ns = taciti_now_ns();
        TACITI_TRY(taciti_comm_send(comm, p->to, p->buffer, bytes));
        TACITI_TRY(taciti_comm_receive(comm, p->to, p->buffer, bytes));
        seconds[i] = (double)(taciti_now_ns() - begin_ns) / 1e9;
    }
    *out_s = taciti_median(seconds, rounds);
    return TACIT_OK;
}

/* One round trip to warm up and to see how many there is time for. A size whose rounds would take longer than what is
 * left ends the measurement. */
static tacit_status lead_series(taciti_comm *comm, ping_pong *p) {
    const int64_t begin_ns = taciti_now_ns();
    double trip_s = 0, left_s = p->max_s;
    for (size_t i = 0; i < p->count; i++) {
        const double growth = p->sizes[i] > LATENCY_BYTES ? (double)p->sizes[i] / (double)p->sizes[i - 1] : 1;
        if (trip_s * growth * (1 + ROUNDS_MIN) > left_s && i > 1) break;
        TACITI_TRY(run_series(comm, p, p->sizes[i], 1, &trip_s));
        const double share_s = p->sizes[i] > LATENCY_BYTES ? LONG_SHARE * left_s : SHORT_SHARE * p->max_s;
        const double fit = share_s / trip_s;
        const size_t rounds = fit > ROUNDS_MAX ? ROUNDS_MAX : fit > ROUNDS_MIN ? (size_t)fit : ROUNDS_MIN;
        TACITI_TRY(run_series(comm, p, p->sizes[i], rounds, &trip_s));
        p->seconds[i] = trip_s / 2;
        p->measured = i + 1;
        left_s = p->max_s - (double)(taciti_now_ns() - begin_ns) / 1e9;
    }
    const series end = {0};
    return taciti_comm_send(comm, p->to, &end, sizeof end);
}

static tacit_status run_ping_pong(taciti_comm *comm, void *context) {
    ping_pong *p = context;
    const int rank = taciti_comm_rank(comm);
    if (rank == p->from) return lead_series(comm, p);
    return rank == p->to ? answer_series(comm, p) : TACIT_OK;
}

/* All ranks end with the times. */
static tacit_status measure_pair(taciti_probe *probe, ping_pong *p) {
    const bool mine = probe->rank == p->from || probe->rank == p->to;
    p->buffer = taciti_calloc(mine ? p->sizes[p->count - 1] : 1, 1);
    tacit_status status = taciti_comm_agree(probe->comm, p->buffer == NULL ? TACIT_E_MEMORY : TACIT_OK);
    taciti_job job = {.run = run_ping_pong, .context = p, .name = "ping-pong", .detail = -1};
    if (status == TACIT_OK) status = taciti_probe_job(probe, &job);
    taciti_free(p->buffer);
    if (status == TACIT_OK) status = taciti_comm_broadcast(probe->comm, p->from, p->seconds, sizeof p->seconds);
    if (status == TACIT_OK) status = taciti_comm_broadcast(probe->comm, p->from, &p->measured, sizeof p->measured);
    return status;
}

static tacit_status note_short_sizes(taciti_probe *probe, const ping_pong *p) {
    if (p->measured == p->count) return TACIT_OK;
    return taciti_cluster_add_note(probe->cluster,
                                   "messages between ranks %d and %d above %zu bytes were left out: too little time",
                                   p->from, p->to, p->sizes[p->measured - 1]);
}

/* The whole line. Between hosts nothing works without it. */
static tacit_status measure_link(taciti_probe *probe, int from, int to, double max_s, taciti_link_cost *out) {
    const bool quick = probe->options->quick;
    ping_pong p = {.from = from,
                   .to = to,
                   .sizes = quick ? QUICK_SIZES : SIZES,
                   .count = quick ? sizeof QUICK_SIZES / sizeof *QUICK_SIZES : sizeof SIZES / sizeof *SIZES,
                   .max_s = max_s};
    double bytes[TACITI_FIT_MAX];
    TACITI_TRY(measure_pair(probe, &p));
    TACITI_TRY(note_short_sizes(probe, &p));
    for (size_t i = 0; i < p.measured; i++) bytes[i] = (double)p.sizes[i];
    if (taciti_fit_link(bytes, p.seconds, p.measured, out)) return TACIT_OK;
    if (taciti_comm_same_host(probe->comm, from, to))
        return taciti_cluster_add_note(probe->cluster,
                                       "links.inside is unknown: long messages took no longer than shorter ones; too "
                                       "much disturbed them, or --seconds was too short");
    if (probe->rank > 0) return TACIT_E_DATA;
    return taciti_fail(TACIT_E_DATA,
                       "long messages between ranks %d and %d took no longer than shorter ones: too much disturbs the "
                       "link; try again with --seconds %.0f",
                       from, to, 2 * probe->options->seconds);
}

/* ---- are all links alike? ---------------------------------------------------------------------------------------- */

/* Sets *out to the i-th pair of this kind, two ranks of a host or the first ranks of two. Returns false when there are
 * no more. Between hosts each host is once the sender. */
static bool pair_of(const taciti_probe *probe, bool inside, int i, flow *out) {
    if (!inside) {
        if (probe->hosts < 2 || i >= (probe->hosts == 2 ? 1 : probe->hosts)) return false;
        *out = (flow){taciti_probe_rank(probe, i, 0), taciti_probe_rank(probe, (i + 1) % probe->hosts, 0)};
        return true;
    }
    for (int h = 0; h < probe->hosts; h++) {
        if (taciti_probe_host_size(probe, h) < 2 || i-- > 0) continue;
        *out = (flow){taciti_probe_rank(probe, h, 0), taciti_probe_rank(probe, h, 1)};
        return true;
    }
    return false;
}

/* The pairs on the same sizes one after the other, if there is time; the note names the pair that differs most from the
 * median. */
static tacit_status compare_pairs(taciti_probe *probe, bool inside, const taciti_link_cost *link, double max_s) {
    double seconds[CHECKS_MAX], sorted[CHECKS_MAX];
    flow pairs[CHECKS_MAX];
    size_t count = 0, worst = 0;
    while (count < CHECKS_MAX && pair_of(probe, inside, (int)count, &pairs[count])) count++;
    const double trip_s = 2 * (link->alpha_s + link->beta_s_per_byte * (double)CHECK_SIZES[1]);
    if (count < 2 || trip_s * (1 + ROUNDS_MIN) * (double)count > max_s) return TACIT_OK;
    for (size_t i = 0; i < count; i++) {
        ping_pong p = {.from = pairs[i].from,
                       .to = pairs[i].to,
                       .sizes = CHECK_SIZES,
                       .count = sizeof CHECK_SIZES / sizeof *CHECK_SIZES,
                       .max_s = max_s / (double)count};
        TACITI_TRY(measure_pair(probe, &p));
        seconds[i] = sorted[i] = p.seconds[p.count - 1];
    }
    const double median = taciti_median(sorted, count);
    for (size_t i = 1; i < count; i++)
        if (seconds[i] / median + median / seconds[i] > seconds[worst] / median + median / seconds[worst]) worst = i;
    const double max = inside ? UNEVEN_INSIDE : UNEVEN_BETWEEN;
    if (seconds[worst] < median * max && seconds[worst] > median / max) return TACIT_OK;
    return taciti_cluster_add_note(
        probe->cluster, "uneven links: %zu bytes from rank %d (%.40s) to rank %d (%.40s) take %.3g ms, others %.3g ms",
        CHECK_SIZES[1], pairs[worst].from, taciti_comm_peer(probe->comm, pairs[worst].from)->host, pairs[worst].to,
        taciti_comm_peer(probe->comm, pairs[worst].to)->host, 1e3 * seconds[worst], 1e3 * median);
}

/* ---- many at once ------------------------------------------------------------------------------------------------ */

/* Transfers that begin together, each from its own sender. They travel in the pieces in which our collectives send: a
 * longer message asks its receiver first, and in both directions at once that question stands behind the data. */
typedef struct flows {
    flow *list; /* [count] */
    size_t count, pieces, piece_bytes;
    char *out, *in;                /* one transfer to send; one after the other what arrives */
    taciti_engine_request *arrive; /* [count][pieces] */
    taciti_engine_request *leave;  /* [pieces] */
    int64_t begin_ns, end_ns;      /* of a rank that receives */
} flows;

static size_t count_incoming(const flows *f, int rank) {
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++) count += f->list[i].to == rank;
    return count;
}

/* A receiver says "go" to its senders when all its receives are posted, so the clock that starts is the one that
 * stops. */
static tacit_status invite_senders(taciti_comm *comm, flows *f, int rank) {
    char go = 0;
    size_t at = 0;
    for (size_t i = 0; i < f->count; i++)
        for (size_t k = 0; f->list[i].to == rank && k < f->pieces; k++, at++)
            TACITI_TRY(
                taciti_comm_irecv(comm, f->list[i].from, f->in + at * f->piece_bytes, f->piece_bytes, &f->arrive[at]));
    f->begin_ns = taciti_now_ns();
    for (size_t i = 0; i < f->count; i++)
        if (f->list[i].to == rank) TACITI_TRY(taciti_comm_send(comm, f->list[i].from, &go, 1));
    return TACIT_OK;
}

static tacit_status run_flows(taciti_comm *comm, void *context) {
    flows *f = context;
    const int rank = taciti_comm_rank(comm);
    const flow *mine = NULL;
    taciti_engine_request invitation;
    char go = 0;
    for (size_t i = 0; i < f->count; i++)
        if (f->list[i].from == rank) mine = &f->list[i];
    /* Before its data, what a peer sends to both a receiver and a sender is "go". */
    if (mine != NULL) TACITI_TRY(taciti_comm_irecv(comm, mine->to, &go, 1, &invitation));
    TACITI_TRY(invite_senders(comm, f, rank));
    if (mine != NULL) TACITI_TRY(taciti_comm_await(comm, &invitation));
    for (size_t k = 0; mine != NULL && k < f->pieces; k++) {
        if (k >= WINDOW) TACITI_TRY(taciti_comm_await(comm, &f->leave[k - WINDOW]));
        TACITI_TRY(taciti_comm_isend(comm, mine->to, f->out + k * f->piece_bytes, f->piece_bytes, &f->leave[k]));
    }
    for (size_t i = 0; i < count_incoming(f, rank) * f->pieces; i++) TACITI_TRY(taciti_comm_await(comm, &f->arrive[i]));
    f->end_ns = taciti_now_ns();
    for (size_t k = f->pieces > WINDOW ? f->pieces - WINDOW : 0; mine != NULL && k < f->pieces; k++)
        TACITI_TRY(taciti_comm_await(comm, &f->leave[k]));
    return TACIT_OK;
}

/* From the first "go" of a host to its last arrival, the longest of all hosts. Times of one host are of one clock. */
static tacit_status find_duration(taciti_probe *probe, const flows *f, int64_t *times, double *out_s) {
    const bool receives = count_incoming(f, probe->rank) > 0;
    const int64_t mine[2] = {receives ? f->begin_ns : 0, receives ? f->end_ns : 0};
    double longest_s = 0;
    TACITI_TRY(taciti_comm_allgather(probe->comm, mine, sizeof mine, times));
    for (int h = 0; h < probe->hosts; h++) {
        int64_t begin_ns = INT64_MAX, end_ns = 0;
        for (int i = 0; i < taciti_probe_host_size(probe, h); i++) {
            const int64_t *t = &times[2 * taciti_probe_rank(probe, h, i)];
            if (t[1] == 0) continue;
            if (t[0] < begin_ns) begin_ns = t[0];
            if (t[1] > end_ns) end_ns = t[1];
        }
        const double seconds = end_ns == 0 ? 0 : (double)(end_ns - begin_ns) / 1e9;
        if (seconds > longest_s) longest_s = seconds;
    }
    *out_s = longest_s;
    return TACIT_OK;
}

/* After one round that does not count. */
static tacit_status run_rounds(taciti_probe *probe, flows *f, int64_t *times, double *out_s) {
    double seconds[FLOW_ROUNDS] = {0};
    for (int i = -1; i < FLOW_ROUNDS; i++) {
        taciti_job job = {.run = run_flows, .context = f, .name = "messages at once", .detail = -1};
        TACITI_TRY(taciti_comm_barrier(probe->comm));
        TACITI_TRY(taciti_probe_job(probe, &job));
        TACITI_TRY(find_duration(probe, f, times, &seconds[i < 0 ? 0 : i]));
    }
    *out_s = taciti_median(seconds, FLOW_ROUNDS);
    return TACIT_OK;
}

/* Pieces of each transfer, so that `parts` of them together take `max_s` on the link of two hosts. */
static size_t piece_count(const taciti_probe *probe, double max_s, size_t parts, size_t piece_bytes) {
    const double fit = max_s / probe->cluster->between.beta_s_per_byte;
    const double total = fit > FLOW_MAX_BYTES ? FLOW_MAX_BYTES : fit;
    const double pieces = total / (double)parts / (double)piece_bytes;
    return pieces > 1 ? (size_t)pieces : 1; /* no time left is less than none */
}

static tacit_status allocate_buffers(flows *f, int rank) {
    f->out = taciti_calloc(f->pieces, f->piece_bytes);
    f->in = taciti_calloc(count_incoming(f, rank) * f->pieces, f->piece_bytes);
    f->arrive = taciti_calloc(f->count * f->pieces, sizeof *f->arrive);
    f->leave = taciti_calloc(f->pieces, sizeof *f->leave);
    return f->out == NULL || f->in == NULL || f->arrive == NULL || f->leave == NULL ? TACIT_E_MEMORY : TACIT_OK;
}

/* Seconds per byte of `parts` transfers together, less the latency of the "go" and of the data. */
static tacit_status measure_flows(taciti_probe *probe, flow *list, size_t count, size_t parts, double *out) {
    double left_s = 0, seconds = 0;
    TACITI_TRY(taciti_probe_left(probe, 1, &left_s));
    const double wanted_s = probe->options->quick ? FLOW_S_QUICK : FLOW_S;
    const double max_s = left_s / (FLOW_ROUNDS + 1) * FLOW_SHARE;
    flows f = {.list = list, .count = count, .piece_bytes = TACITI_WIRE_SEGMENT_BYTES};
    f.pieces = piece_count(probe, max_s < wanted_s ? max_s : wanted_s, parts, f.piece_bytes);
    tacit_status status = allocate_buffers(&f, probe->rank);
    int64_t *times = taciti_calloc(2 * (size_t)probe->size, sizeof *times);
    status = taciti_comm_agree(probe->comm, times == NULL ? TACIT_E_MEMORY : status);
    if (status == TACIT_OK) status = run_rounds(probe, &f, times, &seconds);
    taciti_free(f.out);
    taciti_free(f.in);
    taciti_free(f.arrive);
    taciti_free(f.leave);
    taciti_free(times);
    TACITI_TRY(status);
    const double moving_s = seconds - 2 * probe->cluster->between.alpha_s;
    if (moving_s <= 0)
        return taciti_cluster_add_note(
            probe->cluster, "a bandwidth of many ranks at once is unknown: too little time to move more than "
                            "the latency hides");
    *out = moving_s / ((double)(f.pieces * f.piece_bytes) * (double)parts);
    return TACIT_OK;
}

/* Each rank of host a to one of host b. Returns the number of flows. */
static size_t all_ranks(const taciti_probe *probe, int a, int b, flow *list) {
    const int from = taciti_probe_host_size(probe, a), to = taciti_probe_host_size(probe, b);
    for (int i = 0; i < from; i++)
        list[i] = (flow){taciti_probe_rank(probe, a, i), taciti_probe_rank(probe, b, i % to)};
    return (size_t)from;
}

/* The host with the most ranks, but for one; the first of several. except -1: of all hosts. */
static int largest_host(const taciti_probe *probe, int except) {
    int largest = except == 0 ? 1 : 0;
    for (int h = largest + 1; h < probe->hosts; h++)
        if (h != except && taciti_probe_host_size(probe, h) > taciti_probe_host_size(probe, largest)) largest = h;
    return largest;
}

static tacit_status measure_crowds(taciti_probe *probe, flow *list) {
    taciti_cluster *cluster = probe->cluster;
    const int first = largest_host(probe, -1), second = largest_host(probe, first);
    const size_t there = all_ranks(probe, first, second, list), back = all_ranks(probe, second, first, list + there);
    const size_t parts = there > back ? there : back; /* the busier direction */
    if (there > 1) TACITI_TRY(measure_flows(probe, list, there, there, &cluster->host_beta_s_per_byte));
    TACITI_TRY(measure_flows(probe, list, there + back, parts, &cluster->duplex_beta_s_per_byte));
    if (probe->hosts < 3) return TACIT_OK;
    const int to = taciti_probe_host_size(probe, 0);
    for (int h = 1; h < probe->hosts; h++) /* the first rank of each other host to the ranks of the first in turn */
        list[h - 1] = (flow){taciti_probe_rank(probe, h, 0), taciti_probe_rank(probe, 0, (h - 1) % to)};
    const size_t senders = (size_t)probe->hosts - 1;
    return measure_flows(probe, list, senders, senders, &cluster->incast_beta_s_per_byte);
}

/* ---- all links --------------------------------------------------------------------------------------------------- */

/* One kind of pair: the line of the first pair, then a look at the others. */
static tacit_status measure_kind(taciti_probe *probe, bool inside, double share, taciti_link_cost *out) {
    flow first;
    double left_s = 0;
    if (!pair_of(probe, inside, 0, &first)) return TACIT_OK;
    taciti_probe_say(probe, inside ? "links inside a host" : "links between hosts");
    TACITI_TRY(taciti_probe_left(probe, share, &left_s));
    if (left_s < 0) left_s = 0;
    TACITI_TRY(measure_link(probe, first.from, first.to, left_s * 3 / 4, out));
    return out->alpha_s < 0 ? TACIT_OK : compare_pairs(probe, inside, out, left_s / 4);
}

tacit_status taciti_probe_links(taciti_probe *probe, double share) {
    double left_s = 0;
    TACITI_TRY(taciti_probe_left(probe, share, &left_s));
    const double begin = share - left_s / probe->options->seconds, span = share - begin;
    TACITI_TRY(measure_kind(probe, true, begin + span / 5, &probe->cluster->inside));
    TACITI_TRY(measure_kind(probe, false, begin + span * 3 / 4, &probe->cluster->between));
    if (probe->hosts < 2) return TACIT_OK;
    taciti_probe_say(probe, "many ranks at once");
    flow *list = taciti_calloc(2 * (size_t)probe->size, sizeof *list);
    tacit_status status = taciti_comm_agree(probe->comm, list == NULL ? TACIT_E_MEMORY : TACIT_OK);
    if (status == TACIT_OK) status = measure_crowds(probe, list);
    taciti_free(list);
    return status;
}
