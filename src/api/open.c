/* SPDX-License-Identifier: Apache-2.0 */
#include "api/object.h"
#include "base/log.h"
#include "comm/engine.h"

static tacit_status read_options(const tacit_settings *settings, taciti_comm_options *out) {
    if (settings != NULL) {
        TACITI_TRY(taciti_handle_check(settings, TACITI_HANDLE_SETTINGS));
        *out = settings->values.comm;
        return TACIT_OK;
    }
    *out = (taciti_comm_options){0};
    const taciti_section section = {&taciti_comm_option_table, out, NULL};
    return taciti_config_defaults(&(taciti_config){&section, 1});
}

/* Opens the communicator of a fresh handle. */
typedef tacit_status opener(const taciti_comm_options *options, const char *family, const void *communicator,
                            taciti_comm **out);

static tacit_status open_by(opener *open, const tacit_settings *settings, const char *family, const void *communicator,
                            tacit_comm **out) {
    taciti_comm_options options;
    TACITI_TRY(taciti_argument_check(out, "out"));
    TACITI_TRY(read_options(settings, &options));
    tacit_comm *comm = taciti_calloc(1, sizeof *comm);
    if (comm == NULL) return TACIT_E_MEMORY;
    const tacit_status status = open(&options, family, communicator, &comm->comm);
    if (status != TACIT_OK) {
        taciti_free(comm);
        return status;
    }
    taciti_handle_open(&comm->handle, TACITI_HANDLE_COMM);
    *out = comm;
    return TACIT_OK;
}

static tacit_status open_alone(const taciti_comm_options *options, const char *family, const void *communicator,
                               taciti_comm **out) {
    taciti_engine engine;
    (void)family;
    (void)communicator;
    taciti_engine_self_open(&engine);
    return taciti_comm_open_engine(options, &engine, out);
}

tacit_status tacit_open(const tacit_settings *settings, tacit_comm **out) {
    return open_by(taciti_comm_open_among, settings, NULL, NULL, out);
}

tacit_status tacit_open_self(const tacit_settings *settings, tacit_comm **out) {
    return open_by(open_alone, settings, NULL, NULL, out);
}

tacit_status tacit_open_family(const char *family, const void *communicator, const tacit_settings *settings,
                               tacit_comm **out) {
    TACITI_TRY(taciti_argument_check(family, "family"));
    TACITI_TRY(taciti_argument_check(communicator, "communicator"));
    return open_by(taciti_comm_open_among, settings, family, communicator, out);
}

int tacit_rank(const tacit_comm *comm) {
    return taciti_handle_check(comm, TACITI_HANDLE_COMM) == TACIT_OK ? taciti_comm_rank(comm->comm) : -1;
}

int tacit_size(const tacit_comm *comm) {
    return taciti_handle_check(comm, TACITI_HANDLE_COMM) == TACIT_OK ? taciti_comm_size(comm->comm) : -1;
}

static void failed(void *context, tacit_status status, const char *text) {
    const tacit_comm *comm = context;
    (void)status;
    comm->callback(comm->context, TACIT_E_PEER, text);
}

tacit_status tacit_on_failure(tacit_comm *comm, tacit_failure_callback *callback, void *context) {
    TACITI_TRY(taciti_handle_check(comm, TACITI_HANDLE_COMM));
    taciti_comm_listen(comm->comm, NULL, NULL); /* nobody reads the members while they change */
    comm->callback = callback;
    comm->context = context;
    if (callback != NULL) taciti_comm_listen(comm->comm, failed, comm);
    return TACIT_OK;
}

tacit_status tacit_close(tacit_comm *comm) {
    if (comm == NULL) return TACIT_OK;
    TACITI_TRY(taciti_handle_check(comm, TACITI_HANDLE_COMM));
    if (comm->jobs > 0)
        return taciti_fail(TACIT_E_USAGE, "tacit_close: %zu jobs are open on this communicator; close them first",
                           comm->jobs);
    taciti_handle_close(&comm->handle);
    const tacit_status status = taciti_comm_close(comm->comm);
    if (status == TACIT_OK) taciti_free(comm); /* after a failure its thread may still call back */
    return status == TACIT_OK ? TACIT_OK : TACIT_E_PEER;
}
