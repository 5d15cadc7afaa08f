/* SPDX-License-Identifier: Apache-2.0
 *
 * The engines that are built in.
 */
#ifndef TACITI_COMM_ENGINE_H
#define TACITI_COMM_ENGINE_H

#include "comm/comm.h"

/* One process, no peers. */
void taciti_engine_self_open(taciti_engine *out);

/* MPI. Initialises the library unless the program has done so; works on a duplicate of MPI_COMM_WORLD. Collective. */
tacit_status taciti_engine_mpi_open(taciti_engine *out);

/* The family this build was made with: "openmpi", "mpich" or "mpi". */
const char *taciti_engine_mpi_family(void);

/* Name and version of the library that is loaded, without starting it: "Open MPI v4.1.4". Any thread, not collective.
 */
void taciti_engine_mpi_library(char *out, size_t bytes);

#endif
