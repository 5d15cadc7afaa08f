/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/engine.h"
#include "comm/futex.h"
#include "comm/guard.h"
#include "comm/launcher.h"
#include "comm/state.h"

#define STALL_LOOK_TURNS 64u
#define PACE_SLICE_NS (5 * TACITI_NS_PER_MS)
#define PACE_CREDIT_NS TACITI_NS_PER_MS /* what a late wake-up may catch up on */

enum { TRACE_SPANS = 1 << 16, ABORT_S = 3, FINISH_S = 15, LATE_SPEAKERS = 4 };

#define AT(member) offsetof(taciti_comm_options, member)

static const taciti_option OPTIONS[] = {
    TACITI_OPTION("thread", BOOL, AT(thread), "true",
                  .help = "own thread for communication; without it nothing overlaps and comm.timeout must exceed the "
                          "longest compute",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("timeout", REAL, AT(timeout_s), "15", .min = 0.5, .max = 86400, .unit = "s",
                  .help = "a rank silent for longer has failed: the job ends", .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("warn", REAL, AT(warn_s), "3", .min = 0.1, .max = 86400, .unit = "s",
                  .help = "a rank silent for longer is named in a warning", .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("start", REAL, AT(start_s), "120", .min = 1, .max = 86400, .unit = "s",
                  .help = "most time for all ranks to come up and meet", .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("stall", REAL, AT(stall_s), "600", .min = 1, .max = 604800, .unit = "s",
                  .help = "a rank that is alive but keeps others waiting for longer has failed",
                  .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("rate", REAL, AT(rate_mbps), "0", .max = 1e6, .unit = "Mbit/s",
                  .help = "cap of what each rank sends; 0: none", .flags = TACITI_OPTION_NO_DIGEST),
    TACITI_OPTION("segment", BYTES, AT(segment_bytes), "256KiB", .min = 1024, .max = 1073741824, .unit = "bytes",
                  .help = "unit in which large transfers are pipelined",
                  .flags = TACITI_OPTION_NO_DIGEST | TACITI_OPTION_EXPERT),
};

const taciti_option_table taciti_comm_option_table = {.section = "comm",
                                                      .help = "how ranks talk and when a silent one is given up",
                                                      .options = OPTIONS,
                                                      .count = sizeof OPTIONS / sizeof *OPTIONS};

/* ---- life ------------------------------------------------------------------------------------------------------ */
static void destroy(taciti_comm *comm) {
    taciti_detector_destroy(comm);
    taciti_trace_destroy(&comm->trace);
    taciti_free(comm->peers);
    taciti_hosts_destroy(&comm->hosts);
    taciti_free(comm->requests);
    taciti_free(comm->scratch);
    taciti_free(comm);
}

static tacit_status set_up(taciti_comm *comm) {
    const size_t size = (size_t)comm->engine.size;
    comm->peers = taciti_calloc(size, sizeof *comm->peers);
    comm->requests = taciti_calloc(size, sizeof *comm->requests);
    if (comm->peers == NULL || comm->requests == NULL) return TACIT_E_MEMORY;
    TACITI_TRY(taciti_hosts_create(comm->engine.size, &comm->hosts));
    for (int i = 0; i < comm->engine.size; i++) comm->peers[i].rank = i;
    atomic_store(&comm->witness, &comm->own_witness);
    TACITI_TRY(taciti_trace_create(size > 1 ? TRACE_SPANS : 0, &comm->trace));
    TACITI_TRY(taciti_detector_create(comm));
    TACITI_TRY(taciti_comm_introduce(comm));
    if (comm->engine.size == 1 || !comm->options.thread) return TACIT_OK;
    if (comm->engine.any_thread) return taciti_comm_thread_start(comm);
    taciti_log(TACITI_LOG_WARN, "%s allows no communication thread: nothing will overlap", comm->engine.library);
    return TACIT_OK;
}

tacit_status taciti_comm_open_engine(const taciti_comm_options *options, const taciti_engine *engine,
                                     taciti_comm **out) {
    taciti_comm *comm = taciti_calloc(1, sizeof *comm);
    if (comm == NULL) return TACIT_E_MEMORY;
    comm->engine = *engine;
    comm->options = *options;
    (void)pthread_mutex_init(&comm->failure.lock, NULL);
    const tacit_status status = set_up(comm);
    if (status == TACIT_OK)
        *out = comm;
    else
        destroy(comm); /* the engine stays as it is: its end is collective, and this process is about to leave */
    return status;
}

/* Starts MPI, under a launcher of several processes. */
static tacit_status open_mpi(const taciti_comm_options *options, const taciti_launcher *launcher, bool others,
                             taciti_comm **out) {
    const taciti_mpi_request request = {.threaded = options->thread, .others = others};
    taciti_engine engine;
    char late[256];
    (void)snprintf(late, sizeof late,
                   "rank %d: MPI has not started within %.0f s (comm.start): at least one of the %d processes of %s "
                   "did not come up",
                   launcher->rank, options->start_s, launcher->size, launcher->name);
    taciti_guard guard = {0};
    /* One after the other, so that one line is enough: the launcher ends the rest when the first rank gives up. */
    const double turn_s = launcher->rank < LATE_SPEAKERS ? launcher->rank : LATE_SPEAKERS;
    taciti_guard_arm(&guard, options->start_s + turn_s, tacit_status_exit_code(TACIT_E_PEER), late);
    const tacit_status status = taciti_engine_mpi_open(&request, &engine);
    taciti_guard_disarm(&guard);
    TACITI_TRY(status);
    if (engine.size > 1) return taciti_comm_open_engine(options, &engine, out);
    engine.close(engine.self);
    return taciti_launcher_refuse(launcher, engine.library);
}

/* `mine` is what this rank has refused so far. A rank that has refused comes here, too, so that nobody waits for it and
 * all compare what they refused. */
static tacit_status open_agreed(const taciti_comm_options *options, tacit_status mine, taciti_comm **out) {
    const taciti_launcher launcher = taciti_launcher_detect();
    taciti_comm *comm = NULL;
    tacit_status status = open_mpi(options, &launcher, false, &comm);
    if (status == TACIT_OK) {
        status = taciti_comm_agree(comm, mine);
        if (status != TACIT_OK) (void)taciti_comm_close(comm);
    }
    if (status != TACIT_OK)
        taciti_log_set_mode(TACITI_LOG_DIRECT);
    else
        *out = comm;
    return status;
}

tacit_status taciti_comm_open(const taciti_comm_options *options, taciti_comm **out) {
    if (taciti_launcher_detect().size > 1) return open_agreed(options, TACIT_OK, out);
    taciti_engine engine;
    taciti_engine_self_open(&engine);
    return taciti_comm_open_engine(options, &engine, out);
}

tacit_status taciti_comm_open_among(const taciti_comm_options *options, const void *communicator, taciti_comm **out) {
    const taciti_launcher launcher = taciti_launcher_detect();
    const taciti_mpi_request request = {.communicator = communicator, .threaded = options->thread, .others = true};
    taciti_engine engine;
    if (communicator == NULL && launcher.size > 1) return open_mpi(options, &launcher, true, out);
    if (communicator == NULL)
        taciti_engine_self_open(&engine);
    else
        TACITI_TRY(taciti_engine_mpi_open(&request, &engine));
    return taciti_comm_open_engine(options, &engine, out);
}

void taciti_comm_refuse(tacit_status status) {
    taciti_comm_options options;
    const taciti_section section = {&taciti_comm_option_table, &options};
    const taciti_config config = {&section, 1};
    taciti_comm *comm = NULL;
    if (taciti_config_defaults(&config) != TACIT_OK) return;
    (void)open_agreed(&options, status, &comm);
}

/* After a failure. What messages that are under way may still write to stays where it is. */
static void leave_broken(taciti_comm *comm) {
    taciti_detector_last_words(comm);
    if (comm->engine.keeps_buffers)
        taciti_trace_destroy(&comm->trace);
    else
        destroy(comm);
}

static void shutdown_is_late(void *context, const char *text) {
    taciti_error_set("%s", text);
    (void)taciti_comm_break(context, TACIT_E_PEER);
}

static void shut_down(taciti_comm *comm) {
    char late[256];
    (void)snprintf(late, sizeof late, "rank %d: %s has not shut down within %d s; leaving without it",
                   comm->engine.rank, comm->engine.library, (int)FINISH_S);
    taciti_guard guard = {.late = shutdown_is_late, .context = comm};
    taciti_guard_arm(&guard, FINISH_S, tacit_status_exit_code(TACIT_E_PEER), late);
    comm->engine.close(comm->engine.self);
    taciti_guard_disarm(&guard);
}

tacit_status taciti_comm_close(taciti_comm *comm) {
    taciti_log_set_mode(TACITI_LOG_DIRECT);
    if (comm == NULL) return TACIT_OK;
    if (!taciti_comm_thread_stop(comm)) return TACIT_E_PEER; /* stuck inside the engine: whatever it uses must stay */
    tacit_status status = taciti_comm_health(comm);
    if (status == TACIT_OK) {
        taciti_comm_announce(comm, atomic_load(&atomic_load(&comm->witness)->doing.number), "finish");
        status = taciti_detector_goodbye(comm);
        if (status != TACIT_OK && taciti_guard_installed()) taciti_comm_abort(comm, TACIT_E_PEER);
    }
    if (status != TACIT_OK) {
        leave_broken(comm);
        return status;
    }
    taciti_comm_announce(comm, atomic_load(&atomic_load(&comm->witness)->doing.number), TACITI_DOING_SHUT_DOWN);
    shut_down(comm);
    destroy(comm);
    return TACIT_OK;
}

int taciti_comm_rank(const taciti_comm *comm) { return comm->engine.rank; }

int taciti_comm_size(const taciti_comm *comm) { return comm->engine.size; }

const taciti_peer *taciti_comm_peer(const taciti_comm *comm, int rank) { return &comm->peers[rank]; }

const taciti_hosts *taciti_comm_hosts(const taciti_comm *comm) { return &comm->hosts; }

bool taciti_comm_same_host(const taciti_comm *comm, int a, int b) {
    return comm->hosts.host_of[a] == comm->hosts.host_of[b];
}

const taciti_engine *taciti_comm_engine(const taciti_comm *comm) { return &comm->engine; }

size_t taciti_comm_segment_bytes(const taciti_comm *comm) { return (size_t)comm->options.segment_bytes; }

taciti_trace *taciti_comm_trace(taciti_comm *comm) { return &comm->trace; }

void taciti_comm_announce(taciti_comm *comm, int64_t step, const char *doing) {
    taciti_note_write(&atomic_load_explicit(&comm->witness, memory_order_acquire)->doing, step, doing);
}

void taciti_comm_attach(taciti_comm *comm, taciti_witness *witness) {
    taciti_sight sight;
    taciti_witness_look(atomic_load(&comm->witness), &sight);
    const bool begun = sight.doing[0] != 0;
    taciti_note_write(&witness->doing, begun ? sight.step : -1, begun ? sight.doing : "start-up");
    taciti_note_write(&witness->job, sight.detail, sight.job);
    atomic_store_explicit(&comm->witness, witness, memory_order_release);
}

/* ---- failure ----------------------------------------------------------------------------------------------------- */
tacit_status taciti_comm_health(const taciti_comm *comm) {
    return (tacit_status)atomic_load_explicit(&comm->health, memory_order_acquire);
}

static void tell_listener(taciti_comm *comm) {
    if (comm->failure.listener != NULL)
        comm->failure.listener(comm->failure.context, taciti_comm_health(comm), comm->failure.text);
}

tacit_status taciti_comm_break(taciti_comm *comm, tacit_status status) {
    if (status >= 0) return status;
    (void)pthread_mutex_lock(&comm->failure.lock);
    int healthy = TACIT_OK;
    if (atomic_compare_exchange_strong(&comm->health, &healthy, (int)status)) {
        (void)snprintf(comm->failure.text, sizeof comm->failure.text, "%s", taciti_error_text());
        tell_listener(comm);
    }
    (void)pthread_mutex_unlock(&comm->failure.lock);
    return status;
}

void taciti_comm_listen(taciti_comm *comm, taciti_comm_listener *listener, void *context) {
    (void)pthread_mutex_lock(&comm->failure.lock);
    comm->failure.listener = listener;
    comm->failure.context = context;
    if (taciti_comm_health(comm) != TACIT_OK) tell_listener(comm);
    (void)pthread_mutex_unlock(&comm->failure.lock);
}

void taciti_comm_failure_text(taciti_comm *comm, char out[TACITI_ERROR_BYTES]) {
    (void)pthread_mutex_lock(&comm->failure.lock);
    memcpy(out, comm->failure.text, TACITI_ERROR_BYTES);
    (void)pthread_mutex_unlock(&comm->failure.lock);
}

void taciti_comm_give_up(taciti_comm *comm) {
    (void)taciti_comm_break(comm, TACIT_E_PEER);
    if (taciti_comm_owns(comm)) {
        taciti_detector_tell(comm);
    } else {
        atomic_store_explicit(&comm->giving_up, 1, memory_order_release);
        taciti_futex_wake(&comm->queue.tail);
    }
}

_Noreturn void taciti_comm_abort(taciti_comm *comm, tacit_status status) {
    taciti_log_settle(true);
    const int code = tacit_status_exit_code(status) == 0 ? 1 : tacit_status_exit_code(status);
    taciti_guard guard = {0};
    taciti_guard_arm(&guard, ABORT_S, code, NULL);
    if (taciti_comm_owns(comm)) {
        comm->engine.abort(comm->engine.self, code);
    } else {
        atomic_store_explicit(&comm->abort_code, code, memory_order_release);
        taciti_futex_wake(&comm->queue.tail);
        taciti_sleep_ns((ABORT_S + 1) * TACITI_NS_PER_S);
    }
    taciti_guard_end_process(code);
    __builtin_trap(); /* nothing is installed: no program called this */
}

/* What taciti_engine_request.wait says beside the peer. */
enum { SEND, RECEIVE, RECEIVE_UP_TO, KINDS };

/* ---- messages ---------------------------------------------------------------------------------------------------- */
static void count(_Atomic uint64_t *counter, uint64_t amount) {
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static uint64_t read_count(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Returns when a line of comm.rate would have carried everything sent so far and these bytes. */
static tacit_status pace(taciti_comm *comm, size_t bytes) {
    if (comm->options.rate_mbps <= 0) return TACIT_OK;
    int64_t now = taciti_now_ns();
    const int64_t earliest = now - PACE_CREDIT_NS;
    if (comm->link_free_ns < earliest) comm->link_free_ns = earliest;
    comm->link_free_ns += (int64_t)((double)bytes * 8e3 / comm->options.rate_mbps);
    for (; now < comm->link_free_ns; now = taciti_now_ns()) {
        TACITI_TRY(taciti_detector_tick(comm));
        const int64_t left = comm->link_free_ns - now;
        taciti_sleep_ns(left < PACE_SLICE_NS ? left : PACE_SLICE_NS);
    }
    return TACIT_OK;
}

tacit_status taciti_comm_isend(taciti_comm *comm, int peer, const void *bytes, size_t n, taciti_engine_request *out) {
    TACITI_TRY(pace(comm, n));
    count(&comm->bytes_sent, n);
    count(&comm->messages_sent, 1);
    if (!taciti_comm_same_host(comm, comm->engine.rank, peer)) count(&comm->away_bytes_sent, n);
    out->wait = (uintptr_t)peer * KINDS + SEND;
    return taciti_comm_break(comm, comm->engine.isend(comm->engine.self, peer, TACITI_TAG_DATA, bytes, n, out));
}

static tacit_status post_receive(taciti_comm *comm, int peer, uintptr_t kind, void *bytes, size_t max,
                                 taciti_engine_request *out) {
    out->wait = (uintptr_t)peer * KINDS + kind;
    out->max_bytes = max;
    return taciti_comm_break(comm, comm->engine.irecv(comm->engine.self, peer, TACITI_TAG_DATA, bytes, max, out));
}

tacit_status taciti_comm_irecv(taciti_comm *comm, int peer, void *bytes, size_t n, taciti_engine_request *out) {
    return post_receive(comm, peer, RECEIVE, bytes, n, out);
}

tacit_status taciti_comm_irecv_up_to(taciti_comm *comm, int peer, void *bytes, size_t max, taciti_engine_request *out) {
    if (max > TACITI_COMM_RECEIVE_UP_TO)
        return taciti_fail(TACIT_E_INTERNAL, "a receive of up to %zu bytes; %zu is the maximum", max,
                           TACITI_COMM_RECEIVE_UP_TO);
    return post_receive(comm, peer, RECEIVE_UP_TO, bytes, max, out);
}

/* Another length means that the peer does something else than this rank: other settings, or a fault. */
static tacit_status refuse_length(taciti_comm *comm, int peer, const taciti_engine_request *request) {
    taciti_sight now;
    char doing[TACITI_WITNESS_TEXT_BYTES];
    taciti_witness_look(atomic_load_explicit(&comm->witness, memory_order_acquire), &now);
    taciti_sight_text(&now, doing);
    const bool longer = request->bytes > request->max_bytes;
    const tacit_status status = taciti_fail(
        TACIT_E_PEER, "rank %d (%s): a message of %s%zu bytes from rank %d on host %s where %s%zu fit",
        comm->engine.rank, doing, longer ? "more than " : "", longer ? request->max_bytes : request->bytes, peer,
        comm->peers[peer].host, request->wait % KINDS == RECEIVE ? "" : "at most ", request->max_bytes);
    return taciti_comm_break(comm, status);
}

static tacit_status note_arrival(taciti_comm *comm, int peer, const taciti_engine_request *request) {
    taciti_detector_heard(comm, peer);
    if (request->bytes > request->max_bytes ||
        (request->wait % KINDS == RECEIVE && request->bytes != request->max_bytes))
        return refuse_length(comm, peer, request);
    count(&comm->bytes_received, request->bytes);
    count(&comm->messages_received, 1);
    if (!taciti_comm_same_host(comm, comm->engine.rank, peer)) count(&comm->away_bytes_received, request->bytes);
    return TACIT_OK;
}

tacit_status taciti_comm_await(taciti_comm *comm, taciti_engine_request *request) {
    const int peer = (int)(request->wait / KINDS);
    int64_t begin_ns = 0;
    for (uint32_t turn = 0;; turn++) {
        bool done = false;
        TACITI_TRY(taciti_comm_break(comm, comm->engine.test(comm->engine.self, request, &done)));
        if (done) return request->wait % KINDS == SEND ? TACIT_OK : note_arrival(comm, peer, request);
        TACITI_TRY(taciti_detector_tick(comm));
        if (turn == 0) begin_ns = taciti_now_ns();
        if (turn % STALL_LOOK_TURNS == STALL_LOOK_TURNS - 1) TACITI_TRY(taciti_detector_stall(comm, peer, begin_ns));
        taciti_comm_pause(turn);
    }
}

tacit_status taciti_comm_send(taciti_comm *comm, int peer, const void *bytes, size_t n) {
    taciti_engine_request request;
    TACITI_TRY(taciti_comm_isend(comm, peer, bytes, n, &request));
    return taciti_comm_await(comm, &request);
}

tacit_status taciti_comm_receive(taciti_comm *comm, int peer, void *bytes, size_t n) {
    taciti_engine_request request;
    TACITI_TRY(taciti_comm_irecv(comm, peer, bytes, n, &request));
    return taciti_comm_await(comm, &request);
}

taciti_comm_counters taciti_comm_count(const taciti_comm *comm) {
    return (taciti_comm_counters){.bytes_sent = read_count(&comm->bytes_sent),
                                  .bytes_received = read_count(&comm->bytes_received),
                                  .messages_sent = read_count(&comm->messages_sent),
                                  .messages_received = read_count(&comm->messages_received),
                                  .away_bytes_sent = read_count(&comm->away_bytes_sent),
                                  .away_bytes_received = read_count(&comm->away_bytes_received)};
}
