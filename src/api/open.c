/* SPDX-License-Identifier: Apache-2.0 */
#include "api/object.h"
#include "comm/bootstrap.h"
#include "comm/engine.h"
#include "kernel/kernel.h"

static tacit_status read_options(const tacit_settings *settings, taciti_comm_options *out) {
    if (settings != NULL) {
        TACITI_TRY(taciti_handle_check(settings, TACITI_HANDLE_SETTINGS));
        *out = settings->values.comm;
        out->same_steps = true;
        return TACIT_OK;
    }
    *out = (taciti_comm_options){.same_steps = true};
    const taciti_section section = {&taciti_comm_option_table, out, NULL};
    return taciti_config_defaults(&(taciti_config){&section, 1});
}

/* Where a communicator comes from. */
typedef struct origin {
    const char *family; /* of the MPI library of a communicator of the caller's */
    const void *communicator;
    int rank, ranks; /* of a store of the caller's */
    const tacit_store *store;
} origin;

/* Opens the communicator of a fresh handle. */
typedef tacit_status opener(const taciti_comm_options *options, const origin *from, taciti_comm **out);

static tacit_status open_by(opener *open, const tacit_settings *settings, const origin *from, tacit_comm **out) {
    taciti_comm_options options;
    taciti_log_about(NULL);
    TACITI_TRY(taciti_argument_check(out, "out"));
    TACITI_TRY(read_options(settings, &options));
    TACITI_TRY(taciti_kernels_check());
    tacit_comm *comm = taciti_calloc(1, sizeof *comm);
    if (comm == NULL) return TACIT_E_MEMORY;
    const tacit_status status = open(&options, from, &comm->comm);
    if (status != TACIT_OK) {
        taciti_free(comm);
        return status;
    }
    taciti_handle_open(&comm->handle, TACITI_HANDLE_COMM);
    *out = comm;
    return TACIT_OK;
}

/* ---- ranks of a launcher, of MPI, or none ------------------------------------------------------------------------ */

static tacit_status open_alone(const taciti_comm_options *options, const origin *from, taciti_comm **out) {
    taciti_engine engine;
    (void)from;
    taciti_engine_self_open(&engine);
    return taciti_comm_open_engine(options, &engine, out);
}

static tacit_status open_among(const taciti_comm_options *options, const origin *from, taciti_comm **out) {
    return taciti_comm_open_among(options, from->family, from->communicator, out);
}

tacit_status tacit_open(const tacit_settings *settings, tacit_comm **out) {
    return open_by(open_among, settings, &(origin){0}, out);
}

tacit_status tacit_open_self(const tacit_settings *settings, tacit_comm **out) {
    return open_by(open_alone, settings, &(origin){0}, out);
}

tacit_status tacit_open_family(const char *family, const void *communicator, const tacit_settings *settings,
                               tacit_comm **out) {
    taciti_log_about(NULL);
    TACITI_TRY(taciti_argument_check(family, "family"));
    TACITI_TRY(taciti_argument_check(communicator, "communicator"));
    return open_by(open_among, settings, &(origin){.family = family, .communicator = communicator}, out);
}

/* ---- ranks that meet in a store of the caller's ------------------------------------------------------------------ */

/* Says which call of the store went wrong. */
static tacit_status fail_store(const char *verb, const char *key, tacit_status status) {
    const tacit_status error = status < 0 ? status : TACIT_E_USAGE;
    return taciti_fail(error, "the caller's store: %s of key %s has returned %d (%s)", verb, key, (int)status,
                       tacit_status_text(status));
}

static tacit_status store_set(void *self, const char *key, const void *bytes, size_t count) {
    const tacit_store *store = self;
    const tacit_status status = store->set(store->context, key, bytes, count);
    return status == TACIT_OK ? TACIT_OK : fail_store("set", key, status);
}

static tacit_status store_get(void *self, const char *key, void *bytes, size_t room, size_t *count, double seconds) {
    const tacit_store *store = self;
    size_t got = 0;
    const tacit_status status = store->get(store->context, key, bytes, room, &got, seconds);
    if (status == TACIT_E_PEER) taciti_error_set("the caller's store has no key %s", key);
    if (status == TACIT_E_PEER) return status;
    if (status != TACIT_OK) return fail_store("get", key, status);
    if (got > room)
        return taciti_fail(TACIT_E_DATA, "the caller's store: key %s has %zu bytes, %zu is the maximum", key, got,
                           room);
    *count = got;
    return TACIT_OK;
}

static tacit_status open_store(const taciti_comm_options *options, const origin *from, taciti_comm **out) {
    tacit_store store;
    TACITI_TRY(taciti_struct_read(from->store, "tacit_store", sizeof store, &store));
    if (store.set == NULL || store.get == NULL)
        return taciti_fail(TACIT_E_USAGE, "tacit_store: %s is NULL", store.set == NULL ? "set" : "get");
    const taciti_bootstrap bootstrap = {.self = &store, .set = store_set, .get = store_get};
    return taciti_comm_open_store(options, from->rank, from->ranks, &bootstrap, out);
}

tacit_status tacit_open_store(const tacit_settings *settings, int rank, int ranks, const tacit_store *store,
                              tacit_comm **out) {
    taciti_log_about(NULL);
    TACITI_TRY(taciti_argument_check(store, "store"));
    return open_by(open_store, settings, &(origin){.rank = rank, .ranks = ranks, .store = store}, out);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

int tacit_rank(const tacit_comm *comm) {
    return taciti_handle_check(comm, TACITI_HANDLE_COMM) == TACIT_OK ? taciti_comm_rank(comm->comm) : -1;
}

int tacit_size(const tacit_comm *comm) {
    return taciti_handle_check(comm, TACITI_HANDLE_COMM) == TACIT_OK ? taciti_comm_size(comm->comm) : -1;
}

static void report_failure(void *context, tacit_status status, const char *text) {
    const tacit_comm *comm = context;
    (void)status;
    comm->callback(comm->context, TACIT_E_PEER, text);
}

tacit_status tacit_on_failure(tacit_comm *comm, tacit_failure_callback *callback, void *context) {
    TACITI_TRY(taciti_handle_check(comm, TACITI_HANDLE_COMM));
    taciti_comm_listen(comm->comm, NULL, NULL); /* nobody reads the members while they change */
    comm->callback = callback;
    comm->context = context;
    if (callback != NULL) taciti_comm_listen(comm->comm, report_failure, comm);
    return TACIT_OK;
}

tacit_status tacit_close(tacit_comm *comm) {
    if (comm == NULL) return TACIT_OK;
    TACITI_TRY(taciti_handle_check(comm, TACITI_HANDLE_COMM));
    if (comm->jobs > 0)
        return taciti_fail(TACIT_E_USAGE, "tacit_close: %zu jobs or channels are open; close them first", comm->jobs);
    taciti_handle_close(&comm->handle);
    const tacit_status status = taciti_comm_close(comm->comm);
    taciti_log_set_route(&comm->log, NULL);
    if (status != TACIT_E_PEER) taciti_free(comm); /* after a failure its thread may still call back */
    return status == TACIT_OK ? TACIT_OK : TACIT_E_PEER;
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

#define MIB 0x1p20

tacit_status taciti_room_check(const tacit_comm *comm, const char *what, double bytes) {
    const taciti_peer *me = taciti_comm_peer(comm->comm, taciti_comm_rank(comm->comm));
    const double available = (double)taciti_available_bytes(), needed = bytes * me->local_size;
    if (available <= 0 || needed <= available) return TACIT_OK;
    return taciti_fail(TACIT_E_MEMORY,
                       "%s: %d rank%s of host %s with arrays of %.0f MiB each need %.0f MiB of memory, "
                       "%.0f MiB are available",
                       what, me->local_size, me->local_size == 1 ? "" : "s", me->host, bytes / MIB, needed / MIB,
                       available / MIB);
}
