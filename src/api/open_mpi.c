/* SPDX-License-Identifier: Apache-2.0 */
#include "api/open.h"
#include "tacit/tacit_mpi.h"

tacit_status tacit_open_mpi(MPI_Comm communicator, const tacit_settings *settings, tacit_comm **out) {
    return taciti_api_open_mpi(&communicator, settings, out);
}
