/* SPDX-License-Identifier: Apache-2.0
 *
 * What a communicator knows without exchanging a message: its ranks and hosts, what it is doing, and whether
 * communication has failed. The other files of this folder build on it.
 */
#define _GNU_SOURCE
#include "comm/state.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/control_group.h"
#include "base/interrupt.h"
#include "base/pool.h"

#define NAP_NS INT64_C(100000)

/* The detector looks every 50 ms, and other threads may have asked for an end. */
#define SLEEP_NS (10 * TACITI_NS_PER_MS)

enum { YIELD_TURNS = 1000, TURNS_PER_YIELD = 8 };

int taciti_comm_rank(const taciti_comm *comm) { return comm->engine.rank; }

int taciti_comm_size(const taciti_comm *comm) { return comm->engine.size; }

const taciti_peer *taciti_comm_peer(const taciti_comm *comm, int rank) { return &comm->peers[rank]; }

int taciti_comm_cores(const taciti_comm *comm) {
    const int me = comm->engine.rank;
    int sharing = 0;
    for (int i = 0; i < comm->engine.size; i++)
        sharing += taciti_comm_same_host(comm, i, me) && comm->peers[i].cores == comm->peers[me].cores;
    const int cores = taciti_usable_cores() / sharing;
    const double granted = ceil(taciti_group_cores(TACITI_GROUPS)); /* to all processes in the container together */
    return (int)fmin(cores, floor(granted / comm->peers[me].local_size));
}

const taciti_hosts *taciti_comm_hosts(const taciti_comm *comm) { return &comm->hosts; }

bool taciti_comm_same_host(const taciti_comm *comm, int a, int b) {
    return comm->hosts.host_of[a] == comm->hosts.host_of[b];
}

const taciti_engine *taciti_comm_engine(const taciti_comm *comm) { return &comm->engine; }

double taciti_comm_stall_s(const taciti_comm *comm) { return comm->options.stall_s; }

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

/* An engine that shares cores yields in its own test (comm/engine_mpi.c asks Open MPI for that), so a turn costs little
 * while others want the core; the yield here is for engines that do not. A nap costs a timer and a look at every
 * connection, so a nap with many ranks on few cores must be neither early nor short: 16 ranks on two cores spent five
 * times the processor time with naps of 50 us after 100 turns. An engine that sleeps until something moves needs none
 * of this. */
void taciti_comm_pause(taciti_comm *comm, uint32_t turns) {
    if (comm->engine.wait != NULL)
        (void)comm->engine.wait(comm->engine.self, SLEEP_NS); /* an error shows in the next test */
    else if (turns >= YIELD_TURNS)
        taciti_sleep_ns(NAP_NS);
    else if (turns % TURNS_PER_YIELD == TURNS_PER_YIELD - 1)
        (void)sched_yield();
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

tacit_status taciti_comm_ask(taciti_comm *comm, int64_t begin_ns) {
    const bool lends = atomic_load_explicit(&comm->borrowed, memory_order_acquire) != 0 &&
                       pthread_equal(pthread_self(), comm->borrower) != 0;
    if (taciti_comm_health(comm) != TACIT_OK) return TACIT_OK;
    if (lends) (void)pthread_mutex_unlock(&comm->ownership);
    const tacit_status status = taciti_interrupt_check(begin_ns);
    if (lends) (void)pthread_mutex_lock(&comm->ownership);
    if (status == TACIT_OK) return TACIT_OK;
    atomic_store_explicit(&comm->giving_up, 1, memory_order_release);
    return taciti_comm_break(comm, TACIT_E_PEER);
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
