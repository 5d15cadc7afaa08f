/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's own all-reduces as jobs see them. They block inside the library, where this rank can neither beat nor
 * look at its peers. All ranks enter together, and on the way out the detector forgives the silence, so such a call may
 * last as long as it must, up to comm.stall.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/guard.h"
#include "comm/state.h"

static const taciti_native NONE[] = {{.name = NULL}};

/* Brackets calls that block. Between them taciti_job_wait() is patient; without a thread a guard watches instead. */
typedef struct watched_call {
    taciti_guard guard;
    char late[256];
} watched_call;

static tacit_status enter(taciti_comm *comm, watched_call *call) {
    TACITI_TRY(taciti_detector_tick(comm, taciti_now_ns()));
    atomic_store_explicit(&comm->queue.blocked, 1, memory_order_relaxed);
    *call = (watched_call){.late = ""};
    if (comm->threaded) return TACIT_OK;
    (void)snprintf(call->late, sizeof call->late, "rank %d: %s has not returned for %.1f s (comm.stall)",
                   comm->engine.rank, comm->engine.library, comm->options.stall_s);
    taciti_guard_arm(&call->guard, comm->options.stall_s, tacit_status_exit_code(TACIT_E_PEER), call->late);
    return TACIT_OK;
}

static tacit_status leave(taciti_comm *comm, watched_call *call, tacit_status status) {
    taciti_guard_disarm(&call->guard);
    atomic_store_explicit(&comm->queue.blocked, 0, memory_order_relaxed);
    TACITI_TRY(taciti_comm_break(comm, status));
    taciti_detector_forgive(comm);
    return taciti_detector_tick(comm, taciti_now_ns());
}

tacit_status taciti_comm_natives(taciti_comm *comm, const taciti_native **out) {
    watched_call call;
    *out = NONE;
    if (comm->engine.native_open == NULL) return taciti_comm_health(comm);
    TACITI_TRY(enter(comm, &call));
    return leave(comm, &call, comm->engine.native_open(comm->engine.self, out));
}

tacit_status taciti_comm_native_allreduce(taciti_comm *comm, int native, const float *in, float *out, size_t n,
                                          int times) {
    watched_call call;
    tacit_status status = TACIT_OK;
    TACITI_TRY(enter(comm, &call));
    for (int i = 0; i < times && status == TACIT_OK; i++)
        status = comm->engine.native_allreduce(comm->engine.self, native, in, out, n);
    return leave(comm, &call, status);
}
