/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit_open_mpi(), declared without <mpi.h>.
 */
#ifndef TACITI_API_OPEN_H
#define TACITI_API_OPEN_H

#include "comm/engine.h"
#include "tacit/tacit.h"

/* communicator: pointer to an MPI_Comm. */
tacit_status taciti_api_open_mpi(const void *communicator, const tacit_settings *settings, tacit_comm **out);

#endif
