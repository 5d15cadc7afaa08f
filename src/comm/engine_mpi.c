/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine over MPI-3.1, and the only file that includes <mpi.h>. Non-blocking point-to-point only. A message larger
 * than an int can count travels as several, all posted at once, so that the order between messages stays.
 */
#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/engine.h"

#define PIECE_BYTES ((size_t)1 << 30)

/* The MPI request handle lies in opaque[0]; for a message of several pieces opaque[1] points to their handles and
 * opaque[2] counts them. */
_Static_assert(sizeof(MPI_Request) <= sizeof(uintptr_t), "a request handle fits a pointer");

typedef struct engine_mpi {
    MPI_Comm communicator; /* ours */
    bool initialised_here;
} engine_mpi;

static engine_mpi g_mpi; /* MPI itself can be opened once per process */

static tacit_status check(int code, const char *call) {
    if (code == MPI_SUCCESS) return TACIT_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(code, text, &length);
    return taciti_fail(TACIT_E_PEER, "%s failed: %s", call, text);
}

static size_t piece_count(size_t count) { return count / PIECE_BYTES + (count % PIECE_BYTES != 0 || count == 0); }

/* Posts one piece; exactly one of out_bytes (receive) and in_bytes (send) is given. */
static tacit_status post(const engine_mpi *mpi, int peer, int tag, const char *in_bytes, char *out_bytes, size_t count,
                         MPI_Request *request) {
    if (out_bytes != NULL)
        return check(MPI_Irecv(out_bytes, (int)count, MPI_BYTE, peer, tag, mpi->communicator, request), "MPI_Irecv");
    return check(MPI_Isend(in_bytes, (int)count, MPI_BYTE, peer, tag, mpi->communicator, request), "MPI_Isend");
}

static tacit_status post_all(const engine_mpi *mpi, int peer, int tag, const char *in_bytes, char *out_bytes,
                             size_t count, taciti_engine_request *out) {
    const size_t pieces = piece_count(count);
    MPI_Request one = MPI_REQUEST_NULL, *requests = &one;
    memset(out->opaque, 0, sizeof out->opaque);
    if (pieces > 1) {
        requests = taciti_calloc(pieces, sizeof *requests);
        if (requests == NULL) return TACIT_E_MEMORY;
    }
    for (size_t i = 0; i < pieces; i++) {
        const size_t at = i * PIECE_BYTES, n = count - at < PIECE_BYTES ? count - at : PIECE_BYTES;
        TACITI_TRY(post(mpi, peer, tag, in_bytes == NULL ? NULL : in_bytes + at,
                        out_bytes == NULL ? NULL : out_bytes + at, n, &requests[i]));
    }
    if (pieces > 1) {
        out->opaque[1] = (uintptr_t)requests;
        out->opaque[2] = pieces;
    } else {
        memcpy(&out->opaque[0], &one, sizeof one);
    }
    return TACIT_OK;
}

/* A zero-sized receive still needs an address that says which direction is meant. */
static char g_nothing;

static tacit_status mpi_isend(void *self, int peer, int tag, const void *bytes, size_t count,
                              taciti_engine_request *out) {
    return post_all(self, peer, tag, bytes == NULL ? &g_nothing : bytes, NULL, count, out);
}

static tacit_status mpi_irecv(void *self, int peer, int tag, void *bytes, size_t count, taciti_engine_request *out) {
    return post_all(self, peer, tag, NULL, bytes == NULL ? &g_nothing : bytes, count, out);
}

static tacit_status mpi_test(void *self, taciti_engine_request *request, bool *done) {
    (void)self;
    MPI_Request one, *requests = &one;
    const size_t pieces = request->opaque[1] != 0 ? request->opaque[2] : 1;
    if (pieces > 1)
        requests = (MPI_Request *)request->opaque[1];
    else
        memcpy(&one, &request->opaque[0], sizeof one);
    int left = 0;
    for (size_t i = 0; i < pieces; i++) { /* a piece that is complete has become the null request: complete again */
        int complete = 0;
        TACITI_TRY(check(MPI_Test(&requests[i], &complete, MPI_STATUS_IGNORE), "MPI_Test"));
        left += complete == 0;
    }
    *done = left == 0;
    if (pieces == 1) memcpy(&request->opaque[0], &one, sizeof one);
    if (pieces > 1 && *done) {
        taciti_free(requests);
        request->opaque[1] = 0;
    }
    return TACIT_OK;
}

static void mpi_abort(void *self, int exit_code) {
    const engine_mpi *mpi = self;
    (void)MPI_Abort(mpi->communicator, exit_code);
    _exit(exit_code);
}

static void mpi_close(void *self) {
    engine_mpi *mpi = self;
    (void)MPI_Comm_free(&mpi->communicator);
    if (mpi->initialised_here) (void)MPI_Finalize();
}

const char *taciti_engine_mpi_family(void) {
#if defined(OPEN_MPI)
    return "openmpi";
#elif defined(MPICH_VERSION)
    return "mpich";
#else
    return "mpi";
#endif
}

/* "Open MPI v4.1.4, package: ..." -> "Open MPI v4.1.4"; "MPICH Version:\t4.0.2\n..." -> "MPICH Version: 4.0.2". */
void taciti_engine_mpi_library(char *out, size_t bytes) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    (void)MPI_Get_library_version(text, &length);
    size_t at = 0;
    for (const char *p = text; *p != 0 && *p != ',' && *p != '\n' && at + 1 < bytes; p++)
        out[at++] = isspace((unsigned char)*p) ? ' ' : *p;
    out[at] = 0;
}

static tacit_status start_library(engine_mpi *mpi, int *level) {
    int running = 0;
    TACITI_TRY(check(MPI_Initialized(&running), "MPI_Initialized"));
    mpi->initialised_here = running == 0;
    if (running != 0) return check(MPI_Query_thread(level), "MPI_Query_thread");
    /* Without yielding, ranks that share cores take a thousand times longer; a user's own setting wins. */
    (void)setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    return check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, level), "MPI_Init_thread");
}

tacit_status taciti_engine_mpi_open(taciti_engine *out) {
    int level = MPI_THREAD_SINGLE;
    TACITI_TRY(start_library(&g_mpi, &level));
    TACITI_TRY(check(MPI_Comm_dup(MPI_COMM_WORLD, &g_mpi.communicator), "MPI_Comm_dup"));
    TACITI_TRY(check(MPI_Comm_set_errhandler(g_mpi.communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    *out = (taciti_engine){.name = "mpi",
                           .self = &g_mpi,
                           .any_thread = level >= MPI_THREAD_SERIALIZED,
                           .isend = mpi_isend,
                           .irecv = mpi_irecv,
                           .test = mpi_test,
                           .abort = mpi_abort,
                           .close = mpi_close};
    taciti_engine_mpi_library(out->library, sizeof out->library);
    TACITI_TRY(check(MPI_Comm_rank(g_mpi.communicator, &out->rank), "MPI_Comm_rank"));
    return check(MPI_Comm_size(g_mpi.communicator, &out->size), "MPI_Comm_size");
}
