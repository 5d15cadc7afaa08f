/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two ranks. A wait makes progress, sends heartbeats and ends when a peer fails.
 */
#include "base/clock.h"
#include "base/log.h"
#include "comm/state.h"

#define STALL_LOOK_TURNS 64u
#define PACE_SLICE_NS (5 * TACITI_NS_PER_MS)
#define PACE_CREDIT_NS TACITI_NS_PER_MS /* what a late wake-up may catch up on */

/* A test of a request looks at every connection and yields: 3 us. So a wait that is expected to be long sleeps for a
 * quarter of that time between two tests. Waits of short arrays stay below LONG_WAIT_NS, where a late wake-up would
 * count; long arrays have several messages under way, which hide it. */
#define LONG_WAIT_NS INT64_C(200000)
#define NAP_MAX_NS INT64_C(200000)
#define REST_NS INT64_C(200000)
#define TELL_NS TACITI_NS_PER_S /* peers need not know of shorter waits */
enum { NAPS_PER_WAIT = 4, WAITS_KEPT = 4 };

/* The kind of a message in taciti_engine_request.wait, beside the peer. */
enum { SEND, RECEIVE, RECEIVE_UP_TO, KINDS };

static void add_count(_Atomic uint64_t *counter, uint64_t amount) {
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static uint64_t read_count(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Returns when a line of comm.rate would have carried everything sent so far and these bytes. */
static tacit_status keep_pace(taciti_comm *comm, size_t bytes) {
    if (comm->options.rate_mbps <= 0) return TACIT_OK;
    int64_t now = taciti_now_ns();
    const int64_t earliest = now - PACE_CREDIT_NS;
    if (comm->link_free_ns < earliest) comm->link_free_ns = earliest;
    comm->link_free_ns += (int64_t)((double)bytes * 8e3 / comm->options.rate_mbps);
    for (; now < comm->link_free_ns; now = taciti_now_ns()) {
        TACITI_TRY(taciti_detector_tick(comm, now));
        const int64_t left = comm->link_free_ns - now;
        taciti_sleep_ns(left < PACE_SLICE_NS ? left : PACE_SLICE_NS);
    }
    return TACIT_OK;
}

tacit_status taciti_comm_isend(taciti_comm *comm, int peer, const void *bytes, size_t n, taciti_engine_request *out) {
    TACITI_TRY(keep_pace(comm, n));
    add_count(&comm->bytes_sent, n);
    add_count(&comm->messages_sent, 1);
    taciti_detector_sent(comm, peer);
    if (!taciti_comm_same_host(comm, comm->engine.rank, peer)) add_count(&comm->away_bytes_sent, n);
    out->wait = (uintptr_t)peer * KINDS + SEND;
    return taciti_comm_break(comm, comm->engine.isend(comm->engine.self, peer, comm->data_tag, bytes, n, out));
}

static tacit_status post_receive(taciti_comm *comm, int peer, uintptr_t kind, void *bytes, size_t max,
                                 taciti_engine_request *out) {
    out->wait = (uintptr_t)peer * KINDS + kind;
    out->max_bytes = max;
    return taciti_comm_break(comm, comm->engine.irecv(comm->engine.self, peer, comm->data_tag, bytes, max, out));
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
    TACITI_TRY(taciti_detector_compare(comm, peer));
    taciti_witness_look(atomic_load_explicit(&comm->witness, memory_order_acquire), &now);
    taciti_sight_text(&now, doing);
    const bool longer = request->bytes > request->max_bytes;
    const tacit_status status = taciti_fail(
        TACIT_E_PEER, "rank %d (%s): a message of %s%zu bytes from rank %d on host %s where %s%zu fit",
        comm->engine.rank, doing, longer ? "more than " : "", longer ? request->max_bytes : request->bytes, peer,
        comm->peers[peer].host, request->wait % KINDS == RECEIVE ? "" : "at most ", request->max_bytes);
    return taciti_comm_break(comm, status);
}

static tacit_status note_arrival(taciti_comm *comm, int peer, const taciti_engine_request *request, int64_t now_ns) {
    taciti_detector_heard(comm, peer, now_ns);
    if (request->bytes > request->max_bytes ||
        (request->wait % KINDS == RECEIVE && request->bytes != request->max_bytes))
        return refuse_length(comm, peer, request);
    add_count(&comm->bytes_received, request->bytes);
    add_count(&comm->messages_received, 1);
    if (!taciti_comm_same_host(comm, comm->engine.rank, peer)) add_count(&comm->away_bytes_received, request->bytes);
    return TACIT_OK;
}

/* A wait counts as at most twice the mean: one that compute on a shared core has delayed says nothing of the next. */
static void learn_wait(taciti_comm *comm, int64_t waited_ns) {
    const int64_t max_ns = 2 * comm->wait_ns + NAP_MAX_NS / 8, counted_ns = waited_ns < max_ns ? waited_ns : max_ns;
    comm->wait_ns += (counted_ns - comm->wait_ns) / WAITS_KEPT;
}

/* One pause of a wait that has lasted for waited_ns. Inside a host, few messages are under way to hide a nap. An engine
 * that can sleep until something moves needs no guess. */
static void pause_wait(taciti_comm *comm, int peer, uint32_t turn, int64_t waited_ns) {
    const int64_t expected_ns = comm->wait_ns > waited_ns ? comm->wait_ns : waited_ns,
                  nap_ns = expected_ns / NAPS_PER_WAIT;
    if (comm->engine.wait != NULL || expected_ns < LONG_WAIT_NS || taciti_comm_same_host(comm, comm->engine.rank, peer))
        taciti_comm_pause(comm, turn);
    else
        taciti_sleep_ns(nap_ns < NAP_MAX_NS ? nap_ns : NAP_MAX_NS);
}

/* A peer whose connection is gone is the detector's to name, in a line that one rank writes. It does not watch all
 * peers of a large job; for the others the rank that waits speaks. */
static tacit_status test_request(taciti_comm *comm, int peer, taciti_engine_request *request, bool *done) {
    const tacit_status status = comm->engine.test(comm->engine.self, request, done);
    if (status != TACIT_E_PEER || comm->engine.lost == NULL) return taciti_comm_break(comm, status);
    if (comm->engine.lost(comm->engine.self, peer) != NULL) return taciti_detector_lost(comm, peer);
    return taciti_comm_break(comm, status);
}

/* Reads the clock once per test, and not at all for a send that has left already: in a virtual machine a read takes 43
 * ns. */
tacit_status taciti_comm_await(taciti_comm *comm, taciti_engine_request *request) {
    const int peer = (int)(request->wait / KINDS);
    const bool sends = request->wait % KINDS == SEND;
    int64_t begin_ns = 0;
    for (uint32_t turn = 0;; turn++) {
        bool done = false;
        TACITI_TRY(test_request(comm, peer, request, &done));
        const int64_t now_ns = done && turn == 0 && sends ? 0 : taciti_now_ns();
        if (done && turn > 0) learn_wait(comm, now_ns - begin_ns);
        if (done) {
            comm->detector.awaited = -1;
            return sends ? TACIT_OK : note_arrival(comm, peer, request, now_ns);
        }
        TACITI_TRY(taciti_detector_tick(comm, now_ns));
        if (turn == 0) begin_ns = now_ns;
        if (turn % STALL_LOOK_TURNS == STALL_LOOK_TURNS - 1) {
            if (now_ns - begin_ns > TELL_NS) comm->detector.awaited = peer;
            TACITI_TRY(taciti_detector_stall(comm, peer, begin_ns));
        }
        pause_wait(comm, peer, turn, now_ns - begin_ns);
    }
}

tacit_status taciti_comm_test(taciti_comm *comm, taciti_engine_request *request, bool *done) {
    const int peer = (int)(request->wait / KINDS);
    TACITI_TRY(test_request(comm, peer, request, done));
    return !*done || request->wait % KINDS == SEND ? TACIT_OK : note_arrival(comm, peer, request, taciti_now_ns());
}

int taciti_comm_set_flow(taciti_comm *comm, int flow) {
    const int before = comm->data_tag - TACITI_TAG_FLOWS;
    comm->data_tag = TACITI_TAG_FLOWS + flow % TACITI_FLOW_TAGS;
    return before;
}

tacit_status taciti_comm_rest(taciti_comm *comm) {
    TACITI_TRY(taciti_detector_tick(comm, taciti_now_ns()));
    if (comm->engine.wait != NULL) return comm->engine.wait(comm->engine.self, REST_NS);
    taciti_sleep_ns(REST_NS);
    return TACIT_OK;
}

tacit_status taciti_comm_check_wait(taciti_comm *comm, int peer, int64_t begin_ns) {
    return taciti_detector_stall(comm, peer, begin_ns);
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
