/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin without an MPI library, for test_plugin.c.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>

#include "comm/plugin.h"

/* The process looks as if it were linked with MPICH where this file is opened for all to see. */
TACIT_API int MPIR_Err_create_code;

static const taciti_plugin_host *g_core;

static void name_library(char *out, size_t bytes) { (void)snprintf(out, bytes, "Test MPI 1.0"); }

/* A communicator is a flag here: its other ranks have come. They do in 20 s at the latest. */
static tacit_status open_nothing(const taciti_mpi_request *request, taciti_engine *out) {
    const _Atomic int *come = request->communicator;
    (void)out;
    for (int ms = 0; come != NULL && atomic_load(come) == 0 && ms < 20000; ms++) (void)poll(NULL, 0, 1);
    return g_core->fail(TACIT_E_PEER, "this plugin opens nothing, threaded %d", (int)request->threaded);
}

static const taciti_plugin PLUGIN = {.bytes = sizeof PLUGIN,
                                     .version = TEST_VERSION,
                                     .engine_bytes = sizeof(taciti_engine),
                                     .family = "mpich",
                                     .library = name_library,
                                     .open = open_nothing};

TACIT_API taciti_plugin_entry taciti_plugin_enter;

const taciti_plugin *taciti_plugin_enter(const taciti_plugin_host *host) {
    g_core = host;
    return &PLUGIN;
}
