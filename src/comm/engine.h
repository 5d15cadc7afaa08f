/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in engines.
 */
#ifndef TACITI_COMM_ENGINE_H
#define TACITI_COMM_ENGINE_H

#include "comm/comm.h"

/* One process, no peers. */
void taciti_engine_self_open(taciti_engine *out);

typedef struct taciti_mpi_request {
    const void *communicator; /* pointer to an MPI_Comm; NULL: MPI_COMM_WORLD, after initialising MPI if needed */
    bool threaded;            /* a communication thread will call the engine */
    bool others;              /* other code in the process may call MPI, or open more engines */
} taciti_mpi_request;

/* Opens MPI on a duplicate of the communicator. Fails if the thread level that MPI provides does not allow the request.
 * Closing the last engine finalizes MPI if an open initialised it. Collective. */
tacit_status taciti_engine_mpi_open(const taciti_mpi_request *request, taciti_engine *out);

/* Returns the MPI family of this build: "openmpi", "mpich" or "mpi". */
const char *taciti_engine_mpi_family(void);

/* Writes name and version of the loaded MPI library, "Open MPI v4.1.4", without initialising it. Any thread, not
 * collective. */
void taciti_engine_mpi_library(char *out, size_t bytes);

#endif
