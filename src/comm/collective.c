/* SPDX-License-Identifier: Apache-2.0
 *
 * Small blocking collectives: a gather to rank 0 and a binomial tree from the root, run as jobs. Rank 0 reduces in rank
 * order and everybody receives its result, so all ranks hold the same bits.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pool.h"
#include "comm/state.h"
#include "comm/tcp_address.h"

enum {
    MAX_CHILDREN = 32,
    WINDOW = 2,
    TEXT_BYTES = TACITI_COMPARED_BYTES + 1,
    CLOCK_ROUNDS = 16,
    EXCERPT_BEFORE = 30,
    EXCERPT = 80,
    REASON_BYTES = 512
};

/* ---- inside a job ------------------------------------------------------------------------------------------------ */
static tacit_status grow_scratch(taciti_comm *comm, size_t bytes) {
    if (bytes <= comm->scratch_bytes) return TACIT_OK;
    char *grown = taciti_calloc(bytes, 1);
    if (grown == NULL) return taciti_comm_break(comm, TACIT_E_MEMORY);
    taciti_free(comm->scratch);
    comm->scratch = grown;
    comm->scratch_bytes = bytes;
    return TACIT_OK;
}

/* Calls move() for pieces of a segment (at least once), so that every piece is a sign of life. */
static size_t piece_of(const taciti_comm *comm, size_t at, size_t count) {
    const size_t max = (size_t)comm->options.segment_bytes;
    return count - at < max ? count - at : max;
}

/* all (rank 0 only) receives size * count bytes in rank order. Small contributions of all ranks travel at once. */
static tacit_status gather_all(taciti_comm *comm, const void *mine, size_t count, char *all) {
    const int size = comm->engine.size;
    const size_t segment = (size_t)comm->options.segment_bytes;
    size_t at = 0;
    do {
        const size_t n = piece_of(comm, at, count);
        if (comm->engine.rank != 0) {
            TACITI_TRY(taciti_comm_send(comm, 0, (const char *)mine + at, n));
        } else {
            for (int r = 1; r < size; r++)
                TACITI_TRY(taciti_comm_irecv(comm, r, all + (size_t)r * count + at, n, &comm->requests[r]));
            for (int r = 1; r < size; r++) TACITI_TRY(taciti_comm_await(comm, &comm->requests[r]));
        }
        at += segment;
    } while (at < count);
    if (comm->engine.rank == 0 && count > 0) memmove(all, mine, count);
    return TACIT_OK;
}

/* Children of this rank in the binomial tree from `root`; *parent is -1 at the root. */
static int find_family(const taciti_comm *comm, int root, int children[MAX_CHILDREN], int *parent) {
    const int size = comm->engine.size, me = (comm->engine.rank - root + size) % size;
    int count = 0, bit = 1;
    for (; bit < size && (me & bit) == 0; bit <<= 1)
        if (me + bit < size) children[count++] = (me + bit + root) % size;
    *parent = me == 0 ? -1 : (me - bit + root) % size;
    return count;
}

static tacit_status spread_bytes(taciti_comm *comm, int root, void *bytes, size_t count) {
    int children[MAX_CHILDREN], parent = -1;
    taciti_engine_request sends[WINDOW][MAX_CHILDREN];
    const int child_count = find_family(comm, root, children, &parent);
    const size_t segment = (size_t)comm->options.segment_bytes;
    size_t at = 0, pieces = 0;
    do {
        char *p = (char *)bytes + at;
        const size_t n = piece_of(comm, at, count);
        taciti_engine_request *slot = sends[pieces % WINDOW];
        if (parent >= 0) TACITI_TRY(taciti_comm_receive(comm, parent, p, n));
        for (int c = child_count - 1; c >= 0; c--) { /* the largest subtree first */
            if (pieces >= WINDOW) TACITI_TRY(taciti_comm_await(comm, &slot[c]));
            TACITI_TRY(taciti_comm_isend(comm, children[c], p, n, &slot[c]));
        }
        at += segment;
        pieces++;
    } while (at < count);
    for (size_t i = pieces < WINDOW ? 0 : pieces - WINDOW; i < pieces; i++)
        for (int c = 0; c < child_count; c++) TACITI_TRY(taciti_comm_await(comm, &sends[i % WINDOW][c]));
    return TACIT_OK;
}

/* ---- calls: what a submitting thread wants done by a job --------------------------------------------------------- */
typedef struct call {
    const char *name;
    int root;
    const void *in;
    void *bytes;
    size_t count;
    taciti_op op;
    const taciti_op *operations; /* of the values one by one; NULL: op */
    char *reason;                /* [REASON_BYTES] of a refusal */
} call;

static tacit_status run_call(taciti_comm *comm, call *what, tacit_status (*run)(taciti_comm *comm, void *context)) {
    taciti_job job = {.run = run, .context = what, .name = what->name, .detail = -1};
    return taciti_job_run(comm, &job);
}

static double combine_numbers(double a, double b, taciti_op op) {
    switch (op) {
    case TACITI_OP_SUM: return a + b;
    case TACITI_OP_MAX: return a > b || a != a ? a : b; /* a NaN wins, so that nobody overlooks it */
    case TACITI_OP_MIN: return a < b || a != a ? a : b;
    }
    return a;
}

static tacit_status run_allreduce(taciti_comm *comm, void *context) {
    const call *c = context;
    double *values = c->bytes;
    const size_t bytes = c->count * sizeof *values;
    TACITI_TRY(grow_scratch(comm, comm->engine.rank == 0 ? bytes * (size_t)comm->engine.size : 0));
    TACITI_TRY(gather_all(comm, values, bytes, comm->scratch));
    if (comm->engine.rank == 0)
        for (int r = 1; r < comm->engine.size; r++) {
            const double *theirs = (const double *)(const void *)(comm->scratch + (size_t)r * bytes);
            for (size_t i = 0; i < c->count; i++)
                values[i] = combine_numbers(values[i], theirs[i], c->operations == NULL ? c->op : c->operations[i]);
        }
    return spread_bytes(comm, 0, values, bytes);
}

tacit_status taciti_comm_allreduce_f64(taciti_comm *comm, double *values, size_t n, taciti_op op) {
    if (comm->engine.size == 1) return taciti_comm_health(comm);
    return run_call(comm, &(call){.name = "all-reduce of numbers", .bytes = values, .count = n, .op = op},
                    run_allreduce);
}

tacit_status taciti_comm_allreduce_by(taciti_comm *comm, double *values, size_t n, const taciti_op *operations) {
    if (comm->engine.size == 1) return taciti_comm_health(comm);
    return run_call(comm,
                    &(call){.name = "all-reduce of numbers", .bytes = values, .count = n, .operations = operations},
                    run_allreduce);
}

static tacit_status run_broadcast(taciti_comm *comm, void *context) {
    const call *c = context;
    return spread_bytes(comm, c->root, c->bytes, c->count);
}

tacit_status taciti_comm_broadcast(taciti_comm *comm, int root, void *bytes, size_t n) {
    if (comm->engine.size == 1) return taciti_comm_health(comm);
    return run_call(comm, &(call){.name = "broadcast", .root = root, .bytes = bytes, .count = n}, run_broadcast);
}

static tacit_status run_allgather(taciti_comm *comm, void *context) {
    const call *c = context;
    TACITI_TRY(gather_all(comm, c->in, c->count, c->bytes));
    return spread_bytes(comm, 0, c->bytes, c->count * (size_t)comm->engine.size);
}

tacit_status taciti_comm_allgather(taciti_comm *comm, const void *bytes, size_t n, void *out) {
    if (comm->engine.size == 1) {
        if (n > 0) memmove(out, bytes, n);
        return taciti_comm_health(comm);
    }
    return run_call(comm, &(call){.name = "all-gather", .in = bytes, .bytes = out, .count = n}, run_allgather);
}

tacit_status taciti_comm_barrier(taciti_comm *comm) {
    if (comm->engine.size == 1) return taciti_comm_health(comm);
    char nothing = 0;
    return run_call(comm, &(call){.name = "barrier", .in = &nothing, .bytes = &nothing}, run_allgather);
}

/* The refusal of one rank, without gaps that nobody fills. */
typedef struct refusal {
    uint64_t held;
    int64_t status;
    char text[REASON_BYTES];
} refusal;

/* A refusal that several ranks share is logged by the first of them. Ranks that refuse nothing take the words of the
 * first that returns `worst`: on every rank taciti_error_text() is the reason. One rank speaks after the other, so that
 * this needs no memory: the lack of it may be what they talk about. */
static tacit_status settle_refusals(taciti_comm *comm, tacit_status mine, tacit_status worst) {
    const uint64_t held = taciti_log_held();
    bool first = true, told = mine < 0;
    for (int r = 0; r < comm->engine.size; r++) {
        refusal one = {.held = held, .status = mine};
        if (mine < 0) (void)snprintf(one.text, sizeof one.text, "%s", taciti_error_text());
        TACITI_TRY(taciti_comm_broadcast(comm, r, &one, sizeof one));
        first = first && (r >= comm->engine.rank || one.held != held);
        if (told || one.status != worst) continue;
        taciti_error_set("rank %d: %.*s", r, (int)REASON_BYTES, one.text);
        told = true;
    }
    taciti_log_settle(first);
    return TACIT_OK;
}

tacit_status taciti_comm_agree(taciti_comm *comm, tacit_status mine) {
    double worst = (double)mine;
    TACITI_TRY(taciti_comm_allreduce_f64(comm, &worst, 1, TACITI_OP_MIN));
    const bool known = worst >= (double)TACIT_E_INTERNAL && worst <= 0; /* a peer may have sent anything */
    const tacit_status status = known ? (tacit_status)(int)worst : TACIT_E_INTERNAL;
    if (status < 0) TACITI_TRY(settle_refusals(comm, mine, status));
    if (taciti_log_held() != 0) taciti_log_settle(true);
    return status;
}

/* The smallest step travels with its rank, in one number. */
tacit_status taciti_comm_agree_step(taciti_comm *comm, int64_t step) {
    const int rank = comm->engine.rank, ranks = comm->engine.size;
    double lowest[] = {(double)step * ranks + rank, -(double)step};
    TACITI_TRY(taciti_comm_allreduce_f64(comm, lowest, 2, TACITI_OP_MIN));
    if (!(lowest[0] >= 0 && lowest[0] < 0x1p53 && lowest[1] <= 0 && lowest[1] > -0x1p53)) /* a peer may send anything */
        return TACITI_FAIL_TOGETHER(rank, TACIT_E_INTERNAL, "ranks meet after %g and %g steps", lowest[0], -lowest[1]);
    const long long place = (long long)lowest[0], min = place / ranks, max = (long long)-lowest[1];
    if (min == max) return TACIT_OK;
    return TACITI_FAIL_TOGETHER(
        rank, TACIT_E_USAGE,
        "ranks meet after different numbers of steps: %lld and, on rank %d, %lld; all must make the same steps", max,
        (int)(place % ranks), min);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */
static void describe_difference(const taciti_comm *comm, const char *what, const char *mine, int rank,
                                const char *theirs, char out[REASON_BYTES]) {
    size_t at = 0;
    while (mine[at] != 0 && mine[at] == theirs[at]) at++;
    const size_t from = at > EXCERPT_BEFORE ? at - EXCERPT_BEFORE : 0;
    const taciti_peer *peer = &comm->peers[rank];
    (void)snprintf(out, REASON_BYTES, "%s differs: rank 0 has \"%s%.*s\", rank %d on host %s has \"%s%.*s\"", what,
                   from > 0 ? "..." : "", (int)EXCERPT, mine + from, rank, peer->host, from > 0 ? "..." : "",
                   (int)EXCERPT, theirs + from);
}

/* Leaves the difference in c->reason; "": there is none. */
static tacit_status run_agree_text(taciti_comm *comm, void *context) {
    const call *c = context;
    TACITI_TRY(grow_scratch(comm, comm->engine.rank == 0 ? TEXT_BYTES * (size_t)comm->engine.size : 0));
    TACITI_TRY(gather_all(comm, c->bytes, TEXT_BYTES, comm->scratch));
    for (int r = 1; comm->engine.rank == 0 && r < comm->engine.size && c->reason[0] == '\0'; r++) {
        const char *theirs = comm->scratch + (size_t)r * TEXT_BYTES;
        if (memcmp(comm->scratch, theirs, TEXT_BYTES) != 0)
            describe_difference(comm, c->in, comm->scratch, r, theirs, c->reason);
    }
    return spread_bytes(comm, 0, c->reason, REASON_BYTES);
}

tacit_status taciti_comm_agree_text(taciti_comm *comm, const char *what, const char *text) {
    if (comm->engine.size == 1) return taciti_comm_health(comm);
    char mine[TEXT_BYTES] = {0}, reason[REASON_BYTES] = "";
    const size_t length = strlen(text);
    memcpy(mine, text, length < TEXT_BYTES ? length : TEXT_BYTES - 1);
    TACITI_TRY(run_call(comm, &(call){.name = "comparison of settings", .in = what, .bytes = mine, .reason = reason},
                        run_agree_text));
    if (reason[0] == '\0') return TACIT_OK;
    if (comm->engine.rank == 0) return taciti_fail(TACIT_E_CONFIG, "%s", reason);
    taciti_error_set("%s", reason);
    return TACIT_E_CONFIG;
}

/* ---- clock ------------------------------------------------------------------------------------------------------- */
/* Rank 0 answers every rank in turn with its own time; the answer of the shortest round trip counts, taken as the
 * middle of that trip (Cristian 1989). */
static tacit_status run_clock(taciti_comm *comm, void *context) {
    int64_t *out_ns = context, best_ns = INT64_MAX;
    const bool server = comm->engine.rank == 0;
    for (int r = server ? 1 : comm->engine.rank; r < (server ? comm->engine.size : comm->engine.rank + 1); r++)
        for (int i = 0; i < CLOCK_ROUNDS; i++) {
            int64_t begin_ns = taciti_now_ns(), server_ns = 0;
            if (server) {
                TACITI_TRY(taciti_comm_receive(comm, r, &begin_ns, sizeof begin_ns));
                server_ns = taciti_now_ns();
                TACITI_TRY(taciti_comm_send(comm, r, &server_ns, sizeof server_ns));
                continue;
            }
            TACITI_TRY(taciti_comm_send(comm, 0, &begin_ns, sizeof begin_ns));
            TACITI_TRY(taciti_comm_receive(comm, 0, &server_ns, sizeof server_ns));
            const int64_t end_ns = taciti_now_ns();
            if (end_ns - begin_ns >= best_ns) continue;
            best_ns = end_ns - begin_ns;
            *out_ns = begin_ns + best_ns / 2 - server_ns;
        }
    return TACIT_OK;
}

tacit_status taciti_comm_clock_offset(taciti_comm *comm, int64_t *out_ns) {
    int64_t offset_ns = 0;
    if (comm->engine.size > 1) {
        taciti_job job = {.run = run_clock, .context = &offset_ns, .name = "clock comparison", .detail = -1};
        TACITI_TRY(taciti_job_run(comm, &job));
    }
    *out_ns = offset_ns;
    return taciti_comm_health(comm);
}

/* ---- introduction ------------------------------------------------------------------------------------------------ */
static void number_local_ranks(taciti_comm *comm) {
    for (int i = 0; i < comm->engine.size; i++) {
        taciti_peer *peer = &comm->peers[i];
        peer->rank = i;
        peer->local_rank = peer->local_size = 0;
        for (int j = 0; j < comm->engine.size; j++) {
            if (!taciti_comm_same_host(comm, i, j)) continue;
            peer->local_size++;
            peer->local_rank += j < i;
        }
    }
}

/* The introduction of a rank; nothing of it is believed before it was checked. */
typedef struct introduction {
    uint64_t cores;
    int32_t pid;
    uint8_t machine[TACITI_TCP_HOST_BYTES]; /* 0 of a host that the engine claims */
    char host[sizeof((taciti_peer *)0)->host];
} introduction;

/* Machines may bear one name, such as "localhost": their identities tell them apart. */
static introduction introduce_me(const taciti_comm *comm) {
    introduction me = {.cores = taciti_usable_cores_key(), .pid = (int32_t)getpid()};
    if (comm->engine.host[0] != 0) {
        memcpy(me.host, comm->engine.host, sizeof me.host);
        return me;
    }
    if (gethostname(me.host, sizeof me.host - 1) != 0) (void)snprintf(me.host, sizeof me.host, "?");
    taciti_host_identity(me.machine);
    return me;
}

static bool are_neighbours(const introduction *a, const introduction *b) {
    return memcmp(a->machine, b->machine, sizeof a->machine) == 0 && strcmp(a->host, b->host) == 0;
}

static void number_hosts(taciti_comm *comm, const introduction *all) {
    comm->hosts.count = 0;
    for (int i = 0; i < comm->engine.size; i++) {
        int first = 0;
        while (!are_neighbours(&all[first], &all[i])) first++;
        comm->hosts.host_of[i] = first < i ? comm->hosts.host_of[first] : comm->hosts.count++;
    }
    number_local_ranks(comm);
}

tacit_status taciti_comm_introduce(taciti_comm *comm) {
    const introduction me = introduce_me(comm);
    introduction *all = taciti_calloc((size_t)comm->engine.size, sizeof *all);
    if (all == NULL) return TACIT_E_MEMORY;
    const tacit_status status = taciti_comm_allgather(comm, &me, sizeof me, all);
    for (int i = 0; i < comm->engine.size && status == TACIT_OK; i++) {
        all[i].host[sizeof all[i].host - 1] = 0;
        comm->peers[i].pid = all[i].pid;
        comm->peers[i].cores = all[i].cores;
        memcpy(comm->peers[i].host, all[i].host, sizeof all[i].host);
    }
    if (status == TACIT_OK) number_hosts(comm, all);
    taciti_free(all);
    TACITI_TRY(status);
    comm->introduced = true;
    taciti_detector_forgive(comm);
    return TACIT_OK;
}
