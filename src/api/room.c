/* SPDX-License-Identifier: Apache-2.0 */
#include "api/object.h"
#include "base/log.h"

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
