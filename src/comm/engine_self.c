/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "comm/engine.h"
#include "comm/guard.h"

static tacit_status no_send(void *self, int peer, int tag, const void *bytes, size_t count,
                            taciti_engine_request *out) {
    (void)self;
    (void)tag;
    (void)bytes;
    (void)out;
    return taciti_fail(TACIT_E_INTERNAL, "a single process has no rank %d to send %zu bytes to", peer, count);
}

static tacit_status no_receive(void *self, int peer, int tag, void *bytes, size_t count, taciti_engine_request *out) {
    (void)self;
    (void)tag;
    (void)bytes;
    (void)out;
    return taciti_fail(TACIT_E_INTERNAL, "a single process has no rank %d to receive %zu bytes from", peer, count);
}

static tacit_status no_test(void *self, taciti_engine_request *request, bool *done) {
    (void)self;
    (void)request;
    (void)done;
    return taciti_fail(TACIT_E_INTERNAL, "a single process has no messages under way");
}

static void leave(void *self, int exit_code) {
    (void)self;
    taciti_guard_end_process(exit_code);
}

static void close_nothing(void *self) { (void)self; }

void taciti_engine_self_open(taciti_engine *out) {
    *out = (taciti_engine){.name = "self",
                           .rank = 0,
                           .size = 1,
                           .any_thread = true,
                           .library = "no MPI",
                           .isend = no_send,
                           .irecv = no_receive,
                           .test = no_test,
                           .abort = leave,
                           .close = close_nothing};
}
