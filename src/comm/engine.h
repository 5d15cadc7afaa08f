/* SPDX-License-Identifier: Apache-2.0
 *
 * The engines, and the choice among them.
 */
#ifndef TACITI_COMM_ENGINE_H
#define TACITI_COMM_ENGINE_H

#include "comm/comm.h"
#include "comm/launcher.h"

/* One process, no peers. */
void taciti_engine_self_open(taciti_engine *out);

typedef struct taciti_mpi_request {
    const void *communicator; /* pointer to an MPI_Comm; NULL: MPI_COMM_WORLD, after initialising MPI if needed */
    bool threaded;            /* a communication thread will call the engine */
    bool others;              /* other code in the process may call MPI, or open more engines */
} taciti_mpi_request;

/* ---- which engine --------------------------------------------------------------------------------------------------
 */

typedef struct taciti_engine_choice {
    taciti_engine_kind kind; /* not AUTO */
    const char *family;      /* MPI: the family of the library, for taciti_plugin_open(); else NULL */
    char reason[128];        /* "mpirun (Open MPI) started 4 processes" */
} taciti_engine_choice;

/* Returns the family of the MPI library that this process would use; never NULL. Any thread. */
const char *taciti_engine_family(const taciti_launcher *launcher);

/* Chooses the engine from comm.engine, the launcher and the environment. Refuses contradictions between them with
 * E_CONFIG or E_USAGE; if all processes of the launcher have the same one, its rank 0 logs it. */
tacit_status taciti_engine_choose(int wanted, const taciti_launcher *launcher, taciti_engine_choice *out);

/* The same where the caller says who the ranks are and where they meet: tcp, or self for a rank alone. */
tacit_status taciti_engine_choose_store(const taciti_comm_options *options, int rank, int size,
                                        taciti_engine_choice *out);

#endif
