/* SPDX-License-Identifier: Apache-2.0
 *
 * The engines that are built in.
 */
#ifndef TACITI_COMM_ENGINE_H
#define TACITI_COMM_ENGINE_H

#include "comm/comm.h"

/* One process, no peers. */
void taciti_engine_self_open(taciti_engine *out);

typedef struct taciti_mpi_request {
    const void *communicator; /* an MPI_Comm; NULL: MPI_COMM_WORLD, and MPI is initialised unless it is already */
    bool threaded;            /* a communication thread is wanted */
    bool others;              /* the rest of the process may call MPI as well, or open several engines */
} taciti_mpi_request;

/* MPI, on a duplicate of the communicator. Refuses a thread level at which the request cannot be met. Closing the last
 * engine finalizes MPI if it was initialised here. Collective. */
tacit_status taciti_engine_mpi_open(const taciti_mpi_request *request, taciti_engine *out);

/* The family this build was made with: "openmpi", "mpich" or "mpi". */
const char *taciti_engine_mpi_family(void);

/* Name and version of the library that is loaded, without starting it: "Open MPI v4.1.4". Any thread, not collective.
 */
void taciti_engine_mpi_library(char *out, size_t bytes);

#endif
