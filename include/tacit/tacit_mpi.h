/* SPDX-License-Identifier: Apache-2.0
 *
 * libtacit in a program that uses MPI itself. The only public header that includes <mpi.h>: build with the mpicc of
 * Open MPI or MPICH. libtacit itself links no MPI; it opens its plugin for this family.
 */
#ifndef TACIT_TACIT_MPI_H
#define TACIT_TACIT_MPI_H

#include <mpi.h>

#include "tacit/tacit.h"

#if defined(OPEN_MPI)
#define TACIT_MPI_FAMILY "openmpi"
#elif defined(MPICH_VERSION)
#define TACIT_MPI_FAMILY "mpich"
#else
#define TACIT_MPI_FAMILY "unknown"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The ranks of `communicator`, which is duplicated at once and not used otherwise: its messages, its error handler and
 * its life stay the caller's. No other communicator is used inside; MPI is not finalized. tacit_close() comes before
 * MPI_Finalize().
 *
 * MPI must be initialised, with MPI_THREAD_MULTIPLE: a thread of the library sends messages at any time. With the
 * setting comm.thread=false nothing is sent but inside of calls, so that every level will do as long as it allows the
 * calls; then nothing is hidden behind compute, and comm.timeout must exceed the time between two calls.
 *
 * E_USAGE: MPI is not initialised or finalized already, or MPI_COMM_NULL. E_UNSUPPORTED: the thread level is too low,
 * or libtacit has no plugin for this MPI. Otherwise as tacit_open(). Collective over `communicator`. */
static inline tacit_status tacit_open_mpi(MPI_Comm communicator, const tacit_settings *settings, tacit_comm **out) {
    return tacit_open_family(TACIT_MPI_FAMILY, &communicator, settings, out);
}

#ifdef __cplusplus
}
#endif
#endif
